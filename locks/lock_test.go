package locks

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/term/termtest"
)

var bg = context.Background()

// bubble runs f in a bubble with a world, and closes the clients that f made.
func bubble(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		f(t, w)
	})
}

// client returns a client on a member of its own that is closed when t ends.
func (w *world) client(t *testing.T, name string) (*Client, *member) {
	t.Helper()
	m := w.join("node-" + name)
	c := m.client(Options{Name: name})
	t.Cleanup(func() { shutdown(t, c) })
	return c, m
}

// shutdown closes c, whatever the cluster says, and waits until all of it has ended.
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

// waiting acquires key in a goroutine of its own, which waits when this returns.
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

// settle waits until all events that are on their way have arrived: a world without
// faults tells them within a few nanoseconds.
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

// ends waits, for a minute at most, until the call has returned.
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

func TestLockCarriesItsTokenAndValues(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, _ := w.client(t, "a")
		type key struct{}
		ctx, cancel := context.WithCancel(context.WithValue(bg, key{}, "v"))
		l, err := c.Acquire(ctx, "k")
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		if l.Context().Err() != nil || l.Err() != nil {
			t.Error("the end of Acquire's context ended the lock")
		}
		if l.Context().Value(key{}) != "v" {
			t.Error("the values of Acquire's context are gone")
		}
		if token, ok := fence.FromContext(l.Context()); !ok || token != l.Token() || token == 0 {
			t.Errorf("the context carries token %d, the lock %d", token, l.Token())
		}
		if l.Key() != "k" {
			t.Errorf("key %q", l.Key())
		}
	})
}

// "I hold it" is false here before the message leaves.
func TestReleaseEndsTheLockBeforeTheMessageLeaves(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, m := w.client(t, "a")
		l := acquire(t, c, "k")
		ctx := l.Context()
		seen := false
		m.SetHooks(termtest.Hooks{Proposed: func(cmd machine.Command) {
			if _, ok := cmd.(machine.Release); ok {
				seen = true
				if ctx.Err() == nil || l.Err() != ErrReleased || l.Remaining() != 0 {
					t.Error("held while the release is sent")
				}
			}
		}})
		if err := l.Release(bg); err != nil || !seen {
			t.Fatalf("release: %v, sent %v", err, seen)
		}
		if context.Cause(ctx) != ErrReleased {
			t.Errorf("cause %v", context.Cause(ctx))
		}
	})
}

func TestSecondReleaseHasNoEffect(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, _ := w.client(t, "a")
		l := acquire(t, c, "k")
		if err := l.Release(bg); err != nil {
			t.Fatal(err)
		}
		next := acquire(t, c, "k")
		if err := l.Release(bg); err != ErrReleased {
			t.Errorf("second release: %v", err)
		}
		if err := l.Renew(bg); err != ErrReleased {
			t.Errorf("renew: %v", err)
		}
		if err := l.Require(0); err != ErrReleased {
			t.Errorf("require: %v", err)
		}
		if next.Err() != nil {
			t.Errorf("the successor: %v", next.Err())
		}
		if next.Token() <= l.Token() {
			t.Errorf("token %d after %d", next.Token(), l.Token())
		}
		if n := w.Sent(isRelease); n != 1 {
			t.Errorf("%d releases were sent", n)
		}
	})
}

func isRelease(c machine.Command) bool  { _, ok := c.(machine.Release); return ok }
func isWithdraw(c machine.Command) bool { _, ok := c.(machine.Withdraw); return ok }
func isAcquire(c machine.Command) bool  { _, ok := c.(machine.Acquire); return ok }
func isOpen(c machine.Command) bool     { _, ok := c.(machine.Open); return ok }
func isClose(c machine.Command) bool    { _, ok := c.(machine.Close); return ok }

func TestOneOfManyReleasesIsSent(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, _ := w.client(t, "a")
		const rounds, callers = 100, 8
		for range rounds {
			l := acquire(t, c, "k")
			var released atomic.Int64
			var wg sync.WaitGroup
			c.mu.Lock() // gathers the callers between the first look and the second
			for range callers {
				wg.Go(func() {
					switch err := l.Release(bg); err {
					case nil:
						released.Add(1)
					case ErrReleased:
					default:
						t.Error(err)
					}
				})
			}
			for range 1000 {
				runtime.Gosched()
			}
			c.mu.Unlock()
			wg.Wait()
			if n := released.Load(); n != 1 {
				t.Errorf("%d releases returned nil", n)
			}
		}
		if n := w.Sent(isRelease); n != rounds {
			t.Errorf("%d releases were sent for %d locks", n, rounds)
		}
	})
}

func TestZeroLockFailsWithoutPanic(t *testing.T) {
	for _, l := range []*Lock{nil, {}} {
		if l.Err() == nil || l.Release(bg) == nil || l.Renew(bg) == nil || l.Require(0) == nil || l.Context().Err() == nil {
			t.Error("a zero lock is held")
		}
		if l.Release(bg) == nil {
			t.Error("a zero lock was released the second time")
		}
		if l.Key() != "" || l.Token() != 0 || l.Remaining() != 0 {
			t.Error("a zero lock is of something")
		}
	}
}

// The successor is untouched by the release of an expired grant.
func TestReleaseOfALostLockIsItsLossAndSparesTheSuccessor(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, m := w.client(t, "a")
		b, _ := w.client(t, "b")
		l := acquire(t, a, "k")
		m.Isolate()
		next := acquire(t, b, "k")
		m.Heal()
		wantLost(t, l, QuorumUnreachable)
		var lost *LostError
		if err := l.Release(bg); !errors.As(err, &lost) || !errors.Is(err, ErrLost) {
			t.Errorf("release of a lost lock: %v", err)
		}
		time.Sleep(time.Minute)
		if next.Err() != nil {
			t.Errorf("the successor: %v", next.Err())
		}
	})
}

// The cluster expired the session, but the holder has not heard yet.
func TestReleaseThatFindsTheSessionGoneIsALoss(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, m := w.client(t, "a")
		l := acquire(t, a, "k")
		m.SetFaults(termtest.Faults{LosePush: 1})
		w.ExpireNow()
		err := l.Release(bg)
		var lost *LostError
		if !errors.As(err, &lost) || lost.Reason != SessionExpired {
			t.Errorf("release: %v", err)
		}
	})
}

// A failed release is finished in the background, beyond the caller's context.
func TestFailedReleaseIsRemembered(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, m := w.client(t, "a")
		l := acquire(t, c, "k")
		m.Isolate()
		err := l.Release(within(time.Second))
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, cluster.ErrNoQuorum) {
			t.Errorf("release: %v", err)
		}
		if l.Err() != ErrReleased {
			t.Errorf("still held: %v", l.Err())
		}
		time.Sleep(time.Second)
		m.Heal()
		time.Sleep(time.Second)
		if _, token := w.Owner("k"); token != 0 {
			t.Error("the key is still taken")
		}
	})
}

func TestReleaseWithEndedContextIsTold(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, _ := w.client(t, "a")
		l := acquire(t, c, "k")
		ctx, cancel := context.WithCancel(bg)
		cancel()
		if err := l.Release(ctx); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "9s") {
			t.Errorf("release: %v", err)
		}
		synctest.Wait()
		if _, token := w.Owner("k"); token != 0 {
			t.Error("the key is still taken")
		}
	})
}

// The release is repeated because its answer was lost; by then the key
// is another's.
func TestLateSecondCopyOfAReleaseFreesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, m := w.client(t, "a")
		b, _ := w.client(t, "b")
		l := acquire(t, a, "k")
		m.SetFaults(termtest.Faults{LoseAnswer: 1})
		done := make(chan error)
		go func() { done <- l.Release(bg) }()
		next := acquire(t, b, "k")
		m.SetFaults(termtest.Faults{})
		if err := <-done; err != nil {
			t.Errorf("release: %v", err)
		}
		if next.Err() != nil {
			t.Error("the successor was freed")
		}
		if id, _ := w.Owner("k"); id != b.currentSession().id {
			t.Error("the successor does not hold the key any more")
		}
	})
}

func TestRequireComparesWithTheWindow(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, m := w.client(t, "a")
		l := acquire(t, c, "k")
		full := testTTL - margin(testTTL)
		if l.Remaining() != full {
			t.Errorf("%v remain, want %v", l.Remaining(), full)
		}
		m.Isolate()
		time.Sleep(2 * time.Second)
		if err := l.Require(full - 2*time.Second); err != nil {
			t.Error(err)
		}
		err := l.Require(full - 2*time.Second + 1)
		var budget *BudgetError
		if !errors.As(err, &budget) || budget.Left != full-2*time.Second || budget.Key != "k" || budget.Token != l.Token() {
			t.Errorf("require: %v", err)
		}
		if l.Err() != nil {
			t.Error("Require ended the lock")
		}
		time.Sleep(full)
		if err := l.Require(0); !errors.Is(err, ErrLost) {
			t.Errorf("require: %v", err)
		}
	})
}

func TestRenewOpensAWholeWindow(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, m := w.client(t, "a")
		l := acquire(t, c, "k")
		full := testTTL - margin(testTTL)
		time.Sleep(time.Second)
		if err := l.Renew(bg); err != nil || l.Remaining() != full {
			t.Errorf("renewed: %v, %v remain", err, l.Remaining())
		}
		m.Isolate()
		if err := l.Renew(within(time.Second)); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, cluster.ErrNoQuorum) {
			t.Errorf("renew: %v", err)
		}
		if l.Remaining() != full-time.Second {
			t.Errorf("%v remain", l.Remaining())
		}
		// A renewal ends with the lock.
		began := time.Now()
		if err := l.Renew(bg); !errors.Is(err, ErrLost) || time.Since(began) != full-time.Second {
			t.Errorf("renew: %v after %v", err, time.Since(began))
		}
	})
}

func TestRenewFindsTheSessionExpired(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, m := w.client(t, "a")
		l := acquire(t, c, "k")
		m.SetFaults(termtest.Faults{LosePush: 1})
		w.ExpireNow()
		if err := l.Renew(bg); !errors.Is(err, ErrLost) {
			t.Errorf("renew: %v", err)
		}
		wantLost(t, l, SessionExpired)
	})
}

func TestErrorTexts(t *testing.T) {
	for _, test := range []struct {
		err  error
		want string
		is   []error
	}{
		{&LostError{"invoices", 7, SessionExpired}, `locks: lost "invoices" (token 7): session expired`, []error{ErrLost}},
		{&LostError{"k", 7, NodeStopped}, `locks: lost "k" (token 7): node stopped`, []error{ErrLost, cluster.ErrStopped}},
		{&SessionError{"k", ClientClosed}, `locks: wait for "k" ended: client closed`, []error{ErrSessionLost, ErrClosed}},
		{&LostError{"k", 7, Broken}, `locks: lost "k" (token 7): broken by an operator`, []error{ErrLost}},
		{&HeldError{Key: "k", Client: "c", Node: "n", Token: 7}, `locks: "k" is held by c on n (token 7)`, []error{ErrHeld}},
		{&HeldError{Key: "k", Client: "c", Node: "n"}, `locks: "k" is waited for by c on n`, []error{ErrHeld}},
		{&HeldError{Key: "k", Client: "c", Node: "n", Token: 7, Delayed: true}, `locks: "k" was held by c on n, and the delay of the grant has not passed (token 7)`, nil},
		{&HeldError{Key: "a/b", Client: "c", Node: "n", Token: 7, Conflict: "a"}, `locks: "a/b" is taken: "a" is held by c on n (token 7)`, nil},
		{&HeldError{Key: "a", Client: "c", Node: "n", Conflict: "a/b"}, `locks: "a" is taken: "a/b" is waited for by c on n`, nil},
		{&HeldError{Key: "a", Conflict: "a/"}, `locks: "a" is taken: something below "a" is held`, []error{ErrHeld}},
		{&DeadlockError{Key: "b", Cycle: []Wait{{"x", "b", 5}, {"y", "a", 4}}},
			`locks: acquire "b": deadlock: x waits for "b" (token 5), y waits for "a" (token 4)`, []error{ErrDeadlock}},
		{&DeadlockError{Key: "b", verb: "upgrade", Cycle: []Wait{{"x", "b", 0}}}, `locks: upgrade "b": deadlock: x waits for "b"`, []error{ErrDeadlock}},
		{&ChangedError{"k", 5, 7}, `locks: acquire "k": granted again since token 5, last under token 7`, []error{ErrChanged}},
		{&CapacityError{"k", 3, 5}, `locks: acquire "k": asked for a permit of 3, but the capacity is 5`, []error{ErrCapacity}},
		{refusalError(&acquireRequest{key: "k", cmd: machine.Acquire{IfToken: 5}}, machine.Outcome{Code: machine.TooOld, Token: 9}),
			`locks: the token is too old: "k", token 5; grants up to token 9 are forgotten`, []error{ErrTooOld}},
		{&BudgetError{"k", 7, 2 * time.Second, time.Second}, `locks: "k" (token 7) can be trusted for 1s, need 2s`, nil},
		{refusalError(&acquireRequest{key: "k"}, machine.Outcome{Code: machine.TooManyWaiters, Limit: 5}), `locks: too many waiters: 5 wait for "k"`, []error{ErrTooManyWaiters}},
		{callError("acquire", "k", &replica.Error{Err: cluster.ErrStopped}), `locks: acquire "k": cluster: node stopped`, []error{cluster.ErrStopped}},
	} {
		if test.err.Error() != test.want {
			t.Errorf("%s, want %s", test.err, test.want)
		}
		for _, is := range test.is {
			if !errors.Is(test.err, is) {
				t.Errorf("%v is not %v", test.err, is)
			}
		}
		if errors.Is(test.err, context.Canceled) {
			t.Errorf("%v is a cancel", test.err)
		}
	}
}

// inquisitive is a context of a user's own that asks a lock whenever it is asked.
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

// Nothing of a user's runs under the session's mutex. Not in a bubble, in which a
// deadlock of mutexes is none.
func TestContextOfAUsersOwnMayAskALock(t *testing.T) {
	w := newWorld(t)
	a, _ := w.client(t, "a")
	other := acquire(t, a, "other")
	done := make(chan struct{})
	go func() {
		defer close(done)
		ctx, cancel := context.WithCancel(bg)
		defer cancel()
		err := a.Do(inquisitive{ctx, other}, "k", func(ctx context.Context, l *Lock) error {
			cancel()
			<-ctx.Done()
			return l.Release(bg)
		})
		if err != nil {
			t.Error(err)
		}
		l, err := a.Acquire(inquisitive{bg, other}, "l")
		if err != nil {
			t.Error(err)
			return
		}
		release(t, l)
		if ctx := l.Context(); context.Cause(ctx) != ErrReleased || l.Context() != ctx {
			t.Errorf("the context of a released lock: %v", context.Cause(ctx))
		}
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		panic("the session is stuck") // and so would be the client's Close
	}
}
