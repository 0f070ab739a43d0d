package history

import (
	"fmt"
	"slices"
)

// told checks that the context of a lost lock ended before the next grant in conflict
// returned, up to Limits.Told; or, if its process stood still then, that long after the
// process went on. A killed process is told nothing.
func told(h *History) (found []Violation) {
	if h.Limits.Told == 0 {
		return nil
	}
	stops := newStops(h)
	end := h.end()
	for _, bucket := range byRoot(h.Holds) {
		slices.SortStableFunc(bucket, func(a, b *Hold) int { return compare(a.Token, b.Token) })
		for i, x := range bucket {
			if x.How == Released || x.How == Killed {
				continue
			}
			y := next(bucket[i+1:], x)
			if y == nil {
				continue
			}
			due := stops.running(x.Process, y.From) + h.Limits.Told
			if killed := stops.killed[x.Process]; killed > 0 && killed <= due || due >= end {
				continue
			}
			if x.Done != 0 && x.Done <= due {
				continue
			}
			when := "and still is not told"
			if x.Done != 0 {
				when = fmt.Sprintf("and was told %s later", seconds(x.Done-y.From))
			}
			found = append(found, Violation{
				Check: "loss", Key: x.Keys[0], At: y.From, Until: x.Done, IDs: []string{x.ID, y.ID},
				Text: fmt.Sprintf("%s lost token %d to token %d of %s, %s", x.Client, x.Token, y.Token, y.Client, when),
			})
		}
	}
	return found
}

// paused checks that a holder whose process has stood still for longer than Limits.Trust is
// never told again that it holds: the first question after the stop is answered right.
func paused(h *History) (found []Violation) {
	if h.Limits.Trust == 0 {
		return nil
	}
	stops := newStops(h)
	for i := range h.Holds {
		x := &h.Holds[i]
		for _, w := range stops.frozen[x.Process] {
			if x.From < w[0] && x.Valid > w[1] && w[1]-w[0] > h.Limits.Trust {
				found = append(found, Violation{
					Check: "pause", Key: x.Keys[0], At: x.Valid, IDs: []string{x.ID},
					Text: fmt.Sprintf("%s was told that it holds token %d, %s after it had stood still for %s",
						x.Client, x.Token, seconds(x.Valid-w[1]), seconds(w[1]-w[0])),
				})
				break
			}
		}
	}
	return found
}

// next returns the first later grant in conflict with x, by return.
func next(later []*Hold, x *Hold) (first *Hold) {
	for n, y := range later {
		if y.Op != x.Op && y.Token > x.Token && x.claim().conflicts(y.claim()) && (first == nil || y.From < first.From) {
			first = y
		}
		if n > 200 && first != nil {
			break // grants return in about the order of tokens
		}
	}
	return first
}

// A stops knows when processes stood still, and when they ended.
type stops struct {
	frozen map[string][][2]int64
	killed map[string]int64
}

func newStops(h *History) *stops {
	s := &stops{frozen: make(map[string][][2]int64), killed: make(map[string]int64)}
	for _, m := range h.Marks {
		windows := s.frozen[m.Who]
		switch m.Kind {
		case Freeze:
			s.frozen[m.Who] = append(windows, [2]int64{m.At, 1 << 62})
		case Thaw:
			if n := len(windows); n > 0 && windows[n-1][1] == 1<<62 {
				windows[n-1][1] = m.At
			}
		case Kill:
			s.killed[m.Who] = m.At
		}
	}
	return s
}

// running returns the first moment from at on at which the process runs.
func (s *stops) running(process string, at int64) int64 {
	for _, w := range s.frozen[process] {
		if w[0] <= at && at < w[1] {
			at = w[1]
		}
	}
	return at
}

// end returns the last moment of the history.
func (h *History) end() (end int64) {
	for i := range h.Ops {
		end = max(end, h.Ops[i].Call, h.Ops[i].Return)
	}
	for i := range h.Holds {
		end = max(end, h.Holds[i].From, h.Holds[i].End)
	}
	for i := range h.Marks {
		end = max(end, h.Marks[i].At)
	}
	return end
}
