package locks

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"

	"github.com/wardmote/wardmote/fence"
)

// Elect stands for election until ctx ends: Elect acquires the key, runs lead
// while the key is held, releases the key once lead has returned, and stands
// again, behind the present waiters. When Elect returns, nothing is held. Calls
// of lead never overlap. Each gets a new Lock, and the lock's token is the
// number of the term. Elect returns:
//
//   - lead's error, if lead returned an error of its own;
//   - the cause of ctx, once ctx has ended;
//   - ErrTooManyWaiters, *DeadlockError, *CapacityError, *cluster.ConfigError,
//     ErrClosed or cluster.ErrStopped.
//
// Elect stands again when lead returns nil, an error that only reports the end
// of lead's context, the error of Resign, or, once the lock is lost, the
// fence's refusal of the token. When the session is lost or no leader of the
// cluster can be reached, Elect reports to Trace.Retrying and stands again
// after a short pause.
//
// lead's context ends when the lock is lost, with a *LostError as its cause, or
// when ctx ends. After the end of ctx the session's beats continue until lead
// has returned, so that nobody else is elected before. If lead ignores the end
// of its context, the key stays taken for as long as the session lives, and
// Elect reports to Trace.Stuck.
//
// The options IfToken and Reentrant cannot be used with Elect.
func (c *Client) Elect(ctx context.Context, key string, lead Work, opts ...Option) error {
	if err := c.beginCall(); err != nil {
		return err
	}
	defer c.calls.Done()
	if lead == nil {
		return configError("lead", "nil")
	}
	req := newAcquireRequest(key, opts)
	if req.refuseOptions(optIfToken|optReentrant, "Elect"); req.err != nil {
		return req.err
	}
	var retry backoff
	for ctx.Err() == nil {
		l, err := c.acquire(ctx, ctx, req)
		if err == nil {
			retry.reset()
			var lost *LostError
			lost, err = c.runWork(l, lead, func(ctx context.Context, err error) error { return c.releaseAfterLead(ctx, l, err) })
			if workErr := workError(l, err); workErr != nil && !hasType[*resignation](workErr) {
				return joinLoss(workErr, lost)
			}
			if lost == nil {
				continue
			}
			err = lost
		}
		if err := c.waitToRetry(ctx, &retry, key, err); err != nil {
			return callError("elect", key, err)
		}
	}
	return callError("elect", key, endOf(ctx))
}

// waitToRetry waits before the next attempt to acquire key after err. If there
// is to be no other attempt, the result is the reason: the end of ctx or of the
// client, or err if err is final.
func (c *Client) waitToRetry(ctx context.Context, retry *backoff, key string, err error) error {
	switch {
	case c.closing.Err() != nil:
		return ErrClosed
	case ctx.Err() != nil:
		return whyEnded(ctx, err)
	case c.isFinal(ctx, err), errors.Is(err, ErrDeadlock), errors.Is(err, ErrCapacity):
		return err // the same request would fail in the same way
	}
	c.trace.retrying(LockEvent{Key: key, Err: err})
	return retry.wait(ctx, c.closing)
}

// Resign returns an error for the lead of Elect to return, wrapped or not.
// Elect then releases the key and stands again, behind all present waiters. The
// key goes to the first waiter of the client named successor, before the
// others, as with Lock.HandOver. If successor is empty, or not waiting, the key
// goes to the next waiter; in the second case Trace.Retrying is called. No
// function but Elect interprets this error.
func Resign(successor string) error { return &resignation{successor} }

// resignation is the error of Resign.
type resignation struct{ successor string }

func (r *resignation) Error() string {
	if r.successor == "" {
		return "locks: resigned"
	}
	return fmt.Sprintf("locks: resigned for %s", r.successor)
}

// releaseAfterLead releases l after lead has returned err. If err is a
// resignation with a successor, the key goes to the successor.
func (c *Client) releaseAfterLead(ctx context.Context, l *Lock, err error) error {
	r, ok := errors.AsType[*resignation](err)
	if !ok || r.successor == "" {
		return l.Release(ctx)
	}
	err = l.HandOver(ctx, r.successor)
	held := l.held() // the name cannot be a client's name
	if held || errors.Is(err, ErrNoSuccessor) || errors.Is(err, ErrVersion) {
		c.trace.retrying(LockEvent{Key: l.g.key, Token: l.Token(), Err: err})
	}
	if held {
		return l.Release(ctx)
	}
	return err
}

// Elected describes the leader: the holder of the key, by Elect, Do or Acquire.
// If there is no leader, Token is 0 and all other fields are empty.
type Elected struct {
	Client string // its Options.Name
	Node   string // the member on which the client runs
	Token  fence.Token
	Meta   map[string]string // attached with the option Meta
}

// Observe yields the present leader of key, and then the new leader after each
// change, also when there is none. Terms that are over before the loop's body
// runs may be skipped, but never the latest, and tokens never fall. A grant
// with an expired session is no longer the leader's, even while its delay keeps
// the key taken.
//
// A yielded term may be over when the body runs. Use Observe to find the
// leader; the leader must check its own lock. The sequence ends like Watch's.
func (c *Client) Observe(ctx context.Context, key string) iter.Seq2[Elected, error] {
	return func(yield func(Elected, error) bool) {
		var last Elected
		first := true
		for st, err := range c.Watch(ctx, key) {
			if err != nil {
				yield(Elected{}, err)
				return
			}
			now := elected(st)
			if !first && reflect.DeepEqual(now, last) {
				continue
			}
			first, last = false, now
			if !yield(now, nil) {
				return
			}
		}
	}
}

// elected returns the leader in a state: the newest holder. There is at most
// one holder unless the key is shared.
func elected(st Status) (e Elected) {
	for _, h := range st.Holders {
		if !h.Delayed {
			e = Elected{Client: h.Client, Node: h.Node, Token: h.Token, Meta: h.Meta}
		}
	}
	return e
}
