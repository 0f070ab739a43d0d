package locks

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"pgregory.net/rapid"
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
		if st.Waiters[0] != (Waiter{"b", "node-b"}) || st.Waiters[1] != (Waiter{"c", "node-c"}) {
			t.Errorf("waiters %+v", st.Waiters)
		}
	})
}

// PEERS 55.
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
		m.isolate()
		l = acquire(t, a, "k")
		if err := l.Release(bg); err != nil {
			t.Fatal(err)
		}
		l = acquire(t, a, "k")
		time.Sleep(time.Minute)
		m.heal()
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

func TestWatchEndings(t *testing.T) {
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
		time.AfterFunc(time.Second, m.stop)
		if err := last(c); !errors.Is(err, cluster.ErrStopped) {
			t.Errorf("a stopped node: %v", err)
		}
		d, _ := w.client(t, "b")
		// Close does not wait for the body of a loop, which may be what calls it.
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
		decodeMeta(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")) // does not panic
	})
}

func TestInspectIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, m := w.client(t, "a")
		m.isolate()
		_, err := c.Inspect(within(time.Second), "k")
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, cluster.ErrNoQuorum) || !strings.Contains(err.Error(), `inspect "k"`) {
			t.Errorf("inspect: %v", err)
		}
	})
}
