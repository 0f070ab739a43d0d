package locks

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
)

// ShardWork is the function that Spread runs for each shard of its caller. Its
// context ends when the shard's lock ends, when the shard is to be handed over,
// or when the caller's context ends; ShardWork should then return soon.
type ShardWork func(ctx context.Context, shard int, l *Lock) error

// MaxShards is the largest number of shards of a name.
const MaxShards = machine.MaxShards

// ErrHandedOver is the cause of the end of a ShardWork's context if the shard
// belongs to another caller from now on. The lock is held until the work has
// returned.
var ErrHandedOver = errors.New("locks: shard handed over")

// Spread divides shards 0 to shards-1 of name among all callers of Spread with that
// name, and runs work for each shard of this caller, until ctx ends. A Client has at
// most one call for a name at a time, and a name at most 1,000 callers. A name has at
// most 506 bytes. Spread returns when ctx has ended and the last work has returned, and
// waits for no answer then: nothing is held any more, but the cluster may hear of the
// last releases a moment later.
//
// # Who owns what
//
// The leader of the cluster plans. The parts of the callers are as equal as their
// weights allow: without the option Weight, the largest part has at most one shard
// more than the smallest. When a caller comes or goes, as few shards move as that
// takes. Callers that start together count as one change: the leader assigns shards
// once no caller has come for 200 ms, or after 2 s. A shard without an owner does not
// wait for that, unless the name is new.
//
// Shard i is the key name/i, and its owner is the holder of that key: see
// Client.Shards, Status and List. A plan never takes a key away. The next owner
// waits in the key's queue; when the present owner learns of that, the context of
// its work ends, with the cause ErrHandedOver, and once the work has returned, the
// key is released and granted to the next owner in the same step. So works of a
// shard never overlap, and the present owner serves until the next one is ready.
// If a work does not return, its shard stays with the caller for as long as the
// session lives, and Trace.Stuck is called. No other calls should acquire these keys.
//
// When ctx ends, the caller's shards are assigned to the others at once, and each is
// granted when its work has returned. If the session is lost, the contexts of all work
// end, and once all work has returned, Spread enlists again in the client's next
// session. If the process crashes, its shards go to the others after the session's
// TTL, and nothing else moves.
//
// # What work returns
//
//   - If work returns nil, or an error that only reports the end of its context,
//     because its context has ended or l.Asked was closed for a hand-over, the shard
//     goes to its next owner.
//   - If work returns nil before, it gives its shard up: the leader assigns the shard
//     to another caller, and to this one again after a TTL at the earliest, or after
//     about a TTL if there is no other.
//   - If work returns Final(err), Spread ends all other work and returns err.
//   - After any other error the shard is free, and is acquired here again after a
//     pause of 100 ms that doubles up to a TTL. The error is logged and passed to
//     Trace.Retrying.
//
// # What Spread returns
//
//   - the error in a Final;
//   - the cause of ctx, once ctx has ended, joined with an error that a work returned
//     after that;
//   - a *ShardsError, if the cluster has another number of shards for name, or when
//     Client.Resize changes the number. A name without callers is forgotten, and may
//     have any number again, unless it was resized;
//   - an error matching ErrTooManyCallers: this or another limit of groups is
//     reached;
//   - ErrClosed, cluster.ErrStopped, cluster.ErrVersion, or a *cluster.ConfigError,
//     also if this client runs Spread for name already.
//
// Like Elect, Spread continues while no leader can be reached. Waits of Spread are not
// searched for deadlocks, whatever lock's context ctx descends from: an owner that is
// waited for gives way.
func (c *Client) Spread(ctx context.Context, name string, shards int, work ShardWork, opts ...SpreadOption) error {
	if err := c.beginCall(); err != nil {
		return err
	}
	defer c.calls.Done()
	if ctx == nil {
		return configError("ctx", "nil")
	}
	call := &spreadCall{c: c, name: name, shards: shards, work: work, options: newSpreadOptions(opts)}
	if err := call.validate(); err != nil {
		return err
	}
	if _, running := c.spreads.LoadOrStore(name, call); running {
		return configError("name", "this client runs Spread for %q already", name)
	}
	defer c.spreads.Delete(name)

	var retry backoff
	for {
		var late error
		s, err := c.liveSession(ctx)
		if err == nil {
			began := time.Now()
			sp := newSpread(call, s)
			call.now.Store(sp)
			final := sp.run(ctx)
			if final != nil {
				return final.err
			}
			late = sp.late
			if err = sp.ended; time.Since(began) > s.ttl {
				retry.reset()
			}
		}
		switch {
		case c.closing.Err() != nil:
			return ErrClosed
		case ctx.Err() != nil:
			if err = callError("spread", name, whyEnded(ctx, err)); late != nil {
				err = errors.Join(err, late)
			}
			return err
		case errors.Is(err, ErrShards):
			return err
		case c.isFinal(ctx, err), errors.Is(err, ErrTooManyCallers):
			return callError("spread", name, err)
		}
		c.trace.retrying(ctx, LockEvent{Key: name, Call: CallSpread, Err: err})
		if err := retry.wait(ctx, c.closing); err != nil {
			return callError("spread", name, err)
		}
	}
}

// spreadCall is a running call of Spread, through any number of sessions.
type spreadCall struct {
	c       *Client
	name    string
	shards  int
	work    ShardWork
	options spreadOptions

	now atomic.Pointer[spread] // the part in the present session, or the last; nil at first
}

// validate returns a *cluster.ConfigError for arguments that cannot be used.
func (call *spreadCall) validate() error {
	if err := checkGroup(call.name); err != nil {
		return err
	}
	switch {
	case call.shards < 1 || call.shards > MaxShards:
		return configError("shards", "%d is not within 1 and %d", call.shards, MaxShards)
	case call.work == nil:
		return configError("work", "nil")
	}
	return call.options.err
}

// checkGroup returns a *cluster.ConfigError for a name that cannot be used: the keys
// of its shards are longer than the name.
func checkGroup(name string) error {
	if reserved(name) {
		return configError("name", "names that begin with a NUL byte are reserved")
	}
	return checkText("name", name, machine.MaxGroupName)
}

// shardKey returns the key of a shard.
func shardKey(name string, shard int) string { return name + "/" + strconv.Itoa(shard) }

// ErrShards: the cluster has another number of shards for the name. The error is a
// *ShardsError.
var ErrShards = errors.New("locks: another number of shards")

// ErrTooManyCallers: Spread was refused because the name has 1,000 callers, the
// client's session is the caller of 256 names, or the cluster has 4,096 names or
// 1,048,576 shards in all. Nothing was changed.
var ErrTooManyCallers = errors.New("locks: too many callers, names or shards")

// ShardsError: the cluster has another number of shards for Name than Shards. Another
// call with the same number fails in the same way until Client.Resize has changed the
// number back, or every caller has gone. The error matches ErrShards.
type ShardsError struct {
	Name   string
	Shards int // the number that the caller named
	Have   int // the cluster's number; during a Client.Resize the next number; of Client.Resize, 0: the cluster knows no such name
}

func (e *ShardsError) Error() string {
	if e.Have == 0 {
		return fmt.Sprintf("locks: nobody calls Spread with the name %q: it has no shards", e.Name)
	}
	return fmt.Sprintf("locks: %q has %d shards, not %d", e.Name, e.Have, e.Shards)
}

// Is reports whether target is ErrShards.
func (e *ShardsError) Is(target error) bool { return target == ErrShards }
