package machine

import (
	"cmp"
	"slices"
)

// A cycle of waits is found when a request would close the cycle. Two kinds of
// requests can do so: a request with a lineage, whose caller keeps other grants, and
// an upgrade, which gets between its key and the other readers. (No other request
// can: this is why placeInQueue passes plain waiters only.) Such a request joins the
// queues on trial, and is refused if the request, or the grant to be upgraded, could
// never end, by these rules:
//
//   - A waiter ends once everything that conflicts with it has ended: holders, and
//     waiters before it. Of the holders of permits so many are enough that their
//     permits make room; of too many shared holders, one is enough. A waiter behind
//     an upgrade waits for the grant that is upgraded.
//   - A grant ends once all waiters under it have ended. A broken grant, a ghost, and a
//     grant of a revoked or an ending session end by themselves, and so does a waiter of
//     such a session.
//
// If a request cannot end by these rules, applied over and over, the request is in a
// deadlock. There was none before, so the cycle goes through the new request. The
// search uses no clock and no guess: another goroutine of the same client is in no
// cycle, unless a lineage has a grant of that goroutine.

// vertex is a point of the graph of waits. The kind says which: a waiter, by
// request; a grant, by token and key; the holders of a key; or, because of trees, the
// holders and waiters above or below a key in conflict with a request for the key.
type vertex struct {
	requestID
	token Token
	key   string
	kind  vertexKind
	tree  bool // of the last four kinds: the request is for a tree
	mode  Mode // and has this mode
	n     int  // of the last two kinds: the number of the waiters
}

type vertexKind uint8

const (
	aWaiter vertexKind = iota
	aGrant
	allHolders   // of key
	anyHolder    // of key: as many as a waiter needs to make room
	treeHolders  // of key, in conflict with a request above or below
	holdersBelow // key, in conflict with a request for it
	firstWaiters // n of key, in conflict with a request above or below
	firstBelow   // n of the waiters below key, by order, in conflict with a request for it
)

// needs is the vertices that must end before a vertex does: all of them. But anyHolder
// never ends: it ends for each waiter in need of it by itself, once the holders known to
// end free as much as the waiter lacks.
type needs struct {
	vertices []vertex
	missing  int      // how many of them, not known to end, must end
	neededBy []*needs // once for each time
	ends     bool     // it is known to end

	lacks int  // of a waiter: the permits, or places, that anyHolder must free for it
	gives int  // of a grant: the permits, or 1 place, that it frees by its end
	any   bool // this is anyHolder: neededBy is in the order of lacks, without the waiters that have room
	freed int  // of anyHolder: by the vertices known to end
}

// search explores the graph of waits from one vertex on.
type search struct {
	s        *State
	needs    map[vertex]*needs
	order    []vertex             // in which they were found
	position map[requestID]queued // of waiters that were met in a queue, to save a search there
	alone    map[string][]int     // by key: the indexes of its waiters that are not shared
	below    []vertex             // grants with waiters under them: see waitedUnder
	known    bool                 // below is filled
	waiters  map[vertex][]ranked  // the waiters of a firstBelow of none: see waitersBelow
	steps    int                  // taken: tests bound it, since no voter applies a command meanwhile
}

// queued is a waiter's index in the queue of a key.
type queued struct {
	key string
	i   int
}

// cycleWith puts w on trial in the queues of its keys, if w has a lineage, and
// returns the cycle of waits that w would close; nil if there is none. Index i is
// the place of w in the queue of a single key. Afterwards the table is as before.
func (s *State) cycleWith(owner *session, w *waiter, keys []string, i int) (cycle []Link) {
	if len(w.under) == 0 {
		return nil
	}
	q := w.requestID
	owner.index.requests.set(w.seq, location{key: keys[0], set: w.set, phase: waiting})
	if w.set {
		s.sets.set(q, keys)
	}
	var made []string
	for _, key := range keys {
		if s.keys.get(key) == &noRecord {
			made = append(made, key)
			s.keys.use(key)
		}
		s.lineage.add(w.under, q)
		s.keys.edit(key, func(r *record) {
			if w.set {
				i = len(r.queue)
			}
			r.insertWaiter(i, *w)
		})
	}
	if cycle = s.deadlock(vertex{requestID: q}); cycle == nil && w.upgrade != 0 {
		cycle = s.deadlock(vertex{token: w.upgrade, key: keys[0], kind: aGrant})
	}
	for _, key := range keys {
		s.removeWaiter(key, s.keys.get(key).position(q))
	}
	for _, key := range made {
		s.keys.drop(key)
	}
	s.sets.del(q)
	owner.index.requests.remove(w.seq)
	return cycle
}

// deadlock returns the cycle through start, or a cycle for which start waits; nil if
// start can end. The search takes time in proportion to the number of waiters met,
// and to the keys of the waiters for several.
func (s *State) deadlock(start vertex) []Link {
	d := s.search(start)
	if d.needs[start].ends {
		return nil
	}
	return d.cycle(start)
}

func (s *State) search(start ...vertex) *search {
	d := &search{
		s:        s,
		needs:    make(map[vertex]*needs),
		position: make(map[requestID]queued),
		alone:    make(map[string][]int),
		waiters:  make(map[vertex][]ranked),
	}
	d.explore(start...)
	d.markEnding()
	s.noteSearch(d.steps)
	return d
}

// explore finds all vertices that start needs, directly or not.
func (d *search) explore(start ...vertex) {
	work := slices.Clone(start)
	for len(work) > 0 {
		v := work[len(work)-1]
		work = work[:len(work)-1]
		d.steps++
		if d.needs[v] != nil {
			continue
		}
		n := &needs{}
		d.needs[v] = n
		d.order = append(d.order, v)
		switch v.kind {
		case aWaiter:
			n.vertices, n.lacks = d.neededByWaiter(v.requestID)
		case aGrant:
			n.vertices, n.gives = d.neededByGrant(v), max(1, int(d.grant(v).N))
		case treeHolders:
			n.vertices = d.treeHoldersOf(v)
		case holdersBelow:
			n.vertices = d.holdersBelow(v)
		case firstWaiters:
			n.vertices = d.firstWaiters(v)
		case firstBelow:
			n.vertices = d.firstBelow(v)
		default:
			r := d.s.keys.get(v.key)
			n.vertices = r.grantVertices(v.key)
		}
		n.missing = len(n.vertices)
		n.any = v.kind == anyHolder
		work = append(work, n.vertices...)
	}
}

// markEnding marks all vertices that can end. An ending vertex tells each vertex in
// need of it, once. Not passes over all vertices until nothing changes: such passes
// are quadratic where readers and writers take turns in a queue.
func (d *search) markEnding() {
	var work []*needs
	for _, v := range d.order {
		n := d.needs[v]
		for _, needed := range n.vertices {
			d.steps++
			d.needs[needed].neededBy = append(d.needs[needed].neededBy, n)
		}
		if n.missing == 0 {
			n.ends = true
			work = append(work, n)
		}
	}
	for _, n := range d.needs {
		if n.any {
			slices.SortFunc(n.neededBy, func(a, b *needs) int { return cmp.Compare(a.lacks, b.lacks) })
		}
	}
	for len(work) > 0 {
		n := work[len(work)-1]
		work = work[:len(work)-1]
		for _, by := range n.neededBy {
			d.steps++
			if by.any {
				by.freed += n.gives
				work = by.makeRoom(work)
			} else {
				work = by.lessOne(work)
			}
		}
	}
}

// lessOne notes that a vertex which n needs ends, and appends n if n ends too.
func (n *needs) lessOne(work []*needs) []*needs {
	if n.missing--; n.missing == 0 {
		n.ends = true
		work = append(work, n)
	}
	return work
}

// makeRoom appends the waiters that end because the holders known to end free enough.
// Each waiter is looked at once, since those that lack least come first.
func (n *needs) makeRoom(work []*needs) []*needs {
	for len(n.neededBy) > 0 && n.neededBy[0].lacks <= n.freed {
		work = n.neededBy[0].lessOne(work)
		n.neededBy = n.neededBy[1:]
	}
	return work
}

// cyclic returns the vertices that cannot end and that are in a cycle, or between two
// cycles: how many of the others need each.
func (d *search) cyclic() map[vertex]int {
	needed := make(map[vertex]int)
	each := func(v vertex, f func(vertex)) {
		for _, next := range d.needs[v].vertices {
			if n := d.needs[next]; !n.ends && !(n.any && d.needs[v].lacks <= n.freed) {
				d.steps++
				f(next)
			}
		}
	}
	var work []vertex
	for _, v := range d.order {
		if !d.needs[v].ends {
			each(v, func(next vertex) { needed[next]++ })
			work = append(work, v)
		}
	}
	work = slices.DeleteFunc(work, func(v vertex) bool { return needed[v] > 0 })
	for len(work) > 0 { // nothing of a cycle needs these
		v := work[len(work)-1]
		work = work[:len(work)-1]
		each(v, func(next vertex) {
			if needed[next]--; needed[next] == 0 {
				work = append(work, next)
			}
		})
	}
	return needed
}

// grantVertices returns the grants of key.
func (r *record) grantVertices(key string) []vertex {
	vertices := make([]vertex, len(r.holders))
	for i := range r.holders {
		vertices[i] = vertex{token: r.holders[i].token, key: key, kind: aGrant}
	}
	return vertices
}

func (d *search) grant(v vertex) *grant {
	r := d.s.keys.get(v.key)
	return r.grant(v.token)
}

// vertex returns the vertex for which the waiters behind w wait, at key.
func (w *waiter) vertex(key string) vertex {
	if w.upgrade != 0 {
		return vertex{token: w.upgrade, key: key, kind: aGrant}
	}
	return vertex{requestID: w.requestID}
}

// cycle returns the way from start through vertices that cannot end, back to start:
// to a grant in start's lineage.
func (d *search) cycle(start vertex) []Link {
	type step struct {
		v    vertex
		from int // index of the step before
	}
	steps := []step{{start, -1}}
	visited := map[vertex]bool{start: true}
	for i := 0; i < len(steps); i++ {
		for _, next := range d.needs[steps[i].v].vertices {
			if next == start {
				var way []vertex
				for j := i; j >= 0; j = steps[j].from {
					way = append(way, steps[j].v)
				}
				slices.Reverse(way)
				return d.links(way)
			}
			if n := d.needs[next]; !visited[next] && !n.ends && !(n.any && d.needs[steps[i].v].lacks <= n.freed) {
				visited[next] = true
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
