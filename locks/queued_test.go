package locks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
)

// places is a Trace of Queued.
type places struct {
	mu     sync.Mutex
	behind []int
	last   LockEvent
}

func (p *places) trace() *Trace {
	return &Trace{Queued: func(_ context.Context, e LockEvent) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.behind = append(p.behind, e.Behind)
		p.last = e
	}}
}

func (p *places) want(t *testing.T, want ...int) {
	t.Helper()
	settle()
	p.mu.Lock()
	defer p.mu.Unlock()
	if fmt.Sprint(p.behind) != fmt.Sprint(want) {
		t.Errorf("stood behind %v, want %v", p.behind, want)
	}
}

func TestWaitersAreToldTheirPlace(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		var p places
		c := w.join("n").client(Options{Trace: p.trace()})
		defer shutdown(t, c)
		l := acquire(t, a, "k")
		ctx, cancel := context.WithCancel(bg)
		first := waiting(t, bg, a, "k")
		leaves := waiting(t, ctx, a, "k")
		mine := waiting(t, bg, c, "k")
		p.want(t, 3)
		waiting(t, within(time.Minute), a, "k") // behind: no change
		p.want(t, 3)
		cancel()
		leaves.ends(t)
		p.want(t, 3, 2)
		passes := waiting(t, bg, a, "k", Priority(1))
		p.want(t, 3, 2, 3)
		release(t, l)
		l = passes.ok(t)
		p.want(t, 3, 2, 3, 2)
		release(t, l)
		l = first.ok(t)
		p.want(t, 3, 2, 3, 2, 1)
		if p.last.Key != "k" || p.last.Token != 0 || p.last.Took <= 0 {
			t.Errorf("told %+v", p.last)
		}
		release(t, l)
		release(t, mine.ok(t))
		p.want(t, 3, 2, 3, 2, 1)
	})
}

func TestGrantWithoutAWaitHasNoPlace(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		var p places
		c := w.join("n").client(Options{Trace: p.trace()})
		defer shutdown(t, c)
		release(t, acquire(t, c, "k"))
		acquire(t, a, "k")
		if _, err := c.TryAcquire(bg, "k"); !errors.Is(err, ErrHeld) {
			t.Error(err)
		}
		p.want(t)
	})
}

func TestPlaceIsToldThroughOutagesAndEndsWithTheCall(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		var p places
		m := w.join("n")
		c := m.client(Options{Trace: p.trace()})
		defer shutdown(t, c)
		l := acquire(t, a, "k")
		first := waiting(t, bg, a, "k")
		mine := waiting(t, within(20*time.Second), c, "k")
		set := start(func() (*Set, error) { return c.AcquireAll(within(time.Second), []string{"j", "k"}) })
		if _, err := set.ends(t); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		m.Isolate()
		release(t, l)
		l = first.ok(t)
		time.Sleep(time.Second)
		m.Heal()
		told := func() []int {
			p.mu.Lock()
			defer p.mu.Unlock()
			return slices.Clone(p.behind)
		}
		healed := time.Now()
		for got := told(); got[len(got)-1] != 1; got = told() { // the member tries again after pauses
			if time.Since(healed) > testTTL {
				t.Fatalf("stood behind %v", got)
			}
			time.Sleep(10 * time.Millisecond)
		}
		began := time.Now()
		if _, err := mine.ends(t); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 20*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		release(t, l)
	})
}

func TestUpgradeIsToldItsPlace(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		var p places
		c := w.join("n").client(Options{Trace: p.trace()})
		defer shutdown(t, c)
		r1, r2 := acquire(t, a, "k", Shared()), acquire(t, a, "k", Shared())
		l := acquire(t, c, "k", Shared())
		up := does(l.Upgrade, bg)
		up.pends(t)
		release(t, r1)
		up.pends(t)
		release(t, r2)
		up.ok(t)
		settle()
		if n := len(p.behind); n < 2 || p.behind[0] != 2 {
			t.Errorf("stood behind %v", p.behind)
		}
	})
}
