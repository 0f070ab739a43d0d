package survival

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"testing"
	"time"
)

// A model is a system of states and steps. A state is a comparable value without
// pointers, so a map finds the states already seen.
type model[S comparable] struct {
	start []S

	// steps calls to once for each possible step from s, with the state after
	// the step. Faults are steps like any other.
	steps func(s S, to func(label, S))

	// wrong says why s breaks safety. The text is empty for a sound state.
	wrong func(s S) string

	// heal plays the time after the last fault: every message arrives, every
	// process lives, and the members follow their rules. The result says why no
	// cluster grants in the end, or is empty. Nil: liveness is not asked.
	heal func(s S) string

	show func(s S) string
}

// A label names a step in a trace. In text, $a and $b stand for the slots.
type label struct {
	text string
	a, b int
}

func (l label) String() string {
	return strings.NewReplacer("$a", slotName(l.a), "$b", slotName(l.b), "#b", fmt.Sprint(l.b)).Replace(l.text)
}

// slotName names a slot: an address, and the name of every process ever to
// runs there.
func slotName(i int) string { return string(rune('A' + i)) }

// A verdict is the outcome of an exploration.
type verdict struct {
	states int
	depth  int
	why    string   // empty: no violation and no dead end
	trace  []string // shortest way to the state that why is about
	cut    bool     // the limit was reached before all states were seen
}

// explore visits all states reachable from the start, in breadth, and stops at
// the first bad state or after limit states. Breadth makes the trace a shortest one.
func (m model[S]) explore(limit int) verdict {
	seed := maphash.MakeSeed()
	seen := make(map[uint64]int32, 1<<12) // by hash, or by the next free number after it
	var states []S
	var parent []int32
	add := func(s S, from int32) {
		h := maphash.Comparable(seed, s)
		for {
			i, ok := seen[h]
			if !ok {
				break
			}
			if states[i] == s {
				return
			}
			h++
		}
		seen[h] = int32(len(states))
		states = append(states, s)
		parent = append(parent, from)
	}
	for _, s := range m.start {
		add(s, -1)
	}
	v := verdict{}
	last := 0 // index of the last state of the present depth
	for i := 0; i < len(states); i++ {
		if i > last {
			v.depth++
			last = len(states) - 1
		}
		s := states[i]
		if v.why = m.wrong(s); v.why == "" && m.heal != nil {
			v.why = m.heal(s)
		}
		if v.why != "" {
			v.trace = m.trace(states, parent, int32(i))
			break
		}
		if len(states) > limit {
			v.cut = true
			break
		}
		m.steps(s, func(_ label, t S) { add(t, int32(i)) })
	}
	v.states = len(states)
	return v
}

// trace returns the steps to a state, each on a line.
func (m model[S]) trace(states []S, parent []int32, i int32) []string {
	var lines []string
	for ; parent[i] >= 0; i = parent[i] {
		text := "?"
		m.steps(states[parent[i]], func(l label, t S) {
			if text == "?" && t == states[i] {
				text = l.String()
			}
		})
		lines = append(lines, fmt.Sprintf("%-62s %s", text, m.show(states[i])))
	}
	lines = append(lines, fmt.Sprintf("%-62s %s", "start", m.show(states[i])))
	slices.Reverse(lines)
	return lines
}

// mustHold explores all states and fails the test at a bad state.
func mustHold[S comparable](t *testing.T, m model[S], limit int) {
	t.Helper()
	begun := time.Now()
	v := m.explore(limit)
	t.Logf("%d states, %d steps deep, %v", v.states, v.depth, time.Since(begun).Round(time.Millisecond))
	if v.why != "" {
		t.Fatalf("%s\n%s", v.why, strings.Join(v.trace, "\n"))
	}
	if v.cut {
		t.Fatalf("more than %d states: the bounds of this model are too wide", limit)
	}
}

// mustBreak explores until a bad state with want in its text, and fails the
// test if no such state exists.
func mustBreak[S comparable](t *testing.T, m model[S], limit int, want string) {
	t.Helper()
	begun := time.Now()
	v := m.explore(limit)
	if testing.Verbose() {
		t.Logf("%d states, %d steps deep, %v\n%s\n=> %s", v.states, v.depth, time.Since(begun).Round(time.Millisecond), strings.Join(v.trace, "\n"), v.why)
	}
	if v.why == "" || !strings.Contains(v.why, want) {
		t.Fatalf("found %q instead of %q in %d states (cut: %v)\n%s", v.why, want, v.states, v.cut, strings.Join(v.trace, "\n"))
	}
}
