package machine

import (
	"fmt"
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
	table := func() *State {
		s := founded()
		for _, id := range []SessionID{a, b, c} {
			apply(t, s, Open{Session: id, Client: "client", TTL: 5000}, OK)
		}
		return s
	}
	set := func(i int) []string {
		keys := make([]string, MaxKeys)
		for j := range keys {
			keys[j] = fmt.Sprintf("%02d/%04d", i, j)
		}
		return keys
	}
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
	out, _ := apply(t, s, Acquire{Session: b, Seq: 2, Keys: set(0)}, Granted)
	wait := Acquire{Session: a, Seq: MaxUnder + 1, Keys: set(0), Under: own}
	list = append(list, costly{name: "a set under many grants", s: must(restored(s)), c: wait})
	apply(t, s, wait, Queued)
	list = append(list,
		costly{name: "the withdrawal of a set under many grants", s: must(restored(s)), c: Withdraw{Session: a, Seq: MaxUnder + 1}},
		costly{name: "the grant of a set under many grants", s: must(restored(s)), c: Release{Session: b, Token: out.Token}},
		costly{name: "the end of a session with a set under many grants", s: s, c: Close{Session: a}})

	// A set that waits behind hundreds at each of its keys.
	s = table()
	apply(t, s, Acquire{Session: b, Seq: 1, Keys: set(0)}, Granted)
	for i := range 6 * MaxHeld / MaxKeys {
		id := SessionID{1, byte(i / 45)}
		s.Apply(Open{Session: id, Client: "c", TTL: 5000})
		apply(t, s, Acquire{Session: id, Seq: uint64(i + 1), Keys: set(0)}, Queued)
	}
	apply(t, s, Acquire{Session: a, Seq: 1, Keys: set(0)}, Queued)
	list = append(list,
		costly{name: "a copy of a set behind hundreds", s: must(restored(s)), c: Acquire{Session: a, Seq: 1, Keys: set(0)}},
		costly{name: "the withdrawal of a set behind hundreds", s: s, c: Withdraw{Session: a, Seq: 1}})
	return list
}

// TestNoStepIsLong: no command of a few bytes looks at more than a bounded part of the table.
func TestNoStepIsLong(t *testing.T) {
	for _, tt := range hostileSteps(t) {
		if n := counted(func() { tt.s.Apply(tt.c) }); n > maxLooks {
			t.Errorf("%s looks at %d elements, want %d at most", tt.name, n, maxLooks)
		}
	}
}
