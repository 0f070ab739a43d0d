package locks

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/term/termtest"
)

// testTTL is the TTL of a world's sessions.
const testTTL = termtest.DefaultTTL

// A world is a real leader on a log in memory, and the members of package termtest.
type world struct{ *termtest.Cluster }

func newWorld(t testing.TB) *world {
	return &world{termtest.New(t, termtest.Config{})}
}

// join adds a member.
func (w *world) join(name string) *member { return &member{termMember: w.Join(name)} }

type termMember = termtest.Member // has a method Member, so the field is not called so

// A member is a replica.Replica in a world.
type member struct {
	*termMember
	dozed atomic.Int64
}

// client returns a client on m. The caller closes it.
func (m *member) client(opts Options) *Client {
	c := newClient(m, opts)
	c.slept = func(time.Time) time.Duration { return m.Slept() + time.Duration(m.dozed.Load()) }
	return c
}

// doze is Sleep before the leader has noticed: only the host's sleep counter advances.
func (m *member) doze(d time.Duration) { m.dozed.Add(int64(d)) }

// expire is the leader's verdict on one client.
func expire(w *world, c *Client) machine.Command {
	return machine.Expire{Session: c.currentSession().id, Term: w.TermNumber()}
}

// busy returns the number of grants and waiters.
func (w *world) busy() int {
	n := w.Counts()
	return n.Grants + n.Waiters
}

// sizes returns the number of waiters and locks in a session.
func (s *session) sizes() (waiters, locks int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiters), len(s.grants)
}

var bg = context.Background()

// bubble runs f in a bubble with a world.
func bubble(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		f(t, w)
	})
}

// client returns a client on a new member. The end of t closes the client.
func (w *world) client(t *testing.T, name string) (*Client, *member) {
	t.Helper()
	m := w.join("node-" + name)
	c := m.client(Options{Name: name})
	t.Cleanup(func() { shutdown(t, c) })
	return c, m
}

// shutdown closes c, reachable cluster or not, and waits until all of c has ended.
func shutdown(t *testing.T, c *Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(bg, time.Minute)
	defer cancel()
	_ = c.Close(ctx)
	if ctx.Err() != nil {
		t.Error("client did not close within a minute")
	}
}

func acquire(t *testing.T, c *Client, key string, opts ...Option) *Lock {
	t.Helper()
	ctx, cancel := context.WithTimeout(bg, time.Minute)
	defer cancel()
	l, err := c.Acquire(ctx, key, opts...)
	if err != nil {
		t.Fatalf("acquire %q: %v", key, err)
	}
	return l
}

func release(t *testing.T, l interface{ Release(context.Context) error }) {
	t.Helper()
	if err := l.Release(bg); err != nil {
		t.Errorf("release: %v", err)
	}
}

// A call runs in a goroutine of its own.
type call[T any] struct {
	done  chan struct{}
	value T
	err   error
}

func start[T any](f func() (T, error)) *call[T] {
	c := &call[T]{done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.value, c.err = f()
	}()
	return c
}

// waiting acquires key in a goroutine of its own, and returns when the call waits.
func waiting(t *testing.T, ctx context.Context, c *Client, key string, opts ...Option) *call[*Lock] {
	t.Helper()
	call := start(func() (*Lock, error) { return c.Acquire(ctx, key, opts...) })
	call.pends(t)
	return call
}

// does runs a method in a goroutine of its own.
func does(f func(context.Context) error, ctx context.Context) *call[struct{}] {
	return start(func() (struct{}, error) { return struct{}{}, f(ctx) })
}

// settle waits until all events under way have arrived. A world without faults needs
// a few nanoseconds.
func settle() {
	time.Sleep(time.Millisecond)
	synctest.Wait()
}

// pends checks that the call has not returned.
func (c *call[T]) pends(t *testing.T) {
	t.Helper()
	settle()
	select {
	case <-c.done:
		t.Fatalf("the call has returned %v, %v", c.value, c.err)
	default:
	}
}

// ends waits up to a minute until the call has returned.
func (c *call[T]) ends(t *testing.T) (T, error) {
	t.Helper()
	select {
	case <-c.done:
	case <-time.After(time.Minute):
		t.Fatal("the call does not return")
	}
	return c.value, c.err
}

// ok is ends for a call that should not have failed.
func (c *call[T]) ok(t *testing.T) T {
	t.Helper()
	v, err := c.ends(t)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func wantConfig(t *testing.T, err error, field string) {
	t.Helper()
	var config *cluster.ConfigError
	if !errors.As(err, &config) || config.Field != field || config.Reason == "" {
		t.Errorf("%v, want a ConfigError of %s", err, field)
	}
}

func within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(bg, d)
	_ = cancel
	return ctx
}

func wantLost(t *testing.T, l *Lock, reason Reason) {
	t.Helper()
	want := LostError{Key: l.Key(), Token: l.Token(), Reason: reason}
	var lost *LostError
	if err := l.Err(); !errors.As(err, &lost) || *lost != want {
		t.Errorf("Err is %v, want %v", err, &want)
	}
	if l.Context().Err() == nil {
		t.Errorf("the context of a lost lock has not ended")
	} else if cause := context.Cause(l.Context()); !errors.As(cause, &lost) || *lost != want {
		t.Errorf("the context's cause is %v, want %v", cause, &want)
	}
}

func isRelease(c machine.Command) bool { _, ok := c.(machine.Release); return ok }

func isWithdraw(c machine.Command) bool { _, ok := c.(machine.Withdraw); return ok }

func isAcquire(c machine.Command) bool { _, ok := c.(machine.Acquire); return ok }

func isOpen(c machine.Command) bool { _, ok := c.(machine.Open); return ok }

func isClose(c machine.Command) bool { _, ok := c.(machine.Close); return ok }

// inquisitive is a user's context that calls a lock in each of its methods.
type inquisitive struct {
	context.Context
	lock *Lock
}

func (c inquisitive) Value(key any) any {
	_ = c.lock.Err()
	return c.Context.Value(key)
}

func (c inquisitive) Done() <-chan struct{} {
	_ = c.lock.Err()
	return c.Context.Done()
}
