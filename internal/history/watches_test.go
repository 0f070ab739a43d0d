package history

import (
	"fmt"
	"testing"
)

// shown adds the states of a watch, by turns when each was asked for and when it came.
func (s *story) shown(watch, kind, key string, states ...Show) *story {
	for _, x := range states {
		x.Watch, x.Process, x.Kind, x.Key = watch, "p"+watch, kind, key
		s.Shows = append(s.Shows, x)
	}
	return s
}

func TestWatchesAreChecked(t *testing.T) {
	value := func(v string, after, at int64) Show { return Show{Value: v, After: after, At: at} }
	holder := func(token uint64, at int64) Show { return Show{Token: token, After: at - 1, At: at} }
	set := func(s *story, v string, call, ret int64, change ...func(*Op)) *story {
		return s.call(SetValue, "set"+v, "k", call, ret, 0, append([]func(*Op){told1(v)}, change...)...)
	}
	log := func(s *story) *story {
		s.Facts = append(s.Facts, Fact{Index: 1, At: 2, Kind: Granted, Keys: []string{"k"}, Token: 5}, Fact{Index: 2, At: 4, Kind: Granted, Keys: []string{"k"}, Token: 7})
		return s
	}
	judge(t, []verdict{
		{"each value", "", set(set(tell(), "5", 1, 2), "7", 5, 6).shown("w", ShowValue, "k", value("5", 3, 4), value("7", 5, 7))},
		{"some are skipped", "", set(set(tell(), "5", 1, 2), "7", 3, 4).shown("w", ShowValue, "k", value("7", 5, 6))},
		{"an older value", "watch", set(set(tell(), "5", 1, 2), "7", 3, 9).shown("w", ShowValue, "k", value("7", 4, 5), value("5", 6, 7))},
		{"a value twice", "watch", set(tell(), "5", 1, 2).shown("w", ShowValue, "k", value("5", 3, 4), value("5", 5, 6))},
		{"an older value of a successor", "", set(tell(), "5", 1, 2).mark(5, Succeeded, "").shown("w", ShowValue, "k", value("5", 3, 4), value("", 4, 7))},
		{"an old value at first", "cells", set(set(tell(), "5", 1, 2), "7", 3, 4).shown("w", ShowValue, "k", value("5", 5, 6))},
		{"a value of nobody", "cells", set(tell(), "5", 1, 2).shown("w", ShowValue, "k", value("6", 3, 4))},
		{"a value that may be set", "", set(tell(), "5", 1, 2, unknown).shown("w", ShowValue, "k", value("5", 3, 4))},
		{"a value that was refused", "cells", set(tell(), "5", 1, 2, err(ErrLost)).shown("w", ShowValue, "k", value("5", 3, 4))},
		{"holders", "", log(tell()).shown("w", ShowHolder, "k", holder(5, 3), holder(0, 4), holder(7, 5))},
		{"a token falls", "watch", log(tell()).shown("w", ShowHolder, "k", holder(7, 5), holder(0, 6), holder(5, 7))},
		{"a holder that is none", "watch", log(tell()).shown("w", ShowHolder, "k", holder(6, 5))},
		{"a holder of the future", "watch", log(tell()).shown("w", ShowHolder, "k", holder(7, 3))},
		{"a holder of a successor", "", log(tell()).mark(4, Succeeded, "").shown("w", ShowHolder, "k", holder(6, 5))},
	})
}

func TestMaxWaitersIsChecked(t *testing.T) {
	most := func(n int) func(*Op) { return func(o *Op) { o.Most = n } }
	full := err(ErrWaiters)
	// a holds, b waits; then comes c.
	two := func() *story { return tell().get("a", "k", 1, 2, 5).held("a", 20, Released).free("a", 21, 22) }
	judge(t, []verdict{
		{"refused behind one", "", two().get("b", "k", 3, 23, 6, queued(4)).get("c", "k", 5, 6, 0, most(1), full)},
		{"refused behind one that may wait", "", two().get("b", "k", 3, 4, 0, unknown).get("c", "k", 5, 6, 0, most(1), full)},
		{"refused behind none", "waiters", two().get("c", "k", 5, 6, 0, most(1), full)},
		{"refused behind one of two", "waiters", two().get("b", "k", 3, 23, 6, queued(4)).get("c", "k", 5, 6, 0, most(2), full)},
		{"refused behind one of another key", "waiters", two().get("b", "j", 3, 23, 6, queued(4)).get("c", "k", 5, 6, 0, most(1), full)},
		{"refused behind one that was gone", "waiters", two().get("b", "k", 3, 4, 0, err(ErrDeadlock)).get("c", "k", 5, 6, 0, most(1), full)},
		{"refused behind itself, in another session", "", two().get("c", "k", 5, 6, 0, most(1), full, func(o *Op) { o.Retried = true })},
		{"refused behind one of two that asked in two sessions", "", two().get("b", "k", 3, 23, 6, queued(4), func(o *Op) { o.Retried = true }).get("c", "k", 5, 6, 0, most(2), full)},
		{"refused behind a set", "", two().get("b", "j+k", 3, 23, 6, queued(4)).get("c", "k", 5, 6, 0, most(1), full)},
		{"waits behind one of two", "", two().get("b", "k", 3, 23, 6, queued(4)).free("b", 24, 25).get("c", "k", 5, 26, 7, most(2), queued(6))},
		{"waits behind one of one", "waiters", two().get("b", "k", 3, 23, 6, queued(4)).free("b", 24, 25).get("c", "k", 5, 26, 7, most(1), queued(6))},
		{"waits behind one that was granted by then", "", tell().get("a", "k", 1, 2, 5).held("a", 4, Released).free("a", 5, 6).get("b", "k", 3, 23, 6, queued(4)).free("b", 24, 25).
			get("c", "k", 7, 26, 7, most(1), queued(8))},
	})
}

func TestResizesAreChecked(t *testing.T) {
	type work struct {
		of          int
		from, valid int64
	}
	group := func(works ...work) *story {
		s := tell()
		for i, x := range works {
			id, key := fmt.Sprint("r", i), fmt.Sprint("g/", i)
			s.Runs = append(s.Runs, Run{ID: id, Kind: RunShard, Key: key, Call: id, Client: "c" + id, Of: x.of, From: x.from})
			s.Holds = append(s.Holds, Hold{ID: "h" + id, Op: id, Keys: []string{key}, From: x.from, Valid: x.valid, Token: uint64(i + 1)})
		}
		return s
	}
	to := func(n int) func(*Op) { return func(o *Op) { o.N, o.Outcome = n, Done } }
	resize := func(s *story, n int, call, ret int64, change ...func(*Op)) *story {
		return s.call(Resize, fmt.Sprint("to", n, " ", call), "g", call, ret, 0, append([]func(*Op){to(n)}, change...)...)
	}
	judge(t, []verdict{
		{"one number", "", group(work{6, 1, 9}, work{6, 2, 9})},
		{"one number after the other", "", group(work{6, 1, 9}, work{8, 10, 12})},
		{"two numbers at a time", "resize", group(work{6, 1, 11}, work{8, 10, 12})},
		{"two numbers at a time, the first one again", "resize", group(work{6, 1, 5}, work{8, 6, 9}, work{6, 8, 12})},
		{"resized", "", resize(group(work{6, 1, 4}, work{8, 6, 9}), 8, 3, 5)},
		{"the old number after a resize", "resize", resize(group(work{6, 6, 9}), 8, 3, 5)},
		{"the old number, begun before and seen late", "", resize(group(work{6, 6, 0}), 8, 3, 5)},
		{"the old number while it is resized", "", resize(group(work{6, 4, 9}), 8, 3, 5)},
		{"back again", "", resize(resize(group(work{6, 9, 12}), 8, 3, 5), 6, 6, 8)},
		{"maybe back again", "", resize(resize(group(work{6, 9, 12}), 8, 3, 5), 6, 1, 2, unknown)},
		{"back before", "resize", resize(resize(group(work{6, 9, 12}), 8, 3, 5), 6, 1, 2)},
		{"the old number of a successor", "", resize(group(work{6, 7, 9}), 8, 3, 5).mark(6, Succeeded, "")},
	})
}
