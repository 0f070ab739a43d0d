package machine

import (
	"fmt"
	"slices"
	"testing"
)

// TestSessionRefIsFrozen: members of all versions, and the pages that show a Ref, agree.
func TestSessionRefIsFrozen(t *testing.T) {
	key := SessionKey{1, 2, 3}
	const want = "37388949fcac479db222bb1daf164640"
	ref := key.ID().Ref()
	if ref.String() != want {
		t.Errorf("the Ref is %v, want %v", ref, want)
	}
	if got, ok := ParseSessionRef(want); !ok || got != ref {
		t.Errorf("parsed as %v, %t", got, ok)
	}
	for _, text := range []string{"", want[1:], want + "0", "0X" + want[2:], "AB" + want[2:]} {
		if _, ok := ParseSessionRef(text); ok {
			t.Errorf("%q is taken for a Ref", text)
		}
	}
}

// TestSessionsAreListedInTheOrderOfTheirRefs, page by page, and in a restored table too.
func TestSessionsAreListedInTheOrderOfTheirRefs(t *testing.T) {
	s := founded()
	s.Clock(1_700_000_000_000)
	const all = 50
	for i := range all {
		apply(t, s, Open{Session: session16(fmt.Sprint(i)), Client: "c", Node: "n", TTL: 5_000, Meta: "m"}, OK)
	}
	held := session16("7")
	apply(t, s, Acquire{Session: held, Seq: 1, Keys: []string{"a", "b"}}, Granted)
	apply(t, s, Acquire{Session: held, Seq: 2, Key: "c"}, Granted)
	apply(t, s, Acquire{Session: session16("8"), Seq: 1, Key: "c"}, Queued)
	r, err := restored(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*State{s, r} {
		var list []SessionStatus
		var from SessionRef
		for {
			page := s.SessionsFrom(from, 7)
			list = append(list, page...)
			if len(page) < 7 {
				break
			}
			from = page[len(page)-1].ID.Ref()
			from[len(from)-1]++ // no other Ref is between in this table
		}
		if len(list) != all || !slices.IsSortedFunc(list, func(a, b SessionStatus) int {
			ra, rb := a.ID.Ref(), b.ID.Ref()
			return slices.Compare(ra[:], rb[:])
		}) {
			t.Fatalf("%d sessions, or not in order", len(list))
		}
		st, ok := s.SessionOf(held.Ref())
		want := SessionStatus{ID: held, Client: "c", Node: "n", TTL: 5_000, Opened: 1_700_000_000_000, Grants: 2, Keys: 3, Meta: "m"}
		if !ok || st != want {
			t.Errorf("got %+v, want %+v", st, want)
		}
	}
	if _, ok := s.SessionOf(SessionID{9}.Ref()); ok {
		t.Error("found a session that never was")
	}
}

// TestAGrantOfARevokedSessionIsInNoDeadlock: the session ends whatever waits under its
// grants, as a broken grant does.
func TestAGrantOfARevokedSessionIsInNoDeadlock(t *testing.T) {
	s := founded()
	a, b, c := session16("a"), session16("b"), session16("c")
	for _, id := range []SessionID{a, b, c} {
		apply(t, s, Open{Session: id, Client: "c", TTL: 5_000}, OK)
	}
	outer, _ := apply(t, s, Acquire{Session: a, Seq: 1, Key: "outer"}, Granted)
	inner, _ := apply(t, s, Acquire{Session: c, Seq: 1, Key: "inner"}, Granted)
	apply(t, s, Acquire{Session: b, Seq: 1, Key: "inner", Under: []Token{outer.Token}}, Queued)
	wants := Acquire{Session: c, Seq: 2, Key: "outer", Under: []Token{inner.Token}}
	apply(t, s, wants, Deadlock)
	apply(t, s, EndSession{Session: c, Ref: a.Ref()}, OK)
	wants.Seq = 3
	apply(t, s, wants, Queued)
	_, events := apply(t, s, Close{Session: a}, OK)
	if !slices.ContainsFunc(events, func(e Event) bool { return e.Kind == EventGranted && e.Session == c && e.Seq == 3 }) {
		t.Errorf("not granted: %+v", events)
	}
}
