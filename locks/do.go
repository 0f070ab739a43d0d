package locks

import (
	"context"
	"errors"
	"time"

	"github.com/wardmote/wardmote/fence"
)

// Work is what Do and Elect run while they hold a key. Its context ends when the
// lock does or the caller's context does; it should then return soon.
type Work func(ctx context.Context, l *Lock) error

// Do acquires the key, runs work once, and releases the key after work has
// returned, also if it panics or ends its goroutine. It returns work's error. If
// the lock was lost meanwhile, the error matches that as well: work's context
// ended with the *LostError as its cause, and others may have held the key
// before work returned.
//
// If the key cannot be acquired, work is not run, and the error is Acquire's.
// When ctx ends during work, so does work's context, while the key stays taken
// until work returns. Work that does not return is reported to Trace.Stuck. That
// the cluster could not be told of the release is not an error of Do's; it is
// reported to Trace.CleanupFailed.
func (c *Client) Do(ctx context.Context, key string, work Work, opts ...Option) error {
	if err := c.beginCall(); err != nil {
		return err
	}
	defer c.calls.Done()
	if work == nil {
		return configError("work", "nil")
	}
	req, err := newAcquireRequest(key, opts)
	if err != nil {
		return err
	}
	l, err := c.acquire(ctx, ctx, req)
	if err != nil {
		return err
	}
	lost, err := c.runWork(l, work, nil)
	return joinLoss(err, lost)
}

// hold runs work under a lock and releases it, however work ends; by letGo if that
// is not nil, which is told work's error. It returns how the lock ended if it did
// so before work, and work's error. If its context has ended already, work is not
// run.
func (c *Client) runWork(l *Lock, work Work, letGo func(ctx context.Context, err error) error) (lost *LostError, err error) {
	ctx := l.Context()
	returned := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { c.goTask(func() { c.traceStuck(l, returned) }) })
	defer func() {
		// Deferred, so that a panic or runtime.Goexit of work's goes on to its
		// own end, but not with the key.
		stop()
		close(returned)
		rctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace(l.g.s.ttl))
		defer cancel()
		release := l.Release
		if letGo != nil {
			release = func(ctx context.Context) error { return letGo(ctx, err) }
		}
		// An error is one of the cluster's, which clean-up goes on with and
		// tells, or the loss that is returned.
		errors.As(release(rctx), &lost)
	}()
	if ctx.Err() != nil {
		return nil, callError("hold", l.g.key, whyEnded(ctx, nil))
	}
	return nil, work(ctx, l)
}

// watchStuck reports work that runs on for a TTL after its context ended.
func (c *Client) traceStuck(l *Lock, returned <-chan struct{}) {
	timer := time.NewTimer(l.g.s.ttl)
	defer timer.Stop()
	select {
	case <-timer.C:
		c.trace.stuck(LockEvent{Key: l.g.key, Token: l.Token(), Took: time.Since(l.g.since), Err: endOf(l.Context())})
	case <-returned:
	}
}

// ownError returns the error of a work that held l, unless it is merely how the
// work says that its context ended, or that the fence knew of that first.
func workError(l *Lock, err error) error {
	cause := context.Cause(l.Context())
	if cause == ErrReleased { // by hold: the context ended after the work
		return err
	}
	if errors.Is(err, cause) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	// Of a holder that lost its lock, a fence's refusal is what was to be
	// expected: it says no more than the loss does.
	if errors.Is(cause, ErrLost) && errors.Is(err, fence.ErrStale) {
		return nil
	}
	return err
}

// both joins the error of a work with the loss of its lock, unless the error
// tells of that already.
func joinLoss(err error, lost *LostError) error {
	switch {
	case lost == nil:
		return err
	case err == nil:
		return lost
	}
	var told *LostError
	if errors.As(err, &told) && *told == *lost {
		return err
	}
	return errors.Join(err, lost)
}
