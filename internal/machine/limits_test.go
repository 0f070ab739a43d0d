package machine

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// One reader more than MaxHolders waits.
func TestSharedHoldersAreBounded(t *testing.T) {
	s := withA(t)
	a := session16("a")
	for i := range uint64(MaxHolders) {
		apply(t, s, Acquire{Session: a, Seq: i + 1, Key: "k", Spec: Spec{Mode: Shared}}, Granted)
	}
	apply(t, s, Acquire{Session: a, Seq: MaxHolders + 1, Key: "k", Spec: Spec{Mode: Shared}}, Queued)
	_, events := apply(t, s, Withdraw{Session: a, Seq: 5}, OK)
	if events[0].Kind != EventGranted {
		t.Error(events)
	}
}

// What is too large is refused, whatever asks.
func TestSizesOfRequestsAreBounded(t *testing.T) {
	s := withA(t)
	a := session16("a")
	var keys []string
	for i := range MaxKeyBytes/MaxKey + 1 {
		keys = append(keys, fmt.Sprintf("%04d", i)+strings.Repeat("x", MaxKey-4))
	}
	if out, _ := apply(t, s, Acquire{Session: a, Seq: 1, Keys: keys}, BadCommand); out.Field != "Keys" || out.Limit != MaxKeyBytes {
		t.Error(out)
	}
	apply(t, s, Acquire{Session: a, Seq: 1, Key: "k", Spec: Spec{Mode: Shared}}, Granted)
	if out, _ := apply(t, s, Upgrade{Session: a, Seq: 2, Token: 1, Under: make([]Token, MaxUnder+1)}, BadCommand); out.Field != "Under" {
		t.Error(out)
	}
}

// Keys that are free are not listed, even if they are remembered.
func TestKeysAreThoseInUse(t *testing.T) {
	s, seq := withA(t), uint64(0)
	visit(t, s, &seq, "p/rests", "", false)
	apply(t, s, Acquire{Session: session16("a"), Seq: 9, Key: "p/held"}, Granted)
	if k := s.Keys("p/", "", 5); !slices.Equal(k, []string{"p/held"}) {
		t.Error(k)
	}
}

// A value that is set is a change of its key.
func TestSetValueIsTold(t *testing.T) {
	s := withA(t)
	a := session16("a")
	apply(t, s, Acquire{Session: a, Seq: 1, Key: "k"}, Granted)
	_, events := apply(t, s, SetValue{Session: a, Rev: 1, Token: 1, Value: []byte("v")}, OK)
	if !slices.Contains(events, Event{Kind: EventChanged, Key: "k"}) || s.Version("k") != s.Commands() {
		t.Error(events)
	}
}

// A value that may fade counts as resting only while its key rests.
func TestFadingValuesThatAreHeldAreNotCounted(t *testing.T) {
	s, seq := withA(t), uint64(0)
	visit(t, s, &seq, "k", "value", true)
	apply(t, s, Acquire{Session: session16("a"), Seq: 9, Key: "k"}, Granted)
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}

// An upgrade that waits when the tokens are spent goes on waiting.
func TestAnUpgradeNeedsAToken(t *testing.T) {
	s := New()
	a, b := session16("a"), session16("b")
	for _, c := range []Command{Found{Cluster: ClusterID{1}, Floor: MaxToken - 1, TTL: 1000}, LeaderStart{Term: 1}, Raise{Term: 1, Format: MaxFormat}, Lift{Term: 1},
		Open{Session: a, Client: "a", TTL: 1000}, Open{Session: b, Client: "b", TTL: 1000}} {
		apply(t, s, c, OK)
	}
	apply(t, s, Acquire{Session: a, Seq: 1, Key: "k", Spec: Spec{Mode: Shared}}, Granted)
	apply(t, s, Acquire{Session: b, Seq: 1, Key: "k", Spec: Spec{Mode: Shared}}, Granted)
	apply(t, s, Upgrade{Session: a, Seq: 2, Token: MaxToken - 1}, TokensSpent)
	// before the last token: it waits, and somebody else takes that one
	s = New()
	for _, c := range []Command{Found{Cluster: ClusterID{1}, Floor: MaxToken - 2, TTL: 1000}, LeaderStart{Term: 1}, Raise{Term: 1, Format: MaxFormat}, Lift{Term: 1},
		Open{Session: a, Client: "a", TTL: 1000}, Open{Session: b, Client: "b", TTL: 1000}} {
		apply(t, s, c, OK)
	}
	apply(t, s, Acquire{Session: a, Seq: 1, Key: "k", Spec: Spec{Mode: Shared}}, Granted)
	apply(t, s, Acquire{Session: b, Seq: 1, Key: "k", Spec: Spec{Mode: Shared}}, Granted)
	apply(t, s, Upgrade{Session: a, Seq: 2, Token: MaxToken - 2}, Queued)
	apply(t, s, Acquire{Session: b, Seq: 2, Key: "l"}, Granted)
	_, events := apply(t, s, Release{Session: b, Token: MaxToken - 1}, OK)
	if s.LastToken() > MaxToken || s.Check() != nil {
		t.Error(s.LastToken(), s.Check(), events)
	}
}

// Of a long cycle the first links are told.
func TestCyclesAreToldInPart(t *testing.T) {
	s := withA(t)
	a := session16("a")
	const n = MaxCycle + 10
	for i := range uint64(n) {
		apply(t, s, Acquire{Session: a, Seq: i + 1, Key: fmt.Sprint("k", i)}, Granted)
	}
	for i := range uint64(n) {
		c := Acquire{Session: a, Seq: n + i + 1, Key: fmt.Sprint("k", (i+1)%n), Under: []Token{Token(i + 1)}}
		want := Queued
		if i == n-1 {
			want = Deadlock
		}
		if out, _ := apply(t, s, c, want); len(out.Cycle) > MaxCycle || want == Deadlock && len(out.Cycle) != MaxCycle {
			t.Error(len(out.Cycle))
		}
	}
}
