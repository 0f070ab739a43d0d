package locks

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"time"
)

// decoded returns what the JSON document of v decodes into, and checks that it is the
// same document again.
func decoded[T any](t *testing.T, v T) (out T) {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	again, err := json.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	if string(again) != string(text) {
		t.Errorf("decoded and encoded again:\n%s\nwant\n%s", again, text)
	}
	return out
}

// TestLocalKeysOfBothKinds: a voter's page is of the table, a thin member's is of its own
// grants and requests; pages meet without a gap and without a repeat.
func TestLocalKeysOfBothKinds(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, voter := w.client(t, "a")
		b, _ := w.client(t, "b")
		voter.SetVoter()
		for i := range 5 {
			acquire(t, a, fmt.Sprintf("k%d", i))
			acquire(t, b, fmt.Sprintf("l%d", i))
		}
		ctx, cancel := context.WithCancel(bg)
		call := waiting(t, ctx, b, "k0")
		settle()

		all := func(c *Client, prefix string) (keys []string) {
			for from, first := "", true; first || from != ""; first = false {
				p := c.LocalKeys(prefix, from, 2)
				decoded(t, p)
				for _, st := range p.Keys {
					keys = append(keys, fmt.Sprintf("%s/%d/%d", st.Key, st.Holding, st.Queue))
				}
				from = p.Next
			}
			return keys
		}
		is := [][]string{all(a, ""), all(a, "l"), all(b, ""), all(b, "k")}
		want := [][]string{
			{"k0/1/1", "k1/1/0", "k2/1/0", "k3/1/0", "k4/1/0", "l0/1/0", "l1/1/0", "l2/1/0", "l3/1/0", "l4/1/0"},
			{"l0/1/0", "l1/1/0", "l2/1/0", "l3/1/0", "l4/1/0"},
			{"k0/0/1", "l0/1/0", "l1/1/0", "l2/1/0", "l3/1/0", "l4/1/0"},
			{"k0/0/1"},
		}
		if !reflect.DeepEqual(is, want) {
			t.Errorf("pages: %v, want %v", is, want)
		}
		if from := a.LocalKeys("", "", 0).Source.From; from != "table" {
			t.Errorf("the voter's source is %q", from)
		}
		if from := b.LocalKeys("", "", 0).Source.From; from != "own" {
			t.Errorf("the thin member's source is %q", from)
		}
		r := decoded(t, b.Report())
		if r.HoldsTotal != 5 || len(r.Holds) != 5 || r.WaitsTotal != 1 || len(r.Waits) != 1 || r.Waits[0].Holder != "a" {
			t.Errorf("report: %+v", r)
		}
		decoded(t, a.LocalSessions("", 1))
		if p := a.LocalSessions("", 1); len(p.Sessions) != 1 || p.Next == "" || p.Sessions[0].Left == 0 {
			t.Errorf("sessions: %+v", p)
		}
		cancel()
		<-call.done
		time.Sleep(time.Second)
		if keys := all(b, "k"); len(keys) != 0 {
			t.Errorf("after the wait: %v", keys)
		}
	})
}

// TestALocalPageCostsNoMoreThanItsKeys: a page of a member with 300 keys allocates as much as
// a page of a member with 30, on a thin member and on a voter: nothing lists or sorts
// all keys. The first page makes the index.
func TestALocalPageCostsNoMoreThanItsKeys(t *testing.T) {
	costs := func(n int, voter bool) float64 {
		w := newWorld(t)
		m := w.join("m")
		if voter {
			m.SetVoter()
		}
		c := m.client(Options{})
		defer shutdown(t, c)
		for i := range n {
			acquire(t, c, fmt.Sprintf("key-%05d", i))
		}
		from := "key-00010"
		return testing.AllocsPerRun(20, func() {
			if p := c.LocalKeys("key", from, 10); len(p.Keys) != 10 || p.Next == "" {
				t.Errorf("%d keys, then %q", len(p.Keys), p.Next)
			}
		})
	}
	for _, voter := range []bool{false, true} {
		if few, many := costs(30, voter), costs(300, voter); many > few+2 {
			t.Errorf("voter %t: a page of 10 keys makes %v allocations among 30 keys and %v among 300", voter, few, many)
		}
	}
}

// TestAReportCountsAsTheMetricsDo: the counts of a report are those of the metrics.
func TestAReportCountsAsTheMetricsDo(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		release(t, acquire(t, a, "k"))
		kept := acquire(t, a, "k")
		broken := acquire(t, a, "broken")
		if err := b.Break(bg, "broken", broken.Token()); err != nil {
			t.Fatal(err)
		}
		if _, err := a.TryAcquire(bg, "k"); err == nil {
			t.Fatal("taken twice")
		}
		time.Sleep(testTTL)
		got := a.Report().Counts
		if got.Beats == 0 || got.Beats != a.meter.Beats.Read().Count() {
			t.Errorf("%d beats", got.Beats)
		}
		got.Beats = 0
		if want := (Counts{Sessions: 1, Granted: 3, Released: 1, Lost: 1, Failed: 1}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		release(t, kept)
	})
}
