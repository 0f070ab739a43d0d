package locks

import (
	"context"
	"errors"
	"fmt"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/internal/machine"
)

// MaxCapacity is the largest number of permits of a key.
const MaxCapacity = machine.MaxHolders

// ErrTooManyCapacities: 65,536 keys have a capacity that SetCapacity has set. Nothing
// was changed. SetCapacity to 0 makes room.
var ErrTooManyCapacities = errors.New("locks: too many keys with a set capacity")

// Permits makes the key a counting semaphore, and the lock n of its permits, taken
// together under one token: n is 1 to 10,000. The capacity of the key is the number of
// permits held at a time at most:
//
//   - SetCapacity sets the capacity of the key in the cluster. Then of does not count.
//   - Otherwise the first request names the capacity, of, for as long as permits of the
//     key are held or waited for. All other requests must name the same number, or 0.
//
// of is 1 to 10,000, or 0 for the capacity that the key has by then. A request that does
// not fit fails with a *CapacityError at once: n exceeds the capacity, of is another one,
// or of is 0 and the key has none. A waiting request fails in the same way as soon as
// SetCapacity lowers the capacity below n.
//
// Requests are granted in order, and none passes the first one because it needs fewer
// permits: a request for many waits until so many are free, and all others wait behind
// it. Priority applies as to other locks.
//
// Other locks of the key, exclusive and Shared ones, exclude permits whatever the
// capacity is, and wait in the same queue.
func Permits(n, of int) Option {
	return func(r *acquireRequest) {
		r.options |= optPermits
		switch {
		case n < 1 || n > MaxCapacity:
			r.refuse("Permits", "n: %d is not within 1 and %d", n, MaxCapacity)
		case of < 0 || of > MaxCapacity:
			r.refuse("Permits", "of: %d is not within 0 and %d", of, MaxCapacity)
		default: // within uint16
			r.cmd.N, r.cmd.Of = uint16(n), uint16(of)
		}
		r.cmd.Mode = machine.Permit
	}
}

// SetCapacity sets the number of permits of key, 1 to 10,000. The cluster keeps the
// number, also while nobody holds the key and in a successor of the cluster, until
// SetCapacity sets 0: then the requests name the capacity again, as Permits says, but not
// before no permits are held or waited for. Until then the number that was set last stays,
// and a request that names another one fails with a *CapacityError: before SetCapacity
// sets 0 for a busy key, set the number that the requests name. At most 65,536 keys have
// a set capacity: more fail with ErrTooManyCapacities.
//
// The key may be in use. A higher number grants the first waiters in the same step of
// the cluster, in order. A lower number takes nothing from the holders: nobody is granted
// permits until few enough are held. A waiter for more permits than the number fails
// with a *CapacityError. A waiter fails with a *DeadlockError if the lower number leaves
// it waiting for the permits of a lock that its own ctx descends from. Exclusive and
// Shared locks of the key are not concerned. To grant no permits for a while, hold the key
// exclusively: the lock comes when no permits are held, and requests wait behind it.
//
// If SetCapacity returns nil, the capacity was set once, however often the request was
// sent. If the session is lost meanwhile, the client sets the capacity in the next one,
// and overwrites a number that another client has set since: ChangeCapacity does not. If ctx ends first, the error
// is the cause of ctx, with cluster.ErrNoQuorum if no leader was found, and the capacity
// is set, or will be soon, or is not set. Other errors: *cluster.ConfigError; ErrVersion;
// ErrClosed or cluster.ErrStopped. If the leader's Security.Authorize refuses, the error
// is a *cluster.DeniedError, and nothing was changed.
func (c *Client) SetCapacity(ctx context.Context, key string, of int) error {
	if of < 0 || of > MaxCapacity {
		return configError("of", "%d is not within 0 and %d", of, MaxCapacity)
	}
	return c.setCapacity(ctx, machine.SetCapacity{Key: key, Of: uint32(of)})
}

// ChangeCapacity is SetCapacity if the capacity that SetCapacity has set is from, 0 if
// none has: the capacity that requests name does not count. So two operators who have
// seen the same number do not overwrite each other's. If the set capacity is to already,
// ChangeCapacity returns nil. If it is another one, the error is a *CapacityError with
// Have, and nothing was changed. Otherwise it does as SetCapacity does.
func (c *Client) ChangeCapacity(ctx context.Context, key string, from, to int) error {
	switch {
	case from < 0 || from > MaxCapacity:
		return configError("from", "%d is not within 0 and %d", from, MaxCapacity)
	case to < 0 || to > MaxCapacity:
		return configError("to", "%d is not within 0 and %d", to, MaxCapacity)
	}
	return c.setCapacity(ctx, machine.SetCapacity{Key: key, Of: uint32(to), Compare: true, From: uint32(from)})
}

func (c *Client) setCapacity(ctx context.Context, cmd machine.SetCapacity) error {
	key := cmd.Key
	if err := checkContext(ctx); err != nil {
		return err
	}
	if err := checkKey(key); err != nil {
		return err
	}
	out, err := c.callInAnySession(ctx, func(ctx context.Context, s *session) (machine.Outcome, error) {
		seq := s.newSeq()
		// Whatever comes of it: a copy that arrives after the seq is seen sets nothing.
		defer s.noteSeen(seq)
		return s.propose(ctx, func(seen []uint64) machine.Command {
			cmd := cmd
			cmd.Session, cmd.Seq, cmd.Seen = s.id, seq, seen
			return cmd
		})
	})
	switch {
	case err != nil:
		return callError("set the capacity of", key, denied(cluster.VerbSetCapacity, key, err))
	case out.Code == machine.OK:
		return nil
	case out.Code == machine.WrongCapacity:
		return &CapacityError{Key: key, Of: int(cmd.From), Have: int(out.Limit)}
	case out.Code == machine.TooManyCapacities:
		return callError("set the capacity of", key, fmt.Errorf("%w: %d are allowed", ErrTooManyCapacities, out.Limit))
	}
	return callError("set the capacity of", key, outcomeError("set the capacity", out))
}
