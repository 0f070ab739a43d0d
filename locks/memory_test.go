package locks

import (
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
)

// Holding is cheap: no goroutine and no timer per lock, and little memory.
func TestHundredThousandLocksAreCheap(t *testing.T) {
	const locks = 100_000
	bubble(t, func(t *testing.T, w *world) {
		w.SetCheck(false)
		c, m := w.client(t, "a")
		first := acquire(t, c, "first")
		keys := make([]string, locks)
		for i := range keys {
			keys[i] = "key-" + strconv.Itoa(i)
		}
		held := make([]*Lock, locks)
		s := c.currentSession()
		heap := func() uint64 {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			return m.HeapAlloc
		}
		before, goroutines := heap(), runtime.NumGoroutine()
		// Grants as they come from the cluster, without its tables.
		for i, key := range keys {
			wt := newWaiter(bg, bg, acquireRequest{key: key, began: time.Now()})
			if _, err := s.register(wt, nil); err != nil {
				t.Fatal(err)
			}
			s.handleGranted(wt.seq, machine.Outcome{Code: machine.Granted, Token: machine.Token(first.Token()) + 1 + machine.Token(i)})
			held[i] = wt.lock
		}
		if used := heap() - before; used > 100<<20 {
			t.Errorf("%d locks take %d bytes", locks, used)
		} else {
			t.Logf("%d bytes per lock", used/locks)
		}
		if n := runtime.NumGoroutine() - goroutines; n > 3 {
			t.Errorf("%d goroutines more", n)
		}
		ctx := held[locks/2].Context()
		m.Isolate()
		<-ctx.Done()
		for _, l := range held {
			if l.Err() == nil {
				t.Fatal("a lock outlived its session")
			}
		}
	})
}
