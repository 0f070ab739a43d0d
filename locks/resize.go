package locks

import (
	"context"
	"errors"
	"fmt"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
)

// ErrResizing: another Resize of the name is under way, to another number of shards.
// Nothing was changed.
var ErrResizing = errors.New("locks: being resized to another number of shards")

// Resize changes the number of shards of name, a name of Spread, from from to to, and
// returns when that is done:
//
//  1. Every caller of Spread with the old number gives all its shards up, with the time
//     of the option Drain, and its Spread returns a *ShardsError. Callers with the new
//     number can enlist from now on, and wait.
//  2. When the last work of the old number has returned, or the session of its caller
//     has expired, the number changes in one step.
//  3. The shards are assigned to the callers with the new number.
//
// So no work of the new number begins before the last work of the old number has
// ended, or can no longer be trusted. A work that does not return holds the resize up.
// The name keeps the new number although it may have no callers for a while. Data
// that is kept by shard must be moved by the application, for example by a work that
// finds it.
//
// A name that has no number cannot be resized: nobody calls Spread with it, and it was
// never resized. The first caller of Spread gives it one.
//
// If ctx ends before the resize is done, the error is the cause of ctx, and the resize
// goes on if it has begun; another call with the same numbers waits for its end. Other
// errors: a *ShardsError if the name has neither from nor to shards, with Have 0 if it has
// no number; ErrResizing; an error matching ErrTooManyCallers; *cluster.ConfigError;
// ErrClosed or cluster.ErrStopped. If the leader's Security.Authorize refuses, the error is a
// *cluster.DeniedError, and nothing was changed.
func (c *Client) Resize(ctx context.Context, name string, from, to int) error {
	if err := checkGroup(name); err != nil {
		return err
	}
	switch {
	case ctx == nil:
		return configError("ctx", "nil")
	case from < 1 || from > MaxShards:
		return configError("from", "%d is not within 1 and %d", from, MaxShards)
	case to < 1 || to > MaxShards:
		return configError("to", "%d is not within 1 and %d", to, MaxShards)
	case from == to:
		return configError("to", "%d is the number to resize from", to)
	}
	if err := c.beginResize(ctx, name, from, to); err != nil {
		return err
	}
	for a, err := range c.follow(ctx, replica.Query{Group: name}, c.isFinal) {
		if err != nil {
			return callError("resize", name, err)
		}
		if g := a.Group; g == nil || g.Next != uint32(to) {
			break // done, and maybe another resize has begun
		}
	}
	return nil
}

// beginResize has the cluster begin to resize the group. If the group is being resized
// to the number already, or has it, beginResize does nothing.
func (c *Client) beginResize(ctx context.Context, name string, from, to int) error {
	for {
		var seq uint64
		var of *session
		out, err := c.proposeInAnySession(ctx, func(s *session) machine.Command {
			of, seq = s, s.newSeq()
			return machine.Resize{Session: s.id, Seq: seq, Group: name, From: uint32(from), To: uint32(to)}
		})
		if of != nil {
			of.noteSeen(seq)
		}
		if err != nil {
			return callError("resize", name, denied(cluster.VerbResize, name, err))
		}
		switch {
		case out.Code == machine.OK, out.Code == machine.WrongShards && out.Limit == uint64(to):
			return nil
		case out.Code == machine.Withdrawn:
			continue // the answer to the first copy was lost: the next answer tells
		case out.Code == machine.WrongShards:
			return &ShardsError{Name: name, Shards: from, Have: int(out.Limit)}
		case out.Code == machine.Resizing:
			return callError("resize", name, fmt.Errorf("%w: to %d", ErrResizing, out.Limit))
		case out.Code == machine.TooManyGroups:
			return callError("resize", name, fmt.Errorf("%w: %d are allowed", ErrTooManyCallers, out.Limit))
		}
		return callError("resize", name, outcomeError("resize", out))
	}
}

// newSeq draws a seq for a command other than an Acquire.
func (s *session) newSeq() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastSeq++
	return s.lastSeq
}

// noteSeen reports seq as seen with the next command.
func (s *session) noteSeen(seq uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, seq)
}
