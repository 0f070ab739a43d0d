package locks

import (
	"context"
	"slices"
	"time"

	"github.com/wardmote/wardmote/fence"
)

// Set is one grant of several keys at once, under one token. The keys are held,
// lost and released together: the rules for a Lock's key apply to all keys of a
// Set.
//
// The methods may be called from any goroutine. The methods of a zero Set fail.
type Set struct{ l *Lock }

// AcquireAll waits until all keys can be granted to this client in one step,
// and returns them as one Set. keys may be in any order; there must be 1 to
// 1,024 of them, all different, of 256 KiB and 4,096 slashes in total; of trees (see Tree) half
// of each. On failure nothing is held and nothing is granted later. The errors are Acquire's, about the first key
// in ascending order.
//
// AcquireAll holds none of the keys before it holds all, so that two calls for
// the same keys in different orders do not wait for each other. The request
// stands in the queue of each key at the place of its arrival: no stream of
// requests for fewer keys can overtake it for ever.
//
// The options Permits, Priority, Delay, IfToken and Reentrant cannot be used
// with AcquireAll.
func (c *Client) AcquireAll(ctx context.Context, keys []string, opts ...Option) (*Set, error) {
	if err := checkContext(ctx); err != nil {
		return nil, err
	}
	req := newSetRequest(keys, opts)
	l, err := c.acquire(ctx, nil, &req)
	if err != nil {
		return nil, err
	}
	return &Set{l}, nil
}

// lock returns the lock behind the set, or nil if the set is zero.
func (s *Set) lock() *Lock {
	if s == nil {
		return nil
	}
	return s.l
}

// Keys returns the keys in ascending order.
func (s *Set) Keys() []string {
	l := s.lock()
	if l.zero() {
		return nil
	}
	return slices.Clone(l.g.keys())
}

// Token returns the fencing token, which is the same for all keys.
func (s *Set) Token() fence.Token { return s.lock().Token() }

// Context returns a context that ends when the set is released or lost, like
// Lock.Context.
func (s *Set) Context() context.Context { return s.lock().Context() }

// Err returns nil while the set is held and may be trusted, like Lock.Err. The
// key of its *LostError is the first in ascending order.
func (s *Set) Err() error { return s.lock().Err() }

// Remaining returns for how long the set may be trusted, like Lock.Remaining.
func (s *Set) Remaining() time.Duration { return s.lock().Remaining() }

// Require returns nil if the set may be trusted for d from now, like
// Lock.Require.
func (s *Set) Require(d time.Duration) error { return s.lock().Require(d) }

// Renew sends a beat now and returns nil when the beat is confirmed, like
// Lock.Renew.
func (s *Set) Renew(ctx context.Context) error { return s.lock().Renew(ctx) }

// Asked returns a channel that is closed once a client has called Client.Ask
// for one of the keys, like Lock.Asked.
func (s *Set) Asked() <-chan struct{} { return s.lock().Asked() }

// Contended returns a channel that is closed once another request waits for one
// of the keys, like Lock.Contended.
func (s *Set) Contended() <-chan struct{} { return s.lock().Contended() }

// Release releases all keys in one step, like Lock.Release.
func (s *Set) Release(ctx context.Context) error { return s.lock().Release(ctx) }
