package locks

import (
	"context"
	"errors"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/internal/replica"
)

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
	if ctx.Err() != nil {
		return none, endOf(ctx)
	}
	rctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(c.closing, func() { cancel(ErrClosed) })
	defer stop()
	a, err := read(rctx)
	if err != nil && rctx.Err() != nil {
		return a, whyEnded(rctx, err)
	}
	return a, err
}

// retryRead repeats a read, with pauses, until success or a final error.
func retryRead[T any](ctx context.Context, c *Client, call func() (T, error)) (T, error) {
	var retry backoff
	for {
		v, err := call()
		if err == nil || c.isFinal(ctx, err) {
			return v, err
		}
		if err := retry.wait(ctx, c.closing); err != nil {
			return v, err
		}
	}
}

// isFinal reports whether retrying after err is useless.
func (c *Client) isFinal(ctx context.Context, err error) bool {
	var config *cluster.ConfigError
	switch {
	case ctx.Err() != nil, c.closing.Err() != nil:
		return true
	case errors.Is(err, ErrClosed), errors.Is(err, cluster.ErrStopped), errors.Is(err, ErrTooManyWaiters),
		errors.Is(err, cluster.ErrVersion):
		return true
	}
	return errors.As(err, &config)
}
