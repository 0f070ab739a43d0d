package machine

import (
	"fmt"
	"strings"
	"testing"
)

// quotaTable returns a table that grants, with small quotas, and opens sessions: each of
// the named node.
func quotaTable(t *testing.T, q nodeQuota, nodes ...string) (*State, []SessionID) {
	t.Helper()
	s := founded()
	s.quota = q
	var ids []SessionID
	for i, node := range nodes {
		id := SessionID{9, byte(i + 1)}
		apply(t, s, Open{Session: id, Client: "c", Node: node, TTL: 1000}, OK)
		ids = append(ids, id)
	}
	return s, ids
}

func mustCheck(t *testing.T, s *State) {
	t.Helper()
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}

// overdrawn verifies a refusal by a quota, which changes nothing.
func overdrawn(t *testing.T, s *State, c Command, field string, limit uint64) {
	t.Helper()
	before := s.Counts()
	out, events := s.Apply(c)
	if out.Code != TooMuchOfNode || out.Field != field || out.Limit != limit || len(events) > 0 || s.Counts() != before {
		t.Errorf("%+v: %+v, %v, and %+v became %+v", c, out, events, before, s.Counts())
	}
	mustCheck(t, s)
}

// The sessions of a node have its quotas together; another node has its own.
func TestANodeHasQuotas(t *testing.T) {
	q := nodeQuota{sessions: 3, waits: 2, keys: 5, bytes: 1000}
	s, ids := quotaTable(t, q, "n", "n", "other")
	a, b, other := ids[0], ids[1], ids[2]

	// Sessions.
	third := SessionID{9, 100}
	apply(t, s, Open{Session: third, Client: "c", Node: "n", TTL: 1000}, OK)
	overdrawn(t, s, Open{Session: SessionID{9, 101}, Client: "c", Node: "n", TTL: 1000}, NodeSessions, 3)
	apply(t, s, Open{Session: third, Client: "c", Node: "n", TTL: 1000}, OK) // a copy
	apply(t, s, Open{Session: SessionID{9, 102}, Client: "c", Node: "other", TTL: 1000}, OK)
	apply(t, s, Close{Session: third}, OK)
	apply(t, s, Open{Session: SessionID{9, 101}, Client: "c", Node: "n", TTL: 1000}, OK)

	// Keys, those of waiters included.
	held, _ := apply(t, s, Acquire{Session: a, Seq: 1, Keys: []string{"1", "2", "3"}}, Granted)
	apply(t, s, Acquire{Session: b, Seq: 1, Key: "4"}, Granted)
	apply(t, s, Acquire{Session: b, Seq: 2, Key: "1"}, Queued)
	overdrawn(t, s, Acquire{Session: b, Seq: 3, Key: "6"}, NodeKeys, 5)
	apply(t, s, Acquire{Session: b, Seq: 3, Key: "6"}, Withdrawn) // a copy
	apply(t, s, Acquire{Session: other, Seq: 1, Key: "6"}, Granted)
	apply(t, s, Release{Session: a, Token: held.Token}, OK)
	apply(t, s, Acquire{Session: b, Seq: 4, Key: "7"}, Granted)
	apply(t, s, Close{Session: b}, OK)

	// Waits.
	apply(t, s, Acquire{Session: a, Seq: 2, Key: "6"}, Queued)
	apply(t, s, Acquire{Session: a, Seq: 3, Key: "6"}, Queued)
	overdrawn(t, s, Acquire{Session: a, Seq: 4, Key: "6"}, NodeWaits, 2)
	apply(t, s, Acquire{Session: a, Seq: 5, Key: "8"}, Granted) // no wait
	apply(t, s, Acquire{Session: a, Seq: 6, Key: "6", Try: true}, Held)
	apply(t, s, Acquire{Session: other, Seq: 2, Key: "8"}, Queued)
	apply(t, s, Withdraw{Session: a, Seq: 2, More: []uint64{3}}, OK)

	// Bytes.
	apply(t, s, Acquire{Session: a, Seq: 7, Key: strings.Repeat("k", 500)}, Granted)
	overdrawn(t, s, Acquire{Session: a, Seq: 8, Key: strings.Repeat("l", 500)}, NodeBytes, 1000)
	mustCheck(t, s)
}

// An upgrade that has to wait is a waiter as others are.
func TestAnUpgradeWaitsWithinTheQuota(t *testing.T) {
	s, ids := quotaTable(t, nodeQuota{sessions: 9, waits: 1, keys: 9, bytes: 1000}, "n", "other")
	a, other := ids[0], ids[1]
	mine, _ := apply(t, s, Acquire{Session: a, Seq: 1, Key: "k", Spec: Spec{Mode: Shared}}, Granted)
	theirs, _ := apply(t, s, Acquire{Session: other, Seq: 1, Key: "k", Spec: Spec{Mode: Shared}}, Granted)
	apply(t, s, Acquire{Session: other, Seq: 2, Key: "x"}, Granted)
	apply(t, s, Acquire{Session: a, Seq: 2, Key: "x"}, Queued)
	overdrawn(t, s, Upgrade{Session: a, Seq: 3, Token: mine.Token}, NodeWaits, 1)
	apply(t, s, Release{Session: other, Token: theirs.Token}, OK)
	apply(t, s, Upgrade{Session: a, Seq: 4, Token: mine.Token}, Granted)
	mustCheck(t, s)
}

// The loads follow from the table: a restored table has the same ones, and refuses the same.
func TestQuotasOutlastARestore(t *testing.T) {
	q := nodeQuota{sessions: 2, waits: 9, keys: 3, bytes: 1000}
	s, ids := quotaTable(t, q, "n", "n")
	apply(t, s, Acquire{Session: ids[0], Seq: 1, Keys: []string{"1", "2"}}, Granted)
	apply(t, s, Acquire{Session: ids[1], Seq: 1, Key: "1"}, Queued)
	r := must(restored(s))
	overdrawn(t, r, Acquire{Session: ids[1], Seq: 2, Key: "3"}, NodeKeys, 3)
	overdrawn(t, r, Open{Session: SessionID{7}, Client: "c", Node: "n", TTL: 1000}, NodeSessions, 2)
	apply(t, r, Close{Session: ids[0]}, OK)
	apply(t, r, Acquire{Session: ids[1], Seq: 3, Key: "3"}, Granted)
	mustCheck(t, r)
}

// No quota is met by a node with a million keys in clients of 50,000 each, nor by as many
// waiters as 26 keys may have.
func TestQuotasLeaveRoomForAMillionKeys(t *testing.T) {
	for _, tc := range []struct {
		name         string
		limit, needs int
	}{
		{"sessions", MaxNodeSessions, 1_000_000 / MaxHeld},
		{"keys", MaxNodeHeld, 1_000_000},
		{"bytes", MaxNodeHeldBytes, 1_000_000 * 128},
		{"waits", MaxNodeWaits, 100_000},
	} {
		if tc.limit < 2*tc.needs {
			t.Errorf("%s: %d", tc.name, tc.limit)
		}
	}
	s, ids := quotaTable(t, defaultQuota, "n")
	for i := range 1000 {
		apply(t, s, Acquire{Session: ids[0], Seq: uint64(i + 1), Key: fmt.Sprint(i)}, Granted)
	}
}

// The keys that expired sessions of a node keep taken, by a Delay, count for the node until
// they are free.
func TestDelayedGrantsCountForTheirNode(t *testing.T) {
	s, ids := quotaTable(t, nodeQuota{sessions: 3, waits: 2, keys: 4, bytes: 1000}, "n", "other")
	delayed := func(key string) Acquire {
		return Acquire{Seq: uint64(key[0]), Key: key, Spec: Spec{Delay: 1000, Meta: "m"}}
	}
	expire := func(id SessionID, keys ...string) {
		for _, key := range keys {
			c := delayed(key)
			c.Session = id
			apply(t, s, c, Granted)
		}
		end(t, s, Expire{Session: id, Term: s.Term()}, id)
		mustCheck(t, s)
	}
	expire(ids[0], "1", "2", "3")
	if l := s.nodes["n"]; l == nil || *l != (nodeLoad{ghosts: 3, weight: weight{3, 6}}) {
		t.Fatalf("%+v", l)
	}
	a := SessionID{9, 50}
	apply(t, s, Open{Session: a, Client: "another", Node: "n", TTL: 1000}, OK)
	expire(ids[1], "7", "8", "9") // another node has its own quota
	c := delayed("4")
	c.Session = a
	apply(t, s, c, Granted)
	c = delayed("5")
	c.Session = a
	overdrawn(t, s, c, NodeKeys, 4)
	var token Token
	for ghost := range s.Delays {
		if s.delays[ghost] == "1" {
			token = ghost
		}
	}
	apply(t, s, EndDelay{Token: token, Term: s.Term()}, OK)
	if again, err := restored(s); err != nil {
		t.Error(err)
	} else {
		mustCheck(t, again)
	}
	c.Seq++
	apply(t, s, c, Granted)
	mustCheck(t, s)
}
