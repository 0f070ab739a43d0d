package machine

import "slices"

// The cycles of waits that a search has found.

// cyclic returns the vertices that cannot end and that are in a cycle, or between two
// cycles: how many of the others need each.
func (d *search) cyclic() map[vertex]int {
	needed := make(map[vertex]int)
	each := func(n *needs, f func(*needs)) {
		for _, next := range n.vertices {
			if n.waitsFor(next) {
				f(next)
			}
		}
	}
	var work []*needs
	for _, n := range d.order {
		if !n.ends {
			each(n, func(next *needs) { needed[next.v]++ })
			work = append(work, n)
		}
	}
	work = slices.DeleteFunc(work, func(n *needs) bool { return needed[n.v] > 0 })
	for len(work) > 0 { // nothing of a cycle needs these
		n := work[len(work)-1]
		work = work[:len(work)-1]
		each(n, func(next *needs) {
			if needed[next.v]--; needed[next.v] == 0 {
				work = append(work, next)
			}
		})
	}
	return needed
}

// waitsFor reports whether next, which n needs, is not known to end for n.
func (n *needs) waitsFor(next *needs) bool {
	return !next.ends && !(next.v.kind == anyHolder && n.lacks <= next.freed)
}

// cycle returns the way from start through vertices that cannot end, back to start:
// to a grant in start's lineage.
func (d *search) cycle(start *needs) []Link {
	type step struct {
		n    *needs
		from int // index of the step before
	}
	steps := []step{{start, -1}}
	start.visited = true
	for i := 0; i < len(steps); i++ {
		for _, next := range steps[i].n.vertices {
			if next == start {
				var way []vertex
				for j := i; j >= 0; j = steps[j].from {
					way = append(way, steps[j].n.v)
				}
				slices.Reverse(way)
				return d.links(way)
			}
			if !next.visited && steps[i].n.waitsFor(next) {
				next.visited = true
				steps = append(steps, step{next, i})
			}
		}
	}
	// There was no cycle before, so a vertex that cannot end leads to start. But the
	// refusal does not depend on this argument.
	return []Link{}
}

// links describes a way through vertices as the waits of clients.
func (d *search) links(way []vertex) []Link {
	// A waiter for a key waits for some holder of it: the vertex between is no link.
	way = slices.DeleteFunc(way, func(v vertex) bool { return v.kind >= allHolders })
	var links []Link
	for i, v := range way {
		if v.kind != aWaiter || len(links) == MaxCycle {
			continue // a waiter under a grant has a link of its own
		}
		next := way[(i+1)%len(way)]
		owner, key := d.waiter(v)
		if next.kind == aGrant {
			key = next.key
		} else if next != v {
			_, key = d.waiter(next)
		}
		links = append(links, Link{Client: owner.client, Key: key, Token: next.token})
	}
	return links
}

// waiter returns a waiter's session and its first key.
func (d *search) waiter(v vertex) (*session, string) {
	owner := d.s.sessions.get(v.session)
	return owner, owner.index.requests.at(v.seq).key
}
