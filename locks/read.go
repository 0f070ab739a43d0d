package locks

import (
	"cmp"
	"context"
	"errors"
	"iter"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/internal/replica"
)

// Inspect returns the key's state at some moment during the call. It changes
// nothing and needs no session. On failure the error is the cause of ctx, with
// cluster.ErrNoQuorum if no leader was found until then; a *cluster.ConfigError
// for an invalid key; cluster.ErrStopped; or ErrClosed.
func (c *Client) Inspect(ctx context.Context, key string) (Status, error) {
	if err := checkContext(ctx); err != nil {
		return Status{}, err
	}
	if err := checkKey(key); err != nil {
		return Status{}, err
	}
	a, err := c.read(ctx, replica.Query{Key: key, Waiters: replica.MaxListed})
	if err != nil {
		return Status{}, callError("inspect", key, err)
	}
	return c.newStatus(a.Status), nil
}

// Watch yields the key's present state, and then the new state after each
// change of its holders or its queue, also when the key becomes vacant. If
// states change faster than the loop's body runs, some are skipped, but never
// the latest. No state is yielded twice in a row, and tokens never fall. Watch
// continues through leader changes and while no leader can be reached.
//
// The sequence ends when the loop breaks. Otherwise it ends with one last pair
// with a non-nil error: the cause of ctx, ErrClosed, cluster.ErrStopped, or a
// *cluster.ConfigError.
func (c *Client) Watch(ctx context.Context, key string) iter.Seq2[Status, error] {
	return func(yield func(Status, error) bool) {
		if err := cmp.Or(checkContext(ctx), checkKey(key)); err != nil {
			yield(Status{}, err)
			return
		}
		var last *Status
		for a, err := range c.follow(ctx, replica.Query{Key: key, Waiters: replica.MaxListed}, c.isFinal) {
			if err != nil {
				yield(Status{}, callError("watch", key, err))
				return
			}
			st := c.newStatus(a.Status)
			if last != nil && st.same(*last) {
				continue // for example, only the key's value has changed
			}
			// Another copy for the loop's body, which may write into it.
			if last = &st; !yield(c.newStatus(a.Status), nil) {
				return
			}
		}
	}
}

// follow yields the answer to q, and then the new answer after each change,
// through failures, until an error is final. That error is the last pair.
func (c *Client) follow(ctx context.Context, q replica.Query, final finality) iter.Seq2[replica.Answer, error] {
	return func(yield func(replica.Answer, error) bool) {
		for {
			a, err := retryRead(ctx, c, final, func() (replica.Answer, error) { return c.read(ctx, q) })
			if !yield(a, err) || err != nil {
				return
			}
			q.Version = a.Version
		}
	}
}

// read reads from the cluster, and fails when ctx ends or the client is closed.
func (c *Client) read(ctx context.Context, q replica.Query) (replica.Answer, error) {
	return readUntilClosed(ctx, c, func(ctx context.Context) (replica.Answer, error) { return c.rep.Read(ctx, q) })
}

// scan is read for many keys.
func (c *Client) scan(ctx context.Context, q replica.Scan) (replica.Scanned, error) {
	return readUntilClosed(ctx, c, func(ctx context.Context) (replica.Scanned, error) { return c.rep.Scan(ctx, q) })
}

// readUntilClosed calls read with a context that also ends, with the cause
// ErrClosed, when the client is closed.
func readUntilClosed[T any](ctx context.Context, c *Client, read func(context.Context) (T, error)) (T, error) {
	var none T
	if err := c.beginCall(); err != nil {
		return none, err
	}
	defer c.calls.Done()
	defer c.mayBlock(ctx, "")()
	if ctx.Err() != nil {
		return none, endOf(ctx)
	}
	rctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.closing, func() { cancel(ErrClosed) })()
	a, err := read(rctx)
	if err != nil && rctx.Err() != nil {
		return a, whyEnded(rctx, err)
	}
	return a, err
}

// finality reports whether retrying after err is useless.
type finality func(ctx context.Context, err error) bool

// retryRead repeats a read, with pauses, until success or a final error.
func retryRead[T any](ctx context.Context, c *Client, final finality, call func() (T, error)) (T, error) {
	var retry backoff
	for {
		v, err := call()
		if err == nil || final(ctx, err) {
			return v, err
		}
		if err := retry.wait(ctx, c.closing); err != nil {
			return v, err
		}
	}
}

// neverFinal is for reads to be repeated until ctx or the client ends.
func neverFinal(context.Context, error) bool { return false }

// isFinal reports whether retrying after err is useless.
func (c *Client) isFinal(ctx context.Context, err error) bool {
	return ctx.Err() != nil || c.closing.Err() != nil ||
		errors.Is(err, ErrClosed) || errors.Is(err, cluster.ErrStopped) || errors.Is(err, cluster.ErrVersion) ||
		errors.Is(err, ErrTooManyWaiters) || errors.Is(err, ErrTooManyKeys) || errors.Is(err, ErrQuota) || hasType[*cluster.ConfigError](err)
}
