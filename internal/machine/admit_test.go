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
	for s.HasPutOff() {
		_, more := s.Apply(AdmitSlice{})
		events = append(events, more...)
	}
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

// A session ends with thousands of grants below a key where thousands wait: the queue is
// passed once, and not at each grant.
func TestTheEndOfASessionPassesAQueueOnce(t *testing.T) {
	const n = 1000
	s := withA(t)
	a, b := session16("a"), session16("b")
	s.Apply(Open{Session: b, Client: "b", TTL: 1000})
	s.Apply(Acquire{Session: b, Seq: 1, Key: "t/x"})
	for i := range uint64(n) {
		s.Apply(Acquire{Session: a, Seq: i + 1, Key: fmt.Sprint("t/", i)})
		s.Apply(Acquire{Session: b, Seq: i + 2, Keys: []string{"t", "u"}, Spec: Spec{Mode: Shared, Tree: true}})
	}
	o := s.sessions.get(a)
	o.ending, o.index.rest = Closed, o.index.collect(true)
	s.leaveQueues(o, allWork)
	s.freeGrants(o, allWork)
	if len(s.step.revisit) != n+1 {
		t.Errorf("%d queues to look at", len(s.step.revisit))
	}
}

// TestLateRefusalsLookAtEachQueueOnce: many waiters are refused in one step, and each of
// them stood in the way of many trees that wait below their key.
func TestLateRefusalsLookAtEachQueueOnce(t *testing.T) {
	const n = 100
	a := session16("a")
	for name, test := range map[string]struct {
		first, waiter Spec
		refuse        func(s *State)
	}{
		"a lower capacity": {
			Spec{Mode: Permit, N: 8, Of: 8}, Spec{Mode: Permit, N: 2},
			func(s *State) { apply(t, s, SetCapacity{Session: a, Seq: 1 << 20, Key: "k", Of: 1}, OK) },
		},
		"a condition that fails": {
			Spec{}, Spec{Conditional: true, IfToken: 1},
			func(s *State) { apply(t, s, Release{Session: a, Token: 1}, OK) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := withA(t)
			apply(t, s, Acquire{Session: a, Seq: 1, Key: "k", Spec: test.first}, Granted)
			apply(t, s, Acquire{Session: a, Seq: 1 << 19, Key: "k", Spec: test.first}, Queued)
			for i := range uint64(n) {
				apply(t, s, Acquire{Session: a, Seq: 2 + 2*i, Key: fmt.Sprint("k/", i), Spec: Spec{Tree: true}}, Queued)
			}
			for i := range uint64(n) {
				apply(t, s, Acquire{Session: a, Seq: 3 + 2*i, Key: "k", Spec: test.waiter}, Queued)
			}
			test.refuse(s)
			if left := len(s.keys.get("k").queue); left != 0 {
				t.Errorf("%d are not refused", left)
			}
			if cap(s.step.revisit) == 0 { // given up, since it was longer than maxScratch
				t.Error("queues were looked at again and again")
			}
			if err := s.Check(); err != nil {
				t.Error(err)
			}
		})
	}
}
