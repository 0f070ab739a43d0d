package machine

import (
	"fmt"
	"strings"
	"testing"
)

// deep returns n keys of as many levels and bytes in all as a set may have, divided by share.
func deep(i, n, share int) (keys []string) {
	for j := range n {
		key := fmt.Sprintf("%02d/%04d%s", i, j, strings.Repeat("/a", MaxLevels/share/n-1))
		keys = append(keys, key+strings.Repeat("a", MaxKeyBytes/share/n-len(key)))
	}
	return keys
}

// treeCommands are commands that meet many keys above and below theirs.
func treeCommands(t testing.TB) []costly {
	a, b, c := session16("a"), session16("b"), session16("c")
	table := func() *State {
		s := founded()
		for _, id := range []SessionID{a, b, c} {
			apply(t, s, Open{Session: id, Client: "client", TTL: 5000}, OK)
		}
		return s
	}
	tree, trees := Spec{Tree: true}, MaxKeys/TreeShare
	var list []costly
	add := func(name string, s *State, c Command, work int) { list = append(list, costly{name, s, c, work}) }

	s := table()
	add("a set of deep keys", s, Acquire{Session: a, Seq: 1, Keys: deep(0, MaxKeys, 1)}, MaxKeys)
	s = table()
	add("a set of deep trees", s, Acquire{Session: a, Seq: 1, Keys: deep(0, trees, TreeShare), Spec: tree}, trees)
	s = table()
	apply(t, s, Acquire{Session: c, Seq: 1, Key: "other", Spec: tree}, Granted)
	add("a set of deep keys beside a tree", s, Acquire{Session: a, Seq: 1, Keys: deep(0, MaxKeys, 1)}, MaxKeys)
	s = table()
	out, _ := apply(t, s, Acquire{Session: a, Seq: 1, Keys: deep(0, trees, TreeShare), Spec: tree}, Granted)
	apply(t, s, Acquire{Session: b, Seq: 1, Keys: deep(0, trees, TreeShare), Spec: tree}, Queued)
	add("the release of a set of deep trees", s, Release{Session: a, Token: out.Token}, trees)
	s = table()
	out, _ = apply(t, s, Acquire{Session: a, Seq: 1, Key: "mine"}, Granted)
	apply(t, s, Acquire{Session: c, Seq: 1, Keys: deep(0, trees, TreeShare), Spec: tree}, Granted)
	apply(t, s, Acquire{Session: b, Seq: 1, Keys: deep(0, trees, TreeShare), Spec: tree}, Queued)
	apply(t, s, Acquire{Session: b, Seq: 2, Key: "mine"}, Queued)
	add("a search for a set of deep trees", s, Acquire{Session: a, Seq: 2, Keys: deep(0, trees, TreeShare), Spec: tree, Under: []Token{out.Token}}, trees)

	// Thousands of waiters below a key, and of a tree's.
	s = table()
	out, _ = apply(t, s, Acquire{Session: a, Seq: 1, Key: "mine"}, Granted)
	apply(t, s, Acquire{Session: b, Seq: 1, Key: "mine"}, Queued)
	for i := range 2 * MaxWaiters {
		s.Apply(Acquire{Session: c, Seq: uint64(i + 1), Key: fmt.Sprint("r/", i%4000)})
	}
	add("a search above thousands of waiters", s, Acquire{Session: a, Seq: 2, Key: "r", Spec: tree, Under: []Token{out.Token}}, 4000)
	s = table()
	out, _ = apply(t, s, Acquire{Session: a, Seq: 1, Key: "mine"}, Granted)
	apply(t, s, Acquire{Session: c, Seq: 1, Key: "r", Spec: tree}, Granted)
	out2, _ := apply(t, s, Acquire{Session: c, Seq: MaxHeld, Key: "base"}, Granted)
	apply(t, s, Acquire{Session: b, Seq: 1, Key: "mine"}, Queued)
	for i := range MaxWaiters {
		s.Apply(Acquire{Session: c, Seq: uint64(i + 2), Key: fmt.Sprint("r/", i%100, "/x"), Spec: Spec{Tree: i%2 == 0}, Under: []Token{out2.Token}})
	}
	add("a search among thousands of trees", s, Acquire{Session: a, Seq: 2, Key: "r", Spec: tree, Under: []Token{out.Token}}, MaxWaiters)

	// Each waiter of a queue has a lineage, so that none can be passed over.
	for _, mode := range []Mode{Exclusive, Shared} {
		s = table()
		out, _ = apply(t, s, Acquire{Session: a, Seq: 1, Key: "mine"}, Granted)
		apply(t, s, Acquire{Session: c, Seq: 1, Key: "r", Spec: Spec{Tree: true}}, Granted)
		out2, _ = apply(t, s, Acquire{Session: c, Seq: MaxHeld, Key: "base"}, Granted)
		apply(t, s, Acquire{Session: b, Seq: 1, Key: "mine"}, Queued)
		for i := range MaxWaiters - 1 {
			s.Apply(Acquire{Session: c, Seq: uint64(i + 2), Key: "r", Spec: Spec{Mode: mode}, Under: []Token{out2.Token}})
		}
		name := map[Mode]string{Exclusive: "writers", Shared: "readers"}[mode]
		add("a search among "+name+" beside a tree", s, Acquire{Session: a, Seq: 2, Key: "r", Under: []Token{out.Token}}, MaxWaiters)
	}
	return list
}

// longSteps are other commands whose work grows with the table.
func longSteps(t testing.TB) []costly {
	s := founded()
	for i := range 16_384 {
		apply(t, s, Open{Session: SessionID{1, byte(i), byte(i >> 8)}, Client: "client", Node: "n", Boot: 6, Dir: DirID{1}, TTL: 5000}, OK)
	}
	return []costly{{"a Forget of many sessions", s, Forget{Node: "n", Boot: 6, Dir: DirID{1}}, 16_384}, treeOverCrowd(t), crowdBehindOne(t), setBeforeReaders(t), liftOfCrowd(t)}
}
