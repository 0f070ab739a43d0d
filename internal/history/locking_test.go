package history

import (
	"fmt"
	"testing"
	"time"
)

func TestModelOfAMutex(t *testing.T) {
	judge(t, []verdict{
		{"take, let go, take", "", tell().get("a", "k", 1, 2, 5).free("a", 3, 4).get("b", "k", 5, 6, 6)},
		{"two holders", "model", tell().get("a", "k", 1, 2, 5).held("a", 9, Held).get("b", "k", 5, 6, 6)},
		{"two holders, by a release that came later", "model", tell().get("a", "k", 1, 2, 5).free("a", 7, 8).get("b", "k", 5, 6, 6)},
		{"granted while the release is under way", "", tell().get("a", "k", 1, 2, 5).free("a", 3, 9).get("b", "k", 5, 6, 6)},
		{"granted after the loss", "", tell().get("a", "k", 1, 2, 5).held("a", 4, Lost).get("b", "k", 5, 6, 6)},
		{"a token falls", "model", tell().get("a", "k", 1, 2, 5).free("a", 3, 4).get("b", "k", 5, 6, 4)},
		{"refused though free", "model", tell().get("a", "k", 1, 2, 5).free("a", 3, 4).try("b", "k", 5, 6, 0, err(ErrHeld))},
		{"refused by the holder", "", tell().get("a", "k", 1, 2, 5).try("b", "k", 3, 4, 0, err(ErrHeld)).free("a", 5, 6)},
		{"refused by a request that nobody saw granted", "", tell().get("a", "k", 1, 2, 5).free("a", 3, 4).
			get("u", "k", 3, 4, 0, unknown).try("b", "k", 5, 6, 0, err(ErrHeld))},
		{"refused behind a lazy release", "", tell().get("a", "k", 1, 2, 5, lazy).free("a", 3, 4).try("b", "k", 5, 6, 0, err(ErrHeld))},
		{"a release frees its successor", "exclusion", tell().get("a", "k", 1, 2, 5).held("a", 3, Lost).get("b", "k", 4, 5, 6).held("b", 20, Held).
			of(Release, "a", 6, 7, err(ErrLost)).get("c", "k", 8, 9, 7).held("c", 10, Held)},
		{"two keys", "", tell().get("a", "k", 1, 2, 5).held("a", 9, Held).get("b", "j", 5, 6, 6).held("b", 9, Held)},
	})
}

func TestModelOfModes(t *testing.T) {
	s, x := mode(Shared, 0), mode(Exclusive, 0)
	p := func(n int) func(*Op) { return mode(Permits, n) }
	set := func(at int64, n int) func(*story) *story {
		return func(s *story) *story {
			s.Ops = append(s.Ops, Op{ID: "set", Process: "o", Client: "o", Kind: SetCapacity, Keys: []string{"k"}, N: n, Call: at, Return: at + 1, Outcome: Done})
			return s
		}
	}
	judge(t, []verdict{
		{"readers share", "", tell().get("a", "k", 1, 2, 5, s).held("a", 9, Held).get("b", "k", 3, 4, 6, s).held("b", 9, Held)},
		{"a writer beside a reader", "model", tell().get("a", "k", 1, 2, 5, s).held("a", 9, Held).get("b", "k", 3, 4, 6, x)},
		{"a reader beside a writer", "model", tell().get("a", "k", 1, 2, 5, x).held("a", 9, Held).get("b", "k", 3, 4, 6, s)},
		{"a reader beside a former writer", "", tell().get("a", "k", 1, 2, 5, x).held("a", 3, Held).of(Downgrade, "a", 3, 4).get("b", "k", 5, 6, 6, s)},
		{"a reader beside a writer that may be none", "", tell().get("a", "k", 1, 2, 5, x).held("a", 3, Held).of(Downgrade, "a", 3, 4, unknown).get("b", "k", 5, 6, 6, s)},
		{"a writer beside a former writer", "model", tell().get("a", "k", 1, 2, 5, x).held("a", 9, Held).of(Downgrade, "a", 3, 4).get("b", "k", 5, 6, 6, x)},
		{"a reader refused by a reader", "model", tell().get("a", "k", 1, 2, 5, s).held("a", 9, Held).try("b", "k", 3, 4, 0, s, err(ErrHeld))},
		{"a reader refused by an upgrade that waits", "", tell().get("a", "k", 1, 2, 5, s).get("b", "k", 3, 4, 6, s).of(Upgrade, "a", 5, 9, newToken(7)).
			try("c", "k", 6, 7, 0, s, err(ErrHeld)).free("b", 8, 9)},
		{"an upgrade alone", "", tell().get("a", "k", 1, 2, 5, s).get("b", "k", 3, 4, 6, s).free("b", 5, 6).of(Upgrade, "a", 5, 7, newToken(7))},
		{"an upgrade beside a reader", "model", tell().get("a", "k", 1, 2, 5, s).get("b", "k", 3, 4, 6, s).held("b", 20, Held).of(Upgrade, "a", 5, 7, newToken(7))},
		{"an upgrade of what was exclusive still", "", tell().get("a", "k", 1, 2, 5).get("z", "j", 2, 3, 6).of(Downgrade, "a", 3, 4, unknown).of(Upgrade, "a", 5, 5, newToken(5))},
		{"an upgrade of what was exclusive, beside a reader", "model", tell().get("a", "k", 1, 2, 5).of(Downgrade, "a", 3, 4, unknown).of(Upgrade, "a", 5, 6, newToken(5)).held("a", 12, Held).get("b", "k", 8, 9, 6, s)},
		{"an upgrade to an old token", "model", tell().get("a", "k", 1, 2, 5, s).of(Upgrade, "a", 5, 7, newToken(4))},
		{"capacity", "", tell().get("a", "k", 1, 2, 5, p(1), of(2)).held("a", 9, Held).get("b", "k", 3, 4, 6, p(1), of(2)).held("b", 9, Held)},
		{"capacity + 1", "model", tell().get("a", "k", 1, 2, 5, p(1), of(2)).held("a", 9, Held).get("b", "k", 3, 4, 6, p(2), of(2)).held("b", 9, Held)},
		{"capacity + 1 by what the holders saw", "exclusion", tell().get("a", "k", 1, 2, 5, p(1), of(2)).held("a", 9, Held).get("b", "k", 3, 4, 6, p(2), of(2)).held("b", 9, Held)},
		{"a larger capacity", "", set(2, 3)(tell()).get("a", "k", 4, 5, 5, p(1)).held("a", 9, Held).get("b", "k", 6, 7, 6, p(2)).held("b", 9, Held)},
		{"a smaller capacity", "model", set(2, 2)(tell()).get("a", "k", 4, 5, 5, p(1)).held("a", 9, Held).get("b", "k", 6, 7, 6, p(2)).held("b", 9, Held)},
		{"refused for a capacity that was enough", "model", set(2, 2)(tell()).get("a", "k", 4, 5, 5, p(1)).try("b", "k", 6, 7, 0, p(2), err(ErrCapacity))},
		{"refused for a capacity that was not", "", set(2, 2)(tell()).get("a", "k", 4, 5, 5, p(1)).try("b", "k", 6, 7, 0, p(3), err(ErrCapacity))},
	})
}

func TestModelOfSetsTreesOwnersAndConditions(t *testing.T) {
	owner := func(o *Op) { o.Client, o.Owner = "c", "o" }
	again := func(o *Op) { owner(o); o.Shared = true }
	judge(t, []verdict{
		{"two sets apart", "", tell().get("a", "j+k", 1, 2, 5).held("a", 9, Held).get("b", "l+m", 3, 4, 6).held("b", 9, Held)},
		{"two sets that meet", "model", tell().get("a", "j+k", 1, 2, 5).held("a", 9, Held).get("b", "k+l", 3, 4, 6)},
		{"a key of a set", "exclusion", tell().get("a", "j+k", 1, 2, 5).held("a", 9, Held).get("b", "k", 3, 4, 6).held("b", 9, Held)},
		{"below a tree", "model", tell().get("a", "k", 1, 2, 5, tree).held("a", 9, Held).get("b", "k/x", 3, 4, 6)},
		{"above a leaf", "exclusion", tell().get("a", "k/x", 1, 2, 5).held("a", 9, Held).get("b", "k", 3, 4, 6, tree).held("b", 9, Held)},
		{"beside a tree", "", tell().get("a", "k", 1, 2, 5, tree).held("a", 9, Held).get("b", "kx", 3, 4, 6)},
		{"a path is no tree", "", tell().get("a", "k", 1, 2, 5).held("a", 9, Held).get("b", "k/x", 3, 4, 6)},
		{"an owner again", "", tell().get("a", "k", 1, 2, 5, owner).get("b", "k", 3, 4, 5, again).free("a", 5, 6).free("b", 7, 8).get("c", "k", 9, 10, 6)},
		{"freed by the owner's first release", "model", tell().get("a", "k", 1, 2, 5, owner).get("b", "k", 3, 4, 5, again).free("a", 5, 6).free("b", 9, 10).get("c", "k", 7, 8, 6)},
		{"unchanged since", "", tell().get("a", "k", 1, 2, 5).free("a", 3, 4).get("b", "k", 5, 6, 6, since(5))},
		{"changed since", "model", tell().get("a", "k", 1, 2, 5).free("a", 3, 4).get("b", "k", 5, 6, 6, since(4))},
		{"said to be changed", "model", tell().get("a", "k", 1, 2, 5).free("a", 3, 4).try("b", "k", 5, 6, 0, since(5), err(ErrChanged))},
		{"said to be changed, rightly", "", tell().get("a", "k", 1, 2, 5).free("a", 3, 4).try("b", "k", 5, 6, 0, since(4), err(ErrChanged))},
	})
}

func TestModelOfACell(t *testing.T) {
	update := func(s *story, id string, call, ret int64, old, v string, change ...func(*Op)) *story {
		return s.call(Update, id, "c", call, ret, 0, append([]func(*Op){value(old, v)}, change...)...)
	}
	judge(t, []verdict{
		{"updates in turn", "", update(update(tell(), "a", 1, 2, "", "1"), "b", 3, 4, "1", "2")},
		{"a lost update", "cells", update(update(tell(), "a", 1, 2, "", "1"), "b", 3, 4, "", "2")},
		{"an uncertain update that was made", "", update(update(tell(), "a", 1, 2, "", "1", unknown), "b", 3, 4, "1", "2")},
		{"an uncertain update that was not made", "", update(update(tell(), "a", 1, 2, "", "1", unknown), "b", 3, 4, "", "2")},
		{"an update told as made that was not", "cells", update(update(tell(), "a", 1, 2, "", "1"), "b", 3, 4, "", "2")},
		{"a cell goes back in a succession", "", update(update(tell(), "a", 1, 2, "", "1"), "b", 4, 5, "", "2").mark(3, Succeeded, "")},
		{"a stale read", "cells", update(tell(), "a", 1, 2, "", "1").call(Get, "g", "c", 3, 4, 0, told1(""))},
		{"a read beside", "", update(tell(), "a", 1, 5, "", "1").call(Get, "g", "c", 3, 4, 0, told1(""))},
	})
}

// A search that takes too long finds nothing and is counted, and too many of them are not
// enough to trust.
func TestASearchOutOfPatienceIsUndecided(t *testing.T) {
	s := tell()
	s.Limits.Patience = int64(20 * time.Millisecond)
	for i := range 24 { // any of these may have been made, in any order, and none explains the read
		v := fmt.Sprint(i)
		s.call(SetValue, "set"+v, "c", 1, 0, 0, told1(v), unknown)
	}
	s.call(Get, "get", "c", 1, 2, 0, told1("24"))
	s.call(Get, "other", "d", 1, 2, 0, told1(""))
	if found, made := Judge(s.History); len(found) != 0 || made != (Searches{2, 1}) {
		t.Errorf("%v, and found %v", made, found)
	}
	for _, test := range []struct {
		Searches
		enough bool
	}{
		{Searches{0, 0}, true},
		{Searches{1, 1}, true},
		{Searches{999, 2}, false},
		{Searches{1000, 2}, true},
		{Searches{5000, 6}, true},
		{Searches{5999, 7}, false},
	} {
		if test.Enough() != test.enough {
			t.Errorf("%v is enough: %v", test.Searches, !test.enough)
		}
	}
}
