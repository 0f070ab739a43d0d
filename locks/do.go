package locks

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/fence"
)

// Work is the function run by Do and Elect under a lock. The function's context
// ends when the lock ends or when the caller's context ends; Work should then
// return soon.
type Work func(ctx context.Context, l *Lock) error

// Do acquires the key, runs work once, and releases the key after work has
// returned, also after a panic or runtime.Goexit. If the key cannot be
// acquired, work is not run, and the error is Acquire's. Like Acquire, Do asks
// again if the session is lost before work has begun. Otherwise Do returns
// work's error. If the lock was lost during work, the error matches the
// *LostError too: work's context ended with the *LostError as its cause, and
// others may have held the key before work returned.
//
// When ctx ends during work, work's context ends too, and the key stays taken
// until work returns. Trace.Stuck reports work that does not return. While ctx
// lives, Do returns once the cluster has freed the key, or after a few seconds
// without an answer. Once ctx has ended, Do waits for work alone, and the client
// tells the cluster of the release in the background: the key is free a moment
// after Do has returned. If the cluster could not be told of the release, Do does
// not fail; the failure is reported to Trace.CleanupFailed.
func (c *Client) Do(ctx context.Context, key string, work Work, opts ...Option) error {
	if err := checkContext(ctx); err != nil {
		return err
	}
	if err := c.beginCall(); err != nil {
		return err
	}
	defer c.calls.Done()
	if work == nil {
		return configError("work", "nil")
	}
	var retry backoff
	for {
		req := takeRequest(CallDo, key, opts)
		l, err := c.acquire(ctx, ctx, req)
		req.giveBack()
		if err != nil {
			return err
		}
		began := false
		lost, err := c.runWork(l, func(ctx context.Context, l *Lock) error {
			began = true
			return work(ctx, l)
		}, nil)
		if began || lost == nil || !c.lostWithSession(lost) {
			return joinLoss(err, lost)
		}
		c.trace.retrying(l.g.traceCtx(), LockEvent{Key: key, Call: CallDo, Token: lost.Token, Err: lost})
		if err := retry.wait(ctx, c.closing); err != nil {
			return callError("acquire", key, err)
		}
	}
}

// runWork runs work under l and then releases l, also after a panic: see
// releaseContext. If release is not nil, runWork calls release with work's error
// instead of l.Release. If the lock's context has ended already, work is not
// run. runWork returns work's error, and the loss of the lock if the lock was
// lost before work returned.
func (c *Client) runWork(l *Lock, work Work, release func(ctx context.Context, err error) error) (lost *LostError, err error) {
	ctx := l.Context()
	if l.g.s.beginWork() {
		defer l.g.s.endWork()
	}
	returned := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { c.goTask(func() { c.traceStuck(l, returned) }) })
	defer func() {
		// Deferred, so that a panic or runtime.Goexit of work continues after
		// the key was released.
		stop()
		close(returned)
		rctx, cancel := l.releaseContext()
		defer cancel()
		if release == nil {
			release = func(ctx context.Context, _ error) error { return l.Release(ctx) }
		}
		// The error is either the loss, to be returned, or the cluster could
		// not be told: then the cleanup continues and reports failures itself.
		errors.As(release(rctx, err), &lost)
	}()
	if ctx.Err() != nil {
		return nil, callError("hold", l.g.key, whyEnded(ctx, nil))
	}
	return nil, runLabelled(ctx, l, work)
}

// releaseContext returns the context for the release of l after work: the caller
// waits for the cluster's answer while the caller's own context lives, for a few
// seconds at most. After that, or if the caller's context has ended before,
// Release and HandOver with this context end the lock here, leave the rest to a
// cleanup of the session, and return at once.
func (l *Lock) releaseContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(l.parent, grace(l.g.s.ttl))
}

// traceStuck reports work still running a TTL after the end of the context.
func (c *Client) traceStuck(l *Lock, returned <-chan struct{}) {
	timer := time.NewTimer(l.g.s.ttl)
	defer timer.Stop()
	select {
	case <-timer.C:
		c.trace.stuck(l.g.traceCtx(), LockEvent{Key: l.g.key, Call: l.g.call, Token: l.Token(), Took: time.Since(l.g.since), Err: endOf(l.Context())})
	case <-returned:
	}
}

// workError returns err, the error of work that held l. If err only reports the
// end of work's context, or a fence's refusal of a lost lock's token, the
// result is nil. A call that work made under the same client reports the end by the
// reason's sentinel alone, and so does runWork if the end was before work.
func workError(l *Lock, err error) error {
	cause := context.Cause(l.Context())
	if cause == ErrReleased { // runWork's release: the context ended after the work
		return err
	}
	if tellsOnly(err, cause) {
		return nil
	}
	if lost, ok := errors.AsType[*LostError](cause); ok && lost.Reason.endsCalls(err) {
		return nil
	}
	// When the lock is lost, a fence is expected to refuse the token: the
	// refusal adds nothing to the loss.
	if errors.Is(cause, ErrLost) && errors.Is(err, fence.ErrStale) {
		return nil
	}
	return err
}

// endsCalls reports whether err, of a call, tells of nothing but the sentinel error for r.
func (r Reason) endsCalls(err error) bool {
	for _, sentinel := range []error{cluster.ErrStopped, ErrClosed, ErrSessionEnded} {
		if r.is(sentinel) {
			return tellsOnly(err, sentinel)
		}
	}
	return false
}

// tellsOnly reports whether err, and each of the errors joined in it, matches target or is the
// end of a context.
func tellsOnly(err, target error) bool {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return !slices.ContainsFunc(joined.Unwrap(), func(e error) bool { return !tellsOnly(e, target) })
	}
	itself, ok := err.(interface{ Is(error) bool })
	for _, end := range []error{target, context.Canceled, context.DeadlineExceeded} {
		if end != nil && (err == end || ok && itself.Is(end)) {
			return true
		}
	}
	inner := errors.Unwrap(err)
	return inner != nil && tellsOnly(inner, target)
}

// joinLoss joins the error of work with the loss of the lock, unless err
// already includes the loss.
func joinLoss(err error, lost *LostError) error {
	switch {
	case lost == nil:
		return err
	case err == nil:
		return lost
	}
	if included, ok := errors.AsType[*LostError](err); ok && *included == *lost {
		return err
	}
	return errors.Join(err, lost)
}
