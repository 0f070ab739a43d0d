package locks

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestTraceIsToldInOrder(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var told []string
		note := func(what string) func(context.Context, LockEvent) {
			return func(_ context.Context, e LockEvent) { told = append(told, what+" "+e.Key) }
		}
		m := w.join("n")
		c := m.client(Options{Trace: &Trace{
			SessionOpened: func(_ context.Context, ttl time.Duration) { told = append(told, "opened "+ttl.String()) },
			SessionLost:   func(_ context.Context, r Reason) { told = append(told, "session lost: "+r.String()) },
			Acquired:      note("acquired"),
			Released:      note("released"),
			Lost:          note("lost"),
		}})
		l := acquire(t, c, "k")
		acquire(t, c, "l")
		acquire(t, c, "m")
		if err := l.Release(bg); err != nil {
			t.Fatal(err)
		}
		w.ExpireNow()
		time.Sleep(time.Millisecond)
		shutdown(t, c)
		want := []string{"opened 9s", "acquired k", "acquired l", "acquired m", "released k",
			"lost l", "lost m", "session lost: session expired"}
		if len(told) != len(want) {
			t.Fatalf("told %q, want %q", told, want)
		}
		for i := range want {
			if told[i] != want[i] {
				t.Errorf("told %q, want %q", told[i], want[i])
			}
		}
	})
}

func TestTraceThatBlocksIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate, calls := make(chan struct{}), 0
		tr := newTracer(&Trace{Acquired: func(context.Context, LockEvent) { <-gate; calls++ }})
		for range 3 * maxTraced {
			tr.acquired(bg, LockEvent{})
		}
		synctest.Wait()
		if n := len(tr.queue); n > maxTraced {
			t.Errorf("%d calls are kept", n)
		}
		close(gate)
		tr.close()
		if calls < maxTraced || calls > 2*maxTraced {
			t.Errorf("%d calls", calls)
		}
		tr.acquired(bg, LockEvent{}) // dropped
	})
}

func TestTraceThatEndsItsGoroutine(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var mu sync.Mutex
		var told []string
		tell := func(what string) {
			mu.Lock()
			told = append(told, what)
			mu.Unlock()
			runtime.Goexit()
		}
		c := w.join("node").client(Options{Name: "a", Trace: &Trace{
			SessionOpened: func(context.Context, time.Duration) { tell("opened") },
			Acquired:      func(context.Context, LockEvent) { tell("acquired") },
			Released:      func(context.Context, LockEvent) { tell("released") },
			SessionLost:   func(context.Context, Reason) { tell("ended") },
		}})
		release(t, acquire(t, c, "k"))
		shutdown(t, c)
		if want := []string{"opened", "acquired", "released", "ended"}; !slices.Equal(told, want) {
			t.Errorf("told %q, want %q", told, want)
		}
	})
}

func BenchmarkTrace(b *testing.B) {
	ctx := by("ann")
	for _, bb := range []struct {
		name  string
		trace *Trace
	}{
		{"none", nil},
		{"one", &Trace{Acquired: func(context.Context, LockEvent) {}}},
	} {
		b.Run(bb.name, func(b *testing.B) {
			tr := newTracer(bb.trace)
			for b.Loop() {
				tr.acquired(ctx, LockEvent{})
			}
			tr.close()
		})
	}
}
