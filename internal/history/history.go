package history

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
)

// History is everything that was recorded of one run.
type History struct {
	Limits Limits
	Ops    []Op
	Holds  []Hold
	Runs   []Run
	Shows  []Show
	Writes []Write
	Facts  []Fact
	Marks  []Mark
	Left   []Remains
}

// line is one line of a recording: one field is set.
type line struct {
	Limits *Limits  `json:"limits,omitempty"`
	Op     *Op      `json:"op,omitempty"`
	Hold   *Hold    `json:"hold,omitempty"`
	Run    *Run     `json:"run,omitempty"`
	Show   *Show    `json:"show,omitempty"`
	Write  *Write   `json:"write,omitempty"`
	Fact   *Fact    `json:"fact,omitempty"`
	Mark   *Mark    `json:"mark,omitempty"`
	Left   *Remains `json:"left,omitempty"`
}

// WriteTo writes h as lines of JSON.
func (h *History) WriteTo(w io.Writer) (n int64, err error) {
	buffered := bufio.NewWriter(w)
	counted := &counter{w: buffered}
	enc := json.NewEncoder(counted)
	put := func(l line) {
		if err == nil {
			err = enc.Encode(l)
		}
	}
	put(line{Limits: &h.Limits})
	for i := range h.Marks {
		put(line{Mark: &h.Marks[i]})
	}
	for i := range h.Ops {
		put(line{Op: &h.Ops[i]})
	}
	for i := range h.Holds {
		put(line{Hold: &h.Holds[i]})
	}
	for i := range h.Runs {
		put(line{Run: &h.Runs[i]})
	}
	for i := range h.Shows {
		put(line{Show: &h.Shows[i]})
	}
	for i := range h.Writes {
		put(line{Write: &h.Writes[i]})
	}
	for i := range h.Facts {
		put(line{Fact: &h.Facts[i]})
	}
	for i := range h.Left {
		put(line{Left: &h.Left[i]})
	}
	if err == nil {
		err = buffered.Flush()
	}
	return counted.n, err
}

type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// Read reads the lines of any number of recordings and joins them. Of several lines with
// one ID the last of its recording counts. A last line without its end is left out: a
// killed process may leave one. Any other line that is no record is an error.
func Read(recordings ...io.Reader) (History, error) {
	var h History
	ids := make(map[string]int) // of ops, holds and runs: the place
	for i, r := range recordings {
		lines := bufio.NewReader(r)
		for n := 1; ; n++ {
			text, err := lines.ReadBytes('\n')
			if err == io.EOF {
				break // what follows the last newline was cut off
			}
			if err != nil {
				return h, fmt.Errorf("history: recording %d: %w", i, err)
			}
			var l line
			if err := json.Unmarshal(text, &l); err != nil {
				return h, fmt.Errorf("history: recording %d, line %d: %w", i, n, err)
			}
			h.add(l, ids)
		}
	}
	h.sort()
	return h, nil
}

// add adds a line. ids has the places of the lines with an ID.
func (h *History) add(l line, ids map[string]int) {
	switch {
	case l.Limits != nil:
		h.Limits = *l.Limits
	case l.Op != nil:
		h.Ops = put(h.Ops, *l.Op, "op "+l.Op.ID, ids)
	case l.Hold != nil:
		h.Holds = put(h.Holds, *l.Hold, "hold "+l.Hold.ID, ids)
	case l.Run != nil:
		h.Runs = put(h.Runs, *l.Run, "run "+l.Run.ID, ids)
	case l.Show != nil:
		h.Shows = append(h.Shows, *l.Show)
	case l.Write != nil:
		h.Writes = append(h.Writes, *l.Write)
	case l.Fact != nil:
		h.Facts = append(h.Facts, *l.Fact)
	case l.Mark != nil:
		h.Marks = append(h.Marks, *l.Mark)
	case l.Left != nil:
		h.Left = append(h.Left, *l.Left)
	}
}

func put[T any](all []T, x T, id string, ids map[string]int) []T {
	if at, known := ids[id]; known {
		all[at] = x
		return all
	}
	ids[id] = len(all)
	return append(all, x)
}

// sort puts the records in the order of time. Writes keep the order of their lines unless
// they have numbers.
func (h *History) sort() {
	slices.SortStableFunc(h.Ops, func(a, b Op) int { return compare(a.Call, b.Call) })
	slices.SortStableFunc(h.Holds, func(a, b Hold) int { return compare(a.From, b.From) })
	slices.SortStableFunc(h.Runs, func(a, b Run) int { return compare(a.From, b.From) })
	slices.SortStableFunc(h.Shows, func(a, b Show) int { return compare(a.At, b.At) })
	slices.SortStableFunc(h.Marks, func(a, b Mark) int { return compare(a.At, b.At) })
	slices.SortStableFunc(h.Writes, func(a, b Write) int { return compare(a.N, b.N) })
	slices.SortStableFunc(h.Facts, func(a, b Fact) int {
		if a.Index != b.Index {
			return compare(a.Index, b.Index)
		}
		return compare(a.N, b.N)
	})
}

// succeeded reports whether a cluster was succeeded between two moments.
func (h *History) succeeded(from, to int64) bool {
	return slices.ContainsFunc(h.Marks, func(m Mark) bool { return m.Kind == Succeeded && from <= m.At && m.At <= to })
}

// span is a stretch of time.
type span struct{ from, to int64 }

// add widens the span by a call or a run. An open end reaches to the end of the history.
func (s *span) add(from, to int64) {
	if s.from == 0 || from < s.from {
		s.from = from
	}
	if to == 0 {
		to = 1 << 62
	}
	s.to = max(s.to, to)
}

func compare[T int | int64 | uint64](a, b T) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
