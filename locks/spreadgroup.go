package locks

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/internal/machine"
)

// maxGroupDelay is the largest Drain and Grace.
const maxGroupDelay = machine.MaxGrace * time.Millisecond

// maxWeight is the largest Weight.
const maxWeight = machine.MaxWeight

// enlistment is a caller of a group, as the cluster knows callers: by a session and
// the seq of an Enlist. An enlistment begins before the Enlist is sent, since the
// caller's part may overtake the answer.
type enlistment struct {
	s    *session
	name string // of the group
	seq  uint64
	wake chan struct{} // size 1: a new part has come

	declining chan struct{} // size 1: the turn to decline a shard

	// Guarded by s.mu.
	part    machine.Part  // the latest; Version is 0 before the first
	changed chan struct{} // closed when a later part comes
	refused bool          // the cluster does not know the caller
}

// newEnlistment returns an enlistment with a new seq, or the reason for which the
// session takes no more requests.
func (s *session) newEnlistment(name string, wake chan struct{}) (*enlistment, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.refusal(); err != nil {
		return nil, err
	}
	s.lastSeq++
	en := &enlistment{s: s, name: name, seq: s.lastSeq, wake: wake, declining: make(chan struct{}, 1), changed: make(chan struct{})}
	if s.enlisted == nil {
		s.enlisted = make(map[uint64]*enlistment)
	}
	s.enlisted[en.seq] = en
	return en, nil
}

// enlist makes the caller known to the cluster. A result other than nil means that
// the caller is not in the group, or that nobody knows.
func (en *enlistment) enlist(ctx context.Context, shards int, o spreadOptions) error {
	s := en.s
	defer s.c.mayBlock(ctx, en.name)()
	out, err := s.propose(ctx, func(seen []uint64) machine.Command {
		return machine.Enlist{
			Session: s.id, Seq: en.seq, Group: en.name, Shards: uint32(shards),
			Weight: o.weight, Succeeds: o.succeeds,
			Drain: uint64(o.drain / time.Millisecond), Grace: uint64(o.grace / time.Millisecond), MaxMoves: o.maxMoves,
			Seen: seen,
		}
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.seen = append(s.seen, en.seq)
	en.refused = out.Code != machine.OK
	s.mu.Unlock()
	switch out.Code {
	case machine.OK:
		return nil
	case machine.NoSession:
		s.lose(SessionExpired)
		return errNoSession
	case machine.WrongShards:
		return &ShardsError{Name: en.name, Shards: shards, Have: int(out.Limit)}
	case machine.TooManyCallers:
		return fmt.Errorf("%w: %d callers are allowed", ErrTooManyCallers, out.Limit)
	case machine.TooManyGroups:
		return fmt.Errorf("%w: %d are allowed", ErrTooManyCallers, out.Limit)
	case machine.Withdrawn:
		return errEnlistForgotten
	case machine.Founding:
		return cluster.ErrFounding
	}
	return outcomeError("enlist", out)
}

// errEnlistForgotten: the Enlist was refused, and the answer with the reason was lost.
// The next Enlist has another seq.
var errEnlistForgotten = fmt.Errorf("locks: the answer was lost")

// handlePart keeps a caller's part, unless a later part has come before.
func (s *session) handlePart(e machine.Event) {
	part, err := machine.DecodePart([]byte(e.Value))
	if err != nil {
		return // of a later version of the program: the part before counts
	}
	s.mu.Lock()
	en := s.enlisted[e.Seq]
	if en == nil || part.Version < en.part.Version {
		s.mu.Unlock()
		return // the caller has left, or the event is late
	}
	en.part = part
	close(en.changed)
	en.changed = make(chan struct{})
	s.mu.Unlock()
	select {
	case en.wake <- struct{}{}:
	default:
	}
}

// latest returns the latest part.
func (en *enlistment) latest() machine.Part {
	en.s.mu.Lock()
	defer en.s.mu.Unlock()
	return en.part
}

// decline gives up a shard of the caller's part, until ctx ends: the leader assigns the
// shard to another caller. If the part changes meanwhile, decline asks again, unless
// the shard has gone.
//
// Shards are declined one after the other. Each changes the part, so of a thousand that are
// declined together, as while a database is down, each round would take one, and refuse all
// others: half a million commands.
func (en *enlistment) decline(ctx context.Context, shard int) {
	select {
	case en.declining <- struct{}{}:
		defer func() { <-en.declining }()
	case <-ctx.Done():
		return
	}
	for ctx.Err() == nil {
		en.s.mu.Lock()
		part, changed := en.part, en.changed
		en.s.mu.Unlock()
		if !hasShard(part, shard) {
			return
		}
		out, err := en.s.propose(ctx, func(seen []uint64) machine.Command {
			return machine.Decline{Session: en.s.id, Seq: en.seq, Shard: uint32(shard), Version: part.Version, Seen: seen}
		})
		if err != nil || out.Code != machine.WrongVersion {
			return // after an error the shard stays in the part, and is taken again
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// hasShard reports whether a shard is in a part.
func hasShard(p machine.Part, shard int) bool {
	_, found := slices.BinarySearch(p.Mine, uint32(shard))
	return found
}

// leave takes the caller out of the group, in the background. told is closed when the
// cluster has answered or the session has ended: the end of the session has the same
// effect. call is the context for Trace.
func (en *enlistment) leave(call context.Context) (told <-chan struct{}) {
	s := en.s
	done := make(chan struct{})
	s.mu.Lock()
	delete(s.enlisted, en.seq)
	over := s.reason != 0 || en.refused
	s.mu.Unlock()
	if over {
		close(done)
		return done
	}
	s.c.goTask(func() {
		defer close(done)
		var retry backoff
		for s.ctx.Err() == nil {
			ctx, cancel := context.WithTimeout(s.ctx, grace(s.ttl))
			out, err := s.propose(ctx, func(seen []uint64) machine.Command {
				return machine.Delist{Session: s.id, Seq: en.seq, Seen: seen}
			})
			cancel()
			if err == nil {
				if out.Code == machine.NoSession {
					s.lose(SessionExpired)
				}
				return
			}
			s.c.trace.cleanupFailed(call, LockEvent{Key: en.name, Call: CallSpread, Err: err})
			_ = retry.wait(s.ctx, s.ctx)
		}
	})
	return done
}
