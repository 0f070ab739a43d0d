package machine

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// counted returns how many elements of tables and lists f looks at.
func counted(f func()) (n int) {
	looks = &n
	defer func() { looks = nil }()
	f()
	return n
}

// maxLooks is how many elements one Apply may look at: about a tenth of a microsecond each.
const maxLooks = 40_000

// hostileSteps are commands of one member by which an Apply took longer than all that others
// did in the meantime. A table of a thousand sessions stands for larger ones.
func hostileSteps(t testing.TB) []costly {
	a, b, c := session16("a"), session16("b"), session16("c")
	table := func() *State { return sessionsIn(t, a, b, c) }
	var list []costly

	s := table()
	var foreign []Token
	for i := range 1000 {
		id := SessionID{1, byte(i), byte(i >> 8)}
		apply(t, s, Open{Session: id, Client: "c", TTL: 5000}, OK)
		out, _ := apply(t, s, Acquire{Session: id, Seq: 1, Key: fmt.Sprint("f", i)}, Granted)
		foreign = append(foreign, out.Token)
	}
	mine, _ := apply(t, s, Acquire{Session: a, Seq: 1, Key: "mine"}, Granted)
	apply(t, s, Acquire{Session: b, Seq: 1, Key: "mine"}, Queued)
	apply(t, s, Acquire{Session: c, Seq: 1, Key: "t/1"}, Granted)
	apply(t, s, Acquire{Session: c, Seq: 2, Key: "t/1", Under: foreign[:MaxUnder]}, Queued)
	list = append(list, costly{name: "a search under grants of many sessions", s: s,
		c: Acquire{Session: a, Seq: 2, Key: "t", Spec: Spec{Tree: true}, Under: []Token{mine.Token}}})

	s = table()
	var own []Token
	for i := range MaxUnder {
		out, _ := apply(t, s, Acquire{Session: a, Seq: uint64(i + 1), Key: fmt.Sprint("own", i)}, Granted)
		own = append(own, out.Token)
	}
	apply(t, s, Acquire{Session: b, Seq: 1, Key: "own0"}, Queued)
	out, _ := apply(t, s, Acquire{Session: b, Seq: 2, Keys: setOf(0)}, Granted)
	wait := Acquire{Session: a, Seq: MaxUnder + 1, Keys: setOf(0), Under: own}
	list = append(list, costly{name: "a set under many grants", s: must(restored(s)), c: wait})
	apply(t, s, wait, Queued)
	list = append(list,
		costly{name: "the withdrawal of a set under many grants", s: must(restored(s)), c: Withdraw{Session: a, Seq: MaxUnder + 1}},
		costly{name: "the grant of a set under many grants", s: must(restored(s)), c: Release{Session: b, Token: out.Token}},
		costly{name: "the end of a session with a set under many grants", s: s, c: Close{Session: a}})

	// A set that waits behind hundreds at each of its keys.
	s = table()
	apply(t, s, Acquire{Session: b, Seq: 1, Keys: setOf(0)}, Granted)
	for i := range 6 * MaxHeld / MaxKeys {
		id := SessionID{1, byte(i / 45)}
		s.Apply(Open{Session: id, Client: "c", TTL: 5000})
		apply(t, s, Acquire{Session: id, Seq: uint64(i + 1), Keys: setOf(0)}, Queued)
	}
	apply(t, s, Acquire{Session: a, Seq: 1, Keys: setOf(0)}, Queued)
	list = append(list,
		costly{name: "a copy of a set behind hundreds", s: must(restored(s)), c: Acquire{Session: a, Seq: 1, Keys: setOf(0)}},
		costly{name: "the withdrawal of a set behind hundreds", s: s, c: Withdraw{Session: a, Seq: 1}})

	// Outcomes of as many sets as a session may hold, all seen at once.
	s = table()
	var seqs []uint64
	for i := range MaxHeld / MaxKeys {
		apply(t, s, Acquire{Session: a, Seq: uint64(i + 1), Keys: setOf(i)}, Granted)
		seqs = append(seqs, uint64(i+1))
	}
	list = append(list, costly{name: "the outcomes of many sets, seen", s: s, c: Release{Session: a, Token: 1, Seen: seqs}})

	// A process of one session among those of others.
	s = table()
	for i := range 2 * maxLooks {
		s.Apply(Open{Session: SessionID{1, byte(i), byte(i >> 8), byte(i >> 16)}, Client: "c", Node: "others", Boot: 7, Dir: DirID{1}, TTL: 5000})
	}
	s.Apply(Open{Session: SessionID{2}, Client: "c", Node: "n", Boot: 6, Dir: DirID{1}, TTL: 5000})
	list = append(list, costly{name: "a Forget among many sessions", s: s, c: Forget{Node: "n", Boot: 6, Dir: DirID{1}}})

	list = append(list, crowds(t)...)
	list = append(list, treeOverCrowd(t), setBeforeReaders(t), liftOfCrowd(t))

	// Kept keys below each tree of a set.
	s, _ = keptBelowTrees(t, 60, 800)
	list = append(list, costly{name: "a set of trees above kept keys", s: s, c: Acquire{Session: b, Seq: 1, Keys: treesOf(60), Spec: Spec{Tree: true}}})
	return list
}

// crowds are changes of a key for which as many wait as are allowed: readers mostly, with
// something about the first of them, or elsewhere in the table, that has each of them looked
// at alone.
func crowds(t testing.TB) (list []costly) {
	a, b, c := session16("a"), session16("b"), session16("c")
	reader := Spec{Mode: Shared}
	first := Acquire{Session: a, Seq: 1, Key: "k"}
	release := func(s *State) Command {
		_, token := s.Owner("k")
		return Release{Session: a, Token: token}
	}
	for _, x := range []struct {
		name  string
		first Acquire
		more  func(s *State, i int) Command // what comes before the waiter i of c
		last  func(s *State) Command
	}{
		{name: "readers behind a reader of two keys", first: first, more: func(s *State, i int) Command {
			if i == 0 {
				apply(t, s, Acquire{Session: b, Seq: 1, Key: "z"}, Granted)
				return Acquire{Session: c, Seq: MaxHeld, Keys: []string{"k", "z"}, Spec: reader}
			}
			return nil
		}, last: release},
		{name: "readers between readers of two keys", first: first, more: func(s *State, i int) Command {
			if i == 0 {
				apply(t, s, Acquire{Session: b, Seq: 1, Key: "z"}, Granted)
			}
			if i%2 == 0 {
				return Acquire{Session: c, Seq: MaxHeld + uint64(i), Keys: []string{"k", "z"}, Spec: reader}
			}
			return nil
		}, last: release},
		{name: "shared trees between readers of two keys", first: first, more: func(s *State, i int) Command {
			if i == 0 {
				apply(t, s, Acquire{Session: b, Seq: 1, Key: "z"}, Granted)
			}
			if i%2 == 0 {
				return Acquire{Session: c, Seq: MaxHeld + uint64(i), Keys: []string{"k", "z"}, Spec: reader}
			}
			return Acquire{Session: b, Seq: uint64(i + 1), Key: "k", Spec: Spec{Mode: Shared, Tree: true}}
		}, last: release},
		{name: "readers while a condition waits elsewhere", first: first, more: func(s *State, i int) Command {
			if i == 0 {
				apply(t, s, Acquire{Session: b, Seq: 1, Key: "z"}, Granted)
				return Acquire{Session: a, Seq: 2, Key: "z", Spec: Spec{Conditional: true, IfToken: 2}}
			}
			return nil
		}, last: release},
		{name: "readers between conditions", first: first, more: func(s *State, i int) Command {
			if i%2 == 0 {
				return Acquire{Session: b, Seq: uint64(i + 1), Key: "k", Spec: Spec{Mode: Shared, Conditional: true, IfToken: 1}}
			}
			return nil
		}, last: release},
		{name: "readers beside a ghost", first: Acquire{Session: a, Seq: 1, Key: "k", Spec: reader}, more: func(s *State, i int) Command {
			if i == 0 {
				d := session16("d")
				apply(t, s, Open{Session: d, Client: "another", TTL: 5000}, OK)
				apply(t, s, Acquire{Session: d, Seq: 1, Key: "k", Spec: Spec{Mode: Shared, Delay: 5000}}, Granted)
				apply(t, s, Expire{Session: d, Term: 1}, OK)
				return Acquire{Session: b, Seq: 1, Key: "k"}
			}
			return nil
		}, last: func(*State) Command { return Withdraw{Session: b, Seq: 1} }},
		{name: "readers of a deep key beside a tree", first: Acquire{Session: a, Seq: 1, Key: deepKey}, more: func(s *State, i int) Command {
			if i == 0 {
				apply(t, s, Acquire{Session: b, Seq: 1, Key: "z", Spec: Spec{Tree: true}}, Granted)
			}
			return nil
		}, last: func(s *State) Command {
			_, token := s.Owner(deepKey)
			return Release{Session: a, Token: token}
		}},
	} {
		s := sessionsIn(t, a, b, c)
		apply(t, s, x.first, Granted)
		for i := range MaxWaiters - 1 {
			if cmd := x.more(s, i); cmd != nil {
				s.Apply(cmd)
			}
			s.Apply(Acquire{Session: c, Seq: uint64(i + 1), Key: x.first.Key, Spec: reader})
		}
		if n := s.Counts().Waiters; n < MaxWaiters*9/10 {
			t.Fatalf("%s: %d wait", x.name, n)
		}
		list = append(list, costly{name: x.name, s: s, c: x.last(s), work: MaxWaiters / 2})
	}

	// Trees that wait above readers, behind them.
	s := sessionsIn(t, a, b, c)
	out, _ := apply(t, s, Acquire{Session: a, Seq: 1, Key: "t/k"}, Granted)
	for i := range MaxWaiters - 1 {
		s.Apply(Acquire{Session: c, Seq: uint64(i + 1), Key: "t/k", Spec: reader})
	}
	for i := range MaxWaiters - 1 {
		s.Apply(Acquire{Session: b, Seq: uint64(i + 1), Key: "t", Spec: Spec{Tree: true}})
	}
	list = append(list, costly{name: "readers before many trees", s: s, c: Release{Session: a, Token: out.Token}, work: MaxWaiters})

	// A thousand grants of one tree, given up at once, above waiters at many keys.
	s = sessionsIn(t, a, b, c)
	many := Withdraw{Session: a, Seq: 1}
	for i := range MaxWithdrawn + 1 {
		apply(t, s, Acquire{Session: a, Seq: uint64(i + 1), Key: "t", Spec: Spec{Mode: Shared, Tree: true}}, Granted)
		if i > 0 {
			many.More = append(many.More, uint64(i+1))
		}
	}
	apply(t, s, Acquire{Session: b, Seq: 1, Key: "t", Spec: Spec{Mode: Shared, Tree: true}}, Granted)
	for i := range 2000 {
		apply(t, s, Acquire{Session: c, Seq: uint64(i + 1), Key: fmt.Sprint("t/", i)}, Queued)
	}
	list = append(list, costly{name: "a thousand grants of a tree above waiters, given up", s: s, c: many, work: 2000})

	// Requests for two keys that leave the queues from behind another.
	s = sessionsIn(t, a, b, c)
	apply(t, s, Acquire{Session: a, Seq: 1, Keys: []string{"k", "l"}}, Granted)
	apply(t, s, Acquire{Session: b, Seq: 1, Keys: []string{"k", "l"}}, Queued)
	w := Withdraw{Session: c, Seq: 1}
	for i := range MaxWaiters - 1 {
		s.Apply(Acquire{Session: c, Seq: uint64(i + 1), Keys: []string{"k", "l"}})
		if 0 < i && i <= MaxWithdrawn && 2*(i+1) <= MaxWithdrawnKeys {
			w.More = append(w.More, uint64(i+1))
		}
	}
	return append(list, costly{name: "the withdrawal of many requests for two keys", s: s, c: w, work: len(w.More)})
}

// treeOverCrowd is the release of a tree for whose keys many wait.
func treeOverCrowd(t testing.TB) costly {
	a, c := session16("a"), session16("c")
	s := sessionsIn(t, a, c)
	out, _ := apply(t, s, Acquire{Session: a, Seq: 1, Key: "t", Spec: Spec{Tree: true}}, Granted)
	for i := range MaxWaiters {
		s.Apply(Acquire{Session: c, Seq: uint64(i + 1), Key: fmt.Sprint("t/", i)})
	}
	return costly{name: "the release of a tree before waiters for many keys", s: s, c: Release{Session: a, Token: out.Token}, work: MaxWaiters}
}

var deepKey = strings.Repeat("a/", MaxKey/2-1) + "a"

func treesOf(n int) (keys []string) {
	for i := range n {
		keys = append(keys, fmt.Sprintf("t%04d", i))
	}
	return keys
}

// keptBelowTrees returns a table in which session a keeps so many keys below each of some
// trees by a block of tokens, and the tokens of these grants by their keys.
func keptBelowTrees(t testing.TB, trees, each int) (*State, map[string]Token) {
	s := withA(t)
	apply(t, s, Open{Session: session16("b"), Client: "b", TTL: 5000}, OK)
	held, seq := make(map[string]Token), uint64(0)
	for _, tree := range treesOf(trees) {
		for i := range each {
			seq++
			key := fmt.Sprint(tree, "/", i)
			out, _ := apply(t, s, Acquire{Session: session16("a"), Seq: seq, Key: key, Spec: Spec{Block: 1}}, Granted)
			held[key] = out.Token
		}
	}
	return s, held
}

// TestEveryTreeRecallsTheKeysBelow: the trees of one step share its recalls, and none of them
// starves. The holder gives back a key as soon as it is told, and no other.
func TestEveryTreeRecallsTheKeysBelow(t *testing.T) {
	const trees, each, slice = 8, 5, 6
	for name, ask := range map[string]func(*State){
		"a set": func(s *State) {
			apply(t, s, Acquire{Session: session16("b"), Seq: 1, Keys: treesOf(trees), Spec: Spec{Tree: true}}, Queued)
		},
		"one by one": func(s *State) {
			for i, tree := range treesOf(trees) {
				apply(t, s, Acquire{Session: session16("b"), Seq: uint64(i + 1), Key: tree, Spec: Spec{Tree: true}}, Queued)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, held := keptBelowTrees(t, trees, each)
			s.slice = slice
			ask(s)
			told := func() (keys []string) {
				for _, e := range s.Pending(session16("a")) {
					if e.Kind == EventContended {
						keys = append(keys, e.Key)
					}
				}
				return keys
			}
			if n := len(told()); n > trees*slice || name == "a set" && n > slice+trees {
				t.Errorf("%d holders told at once", n)
			}
			for step := 0; len(held) > 0; step++ {
				keys := told()
				if len(keys) == 0 {
					t.Fatalf("after %d releases %d keys are kept, and nobody is told", step, len(held))
				}
				before := len(keys)
				apply(t, s, Release{Session: session16("a"), Token: held[keys[0]]}, OK)
				delete(held, keys[0])
				if n := len(told()); n > before-1+slice+trees {
					t.Errorf("a release tells %d holders", n-before+1)
				}
				if err := s.Check(); err != nil {
					t.Fatal(err)
				}
			}
			if n := s.Counts(); n.Waiters != 0 {
				t.Errorf("%+v: the trees were not granted", n)
			}
		})
	}
}

// TestNoStepIsLong: no command of a few bytes looks at more than a bounded part of the table.
func TestNoStepIsLong(t *testing.T) {
	for _, tt := range hostileSteps(t) {
		if n := counted(func() { tt.s.Apply(tt.c) }); n > maxLooks {
			t.Errorf("%s looks at %d elements, want %d at most", tt.name, n, maxLooks)
		}
	}
}

// TestAStepLooksUpLittle: a search looks up each key and not each waiter, and ten thousand
// readers are granted in one edit. The bounds are a third above the present numbers.
func TestAStepLooksUpLittle(t *testing.T) {
	most := map[string]int{
		"the grant of many readers":             13_000,
		"a search for a set of deep trees":      13_000,
		"a search above thousands of waiters":   13_000,
		"a search among thousands of trees":     700,
		"a search among writers beside a tree":  50,
		"a search among readers beside a tree":  50,
		"a search for many waiters under a key": 23_000,
	}
	for _, tt := range append(costlyCommands(t), treeCommands(t)...) {
		bound, known := most[tt.name]
		if !known {
			continue
		}
		delete(most, tt.name)
		if n := counted(func() { tt.s.Apply(tt.c) }); n > bound {
			t.Errorf("%s looks at %d elements, want %d at most", tt.name, n, bound)
		}
	}
	if len(most) > 0 {
		t.Errorf("there are no such commands: %v", most)
	}
}

// A reader that has left the table, or that cannot be granted, is left to its turn: a batch
// ends before it.
func TestReadersAreGrantedTogetherUpToAnother(t *testing.T) {
	a, b, c := session16("a"), session16("b"), session16("c")
	s := sessionsIn(t, a, b, c)
	out, _ := apply(t, s, Acquire{Session: a, Seq: 1, Key: "k"}, Granted)
	base, _ := apply(t, s, Acquire{Session: b, Seq: 99, Key: "base"}, Granted)
	reader := Spec{Mode: Shared}
	apply(t, s, Acquire{Session: b, Seq: 1, Key: "k", Spec: reader}, Queued)
	apply(t, s, Acquire{Session: b, Seq: 2, Key: "k", Spec: Spec{Mode: Shared, Meta: "m"}, Under: []Token{base.Token}}, Queued)
	apply(t, s, Acquire{Session: c, Seq: 1, Key: "k", Spec: reader}, Queued)
	apply(t, s, Acquire{Session: c, Seq: 2, Keys: []string{"k", "l"}, Spec: reader}, Queued)
	apply(t, s, Acquire{Session: b, Seq: 3, Key: "k", Spec: reader}, Queued)
	apply(t, s, Acquire{Session: c, Seq: 3, Key: "k"}, Queued)
	apply(t, s, Acquire{Session: b, Seq: 4, Key: "k", Spec: reader}, Queued)
	_, events := apply(t, s, Release{Session: a, Token: out.Token}, OK)
	var granted []uint64
	for i, e := range events {
		if e.Kind != EventGranted {
			continue
		}
		granted = append(granted, e.Seq)
		if want := out.Token + 2 + Token(i); e.Token != want || e.Waiters == 0 {
			t.Errorf("event %d: token %d, want %d; %d wait", i, e.Token, want, e.Waiters)
		}
	}
	if want := []uint64{1, 2, 1, 2, 3}; !slices.Equal(granted, want) {
		t.Errorf("granted %v, want %v", granted, want)
	}
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}

// A release below a waiting tree tells two further holders: a thousand releases may share an
// entry.
func TestAReleaseBelowATreeTellsTwo(t *testing.T) {
	s, held := keptBelowTrees(t, 1, 100)
	s.slice = 10
	_, events := apply(t, s, Acquire{Session: session16("b"), Seq: 1, Key: treesOf(1)[0], Spec: Spec{Tree: true}}, Queued)
	told := func() (keys []string) {
		for _, e := range events {
			if e.Kind == EventContended {
				keys = append(keys, e.Key)
			}
		}
		return keys
	}
	keys := told()
	if len(keys) != s.slice {
		t.Fatalf("the request tells %d", len(keys))
	}
	_, events = apply(t, s, Release{Session: session16("a"), Token: held[keys[0]]}, OK)
	if n := len(told()); n != 2 {
		t.Errorf("a release tells %d", n)
	}
}

// Readers that are granted together obey what holds for each of them: the limit of holders,
// a tree that is held above, a tree that came before them, and the condition of one.
func TestReadersGrantedTogetherWaitForOthers(t *testing.T) {
	a, b, c := session16("a"), session16("b"), session16("c")
	reader := Spec{Mode: Shared}
	holders := func(s *State, key string) int { return len(s.keys.get(key).holders) }

	s := sessionsIn(t, a, b, c)
	for i := range 5 {
		apply(t, s, Acquire{Session: a, Seq: uint64(i + 1), Key: "k", Spec: reader}, Granted)
	}
	apply(t, s, Acquire{Session: b, Seq: 1, Key: "k"}, Queued)
	for i := range MaxWaiters - 1 {
		apply(t, s, Acquire{Session: c, Seq: uint64(i + 1), Key: "k", Spec: reader}, Queued)
	}
	apply(t, s, Withdraw{Session: b, Seq: 1}, OK)
	if n, left := holders(s, "k"), len(s.keys.get("k").queue); n != MaxHolders || left != MaxWaiters-1+5-MaxHolders {
		t.Errorf("%d hold and %d wait, of %d allowed", n, left, MaxHolders)
	}

	s = sessionsIn(t, a, b, c)
	apply(t, s, Acquire{Session: a, Seq: 1, Key: "t", Spec: Spec{Tree: true}}, Granted)
	apply(t, s, Acquire{Session: b, Seq: 1, Key: "t/k"}, Queued)
	apply(t, s, Acquire{Session: c, Seq: 1, Key: "t/k", Spec: reader}, Queued)
	apply(t, s, Withdraw{Session: b, Seq: 1}, OK)
	if n := holders(s, "t/k"); n != 0 {
		t.Errorf("%d readers hold a key below a held tree", n)
	}

	// An upgrade stands before all, with the order 0.
	s = sessionsIn(t, a, b, c)
	up, _ := apply(t, s, Acquire{Session: a, Seq: 1, Key: "t/k", Spec: reader}, Granted)
	out, _ := apply(t, s, Acquire{Session: b, Seq: 1, Key: "t/k", Spec: reader}, Granted)
	apply(t, s, Acquire{Session: b, Seq: 2, Key: "t/k", Spec: reader}, Granted)
	apply(t, s, Upgrade{Session: a, Seq: 2, Token: up.Token}, Queued)
	apply(t, s, Acquire{Session: c, Seq: 1, Key: "t", Spec: Spec{Mode: Shared, Tree: true}}, Queued)
	apply(t, s, Release{Session: b, Token: out.Token}, OK)
	if n := holders(s, "t"); n != 0 {
		t.Errorf("%d hold a tree above an upgrade that waits", n)
	}

	s = sessionsIn(t, a, b, c)
	up, _ = apply(t, s, Acquire{Session: a, Seq: 1, Key: "t", Spec: Spec{Mode: Shared, Tree: true}}, Granted)
	apply(t, s, Acquire{Session: b, Seq: 1, Key: "t", Spec: reader}, Granted)
	apply(t, s, Upgrade{Session: a, Seq: 2, Token: up.Token}, Queued)
	apply(t, s, Acquire{Session: b, Seq: 2, Key: "t/k"}, Queued)
	apply(t, s, Acquire{Session: c, Seq: 1, Key: "t/k", Spec: reader}, Queued)
	apply(t, s, Withdraw{Session: b, Seq: 2}, OK)
	if n := holders(s, "t/k"); n != 0 {
		t.Errorf("%d hold a key below a tree whose upgrade waits", n)
	}

	s = sessionsIn(t, a, b, c)
	out, _ = apply(t, s, Acquire{Session: a, Seq: 1, Key: "t/k"}, Granted)
	apply(t, s, Acquire{Session: c, Seq: 1, Key: "t/k", Spec: reader}, Queued)
	apply(t, s, Acquire{Session: b, Seq: 1, Key: "t", Spec: Spec{Tree: true}}, Queued)
	apply(t, s, Acquire{Session: c, Seq: 2, Key: "t/k", Spec: reader}, Queued)
	apply(t, s, Release{Session: a, Token: out.Token}, OK)
	if h := s.keys.get("t/k").holders; len(h) != 1 || h[0].seq != 1 {
		t.Errorf("%+v hold a key, of a reader before a tree and one behind", h)
	}

	s = sessionsIn(t, a, b, c)
	out, _ = apply(t, s, Acquire{Session: a, Seq: 1, Key: "k"}, Granted)
	apply(t, s, Acquire{Session: c, Seq: 1, Key: "k", Spec: reader}, Queued)
	apply(t, s, Acquire{Session: b, Seq: 1, Key: "k", Spec: Spec{Mode: Shared, Conditional: true, IfToken: out.Token}}, Queued)
	apply(t, s, Acquire{Session: c, Seq: 2, Key: "k", Spec: reader}, Queued)
	_, events := apply(t, s, Release{Session: a, Token: out.Token}, OK)
	var got []string
	for _, e := range events {
		if e.Kind == EventGranted || e.Kind == EventRefused {
			got = append(got, fmt.Sprint(e.Session == b, e.Seq, e.Kind == EventGranted))
		}
	}
	if want := []string{"false 1 true", "true 1 false", "false 2 true"}; !slices.Equal(got, want) {
		t.Errorf("events %v, want %v", got, want)
	}
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}
