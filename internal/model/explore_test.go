package model

import (
	"bytes"
	"flag"
	"fmt"
	"hash/maphash"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/testrounds"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the files in testdata")

func TestMain(m *testing.M) {
	testrounds.CollectRarely()
	m.Run()
}

// A model is a system of states and steps. A state is a comparable value without
// pointers.
type model[S comparable] struct {
	start []S

	// steps calls to once for each possible step from s, with the state after the
	// step, always in the same order. Faults and the passing of time are steps too.
	steps func(s S, to func(step, S))

	// wrong says why s breaks a promise. The text is empty for a sound state.
	wrong func(s S) string

	// show is a state in a few words, for traces.
	show func(s S) string
}

// A step is a possible event. In text, %a and %b stand for the numbers a and b, and %A for
// the letter of a.
type step struct {
	text string
	a, b int
}

func (l step) String() string {
	return strings.NewReplacer("%a", fmt.Sprint(l.a), "%b", fmt.Sprint(l.b), "%A", letter(l.a), "%B", letter(l.b)).Replace(l.text)
}

func letter(i int) string { return string(rune('A' + i)) }

// A verdict is the outcome of an exploration.
type verdict struct {
	states, transitions, depth int

	why   string   // empty: no violation
	trace []string // a shortest way to the violation
	cut   bool     // the limit was reached before all states were seen
}

// explore visits all states that can be reached, in breadth, and stops at the first bad
// state or after limit states. Breadth makes the trace a shortest one.
//
// A visited state is remembered by 64 bits of its hash: of a hundred million states two
// fall together with a chance of 1 in 4,000, and then one of them is not looked at. The
// whole states of two depths alone are in memory.
func (m model[S]) explore(limit int) verdict {
	e := explorer[S]{m: m, seed: maphash.MakeSeed()}
	for i, s := range m.start {
		e.found(s, noParent, uint16(i))
	}
	v := verdict{}
	for first := 0; len(e.next) > 0; {
		states := e.next
		e.next = nil
		for i, s := range states {
			if v.why = m.wrong(s); v.why != "" {
				v.trace = e.trace(uint32(first + i))
				v.states, v.transitions = len(e.parents), e.transitions
				return v
			}
			var nth uint16
			m.steps(s, func(_ step, t S) {
				e.transitions++
				if t != s {
					e.found(t, uint32(first+i), nth)
				}
				nth++
			})
		}
		if first += len(states); len(e.next) > 0 {
			v.depth++
		}
		if v.cut = len(e.parents) > limit; v.cut {
			break
		}
	}
	v.states, v.transitions = len(e.parents), e.transitions
	return v
}

const noParent = 1<<32 - 1

// An explorer has the states of an exploration.
type explorer[S comparable] struct {
	m           model[S]
	seed        maphash.Seed
	seen        hashes
	next        []S      // the newest states, not looked at yet
	parents     []uint32 // by the number of the state
	choices     []uint16 // which step of the parent leads here
	transitions int
}

func (e *explorer[S]) found(s S, parent uint32, choice uint16) {
	if e.seen.add(maphash.Comparable(e.seed, s)) {
		e.next = append(e.next, s)
		e.parents = append(e.parents, parent)
		e.choices = append(e.choices, choice)
	}
}

// trace returns the steps to a state, each on a line, by taking them again.
func (e *explorer[S]) trace(i uint32) (lines []string) {
	var choices []uint16
	for ; ; i = e.parents[i] {
		choices = append(choices, e.choices[i])
		if e.parents[i] == noParent {
			break
		}
	}
	slices.Reverse(choices)
	s := e.m.start[choices[0]]
	lines = append(lines, fmt.Sprintf("%-66s %s", "start", e.m.show(s)))
	for _, choice := range choices[1:] {
		var nth uint16
		var label step
		var after S
		e.m.steps(s, func(l step, t S) {
			if nth == choice {
				label, after = l, t
			}
			nth++
		})
		s = after
		lines = append(lines, fmt.Sprintf("%-66s %s", label, e.m.show(s)))
	}
	return lines
}

// hashes is a set of numbers other than 0.
type hashes struct {
	slots []uint64
	count int
}

// add reports whether h is new.
func (t *hashes) add(h uint64) bool {
	if h == 0 {
		h = 1
	}
	if 4*t.count >= 3*len(t.slots) {
		old := t.slots
		t.slots, t.count = make([]uint64, max(1<<12, 2*len(old))), 0
		for _, o := range old {
			if o != 0 {
				t.put(o)
			}
		}
	}
	return t.put(h)
}

func (t *hashes) put(h uint64) bool {
	mask := uint64(len(t.slots) - 1)
	for i := h & mask; ; i = (i + 1) & mask {
		switch t.slots[i] {
		case 0:
			t.slots[i] = h
			t.count++
			return true
		case h:
			return false
		}
	}
}

// holds explores all states and fails the test at a violation. The result says how much
// was explored.
func holds[S comparable](t *testing.T, m model[S], bounds string, limit int) string {
	t.Helper()
	begun := time.Now()
	v := m.explore(limit)
	if v.why != "" {
		t.Fatalf("%s: %s\n%s", bounds, v.why, strings.Join(v.trace, "\n"))
	}
	if v.cut {
		t.Fatalf("%s: more than %d states: the bounds of this model are too wide", bounds, limit)
	}
	line := fmt.Sprintf("%s: %d states, %d transitions, %d steps deep", bounds, v.states, v.transitions, v.depth)
	t.Logf("%s, %v", line, time.Since(begun).Round(10*time.Millisecond))
	return line + "\n"
}

// breaks explores until a violation with want in its text, and fails the test if there is
// none. The result is the trace, for people to read.
func breaks[S comparable](t *testing.T, m model[S], limit int, want string) string {
	t.Helper()
	v := m.explore(limit)
	if v.why == "" || !strings.Contains(v.why, want) {
		t.Fatalf("found %q instead of %q in %d states (cut: %v)\n%s", v.why, want, v.states, v.cut, strings.Join(v.trace, "\n"))
	}
	return strings.Join(v.trace, "\n") + "\n=> " + v.why + "\n"
}

// golden compares text with a file of testdata, or writes the file with -rewrite.
func golden(t *testing.T, name, text string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want = bytes.ReplaceAll(want, []byte("\r\n"), []byte("\n"))
	if string(want) == text {
		return
	}
	got, expected := strings.Split(text, "\n"), strings.Split(string(want), "\n")
	for i := range max(len(got), len(expected)) {
		if i >= len(got) || i >= len(expected) || got[i] != expected[i] {
			t.Fatalf("%s differs from line %d on; -rewrite writes the file anew. Now:\n%s", file, i+1, strings.Join(got[min(i, len(got)):], "\n"))
		}
	}
}
