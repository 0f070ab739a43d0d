package machine

import (
	"reflect"
	"testing"
)

// TestEventsOfAnEndStandInOrder: first the losses, by token; then the resulting
// grants, in the same order; then the end; then the changed keys, sorted, each once.
func TestEventsOfAnEndStandInOrder(t *testing.T) {
	for range 20 { // maps differ in their order each time
		s := founded()
		a, b := session16("a"), session16("b")
		apply(t, s, Open{Session: a, Client: "a", TTL: 1000}, OK)
		apply(t, s, Open{Session: b, Client: "b", TTL: 1000}, OK)
		apply(t, s, Acquire{Session: b, Seq: 10, Key: "other"}, Granted)
		apply(t, s, Acquire{Session: a, Seq: 9, Key: "other"}, Queued)
		apply(t, s, Acquire{Session: a, Seq: 1, Key: "zebra"}, Granted)
		apply(t, s, Acquire{Session: a, Seq: 2, Key: "apple"}, Granted)
		apply(t, s, Acquire{Session: a, Seq: 3, Key: "mango"}, Granted)
		apply(t, s, Acquire{Session: a, Seq: 4, Key: "zebra"}, Queued)
		apply(t, s, Acquire{Session: b, Seq: 5, Key: "zebra"}, Queued)
		apply(t, s, Acquire{Session: b, Seq: 6, Key: "mango"}, Queued)
		_, got := apply(t, s, Expire{Session: a, Term: 1}, OK)
		want := []Event{
			{Kind: EventLost, Session: a, Seq: 1, Key: "zebra", Token: 2, Reason: Expired},
			{Kind: EventLost, Session: a, Seq: 2, Key: "apple", Token: 3, Reason: Expired},
			{Kind: EventLost, Session: a, Seq: 3, Key: "mango", Token: 4, Reason: Expired},
			{Kind: EventGranted, Session: b, Seq: 5, Key: "zebra", Token: 5, Unclean: true},
			{Kind: EventGranted, Session: b, Seq: 6, Key: "mango", Token: 6, Unclean: true},
			{Kind: EventEnded, Session: a, Reason: Expired},
			{Kind: EventChanged, Key: "apple"},
			{Kind: EventChanged, Key: "mango"},
			{Kind: EventChanged, Key: "other"},
			{Kind: EventChanged, Key: "zebra"},
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("got\n%+v\nwant\n%+v", got, want)
		}
	}
}

// TestCallersMemoryIsNotKept: a caller may change its slices after Apply, and the
// results of a query, without a change of the table.
func TestCallersMemoryIsNotKept(t *testing.T) {
	s := founded()
	a, b := session16("a"), session16("b")
	apply(t, s, Open{Session: a, Client: "a", TTL: 1000, Meta: "meta"}, OK)
	apply(t, s, Open{Session: b, Client: "b", TTL: 1000}, OK)
	apply(t, s, Acquire{Session: a, Seq: 1, Key: "k", Spec: Spec{Meta: "meta"}}, Granted)
	apply(t, s, Acquire{Session: b, Seq: 1, Key: "k", Spec: Spec{Meta: "meta"}}, Queued)
	keys, under, value := []string{"x", "y"}, []Token{1}, []byte("value")
	set, _ := apply(t, s, Acquire{Session: a, Seq: 2, Keys: keys}, Granted)
	apply(t, s, Acquire{Session: b, Seq: 2, Keys: keys, Under: under}, Queued)
	one, _ := apply(t, s, Acquire{Session: a, Seq: 3, Key: "v"}, Granted)
	apply(t, s, SetValue{Session: a, Token: one.Token, Rev: 1, Value: value}, OK)
	before := s.Digest()
	keys[0], under[0] = "z", set.Token
	copy(value, "wwww")
	s.Status("k", 1).Holders[0].Meta = "yyyy"
	s.Status("k", 1).Waiters[0].Seq = 7
	if s.Digest() != before {
		t.Error("the table changed without a command")
	}
}

// TestACycleTakesNoMemory: every voter applies every command, so that an allocation here costs
// a cluster three.
func TestACycleTakesNoMemory(t *testing.T) {
	s := crowd(100)
	id := SessionID{1, 7}
	seq := uint64(1 << 20)
	var seen []uint64
	events := make([]Event, 0, 4)
	cycle := func() {
		seq++
		out, _ := s.AppendApply(events, Acquire{Session: id, Seq: seq, Key: "k", Seen: seen})
		if out.Code != Granted {
			t.Fatal(out)
		}
		s.Cost(Release{Session: id, Token: out.Token})
		s.AppendApply(events, Release{Session: id, Token: out.Token})
	}
	cycle() // makes the key's record
	if n := testing.AllocsPerRun(1000, cycle); n > 0 {
		t.Errorf("%.1f allocations, want 0", n)
	}
}

// TestEventsAreAppended: the commands of an entry share one block of events, and a step
// touches none of the steps before.
func TestEventsAreAppended(t *testing.T) {
	one, other := crowd(100), crowd(100)
	a, b := SessionID{1, 1}, SessionID{1, 2}
	commands := []Command{
		Acquire{Session: a, Seq: 1 << 20, Key: "k"},
		Acquire{Session: b, Seq: 1 << 20, Key: "k"},
		Ask{Session: b, Key: "k"},
		Close{Session: a},
		Acquire{Session: a, Seq: 1<<20 + 1, Key: "k"},
		Close{Session: b},
	}
	var all, want []Event
	for _, c := range commands {
		out, events := one.Apply(c)
		want = append(want, events...)
		var same Outcome
		if same, all = other.AppendApply(all, c); !reflect.DeepEqual(same, out) {
			t.Errorf("%T: %+v, want %+v", c, same, out)
		}
	}
	if !reflect.DeepEqual(all, want) {
		t.Errorf("events\n%+v, want\n%+v", all, want)
	}
}
