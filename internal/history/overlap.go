package history

import (
	"fmt"
	"slices"
)

// overlaps finds grants in conflict whose holders both saw themselves as holders. Tokens
// say which grant came first: the earlier one must have ended before the call that was
// granted the later one returned. Permits of one key are added up at each grant: those
// whose holders were holders later still were holders then.
func overlaps(h *History) (found []Violation) {
	capacities := newCapacities(h)
	for _, bucket := range byRoot(h.Holds) {
		slices.SortStableFunc(bucket, func(a, b *Hold) int { return compare(a.Token, b.Token) })
		until := make([]int64, len(bucket)) // the latest Valid so far
		var latest int64
		for i, x := range bucket {
			latest = max(latest, x.Valid)
			until[i] = latest
		}
		for i, y := range bucket {
			beside := y.N
			for j := i - 1; j >= 0 && until[j] > y.From; j-- {
				x := bucket[j]
				if x.Valid <= y.From || x.Op == y.Op || x.Token == y.Token && x.Client == y.Client && x.Owner == y.Owner {
					continue
				}
				if x.claim().conflicts(y.claim()) {
					found = append(found, Violation{
						Check: "exclusion", Key: y.Keys[0], At: y.From, Until: x.Valid, IDs: []string{x.ID, y.ID},
						Text: fmt.Sprintf("%s held %v (%s, token %d) %v after %s had been granted %v (%s, token %d)",
							x.Client, x.Keys, x.mode(), x.Token, seconds(x.Valid-y.From), y.Client, y.Keys, y.mode(), y.Token),
					})
				} else if x.mode() == Permits && y.mode() == Permits && x.Keys[0] == y.Keys[0] {
					beside += x.N
				}
			}
			if y.mode() != Permits {
				continue
			}
			if most := capacities.most(y); most > 0 && beside > most {
				found = append(found, Violation{
					Check: "exclusion", Key: y.Keys[0], At: y.From, Until: y.Valid, IDs: []string{y.ID},
					Text: fmt.Sprintf("%d permits of %d at once, the last by %s, token %d", beside, most, y.Client, y.Token),
				})
			}
		}
	}
	return found
}

// byRoot puts holds that may meet into one bucket. A Hold of several roots is in the bucket
// of each.
func byRoot(holds []Hold) map[string][]*Hold {
	buckets := make(map[string][]*Hold)
	for i := range holds {
		h := &holds[i]
		var roots []string
		for _, k := range h.Keys {
			if r := root(k); !slices.Contains(roots, r) {
				roots = append(roots, r)
				buckets[r] = append(buckets[r], h)
			}
		}
	}
	return buckets
}

// A capacities knows the capacity that a key may have had.
type capacities struct {
	sets map[string][]*Op // SetCapacity calls that may have taken effect, in order of Call
	ops  map[string]*Op
}

func newCapacities(h *History) *capacities {
	c := &capacities{sets: make(map[string][]*Op), ops: make(map[string]*Op)}
	for i := range h.Ops {
		o := &h.Ops[i]
		switch {
		case o.Kind == SetCapacity && o.Outcome != Refused:
			c.sets[o.Keys[0]] = append(c.sets[o.Keys[0]], o)
		case o.Kind == Acquire || o.Kind == Try:
			c.ops[o.ID] = o
		}
	}
	return c
}

// most returns the largest capacity that the key of y can have had when y was granted, or
// 0 if nothing is known of it.
func (c *capacities) most(y *Hold) int {
	o := c.ops[y.Op]
	if o == nil {
		return 0
	}
	most := 0
	unset := true // no set capacity is certain
	for _, s := range c.sets[y.Keys[0]] {
		if s.Call > y.From {
			break
		}
		certain := s.Outcome == Done && s.Return < o.Call && s.N > 0
		if certain && !c.open(y.Keys[0], s, o) {
			most, unset = s.N, false // later ones are still to come
			continue
		}
		most = max(most, s.N)
		unset = unset || s.N == 0
	}
	if unset {
		if o.Of == 0 && most == 0 {
			return 0
		}
		most = max(most, o.Of)
		if o.Of == 0 {
			return 0
		}
	}
	return most
}

// open reports whether a capacity set before s may still replace the one of s.
func (c *capacities) open(key string, s, o *Op) bool {
	for _, e := range c.sets[key] {
		if e.Call > s.Call {
			break
		}
		if e != s && (e.Outcome != Done || e.Return > s.Call) {
			return true
		}
	}
	return false
}
