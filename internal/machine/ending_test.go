package machine

import (
	"fmt"
	"slices"
	"testing"
)

// crowded returns a table with a session a of n keys: 1 in 5 waited for in one queue, two
// sets, the rest below a waiting tree, half of them waited for by another session; with
// answers that a has not seen, and callers.
func crowded(t testing.TB, n int) *State {
	s := founded()
	a, b := session16("a"), session16("b")
	apply(t, s, Open{Session: a, Client: "a", TTL: 5_000}, OK)
	apply(t, s, Open{Session: b, Client: "b", TTL: 5_000}, OK)
	apply(t, s, Acquire{Session: b, Seq: 1, Key: "one"}, Granted)
	seq := uint64(0)
	next := func() uint64 { seq++; return seq }
	for range n / 5 {
		apply(t, s, Acquire{Session: a, Seq: next(), Key: "one"}, Queued)
	}
	for range n / 10 {
		apply(t, s, Acquire{Session: a, Seq: next(), Key: "one", Try: true}, Held)
	}
	for i := range 2 {
		keys := make([]string, MaxKeys)
		for j := range keys {
			keys[j] = fmt.Sprintf("set %d/%04d", i, j)
		}
		apply(t, s, Acquire{Session: a, Seq: next(), Keys: keys}, Granted)
	}
	for i := range n - n/5 - 2*MaxKeys {
		key := fmt.Sprint("t/", i)
		apply(t, s, Acquire{Session: a, Seq: next(), Key: key}, Granted)
		if i%2 == 0 {
			apply(t, s, Acquire{Session: b, Seq: uint64(i + 2), Key: key}, Queued)
		}
	}
	for i := range 40 {
		apply(t, s, Enlist{Session: a, Seq: next(), Group: fmt.Sprint("g", i), Shards: 100, Weight: 1}, OK)
	}
	apply(t, s, Acquire{Session: b, Seq: MaxHeld, Key: "t", Spec: Spec{Tree: true}}, Queued)
	return s
}

// TestTheEndOfAFullSessionTakesNoLongStep: no step changes more keys than a slice has, and
// one set more, or allocates in proportion to the session; each slice takes
// something, except in the step that looks at all requests; and the last leaves nothing of the
// session.
func TestTheEndOfAFullSessionTakesNoLongStep(t *testing.T) {
	a, b := session16("a"), session16("b")
	for _, by := range []Command{Close{Session: a}, Expire{Session: a, Term: 1}, EndSession{Session: b, Ref: a.Ref()}} {
		t.Run(fmt.Sprintf("%T", by), func(t *testing.T) {
			const keys = 20_000
			s := crowded(t, keys)
			steps := 0
			left := func() int {
				if o := s.sessions.get(a); o != nil {
					return o.index.requests.len() + len(o.index.enlisted)
				}
				return 0
			}
			take := func(c Command) (out Outcome) {
				before := left()
				var events []Event
				n := allocated(func() { out, events = s.Apply(c) })
				_, slice := c.(EndSlice)
				begins := steps < 2 || !slice
				changed := 0
				for _, e := range events {
					if e.Kind == EventChanged {
						changed++
					}
				}
				if steps++; changed > MaxSlice+MaxKeys || n > 4<<20 || left() == before && out.Code == Unfinished && !begins {
					t.Errorf("step %d changes %d keys, allocates %d bytes, and leaves %d requests of %d", steps, changed, n, left(), before)
				}
				return out
			}
			out := take(by)
			if _, ok := by.(EndSession); ok {
				for out.Code == Unfinished || s.IsUnfinished(a) {
					out = take(EndSlice{Session: a})
				}
				if n := s.sessions.get(a).index; n.waits > 0 || n.held != keys-keys/5 {
					t.Fatalf("%d waits and %d keys are left", n.waits, n.held)
				}
				out = take(Close{Session: a})
			}
			for out.Code == Unfinished {
				out = take(EndSlice{Session: a})
			}
			if out.Code != OK || left() != 0 || s.ending != 0 || s.Opened(a) || steps < keys/MaxSlice {
				t.Errorf("%+v after %d steps, %d requests are left", out, steps, left())
			}
			if err := s.Check(); err != nil {
				t.Error(err)
			}
			if n := s.Counts(); n.Waiters != 1 || n.Sessions != 1 { // the tree, behind the grants of b
				t.Errorf("left %+v", n)
			}
		})
	}
}

// TestARestoredTableTakesTheSameSlices, whichever slice the image was taken before.
func TestARestoredTableTakesTheSameSlices(t *testing.T) {
	a := session16("a")
	s, r := crowded(t, 7_000), crowded(t, 7_000)
	var cmd Command = Expire{Session: a, Term: 1}
	for out := (Outcome{Code: Unfinished}); out.Code == Unfinished; cmd = (EndSlice{Session: a}) {
		var events []Event
		out, events = s.Apply(cmd)
		out2, events2 := r.Apply(cmd)
		same := slices.EqualFunc(events, events2, func(a, b Event) bool { return a == b })
		if out2.Code != out.Code || !same {
			t.Fatalf("%+v and %d events, restored %+v and %d", out, len(events), out2, len(events2))
		}
		var err error
		if r, err = restored(r); err != nil {
			t.Fatal(err)
		}
	}
	if s.Digest() != r.Digest() {
		t.Error("the tables differ")
	}
}

// TestAWaiterOfAnEndingSessionIsInNoDeadlock: a slice takes it out, whatever it waits for.
func TestAWaiterOfAnEndingSessionIsInNoDeadlock(t *testing.T) {
	s := founded()
	a, c, e := session16("a"), session16("c"), session16("e")
	for _, id := range []SessionID{a, c, e} {
		apply(t, s, Open{Session: id, Client: "c", TTL: 5_000}, OK)
	}
	outer, _ := apply(t, s, Acquire{Session: a, Seq: 1, Key: "outer"}, Granted)
	inner, _ := apply(t, s, Acquire{Session: c, Seq: 1, Key: "inner"}, Granted)
	for seq := range uint64(9) {
		apply(t, s, Acquire{Session: e, Seq: seq + 1, Key: "inner", Under: []Token{outer.Token}}, Queued)
	}
	wants := Acquire{Session: c, Seq: 2, Key: "outer", Under: []Token{inner.Token}}
	apply(t, s, wants, Deadlock)
	s.slice = 1
	apply(t, s, Expire{Session: e, Term: 1}, Unfinished)
	wants.Seq = 3
	apply(t, s, wants, Queued)
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}
