package machine

import (
	"fmt"
	"testing"
)

// manyKeys returns a table and a token: b holds a thousand keys under the token, and
// forty requests wait for these keys and for another session's key.
func manyKeys(t testing.TB) (s *State, token Token, waiters int) {
	s = crossing(t)
	var keys []string
	for i := range MaxKeys - 1 {
		keys = append(keys, fmt.Sprintf("k%04d", i))
	}
	b := session16("b")
	out, _ := apply(t, s, Acquire{Session: b, Seq: 2, Keys: keys, Spec: Spec{Mode: Shared}}, Granted)
	apply(t, s, Acquire{Session: session16("a"), Seq: 2, Key: "z"}, Granted)
	for i := range uint64(40) {
		apply(t, s, Acquire{Session: b, Seq: 3 + i, Keys: append(keys, "z"), Spec: Spec{Mode: Shared}}, Queued)
	}
	return s, out.Token, 40
}

func TestOneKeyOfAThousandIsInTheWay(t *testing.T) {
	s, token, waiters := manyKeys(t)
	_, events := apply(t, s, Release{Session: session16("b"), Token: token}, OK)
	if granted := count(events, EventGranted); granted > 0 {
		t.Errorf("%d are granted with one key taken", granted)
	}
	_, events = apply(t, s, Withdraw{Session: session16("a"), Seq: 2}, OK)
	if granted := count(events, EventGranted); granted != waiters {
		t.Errorf("%d of %d are granted", granted, waiters)
	}
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}

func count(events []Event, kind EventKind) (n int) {
	for _, e := range events {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

// TestLiftServesKeysInOrder: tokens follow the keys, wherever these are kept.
func TestLiftServesKeysInOrder(t *testing.T) {
	s := New()
	a := session16("a")
	apply(t, s, Found{Cluster: ClusterID{1}, Floor: 1, TTL: 1000}, OK)
	apply(t, s, Open{Session: a, Client: "a", TTL: 1000}, OK)
	for i := range uint64(1000) {
		apply(t, s, Acquire{Session: a, Seq: i + 1, Key: crowdKey(int(i * 7 % 1000))}, Queued)
	}
	_, events := apply(t, s, Lift{}, OK)
	for i := range 1000 {
		if e := events[i]; e.Kind != EventGranted || e.Key != crowdKey(i) || e.Token != Token(i+1) {
			t.Fatalf("event %d is %+v", i, e)
		}
	}
}
