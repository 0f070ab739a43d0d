package locks

import (
	"context"
	"slices"
	"time"

	"github.com/wardmote/wardmote/fence"
)

// Set is one grant of several keys at once, under one token. They are held, lost
// and released together: what is said of a Lock's key goes for all of a Set's.
//
// Its methods may be called from any goroutine. Those of a zero Set fail.
type Set struct{ l *Lock }

// AcquireAll waits until all keys can be granted to this client in one step, and
// returns them as one Set. There are 1 to 1,024 of them, each once, of 256 KiB
// together, in any order. Until then it holds none of them, so that two calls for
// the same keys in different orders do not wait for each other. It stands in the
// queues of all its keys, at the place where it asked: nobody overtakes it for
// good by asking for fewer.
//
// The options Permit, Priority, Delay, IfToken and Reentrant cannot be used with
// it. On failure nothing is held and nothing is granted later; the errors are
// Acquire's, about the first key in ascending order.
func (c *Client) AcquireAll(ctx context.Context, keys []string, opts ...Option) (*Set, error) {
	if err := c.beginCall(); err != nil {
		return nil, err
	}
	defer c.calls.Done()
	req, err := newSetRequest(keys, opts)
	if err != nil {
		return nil, err
	}
	l, err := c.acquire(ctx, context.WithoutCancel(ctx), req)
	if err != nil {
		return nil, err
	}
	return &Set{l}, nil
}

// lock is the one that the set is a face of; nil if the set is zero.
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

// Token is the one fencing token of all keys.
func (s *Set) Token() fence.Token { return s.lock().Token() }

// Context ends when the set is released or lost, like Lock.Context.
func (s *Set) Context() context.Context { return s.lock().Context() }

// Err returns nil while the set is held and may be trusted, like Lock.Err. The
// key of its *LostError is the first in ascending order.
func (s *Set) Err() error { return s.lock().Err() }

// Remaining returns for how long the set may be trusted, like Lock.Remaining.
func (s *Set) Remaining() time.Duration { return s.lock().Remaining() }

// Require returns nil if the set may be trusted for d from now, like Lock.Require.
func (s *Set) Require(d time.Duration) error { return s.lock().Require(d) }

// Renew beats now and returns nil when the beat is confirmed, like Lock.Renew.
func (s *Set) Renew(ctx context.Context) error { return s.lock().Renew(ctx) }

// Asked is closed once somebody has asked that one of the keys be let go of, like
// Lock.Asked.
func (s *Set) Asked() <-chan struct{} { return s.lock().Asked() }

// Contended is closed once somebody waits for one of the keys, like
// Lock.Contended.
func (s *Set) Contended() <-chan struct{} { return s.lock().Contended() }

// Release gives all keys up in one step, like Lock.Release.
func (s *Set) Release(ctx context.Context) error { return s.lock().Release(ctx) }
