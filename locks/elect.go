package locks

import (
	"context"
	"errors"
	"fmt"
)

// Elect stands for election for as long as ctx lasts: it acquires the key, runs
// lead while it holds it, releases it once lead has returned, and stands again,
// behind those who wait by then. Calls of lead never overlap, and each gets a
// new Lock, whose token is the term's number.
//
// lead's context ends when the lock is lost, with a *LostError as its cause, or
// when ctx ends. In the second case the session is beaten for until lead has
// returned, so that nobody else is elected before. If lead ignores the end of
// its context it keeps the key for as long as the session lives, and is reported
// to Trace.Stuck.
//
// When lead returns nil, or an error that only says that its context ended (or,
// once the lock is lost, that the fence refused its token), Elect stands again. So
// it does when lead returns Resign, which names who shall lead next. It also stands again, after a short pause and with a word
// to Trace.Retrying, when its session is lost or no leader of the cluster can be
// reached. It returns, holding nothing:
//
//   - lead's error, if lead returned one of its own;
//   - the cause of ctx, once ctx has ended;
//   - ErrTooManyWaiters, *DeadlockError, *CapacityError, *cluster.ConfigError,
//     ErrClosed or cluster.ErrStopped.
//
// The options IfToken and Reentrant cannot be used with it.
func (c *Client) Elect(ctx context.Context, key string, lead Work, opts ...Option) error {
	if err := c.beginCall(); err != nil {
		return err
	}
	defer c.calls.Done()
	if lead == nil {
		return configError("lead", "nil")
	}
	req, err := newAcquireRequest(key, opts)
	if err != nil {
		return err
	}
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
			if own := workError(l, err); own != nil && !isResignation(own) {
				return joinLoss(own, lost)
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

// standAgain waits before the next attempt at key after err. It returns why there
// is none: what ended ctx or the client, or err if that will not pass.
func (c *Client) waitToRetry(ctx context.Context, retry *backoff, key string, err error) error {
	switch {
	case c.closing.Err() != nil:
		return ErrClosed
	case ctx.Err() != nil:
		return whyEnded(ctx, err)
	case c.isFinal(ctx, err), failsAgain(err):
		return err
	}
	c.trace.retrying(LockEvent{Key: key, Err: err})
	return retry.wait(ctx, c.closing)
}

// hopeless reports whether asking anew would come to the same.
func failsAgain(err error) bool {
	return errors.Is(err, ErrDeadlock) || errors.Is(err, ErrCapacity)
}

// Resign returns an error for the lead of Elect to return: Elect then gives the
// key up and stands again, behind all who wait by then. The key goes to the first
// waiter of the client named successor, before the others, as by Lock.HandOver,
// and to whoever is next if successor is empty. If there is no such successor the
// key goes to whoever is next, too, and Trace.Retrying is told. Only Elect knows
// this error; it may be wrapped.
func Resign(successor string) error { return &resignation{successor} }

type resignation struct{ successor string }

func (r *resignation) Error() string {
	if r.successor == "" {
		return "locks: resigned"
	}
	return fmt.Sprintf("locks: resigned for %s", r.successor)
}

func isResignation(err error) bool {
	var r *resignation
	return errors.As(err, &r)
}

// resign gives up a lock whose lead has returned err.
func (c *Client) releaseAfterLead(ctx context.Context, l *Lock, err error) error {
	var r *resignation
	if !errors.As(err, &r) || r.successor == "" {
		return l.Release(ctx)
	}
	err = l.HandOver(ctx, r.successor)
	if l.endCause() == nil {
		// The successor's name cannot be one.
		c.trace.retrying(LockEvent{Key: l.g.key, Token: l.Token(), Err: err})
		return l.Release(ctx)
	}
	if errors.Is(err, ErrNoSuccessor) || errors.Is(err, ErrVersion) {
		c.trace.retrying(LockEvent{Key: l.g.key, Token: l.Token(), Err: err})
	}
	return err
}
