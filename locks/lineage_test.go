package locks

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/internal/machine"

	"github.com/wardmote/wardmote/internal/term/termtest"
)

func wantDeadlock(t *testing.T, err error, key string, cycle ...Wait) {
	t.Helper()
	var dead *DeadlockError
	if !errors.As(err, &dead) || !errors.Is(err, ErrDeadlock) {
		t.Fatalf("%v, want a deadlock", err)
	}
	if dead.Key != key || fmt.Sprint(dead.Cycle) != fmt.Sprint(cycle) {
		t.Errorf("deadlock over %q: %v, want %q: %v", dead.Key, dead.Cycle, key, cycle)
	}
}

func TestAcquireUnderTheLocksOwnContextIsADeadlock(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, _ := w.client(t, "a")
		l := acquire(t, c, "k")
		began := time.Now()
		_, err := c.Acquire(l.Context(), "k")
		wantDeadlock(t, err, "k", Wait{"a", "k", l.Token()})
		if time.Since(began) != 0 {
			t.Error("it waited")
		}
		if l.Err() != nil || w.Counts().Waiters != 0 {
			t.Errorf("the lock: %v; %d wait", l.Err(), w.Counts().Waiters)
		}
		// Without the context the cycle is unknown.
		waiting(t, bg, c, "k")
	})
}

// Two clusters count their tokens apart: the same number in another cluster is
// another lock.
func TestLineageBelongsToItsOwnCluster(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		other := newWorld(t)
		here, _ := w.client(t, "here")
		there, _ := other.client(t, "there")
		l := acquire(t, here, "k")
		k := acquire(t, there, "k")
		if l.Token() != k.Token() {
			t.Fatalf("tokens %d and %d: the test is of equal ones", l.Token(), k.Token())
		}
		p := waiting(t, l.Context(), there, "k") // no wait of k's holder
		release(t, k)
		release(t, p.ok(t))
		// A lock acquired beneath a lock of the other cluster still descends from the
		// locks of its own cluster.
		m, err := there.Acquire(l.Context(), "m")
		if err != nil {
			t.Fatal(err)
		}
		_, err = here.Acquire(m.Context(), "k")
		wantDeadlock(t, err, "k", Wait{"here", "k", l.Token()})
	})
}

func TestTheWaitThatClosesTheCycleIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		x, _ := w.client(t, "x")
		y, _ := w.client(t, "y")
		a := acquire(t, x, "a")
		b := acquire(t, y, "b")
		type value struct{}
		first := waiting(t, context.WithValue(a.Context(), value{}, 1), x, "b")
		_, err := y.Acquire(b.Context(), "a")
		wantDeadlock(t, err, "a", Wait{"y", "a", a.Token()}, Wait{"x", "b", b.Token()})
		first.pends(t)
		// The refused client releases.
		release(t, b)
		if got := first.ok(t); got.Err() != nil {
			t.Error(got.Err())
		}
	})
}

func TestLineageReachesOverClientsAndGenerations(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		x, _ := w.client(t, "x")
		y, _ := w.client(t, "y")
		z, _ := w.client(t, "z")
		top := acquire(t, x, "top")
		ctx, cancel := context.WithCancel(top.Context())
		defer cancel()
		mid, err := y.Acquire(ctx, "mid")
		if err != nil {
			t.Fatal(err)
		}
		other := acquire(t, z, "other")
		wait := waiting(t, other.Context(), z, "top")
		_, err = y.Acquire(mid.Context(), "other")
		wantDeadlock(t, err, "other", Wait{"y", "other", other.Token()}, Wait{"z", "top", top.Token()})
		wait.pends(t)
		// Once the outer lock has ended, the inner lock does not depend on it.
		release(t, top)
		wait.ok(t)
	})
}

func TestEndedLocksLeaveTheLineage(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, m := w.client(t, "a")
		var told [][]machine.Token
		m.SetHooks(termtest.Hooks{Proposed: func(cmd machine.Command) {
			if a, ok := cmd.(machine.Acquire); ok {
				told = append(told, a.Under)
			}
		}})
		outer := acquire(t, c, "outer")
		ctx := context.WithoutCancel(outer.Context())
		inner, err := c.Acquire(ctx, "inner")
		if err != nil {
			t.Fatal(err)
		}
		release(t, outer)
		if _, err := c.Acquire(context.WithoutCancel(inner.Context()), "third"); err != nil {
			t.Fatal(err)
		}
		if _, err := c.TryAcquire(inner.Context(), "fourth"); err != nil {
			t.Fatal(err)
		}
		want := [][]machine.Token{nil, {machine.Token(outer.Token())}, {machine.Token(inner.Token())}, nil}
		if fmt.Sprint(told) != fmt.Sprint(want) {
			t.Errorf("told %v, want %v", told, want)
		}
	})
}

func TestLineageIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.SetCheck(false)
		c, _ := w.client(t, "a")
		ctx := bg
		for i := range machine.MaxUnder {
			l, err := c.Acquire(ctx, fmt.Sprint("k", i))
			if err != nil {
				t.Fatal(err)
			}
			ctx = l.Context()
		}
		l, err := c.Acquire(ctx, "last")
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Acquire(l.Context(), "one too many")
		wantConfig(t, err, "ctx")
		if _, err := c.TryAcquire(l.Context(), "a try waits for nobody"); err != nil {
			t.Error(err)
		}
	})
}

func TestDoWithinDoOfTheSameKeyIsADeadlock(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, _ := w.client(t, "a")
		err := c.Do(bg, "k", func(ctx context.Context, l *Lock) error {
			if err := c.Elect(ctx, "k", func(context.Context, *Lock) error { return nil }); !errors.Is(err, ErrDeadlock) {
				t.Errorf("elect: %v", err)
			}
			return c.Do(ctx, "k", func(context.Context, *Lock) error { return errWork })
		})
		if !errors.Is(err, ErrDeadlock) {
			t.Errorf("do: %v", err)
		}
		if !w.free("k") {
			t.Error("the key is taken")
		}
	})
}

// The table remembers the refusal of a deadlock: a lost answer does not turn the
// request into a waiter.
func TestDeadlockIsRefusedAgainAfterALostAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, m := w.client(t, "a")
		l := acquire(t, c, "k")
		m.SetFaults(termtest.Faults{LoseAnswer: 1})
		call := start(func() (*Lock, error) { return c.Acquire(l.Context(), "k") })
		time.Sleep(time.Second)
		m.SetFaults(termtest.Faults{})
		_, err := call.ends(t)
		wantDeadlock(t, err, "k", Wait{"a", "k", l.Token()})
		synctest.Wait()
		if n := w.Counts().Waiters; n != 0 {
			t.Errorf("%d wait", n)
		}
	})
}

func TestContextHasTheCurrentToken(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, _ := w.client(t, "a")
		l := acquire(t, c, "k", Shared())
		ctx, cancel := context.WithCancel(l.Context())
		defer cancel()
		before := l.Token()
		if err := l.Upgrade(bg); err != nil {
			t.Fatal(err)
		}
		if got, ok := fence.FromContext(ctx); !ok || got != l.Token() || got <= before {
			t.Errorf("the context carries %d, the lock %d, before it was %d", got, l.Token(), before)
		}
	})
}
