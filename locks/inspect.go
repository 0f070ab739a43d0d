package locks

import (
	"context"
	"iter"

	"github.com/wardmote/wardmote/internal/replica"
)

// Inspect returns the key's state at some moment during the call. It changes
// nothing and needs no session. On failure the error is the cause of ctx, with
// cluster.ErrNoQuorum if no leader was found until then; a *cluster.ConfigError
// for an invalid key; cluster.ErrStopped; or ErrClosed.
func (c *Client) Inspect(ctx context.Context, key string) (Status, error) {
	if err := checkKey(key); err != nil {
		return Status{}, err
	}
	a, err := c.read(ctx, replica.Query{Key: key, Waiters: replica.MaxListed})
	if err != nil {
		return Status{}, callError("inspect", key, err)
	}
	return newStatus(a.Status), nil
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
		if err := checkKey(key); err != nil {
			yield(Status{}, err)
			return
		}
		var retry backoff
		var last Status
		q := replica.Query{Key: key, Waiters: replica.MaxListed}
		for {
			a, err := c.read(ctx, q)
			if err == nil {
				retry.reset()
				first := q.Version == 0
				q.Version = a.Version
				st := newStatus(a.Status)
				if !first && st.same(last) {
					continue // for example, only the key's value has changed
				}
				last = st
				if !yield(st, nil) {
					return
				}
				continue
			}
			if !c.isFinal(ctx, err) {
				if err = retry.wait(ctx, c.closing); err == nil {
					continue
				}
			}
			yield(Status{}, callError("watch", key, err))
			return
		}
	}
}
