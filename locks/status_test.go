package locks

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/wardmote/wardmote/cluster"
)

func TestInspectTellsHolderAndQueue(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		c, _ := w.client(t, "c")
		st, err := c.Inspect(bg, "k")
		if err != nil || st.Key != "k" || st.Held() || len(st.Waiters) != 0 || st.Queue != 0 {
			t.Errorf("a free key: %+v, %v", st, err)
		}
		l, err := a.Acquire(bg, "k", Meta(map[string]string{"job": "7", "": ""}))
		if err != nil {
			t.Fatal(err)
		}
		go b.Acquire(bg, "k")
		synctest.Wait()
		go c.Acquire(bg, "k")
		synctest.Wait()
		st, err = c.Inspect(bg, "k")
		if err != nil || len(st.Holders) != 1 || st.Queue != 2 || len(st.Waiters) != 2 {
			t.Fatalf("%+v, %v", st, err)
		}
		h := st.Holders[0]
		if h.Client != "a" || h.Node != "node-a" || h.Token != l.Token() || !maps.Equal(h.Meta, map[string]string{"job": "7", "": ""}) {
			t.Errorf("holder %+v", h)
		}
		for i, name := range []string{"b", "c"} {
			if got := st.Waiters[i]; got.Client != name || got.Node != "node-"+name {
				t.Errorf("waiter %d: %+v", i, got)
			}
		}
	})
}

func TestInspectTellsHowAKeyIsHeld(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		m := w.join("node-a")
		a := m.client(Options{Name: "a", Meta: map[string]string{"zone": "1"}})
		t.Cleanup(func() { shutdown(t, a) })
		b, mb := w.client(t, "b")
		inspect := func(key string) Status {
			t.Helper()
			st, err := a.Inspect(bg, key)
			if err != nil {
				t.Fatal(err)
			}
			return st
		}
		if st := inspect("free"); !st.same(Status{Key: "free", Clean: true}) {
			t.Errorf("a key nobody knows: %+v", st)
		}
		time.Sleep(1500 * time.Millisecond)
		began := time.Now()
		l := acquire(t, a, "k", Shared(), Tree(), Meta(map[string]string{"job": "7"}))
		acquire(t, b, "k", Shared(), Tree())
		time.Sleep(time.Second)
		go l.Upgrade(bg)
		synctest.Wait()
		go b.Acquire(within(time.Hour), "k", Priority(3))
		synctest.Wait()
		if err := b.Ask(bg, "k"); err != nil {
			t.Fatal(err)
		}
		st := inspect("k")
		if st.Holding != 2 || len(st.Holders) != 2 || st.Queue != 2 || len(st.Waiters) != 2 || st.Token != st.Holders[1].Token {
			t.Fatalf("%+v", st)
		}
		if h := st.Holders[0]; h.Client != "a" || h.Node != "node-a" || h.Mode != ModeShared || !h.Tree || h.Of != 0 || h.Keys != 1 ||
			!h.Acquired.Equal(began) || !h.Asked || h.Broken || h.Delayed || h.Meta["job"] != "7" || h.ClientMeta["zone"] != "1" || h.Ref != refOf(a) {
			t.Errorf("%+v", h)
		}
		if v := st.Waiters[0]; !v.Upgrade || v.Client != "a" || v.Mode != ModeExclusive || !v.Since.Equal(began.Add(time.Second)) {
			t.Errorf("%+v", v)
		}
		if v := st.Waiters[1]; v.Upgrade || v.Client != "b" || v.Priority != 3 || v.Passed != 0 || v.Keys != 1 || v.Ref != refOf(b) {
			t.Errorf("%+v", v)
		}
		acquire(t, b, "seats", Permits(2, 5))
		if h := inspect("seats").Holders[0]; h.Mode != ModePermit || h.N != 2 || h.Of != 5 || h.Mode.String() != "permit" {
			t.Errorf("%+v", h)
		}
		acquireAll(t, b, []string{"x", "y", "z"})
		if h := inspect("y").Holders[0]; h.Keys != 3 || h.Mode.String() != "exclusive" {
			t.Errorf("%+v", h)
		}
		once := acquire(t, b, "once")
		release(t, once)
		if st := inspect("once"); st.Held() || st.Token != once.Token() || !st.Clean {
			t.Errorf("%+v", st)
		}
		late := acquire(t, b, "late", Delay(time.Hour))
		lost := acquire(t, b, "lost")
		mb.Isolate()
		time.Sleep(2 * testTTL)
		if st := inspect("late"); st.Clean || !st.Held() || !st.Holders[0].Delayed || st.Holders[0].Client != "b" || st.Token != late.Token() {
			t.Errorf("%+v", st)
		}
		if st := inspect("lost"); st.Clean || st.Held() || st.Token != lost.Token() {
			t.Errorf("%+v", st)
		}
		mb.Heal()
	})
}

// A change that Status does not show, or shows only for a moment, is no news.
func TestWatchYieldsNoStateTwice(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		ctx, cancel := context.WithCancel(bg)
		var states []Status
		var wg sync.WaitGroup
		wg.Go(func() {
			for st, err := range b.Watch(ctx, "k") {
				if err == nil {
					states = append(states, st)
				}
			}
		})
		synctest.Wait()
		l := acquire(t, a, "k")
		synctest.Wait()
		for i := range 5 {
			if err := l.SetValue(bg, []byte{byte(i)}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		w.Lead()
		time.Sleep(time.Minute)
		release(t, l)
		synctest.Wait()
		cancel()
		wg.Wait()
		if len(states) != 3 || states[0].Held() || !states[1].Held() || states[2].Held() {
			t.Errorf("%d states: %+v", len(states), states)
		}
	})
}

func TestWatchSeesVacancyAndMissesNoLatestState(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, m := w.client(t, "b")
		ctx, cancel := context.WithCancel(bg)
		states := make(chan Status, 100)
		done := make(chan error, 1)
		go func() {
			for st, err := range b.Watch(ctx, "k") {
				if err != nil {
					done <- err
					continue // the last
				}
				states <- st
			}
			close(states)
		}()
		next := func(held bool) Status {
			t.Helper()
			time.Sleep(time.Second)
			var st Status
			n := 0
			for len(states) > 0 {
				st = <-states
				n++
			}
			if n == 0 || st.Held() != held {
				t.Fatalf("%d states, the last %+v", n, st)
			}
			return st
		}
		next(false)
		l := acquire(t, a, "k")
		if st := next(true); st.Holders[0].Token != l.Token() {
			t.Errorf("%+v", st)
		}
		if err := l.Release(bg); err != nil {
			t.Fatal(err)
		}
		next(false)
		m.Isolate()
		l = acquire(t, a, "k")
		if err := l.Release(bg); err != nil {
			t.Fatal(err)
		}
		l = acquire(t, a, "k")
		time.Sleep(time.Minute)
		m.Heal()
		if st := next(true); st.Holders[0].Token != l.Token() {
			t.Errorf("%+v", st)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("the last: %v", err)
		}
		if _, open := <-states; open {
			t.Error("a state after the error")
		}
	})
}

func TestWatchEndsWithItsNodeAndItsClient(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, m := w.client(t, "a")
		for range c.Watch(bg, "k") {
			break
		}
		last := func(c *Client) (err error) {
			for _, err = range c.Watch(bg, "k") {
			}
			return err
		}
		time.AfterFunc(time.Second, m.Stop)
		if err := last(c); !errors.Is(err, cluster.ErrStopped) {
			t.Errorf("a stopped node: %v", err)
		}
		d, _ := w.client(t, "b")
		// Close does not wait for the body of a loop, because the body may call Close.
		n := 0
		for _, err := range d.Watch(bg, "k") {
			if n++; n == 1 {
				if err := d.Close(bg); err != nil {
					t.Error(err)
				}
			} else if err != ErrClosed {
				t.Errorf("a closed client: %v", err)
			}
		}
		if n != 2 {
			t.Errorf("%d rounds", n)
		}
	})
}

func TestMetaSurvivesTheTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := rapid.MapOf(rapid.String(), rapid.String()).Draw(t, "meta")
		got := decodeMeta(encodeMeta(m))
		if !maps.Equal(m, got) {
			t.Fatalf("%q became %q", m, got)
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		decodeMeta(string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes"))) // does not panic
	})
}

func TestInspectIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, m := w.client(t, "a")
		m.Isolate()
		_, err := c.Inspect(within(time.Second), "k")
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, cluster.ErrNoQuorum) || !strings.Contains(err.Error(), `inspect "k"`) {
			t.Errorf("inspect: %v", err)
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

		// A writer holds, all others wait in any order.
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

// Later changes to the caller's maps, or to the maps of a Status, have no effect.
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
