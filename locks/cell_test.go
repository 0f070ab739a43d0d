package locks

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/term/termtest"
	"github.com/wardmote/wardmote/internal/testrounds"
)

func count1(old []byte) []byte {
	n, _ := strconv.Atoi(string(old))
	return []byte(strconv.Itoa(n + 1))
}

func cellValue(t *testing.T, x *Cell) string {
	t.Helper()
	v, err := x.Get(within(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	return string(v)
}

func TestACellIsReadAndUpdated(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		x, y := a.Cell("x"), b.Cell("x")
		if v, err := y.Get(bg); v != nil || err != nil {
			t.Errorf("%q, %v", v, err)
		}
		for i := range 3 {
			if err := x.Update(bg, count1); err != nil {
				t.Fatal(err)
			}
			if v := cellValue(t, y); v != strconv.Itoa(i+1) {
				t.Errorf("%q", v)
			}
		}
		// An unchanged value is not written.
		before := w.Sent(func(c machine.Command) bool { _, ok := c.(machine.SetValue); return ok })
		if err := y.Update(bg, func(old []byte) []byte { return old }); err != nil {
			t.Error(err)
		}
		if n := w.Sent(func(c machine.Command) bool { _, ok := c.(machine.SetValue); return ok }); n != before {
			t.Error("it was written all the same")
		}
		// The caller may change its copy of the old value in place.
		if err := y.Update(bg, func(old []byte) []byte { old[0] = 'X'; return old }); err != nil {
			t.Error(err)
		}
		if v := cellValue(t, x); v != "X" {
			t.Errorf("%q", v)
		}
		if err := y.Update(bg, func([]byte) []byte { return nil }); err != nil {
			t.Error(err)
		}
		if v := cellValue(t, x); v != "" {
			t.Errorf("%q", v)
		}
		var bad *cluster.ConfigError
		if err := x.Update(bg, func([]byte) []byte { return make([]byte, machine.MaxValue+1) }); !errors.As(err, &bad) || errors.Is(err, ErrUncertain) {
			t.Error(err)
		}
		if err := a.Cell("").Update(bg, count1); !errors.As(err, &bad) {
			t.Error(err)
		}
		if _, err := a.Cell("\x00once/x").Get(bg); !errors.As(err, &bad) {
			t.Error(err)
		}
		func() {
			defer func() { recover() }()
			x.Update(bg, func([]byte) []byte { panic("oops") })
		}()
		if st, _ := a.Inspect(bg, "x"); st.Held() {
			t.Error("a panic has left the key held")
		}
	})
}

// A holder of the key delays every update, until ctx ends.
func TestAHeldCellIsNotUpdated(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		l := acquire(t, a, "x")
		if err := l.SetValue(bg, []byte("7")); err != nil {
			t.Fatal(err)
		}
		err := b.Cell("x").Update(within(time.Second), count1)
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrUncertain) {
			t.Error(err)
		}
		if v := cellValue(t, b.Cell("x")); v != "7" {
			t.Errorf("%q", v)
		}
		// Under the lock's own context the update would wait for itself.
		var dead *DeadlockError
		if err := b.Cell("x").Update(l.Context(), count1); !errors.As(err, &dead) {
			t.Error(err)
		}
		release(t, l)
		if err := b.Cell("x").Update(bg, count1); err != nil {
			t.Error(err)
		}
		if v := cellValue(t, a.Cell("x")); v != "8" {
			t.Errorf("%q", v)
		}
	})
}

// No update is lost or made twice under any fault of the network. Only updates that
// report an unknown outcome may have happened or not.
func TestCellsCountRight(t *testing.T) {
	for seed := range uint64(testrounds.Rounds(6, 25)) {
		bubble(t, func(t *testing.T, w *world) {
			w.SetCheck(false)
			w.Seed(seed)
			const clients, each = 5, 12
			var done, unsure atomic.Int64
			var wg sync.WaitGroup
			for i := range clients {
				c, m := w.client(t, string(rune('a'+i)))
				m.SetFaults(termtest.Faults{Latency: 200 * time.Millisecond, LoseAsk: 0.1, LoseAnswer: 0.1, Twice: 0.1, LosePush: 0.2})
				x := c.Cell("n")
				wg.Go(func() {
					for j := range each {
						if seed%2 == 1 && j == each/2 && i < 2 {
							// In the middle of any step.
							time.AfterFunc(700*time.Millisecond, func() { m.Isolate(); time.AfterFunc(2*testTTL, m.Heal) })
						}
						ctx := within(time.Duration(1+j%3) * 5 * time.Second)
						switch err := x.Update(ctx, count1); {
						case err == nil:
							done.Add(1)
						case errors.Is(err, ErrUncertain):
							unsure.Add(1)
						}
					}
				})
			}
			for range 5 {
				time.Sleep(3 * time.Second)
				w.Lead()
			}
			wg.Wait()
			time.Sleep(time.Minute)
			c, _ := w.client(t, "reader")
			n, _ := strconv.Atoi(cellValue(t, c.Cell("n")))
			if n < int(done.Load()) || n > int(done.Load()+unsure.Load()) {
				t.Errorf("seed %d: the cell says %d after %d updates and %d of which nothing is known", seed, n, done.Load(), unsure.Load())
			}
			if done.Load() == 0 {
				t.Errorf("seed %d: nothing was done", seed)
			}
		})
	}
}

func TestUncertainUpdateIsReported(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, m := w.client(t, "a")
		x := a.Cell("x")
		runs := 0
		// The answer to the write is lost.
		m.SetHooks(termtest.Hooks{Proposed: func(c machine.Command) {
			if _, ok := c.(machine.SetValue); ok {
				m.SetFaults(termtest.Faults{LoseAnswer: 1})
			}
		}})
		err := x.Update(within(2*time.Second), func(old []byte) []byte { runs++; return count1(old) })
		if !errors.Is(err, ErrUncertain) || runs != 1 {
			t.Errorf("%v, run %d times", err, runs)
		}
		m.SetHooks(termtest.Hooks{})
		m.SetFaults(termtest.Faults{})
		time.Sleep(time.Minute)
		if v := cellValue(t, x); v != "1" {
			t.Errorf("%q", v)
		}
		// The write was not sent: the outcome is certain.
		m.SetHooks(termtest.Hooks{Refuse: func(c machine.Command) *replica.Error {
			if _, ok := c.(machine.SetValue); ok {
				return &replica.Error{Err: cluster.ErrVersion}
			}
			return nil
		}})
		if err := x.Update(bg, count1); !errors.Is(err, cluster.ErrVersion) || errors.Is(err, ErrUncertain) {
			t.Error(err)
		}
		// An earlier try may have arrived: the outcome is uncertain.
		m.SetHooks(termtest.Hooks{Refuse: func(c machine.Command) *replica.Error {
			if _, ok := c.(machine.SetValue); ok {
				return &replica.Error{Unknown: true, Err: cluster.ErrVersion}
			}
			return nil
		}})
		if err := x.Update(bg, count1); !errors.Is(err, cluster.ErrVersion) || !errors.Is(err, ErrUncertain) {
			t.Error(err)
		}
		m.SetHooks(termtest.Hooks{})
		// The lock is lost before the write: the update is made in another turn.
		runs = 0
		err = x.Update(within(time.Minute), func(old []byte) []byte {
			if runs++; runs == 1 {
				w.ExpireNow()
				synctest.Wait()
			}
			return count1(old)
		})
		if err != nil || runs != 2 || cellValue(t, x) != "2" {
			t.Errorf("%v, run %d times, %q", err, runs, cellValue(t, x))
		}
	})
}

func TestNoRoomForACell(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.SetCheck(false)
		a, _ := w.client(t, "a")
		full := strings.Repeat("x", machine.MaxValue)
		for i := range machine.MaxValuesSize / machine.MaxValue {
			if err := a.Cell(strconv.Itoa(i)).Update(bg, func([]byte) []byte { return []byte(full) }); err != nil {
				t.Fatal(i, err)
			}
		}
		if err := a.Cell("one more").Update(bg, count1); !errors.Is(err, ErrValuesFull) || errors.Is(err, ErrUncertain) {
			t.Error(err)
		}
	})
}
