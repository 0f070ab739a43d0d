package locks

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/wardmote/wardmote/fence"
)

func TestATryIsAnsweredAtOnceAndLeavesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		acquire(t, b, "other")
		l := acquire(t, a, "k")
		began, token := time.Now(), l.Token()
		for _, try := range []struct {
			c   *Client
			ctx context.Context
		}{
			{b, bg},
			{a, bg},          // the holder itself, which does not enter again
			{a, l.Context()}, // nor under its lock
		} {
			_, err := try.c.TryAcquire(try.ctx, "k")
			var held *HeldError
			if !errors.As(err, &held) || held.Client != "a" || held.Token != token {
				t.Errorf("%s: %v", try.c.name(), err)
			}
		}
		if time.Since(began) != 0 {
			t.Errorf("answered after %v", time.Since(began))
		}
		if l.Err() != nil || l.Token() != token || l.Depth() != 1 {
			t.Errorf("the holder: %v, token %d, depth %d", l.Err(), l.Token(), l.Depth())
		}
		for _, c := range []*Client{a, b} {
			if waiters, locks := c.currentSession().sizes(); waiters != 0 || locks != 1 {
				t.Errorf("%s: the session keeps %d waiters and %d locks", c.name(), waiters, locks)
			}
		}
		if w.Counts().Waiters != 0 {
			t.Error("a try waits")
		}
	})
}

func TestATrySucceedsOnceTheWaiterBeforeHasGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		c, _ := w.client(t, "c")
		l := acquire(t, a, "k")
		time.AfterFunc(time.Second, func() { release(t, l) })
		if _, err := b.Acquire(within(200*time.Millisecond), "k"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("acquire: %v", err)
		}
		time.Sleep(time.Second)
		if _, err := c.TryAcquire(bg, "k"); err != nil {
			t.Errorf("try: %v", err)
		}
	})
}

func TestAWaitMayBeBoundedByCenturies(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		l := acquire(t, a, "k")
		next := waiting(t, within(math.MaxInt64), b, "k")
		time.Sleep(10 * time.Minute)
		next.pends(t)
		release(t, l)
		next.ok(t)
	})
}

func TestAWaitFreedOfItsParentContextOutlivesIt(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		parent, end := context.WithCancel(bg)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(parent), time.Minute)
		defer cancel()
		l := acquire(t, a, "k")
		next := waiting(t, ctx, b, "k")
		end()
		next.pends(t)
		release(t, l)
		if err := next.ok(t).Err(); err != nil {
			t.Error(err)
		}
		if _, err := b.Acquire(ctx, "l"); err != nil {
			t.Error(err)
		}
	})
}

func TestAWaiterCutOffForAMomentKeepsItsPlace(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, m := w.client(t, "b")
		c, _ := w.client(t, "c")
		l := acquire(t, a, "k")
		first := waiting(t, bg, b, "k")
		second := waiting(t, bg, c, "k")
		for range 3 {
			m.Isolate()
			time.Sleep(5 * time.Second)
			if n := w.Counts().Waiters; n != 2 {
				t.Errorf("%d wait", n)
			}
			m.Heal()
			time.Sleep(4 * time.Second)
		}
		m.Isolate()
		release(t, l) // granted while it cannot be told
		second.pends(t)
		m.Heal()
		l = first.ok(t)
		second.pends(t)
		release(t, l)
		second.ok(t)
	})
}

func TestAClosedClientLeavesTheQueueForPermits(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		c, _ := w.client(t, "c")
		l := acquire(t, a, "k", Permit(1))
		closes := waiting(t, bg, b, "k", Permit(1))
		next := waiting(t, bg, c, "k", Permit(1))
		if err := b.Close(bg); err != nil {
			t.Error(err)
		}
		if _, err := closes.ends(t); err != ErrClosed {
			t.Errorf("the wait: %v", err)
		}
		if n := w.Counts().Waiters; n != 1 {
			t.Errorf("%d wait", n)
		}
		release(t, l)
		release(t, next.ok(t))
		if w.busy() != 0 {
			t.Error("something is left")
		}
	})
}

func TestInspectCountsReadersAndWriters(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		const readers, writers = 20, 8
		c, _ := w.client(t, "c")
		count := func(key string) (held, waits map[Mode]int, st Status) {
			t.Helper()
			st, err := c.Inspect(bg, key)
			if err != nil {
				t.Fatal(err)
			}
			held, waits = make(map[Mode]int), make(map[Mode]int)
			for _, h := range st.Holders {
				held[h.Mode]++
			}
			for _, v := range st.Waiters {
				waits[v.Mode]++
			}
			if len(st.Holders) != st.Holding || len(st.Waiters) != st.Queue {
				t.Errorf("%d of %d holders and %d of %d waiters are told", len(st.Holders), st.Holding, len(st.Waiters), st.Queue)
			}
			return held, waits, st
		}

		// All readers hold, all writers wait.
		for i := range readers {
			r, _ := w.client(t, fmt.Sprint("reader ", i))
			acquire(t, r, "read", Shared())
		}
		for i := range writers {
			x, _ := w.client(t, fmt.Sprint("writer ", i))
			waiting(t, within(time.Hour), x, "read")
		}
		held, waits, st := count("read")
		if st.Holding != readers || held[ModeShared] != readers || st.Queue != writers || waits[ModeExclusive] != writers {
			t.Errorf("%v hold and %v wait", held, waits)
		}

		// One writer holds, all others wait, in whatever order.
		acquire(t, c, "write")
		for i := range readers + writers - 1 {
			var opts []Option
			if i%4 != 0 || i/4 >= writers-1 {
				opts = append(opts, Shared())
			}
			waiting(t, within(time.Hour), c, "write", opts...)
		}
		held, waits, st = count("write")
		if st.Holding != 1 || held[ModeExclusive] != 1 || waits[ModeShared] != readers || waits[ModeExclusive] != writers-1 {
			t.Errorf("%v hold and %v wait", held, waits)
		}
	})
}

// What the caller does to its maps afterwards, or to those it is told, changes
// nothing.
func TestMetaIsCopied(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		own, grant := map[string]string{"zone": "1"}, map[string]string{"job": "7"}
		c := w.join("n").client(Options{Meta: own})
		defer shutdown(t, c)
		option := Meta(grant)
		own["zone"], grant["job"] = "2", "8"
		acquire(t, c, "k", option)
		own["zone"], grant["job"] = "3", "9"
		for range 2 {
			st, err := c.Inspect(bg, "k")
			if err != nil || len(st.Holders) != 1 {
				t.Fatalf("%+v, %v", st, err)
			}
			h := st.Holders[0]
			if h.ClientMeta["zone"] != "1" || h.Meta["job"] != "7" {
				t.Errorf("told %v and %v", h.ClientMeta, h.Meta)
			}
			h.ClientMeta["zone"], h.Meta["job"] = "4", "10"
		}
	})
}

// One client's goroutines try for its keys and hold them for random times, beyond
// many TTLs: the window of whatever is held stays open.
func TestWhateverIsHeldIsBeatenFor(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.SetCheck(false)
		c, m := w.client(t, "c")
		least := testTTL - margin(testTTL) - testTTL/beatsPerTTL
		began := time.Now()
		acquire(t, c, "kept")
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				for n := range 250 {
					l, err := c.TryAcquire(bg, fmt.Sprint("k", (i+n)%12))
					if errors.Is(err, ErrHeld) {
						time.Sleep(time.Duration(100+i) * time.Millisecond)
						continue
					}
					if err != nil {
						t.Error(err)
						return
					}
					time.Sleep(time.Duration(n%7*i) * 100 * time.Millisecond)
					if left := l.Remaining(); left < least || l.Err() != nil {
						t.Errorf("%v remain, want %v at least; %v", left, least, l.Err())
					}
					release(t, l)
				}
			})
		}
		wg.Wait()
		took := time.Since(began)
		if took < 10*testTTL {
			t.Errorf("it took %v only", took)
		}
		if n, want := m.Beats(), int64(took/(testTTL/beatsPerTTL)); n < want-1 || n > want+1 {
			t.Errorf("%d beats in %v", n, took)
		}
		if n := w.busy(); n != 1 {
			t.Errorf("%d keys are taken", n)
		}
	})
}

func TestLockersComeAndGoAndTokensRiseOn(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var last fence.Token
		for range 3 {
			for i := range 10 {
				c, _ := w.client(t, fmt.Sprint("c", i))
				l := acquire(t, c, "k")
				if l.Token() <= last {
					t.Errorf("token %d after %d", l.Token(), last)
				}
				last = l.Token()
				release(t, l)
				if err := c.Close(bg); err != nil {
					t.Error(err)
				}
			}
			if n := w.Counts(); n.Grants != 0 || n.Waiters != 0 || n.Sessions != 0 || n.Answers != 0 {
				t.Errorf("the table keeps %+v", n)
			}
			c, _ := w.client(t, "reader")
			if keys := list(t, c, ""); len(keys) != 0 {
				t.Errorf("%q are listed", keys)
			}
		}
	})
}
