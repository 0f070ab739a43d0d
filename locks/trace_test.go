package locks

import (
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
		note := func(what string) func(LockEvent) {
			return func(e LockEvent) { told = append(told, what+" "+e.Key) }
		}
		m := w.join("n")
		c := m.client(Options{Trace: &Trace{
			SessionOpened: func(ttl time.Duration) { told = append(told, "opened "+ttl.String()) },
			SessionLost:   func(r Reason) { told = append(told, "session lost: "+r.String()) },
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
		tr := newTracer(&Trace{Acquired: func(LockEvent) { <-gate; calls++ }})
		for range 3 * maxTraced {
			tr.acquired(LockEvent{})
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
		tr.acquired(LockEvent{}) // dropped
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
			SessionOpened: func(time.Duration) { tell("opened") },
			Acquired:      func(LockEvent) { tell("acquired") },
			Released:      func(LockEvent) { tell("released") },
			SessionLost:   func(Reason) { tell("ended") },
		}})
		release(t, acquire(t, c, "k"))
		shutdown(t, c)
		if want := []string{"opened", "acquired", "released", "ended"}; !slices.Equal(told, want) {
			t.Errorf("told %q, want %q", told, want)
		}
	})
}
