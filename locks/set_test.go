package locks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/internal/machine"

	"github.com/wardmote/wardmote/internal/term/termtest"
)

func acquireAll(t *testing.T, c *Client, keys []string, opts ...Option) *Set {
	t.Helper()
	s, err := c.AcquireAll(within(time.Minute), keys, opts...)
	if err != nil {
		t.Fatalf("acquire %q: %v", keys, err)
	}
	return s
}

func TestSetIsOneGrant(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, _ := w.client(t, "a")
		keys := []string{"b", "c", "a"}
		s := acquireAll(t, c, keys)
		if !slices.Equal(keys, []string{"b", "c", "a"}) {
			t.Error("the caller's keys were sorted")
		}
		if got := s.Keys(); !slices.Equal(got, []string{"a", "b", "c"}) {
			t.Errorf("keys %q", got)
		}
		s.Keys()[0] = "x"
		for _, key := range s.Keys() {
			if _, token := w.Owner(key); fence.Token(token) != s.Token() {
				t.Errorf("%q is held under token %d, not %d", key, token, s.Token())
			}
		}
		if token, ok := fence.FromContext(s.Context()); !ok || token != s.Token() {
			t.Errorf("the context carries %d", token)
		}
		if s.Err() != nil || s.Remaining() <= 0 || s.Require(time.Second) != nil || s.Renew(bg) != nil {
			t.Error("the set is not held")
		}
		release(t, s)
		if err := s.Release(bg); err != ErrReleased || s.Err() != ErrReleased || context.Cause(s.Context()) != ErrReleased {
			t.Errorf("released Twice: %v", err)
		}
		if n := w.Sent(isRelease); n != 1 || w.busy() != 0 {
			t.Errorf("%d releases, %d left", n, w.busy())
		}
	})
}

func TestZeroSetFailsWithoutPanic(t *testing.T) {
	for _, s := range []*Set{nil, {}} {
		if s.Err() == nil || s.Release(bg) == nil || s.Renew(bg) == nil || s.Require(0) == nil || s.Context().Err() == nil {
			t.Error("a zero set is held")
		}
		if s.Keys() != nil || s.Token() != 0 || s.Remaining() != 0 || s.Asked() != nil || s.Contended() != nil {
			t.Error("a zero set is of something")
		}
	}
}

func TestSetThatFailsHoldsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		l := acquire(t, a, "bad")
		_, err := b.AcquireAll(within(time.Second), []string{"good", "bad"})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("acquire: %v", err)
		}
		synctest.Wait()
		release(t, acquire(t, a, "good"))
		release(t, l)
		time.Sleep(time.Minute)
		if w.busy() != 0 {
			t.Error("something is left")
		}
	})
}

// The bound is for the whole set.
func TestSetWaitsOnceForAllKeys(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		var keys []string
		for i := range 5 {
			key := fmt.Sprint("k", i)
			keys = append(keys, key)
			acquire(t, a, key)
		}
		began := time.Now()
		_, err := b.AcquireAll(within(3*time.Second), keys)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 3*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

func TestSetsInAnyOrderDoNotDeadlock(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var mu sync.Mutex
		inside := make(map[string]bool)
		var wg sync.WaitGroup
		orders := [][]string{{"a", "b"}, {"b", "a"}, {"b", "c"}, {"c", "a"}, {"c", "b", "a"}}
		for i, keys := range orders {
			c, _ := w.client(t, fmt.Sprint("c", i))
			wg.Go(func() {
				for range 20 {
					s, err := c.AcquireAll(bg, keys)
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					for _, key := range keys {
						if inside[key] {
							t.Errorf("two hold %q", key)
						}
						inside[key] = true
					}
					mu.Unlock()
					time.Sleep(time.Second)
					mu.Lock()
					for _, key := range keys {
						inside[key] = false
					}
					mu.Unlock()
					release(t, s)
				}
			})
		}
		wg.Wait()
	})
}

func TestSetIsNotOvertakenForGood(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		la, lb := acquire(t, a, "a"), acquire(t, a, "b")
		set := start(func() (*Set, error) { return b.AcquireAll(bg, []string{"a", "b"}) })
		set.pends(t)
		later := waiting(t, bg, a, "a")
		release(t, la)
		later.pends(t)
		release(t, lb)
		release(t, set.ok(t))
		later.ok(t)
	})
}

func TestSetIsLostAsAWhole(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, m := w.client(t, "a")
		b, _ := w.client(t, "b")
		s := acquireAll(t, a, []string{"y", "x"})
		ctx := s.Context()
		m.Isolate()
		other := acquireAll(t, b, []string{"x", "z"})
		if want := (LostError{Key: "x", Token: s.Token(), Reason: QuorumUnreachable}); ctx.Err() == nil || !matches(s.Err(), want) {
			t.Errorf("the set: %v, want %v", s.Err(), &want)
		}
		m.Heal()
		if err := s.Release(bg); !errors.Is(err, ErrLost) {
			t.Errorf("release: %v", err)
		}
		if other.Err() != nil {
			t.Error(other.Err())
		}
	})
}

func matches(err error, want LostError) bool {
	var lost *LostError
	return errors.As(err, &lost) && *lost == want
}

// A failed release is cleaned up for every key of the set.
func TestFailedReleaseOfASetIsKnownForEveryKey(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, m := w.client(t, "a")
		s := acquireAll(t, a, []string{"x", "y", "z"})
		m.Isolate()
		if err := s.Release(within(time.Second)); !errors.Is(err, cluster.ErrNoQuorum) {
			t.Errorf("release: %v", err)
		}
		began := time.Now()
		var asked atomic.Int64
		m.SetHooks(termtest.Hooks{Proposed: func(c machine.Command) {
			if isAcquire(c) {
				asked.Add(1)
			}
		}})
		// A new request for any of these keys waits for the clean-up.
		var calls []*call[*Lock]
		for _, key := range []string{"x", "y", "z"} {
			calls = append(calls, waiting(t, bg, a, key, MaxWaiters(1)))
		}
		time.Sleep(time.Second)
		if n := asked.Load(); n != 0 {
			t.Errorf("%d requests did not wait", n)
		}
		m.Heal()
		for _, call := range calls {
			release(t, call.ok(t))
		}
		if time.Since(began) > testTTL {
			t.Errorf("it took %v", time.Since(began))
		}
		if w.busy() != 0 {
			t.Error("something is left")
		}
	})
}

func TestSetWithALostAnswerIsGrantedOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, m := w.client(t, "a")
		acquire(t, a, "other")
		m.SetFaults(termtest.Faults{LoseAnswer: 1, Twice: 1})
		call := start(func() (*Set, error) { return a.AcquireAll(bg, []string{"x", "y"}) })
		time.Sleep(2 * time.Second)
		m.SetFaults(termtest.Faults{})
		s := call.ok(t)
		if n := w.Counts().Grants; n != 3 {
			t.Errorf("%d grants", n)
		}
		release(t, s)
		time.Sleep(time.Minute)
		if n := w.Counts().Grants; n != 1 {
			t.Errorf("%d grants", n)
		}
	})
}

func TestClosedClientFreesItsSets(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		s := acquireAll(t, a, []string{"x", "y"})
		wait := start(func() (*Set, error) { return a.AcquireAll(bg, []string{"x", "z"}) })
		wait.pends(t)
		if err := a.Close(bg); err != nil {
			t.Fatal(err)
		}
		if _, err := wait.ends(t); !errors.Is(err, ErrClosed) {
			t.Errorf("the wait: %v", err)
		}
		if !errors.Is(s.Err(), ErrClosed) || !errors.Is(s.Err(), ErrLost) {
			t.Errorf("the set: %v", s.Err())
		}
		release(t, acquireAll(t, b, []string{"x", "y", "z"}))
	})
}

func TestSetUnderALockIsPartOfItsLineage(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, _ := w.client(t, "a")
		s := acquireAll(t, c, []string{"x", "y"})
		_, err := c.Acquire(s.Context(), "y")
		wantDeadlock(t, err, "y", Wait{"a", "y", s.Token()})
		_, err = c.AcquireAll(s.Context(), []string{"w", "x"})
		if !errors.Is(err, ErrDeadlock) {
			t.Errorf("acquire all: %v", err)
		}
		if n := w.Sent(func(c machine.Command) bool { a, ok := c.(machine.Acquire); return ok && len(a.Under) == 1 }); n != 2 {
			t.Errorf("%d requests told of the set", n)
		}
	})
}

func TestLargestSet(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.SetCheck(false)
		c, _ := w.client(t, "a")
		keys := make([]string, machine.MaxKeys)
		for i := range keys {
			keys[i] = fmt.Sprintf("%0200d", i)
		}
		s := acquireAll(t, c, keys)
		release(t, s)
		if err := w.Check(); err != nil || w.busy() != 0 {
			t.Errorf("%v, %d left", err, w.busy())
		}
	})
}
