package machine

import (
	"fmt"
	"strings"
	"testing"
)

// costly is a table and a command whose few bytes are much work.
type costly struct {
	name string
	s    *State
	c    Command
	work int // keys, grants and waiters that it changes
}

// sessionsIn returns a table that grants, with open sessions.
func sessionsIn(t testing.TB, ids ...SessionID) *State {
	s := founded()
	for _, id := range ids {
		apply(t, s, Open{Session: id, Client: "client", TTL: 5000}, OK)
	}
	return s
}

// setOf returns the keys of the i-th of several large sets, in order.
func setOf(i int) []string {
	keys := make([]string, MaxKeys)
	for j := range keys {
		keys[j] = fmt.Sprintf("%02d/%04d", i, j)
	}
	return keys
}

func costlyCommands(t testing.TB) []costly {
	const readers = MaxHolders
	a, b, c := session16("a"), session16("b"), session16("c")
	table := func() *State { return sessionsIn(t, a, b, c) }
	var list []costly

	s := table()
	list = append(list, costly{"a set", s, Acquire{Session: a, Seq: 1, Keys: setOf(0)}, MaxKeys})

	s = table()
	out, _ := apply(t, s, Acquire{Session: a, Seq: 1, Keys: setOf(0)}, Granted)
	apply(t, s, Acquire{Session: b, Seq: 1, Keys: setOf(0)}, Queued)
	list = append(list, costly{"the release of a set", s, Release{Session: a, Token: out.Token}, MaxKeys},
		costly{"the break of a set", s, Break{Session: b, Key: setOf(0)[7], Token: out.Token}, MaxKeys},
		costly{"an ask for a set", s, Ask{Session: b, Key: setOf(0)[7]}, MaxKeys},
		costly{"the end of a session", s, Close{Session: a}, MaxKeys},
		costly{"an operator's end of a session", s, EndSession{Session: a, Ref: b.Ref()}, MaxKeys})

	s = table()
	apply(t, s, Acquire{Session: a, Seq: 1, Key: "00/0000"}, Granted)
	apply(t, s, Acquire{Session: a, Seq: 2, Key: "01/0000"}, Granted)
	apply(t, s, Acquire{Session: b, Seq: 1, Keys: setOf(0)}, Queued)
	apply(t, s, Acquire{Session: b, Seq: 2, Keys: setOf(1)}, Queued)
	list = append(list, costly{"the withdrawal of two sets", s, Withdraw{Session: b, Seq: 1, More: []uint64{2}}, 2 * MaxKeys},
		costly{"the grant of a set", s, Release{Session: a, Token: s.LastToken()}, MaxKeys})

	s = table()
	out, _ = apply(t, s, Acquire{Session: a, Seq: 1, Key: "k"}, Granted)
	for i := range readers {
		apply(t, s, Acquire{Session: b, Seq: uint64(i + 1), Key: "k", Spec: Spec{Mode: Shared}}, Queued)
	}
	list = append(list, costly{"the grant of many readers", s, Release{Session: a, Token: out.Token}, readers})

	s = table()
	for i := range readers {
		apply(t, s, Acquire{Session: b, Seq: uint64(i + 1), Key: "k", Spec: Spec{Mode: Shared}}, Granted)
	}
	out, _ = apply(t, s, Acquire{Session: a, Seq: 1, Key: "mine"}, Granted)
	apply(t, s, Acquire{Session: c, Seq: 1, Key: "mine"}, Queued)
	list = append(list, costly{"a writer behind many readers", s, Acquire{Session: a, Seq: 2, Key: "k"}, readers},
		costly{"a search among many readers", s, Acquire{Session: a, Seq: 2, Key: "k", Under: []Token{out.Token}}, readers})

	s = table()
	out, _ = apply(t, s, Acquire{Session: a, Seq: 1, Key: "mine"}, Granted)
	base, _ := apply(t, s, Acquire{Session: c, Seq: MaxHeld, Key: "base"}, Granted)
	apply(t, s, Acquire{Session: b, Seq: 1, Key: "k"}, Granted)
	for i := range MaxWaiters - 1 {
		s.Apply(Acquire{Session: c, Seq: uint64(i + 1), Key: "k", Under: []Token{base.Token}})
	}
	apply(t, s, Acquire{Session: b, Seq: 2, Key: "mine"}, Queued)
	list = append(list, costly{"a search for many waiters under a key", s, Acquire{Session: a, Seq: 2, Key: "base", Under: []Token{out.Token}}, 1})
	return list
}

// crowdBehindOne is the withdrawal of a writer before readers.
func crowdBehindOne(t testing.TB) costly {
	a, b, c := session16("a"), session16("b"), session16("c")
	s := sessionsIn(t, a, b, c)
	apply(t, s, Acquire{Session: a, Seq: 1, Key: "k", Spec: Spec{Mode: Shared}}, Granted)
	apply(t, s, Acquire{Session: b, Seq: 1, Key: "k"}, Queued)
	for i := range MaxWaiters - 1 {
		s.Apply(Acquire{Session: c, Seq: uint64(i + 1), Key: "k", Spec: Spec{Mode: Shared}})
	}
	return costly{name: "the withdrawal of a writer before readers", s: s, c: Withdraw{Session: b, Seq: 1}, work: MaxWaiters - 1}
}

// TestCostSeesTheWorkOfACommand: no command of a few bytes is cheap by its bytes and long
// by its work.
func TestCostSeesTheWorkOfACommand(t *testing.T) {
	for _, tt := range append(append(costlyCommands(t), crowds(t)...), treeOverCrowd(t), crowdBehindOne(t)) {
		if cost := tt.s.Cost(tt.c); cost < min(tt.work, MaxCost) {
			t.Errorf("%s costs %d, but touches %d", tt.name, cost, tt.work)
		}
	}
}

// TestCostIsQuick: Cost looks at the waiters of a queue once, however many of them leave.
func TestCostIsQuick(t *testing.T) {
	a, c := session16("a"), session16("c")
	s := sessionsIn(t, a, c)
	apply(t, s, Acquire{Session: a, Seq: 1, Keys: []string{"k", "l"}}, Granted)
	w := Withdraw{Session: c, Seq: 1}
	for i := range MaxWaiters {
		s.Apply(Acquire{Session: c, Seq: uint64(i + 1), Keys: []string{"k", "l"}})
		if 0 < i && i <= MaxWithdrawn {
			w.More = append(w.More, uint64(i+1))
		}
	}
	if n := counted(func() { s.Cost(w) }); n > maxLooks {
		t.Errorf("looks at %d elements", n)
	}
}

// TestCostSeesTreesThatWait: a key that becomes free is granted to the trees that wait above
// and below it.
func TestCostSeesTreesThatWait(t *testing.T) {
	a, c := session16("a"), session16("c")
	const trees = 1000
	s := sessionsIn(t, a, c)
	out, _ := apply(t, s, Acquire{Session: a, Seq: 1, Key: "t"}, Granted)
	for i := range trees {
		apply(t, s, Acquire{Session: c, Seq: uint64(i + 1), Key: fmt.Sprint("t/", i), Spec: Spec{Tree: true}}, Queued)
	}
	if cost := s.Cost(Release{Session: a, Token: out.Token}); cost < trees {
		t.Errorf("a release above trees that wait costs %d", cost)
	}
	s = sessionsIn(t, a, c)
	out, _ = apply(t, s, Acquire{Session: a, Seq: 1, Key: "t/k"}, Granted)
	for i := range trees {
		apply(t, s, Acquire{Session: c, Seq: uint64(i + 1), Key: "t", Spec: Spec{Mode: Shared, Tree: true}}, Queued)
	}
	if cost := s.Cost(Release{Session: a, Token: out.Token}); cost < trees {
		t.Errorf("a release below trees that wait costs %d", cost)
	}
}

// TestCostIsThatOfTheCommand: waiters of the same session that stay are looked at, and a crowd
// that is in nobody's way costs nothing, though there is a tree.
func TestCostIsThatOfTheCommand(t *testing.T) {
	a, b, c := session16("a"), session16("b"), session16("c")
	const crowd = 1000
	s := sessionsIn(t, a, b, c)
	apply(t, s, Acquire{Session: a, Seq: 1, Key: "z"}, Granted)
	apply(t, s, Acquire{Session: a, Seq: 2, Key: "k", Spec: Spec{Mode: Shared}}, Granted)
	for i := range crowd {
		apply(t, s, Acquire{Session: c, Seq: uint64(i + 1), Keys: []string{"k", "z"}, Spec: Spec{Mode: Shared}}, Queued)
	}
	apply(t, s, Acquire{Session: c, Seq: crowd + 1, Key: "k"}, Queued)
	if cost := s.Cost(Withdraw{Session: c, Seq: crowd + 1}); cost < crowd {
		t.Errorf("a withdrawal from behind a crowd costs %d", cost)
	}

	s = sessionsIn(t, a, b, c)
	apply(t, s, Acquire{Session: a, Seq: 1, Key: "tree", Spec: Spec{Tree: true}}, Granted)
	apply(t, s, Acquire{Session: a, Seq: 2, Key: "jobs"}, Granted)
	for i := range crowd {
		apply(t, s, Acquire{Session: c, Seq: uint64(i + 1), Key: "jobs", Spec: Spec{Mode: Shared}}, Queued)
	}
	out, _ := apply(t, s, Acquire{Session: b, Seq: 1, Key: "jobs/1"}, Granted)
	if cost := s.Cost(Release{Session: b, Token: out.Token}); cost > MaxCost/MaxCommands {
		t.Errorf("a release below a crowd costs %d", cost)
	}
}

// TestPlainCommandsAreCheap: an entry of as many plain commands as it may have is full by
// their number, and not by their cost.
func TestPlainCommandsAreCheap(t *testing.T) {
	s := founded()
	a, b := session16("a"), session16("b")
	apply(t, s, Open{Session: a, Client: "client", TTL: 5000}, OK)
	apply(t, s, Open{Session: b, Client: "client", TTL: 5000}, OK)
	out, _ := apply(t, s, Acquire{Session: a, Seq: 1, Key: "k"}, Granted)
	apply(t, s, Acquire{Session: b, Seq: 1, Key: "k"}, Queued)
	for _, c := range []Command{
		Acquire{Session: a, Seq: 2, Key: "free"},
		Acquire{Session: a, Seq: 2, Key: "free", Under: []Token{out.Token}},
		Acquire{Session: a, Seq: 2, Key: "k"},
		Release{Session: a, Token: out.Token},
		Withdraw{Session: b, Seq: 1},
		SetValue{Session: a, Token: out.Token, Rev: 1, Value: []byte("v")},
		Silence{Session: a, Term: 1},
	} {
		if cost := s.Cost(c); cost > MaxCost/MaxCommands {
			t.Errorf("%#v costs %d", c, cost)
		}
	}
}

// TestAWithdrawOfManySetsIsRefused: one command takes back no more keys than two requests
// may have. Refused, it changes nothing.
func TestAWithdrawOfManySetsIsRefused(t *testing.T) {
	s := founded()
	a := session16("a")
	apply(t, s, Open{Session: a, Client: "client", TTL: 5000}, OK)
	var more []uint64
	for i := range 3 {
		keys := make([]string, MaxKeys)
		for j := range keys {
			keys[j] = fmt.Sprintf("%02d/%04d", i, j)
		}
		apply(t, s, Acquire{Session: a, Seq: uint64(i + 1), Keys: keys}, Granted)
		more = append(more, uint64(i+1))
	}
	if out, _ := apply(t, s, Withdraw{Session: a, Seq: 9, More: more}, BadCommand); out.Field != "More" || out.Limit != MaxWithdrawnKeys {
		t.Errorf("%+v", out)
	}
	if n := s.Counts(); n.Grants != 3*MaxKeys {
		t.Errorf("%+v", n)
	}
	apply(t, s, Withdraw{Session: a, Seq: 9, More: more[:2]}, OK)
	if n := s.Counts(); n.Grants != MaxKeys {
		t.Errorf("%+v", n)
	}
}

func BenchmarkCost(b *testing.B) {
	list := costlyCommands(b)
	for b.Loop() {
		for i := range list {
			list[i].s.Cost(list[i].c)
		}
	}
}

// TestCostSeesTheLevelsAndWaitersOfTrees: commands for trees are counted with the keys above
// and the waiters below theirs, and a set of deep keys is refused.
func TestCostSeesTheLevelsAndWaitersOfTrees(t *testing.T) {
	s := founded()
	a, c := session16("a"), session16("c")
	for _, id := range []SessionID{a, c} {
		apply(t, s, Open{Session: id, Client: "client", TTL: 5000}, OK)
	}
	out, _ := apply(t, s, Acquire{Session: a, Seq: 1, Key: "mine"}, Granted)
	for i := range 5000 {
		s.Apply(Acquire{Session: c, Seq: uint64(i + 1), Key: fmt.Sprint("r/", i%2500)})
	}
	search := Acquire{Session: a, Seq: 2, Key: "r", Spec: Spec{Tree: true}, Under: []Token{out.Token}}
	if cost := s.Cost(search); cost < 2500 {
		t.Errorf("a search above thousands of waiters costs %d", cost)
	}
	far := search
	far.Key = "elsewhere"
	if cost := s.Cost(far); cost > MaxCost/MaxCommands {
		t.Errorf("a search where nobody waits costs %d", cost)
	}
	apply(t, s, Acquire{Session: c, Seq: 6000, Key: "tree", Spec: Spec{Tree: true}}, Granted)
	deep := "k" + strings.Repeat("/a", 250)
	if cost := s.Cost(Acquire{Session: a, Seq: 2, Key: deep}); cost < 100 {
		t.Errorf("a look at 250 keys above costs %d", cost)
	}
	set := make([]string, 17)
	for i := range set {
		set[i] = fmt.Sprintf("%02d%s", i, strings.Repeat("/a", 250))
	}
	if out, _ := apply(t, s, Acquire{Session: a, Seq: 2, Keys: set}, BadCommand); out.Field != "Keys" || out.Limit != MaxLevels {
		t.Errorf("%+v", out)
	}
	apply(t, s, Acquire{Session: a, Seq: 2, Keys: set[:16]}, Granted)
}
