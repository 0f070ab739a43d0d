package locks

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Elect stands for election until ctx ends: Elect acquires the key, runs lead
// while the key is held, releases the key once lead has returned, and stands
// again, behind the present waiters. When Elect returns, nothing is held, or the
// client is about to free the key: see Do. Calls of lead never overlap. Each gets a
// new Lock, and the lock's token is the number of the term. Elect returns:
//
//   - the error given to Final, or nil, if lead returned an error of Final;
//   - the cause of ctx, once ctx has ended, joined with an error of lead's own;
//   - ErrTooManyWaiters, *DeadlockError, *CapacityError, *cluster.ConfigError,
//     ErrClosed or cluster.ErrStopped.
//
// Elect stands again when lead returns, whatever lead returns but Final. No error of
// a single term ends the candidacy, and none is silent:
//
//   - nil, the error of Resign, an error that only reports the end of lead's
//     context, or, once the lock is lost, the fence's refusal of the token: Elect
//     stands again at once, but no more than ten times in a second;
//   - any other error of lead: Elect warns in the node's log, a few times and then
//     less often, reports to Trace.Retrying, and stands again after a pause that
//     doubles from 100 ms up to the TTL. The pauses begin anew after a term that was
//     longer than the TTL;
//   - a lost session or lock, and a cluster without a leader: Elect reports to
//     Trace.Retrying and stands again after a short pause.
//
// lead's context ends when the lock is lost, with a *LostError as its cause, or
// when ctx ends. After the end of ctx the session's beats continue until lead
// has returned, so that nobody else is elected before. If lead ignores the end
// of its context, the key stays taken for as long as the session lives, and
// Elect reports to Trace.Stuck.
//
// The options IfToken, Reentrant, Lazy and Sticky cannot be used with Elect.
func (c *Client) Elect(ctx context.Context, key string, lead Work, opts ...Option) error {
	if err := checkContext(ctx); err != nil {
		return err
	}
	if err := c.beginCall(); err != nil {
		return err
	}
	defer c.calls.Done()
	if lead == nil {
		return configError("lead", "nil")
	}
	req := newAcquireRequest(CallElect, key, opts)
	if req.refuseOptions(optIfToken|optReentrant|optLazy|optSticky, "Elect"); req.err != nil {
		return req.err
	}
	e := &election{c: c, req: req, lead: lead}
	for ctx.Err() == nil {
		if over, err := e.term(ctx); over {
			return err
		}
	}
	return callError("elect", key, endOf(ctx))
}

// election is one call of Elect.
type election struct {
	c        *Client
	req      acquireRequest
	lead     Work
	retry    backoff // after losses, and without a leader
	failures backoff // after errors of lead
}

// termGap is the least time from the beginning of one term to the next request for
// the key: a lead that returns at once must not keep the cluster busy.
const termGap = 100 * time.Millisecond

// term acquires the key once and runs lead. The result is true if Elect is to return
// err.
func (e *election) term(ctx context.Context) (over bool, err error) {
	c, key := e.c, e.req.key
	req := e.req
	l, err := c.acquire(ctx, ctx, &req)
	if err != nil {
		err = c.waitToRetry(ctx, &e.retry, key, err)
		return err != nil, callError("elect", key, err)
	}
	began, ttl := time.Now(), l.g.s.ttl
	lost, err := c.runWork(l, e.lead, func(ctx context.Context, err error) error { return c.releaseAfterLead(ctx, l, err) })
	if final, ok := errors.AsType[*finalError](err); ok {
		return true, final.err
	}
	if time.Since(began) > ttl {
		e.retry, e.failures = backoff{}, backoff{}
	}
	switch workErr := workError(l, err); {
	case workErr != nil && !hasType[*resignation](workErr):
		workErr = joinLoss(workErr, lost)
		c.warnFailed(key, l, workErr)
		if ctx.Err() != nil {
			return true, errors.Join(callError("elect", key, endOf(ctx)), workErr)
		}
		e.failures.least, e.failures.most = leastFailure, ttl
		err = e.failures.wait(ctx, c.closing)
	case lost != nil:
		err = c.waitToRetry(ctx, &e.retry, key, lost)
	default:
		err = nil
	}
	if err == nil {
		err = c.sleep(ctx, termGap-time.Since(began))
	}
	return err != nil, callError("elect", key, err)
}

// sleep waits for d. If ctx or the client ends first, the result is why.
func (c *Client) sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-c.closing.Done():
		return ErrClosed
	case <-ctx.Done():
		return endOf(ctx)
	}
}

// waitToRetry waits before the next attempt to acquire key after err. If there
// is to be no other attempt, the result is the reason: the end of ctx or of the
// client, or err if err is final.
func (c *Client) waitToRetry(ctx context.Context, retry *backoff, key string, err error) error {
	switch {
	case c.closing.Err() != nil:
		return ErrClosed
	case ctx.Err() != nil && hasType[*WaitError](err):
		return err // why ctx ended, and who was in the way
	case ctx.Err() != nil:
		return whyEnded(ctx, err)
	case c.isFinal(ctx, err), errors.Is(err, ErrDeadlock), errors.Is(err, ErrCapacity):
		return err // the same request would fail in the same way
	}
	c.trace.retrying(ctx, LockEvent{Key: key, Call: CallElect, Err: err})
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
		c.trace.retrying(l.g.traceCtx(), LockEvent{Key: l.g.key, Call: l.g.call, Token: l.Token(), Err: err})
	}
	if held {
		return l.Release(ctx)
	}
	return err
}
