package machine

import (
	"cmp"
	"encoding/binary"
	"hash/maphash"
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
	tree  bool   // of the last four kinds: the request is for a tree
	mode  Mode   // and has this mode
	n     int    // of the last two kinds: the number of the waiters
	order uint64 // of a waiter: in its queues
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

// needs is a vertex that the search met, with the vertices that must end before it does:
// all of them. But anyHolder never ends: it ends for each waiter in need of it by itself,
// once the holders known to end free as much as the waiter lacks.
type needs struct {
	v        vertex
	vertices []*needs
	missing  int      // how many of them, not known to end, must end
	neededBy []*needs // once for each time
	ends     bool     // it is known to end
	visited  bool     // by cycle
	hash     uint32   // of the vertex

	r *record // of the vertex's key, or of a key at which the search has met the waiter; nil: look for it
	i int     // of a waiter with r: its index in the queue

	lacks int // of a waiter: the permits, or places, that anyHolder must free for it
	gives int // of a grant: the permits, or 1 place, that it frees by its end
	freed int // of anyHolder: by the holders known to end
}

// search explores the graph of waits from some vertices on.
type search struct {
	s      *State
	found  nodes
	order  []*needs // in which they were found
	spare  []needs  // for the next vertices
	edges  []*needs // the memory of needs.vertices
	around map[*record]*surroundings
	below  []vertex // grants with waiters under them: see waitedUnder
	known  bool     // below is filled

	// Of the waiter looked at last: thousands on end may be one session's, and of one key.
	owner *session
	met   *record
	i     int // in the queue of met

	steps int // taken: no voter applies another command meanwhile
	limit int // of the steps
}

// MaxSearch bounds the steps of a search, since a search may meet every waiter of the
// table. A step is a holder or a waiter looked at, 25 to 50 ns; a vertex is vertexSteps,
// and an edge edgeSteps. A request whose search would be longer is refused as
// TooManyWaiters with the Limit 0. Ten thousand waiters of one key, each under a grant, are
// within the bound.
//
// The steps depend on the table alone, so every voter ends a search at the same step.
//
// Not taken: to let such a request wait. The request could then close a cycle of which
// nobody is told, and each later search relies on a table without cycles.
const (
	MaxSearch   = 160_000
	vertexSteps = 5
	edgeSteps   = 2
	levelSteps  = 4 // of a look at a key above, by a long hash
)

// nodes is a hash table of the vertices that a search has met. Its order decides nothing. Not
// a map: a vertex is large, and the table grows without a look at the vertices.
type nodes struct{ table []*needs }

// hash differs from process to process.
func (v *vertex) hash() uint32 {
	h := mix(uint64(v.token) ^ v.seq<<8 ^ uint64(v.n)<<40 ^ uint64(v.kind))
	h ^= mix(binary.LittleEndian.Uint64(v.session[:]) ^ binary.LittleEndian.Uint64(v.session[8:]))
	if v.key != "" {
		h ^= maphash.String(seed, v.key)
	}
	return uint32(h ^ h>>32)
}

// get returns the node of v, nil if there is none.
func (t *nodes) get(v *vertex, hash uint32) *needs {
	if len(t.table) == 0 {
		return nil
	}
	mask := uint32(len(t.table) - 1)
	for at := hash & mask; t.table[at] != nil; at = (at + 1) & mask {
		if n := t.table[at]; n.hash == hash && n.v == *v {
			return n
		}
	}
	return nil
}

// add adds n, the last of all nodes.
func (t *nodes) add(n *needs, all []*needs) {
	if 2*len(all) > len(t.table) {
		t.table = make([]*needs, max(64, 4*len(t.table)))
		for _, n := range all {
			t.put(n)
		}
		return
	}
	t.put(n)
}

func (t *nodes) put(n *needs) {
	mask := uint32(len(t.table) - 1)
	at := n.hash & mask
	for t.table[at] != nil {
		at = (at + 1) & mask
	}
	t.table[at] = n
}

// take notes n steps, and reports whether the search may go on.
func (d *search) take(n int) bool {
	d.steps += n
	return d.steps <= d.limit
}

// tooLong reports whether the search has ended without a result.
func (d *search) tooLong() bool { return d.steps > d.limit }

// waitsForEver puts w on trial in the queues of its keys, if w has a lineage. The result
// is the refusal of a wait that would close a cycle, or of one whose search would be too
// long; the zero Outcome if w may wait. Index i is the place of w in the queue of a single
// key. Afterwards the table is as before.
func (s *State) waitsForEver(owner *session, w *waiter, keys []string, i int) (out Outcome) {
	if len(w.under) == 0 {
		return Outcome{}
	}
	q := w.requestID
	owner.index.requests.set(w.seq, location{key: keys[0], set: w.set, phase: waiting})
	if w.set {
		s.sets.set(q, slices.Clone(keys))
	}
	s.lineage.add(w)
	var made []string
	for _, key := range keys {
		if s.keys.get(key) == &noRecord {
			made = append(made, key)
			s.keys.use(key)
		}
		s.keys.edit(key, func(r *record) {
			if w.set {
				i = len(r.queue)
			}
			r.insertWaiter(i, *w)
		})
	}
	start := []vertex{{requestID: q, order: w.order}}
	if w.upgrade != 0 {
		start = append(start, vertex{token: w.upgrade, key: keys[0], kind: aGrant})
	}
	if last := w.upgrade == 0 && (w.set || i == len(s.keys.get(keys[0]).queue)-1); !last || s.lineageWaitedFor(owner, w.under) {
		out = s.deadlock(MaxSearch, start...)
	}
	s.lineage.remove(w)
	for _, key := range keys {
		s.removeWaiter(key, s.keys.get(key).find(w))
	}
	for _, key := range made {
		s.keys.drop(key)
	}
	s.sets.del(q)
	owner.index.requests.remove(w.seq)
	return out
}

// lineageWaitedFor reports whether anybody may wait for a grant of a lineage. If nobody
// does, the last of all queues cannot close a cycle under that lineage, and needs no
// search: so it is for most requests.
func (s *State) lineageWaitedFor(owner *session, under []Token) bool {
	steps := 0
	for _, t := range under {
		seq, at, g := s.grantOf(owner, t)
		if g == nil {
			return true // a grant of another session, or an ended one
		}
		for _, key := range s.keysOf(owner, seq, at) {
			steps += 1 + levelsOf(key)
			if steps > maxLineageSteps || s.keys.waitedFor(key) {
				return true
			}
		}
	}
	return false
}

// maxLineageSteps bounds the keys that lineageWaitedFor looks at.
const maxLineageSteps = 4096

// waitedFor reports whether key or, because of trees, a key above or below has a waiter.
func (t *keyTable) waitedFor(key string) bool {
	if len(t.get(key).queue) > 0 {
		return true
	}
	if t.trees == 0 {
		return false
	}
	for _, r := range t.recordsAbove(key) {
		if len(r.queue) > 0 {
			return true
		}
	}
	return t.waitedForBelow(key)
}

// deadlock returns the zero Outcome if all vertices of start can end, and otherwise a
// refusal as Deadlock, with the cycle through the first that cannot, or a cycle for which
// that vertex waits. If the search takes more steps than the limit, the refusal is
// TooManyWaiters. The steps are in proportion to the number of waiters met, and to the
// keys of the waiters for several.
func (s *State) deadlock(limit int, start ...vertex) Outcome {
	d := s.search(limit, start...)
	if d.tooLong() {
		return Outcome{Code: TooManyWaiters}
	}
	for _, v := range start {
		if n := d.node(v); !n.ends {
			return Outcome{Code: Deadlock, Cycle: d.cycle(n)}
		}
	}
	return Outcome{}
}

func (s *State) search(limit int, start ...vertex) *search {
	d := &search{
		s:      s,
		around: make(map[*record]*surroundings),
		limit:  limit,
	}
	d.explore(start)
	if !d.tooLong() {
		d.markEnding()
	}
	s.noteSearch(d.steps)
	return d
}

// node returns the node of v, which is new unless the search has met v.
func (d *search) node(v vertex) *needs {
	hash := v.hash()
	n := d.found.get(&v, hash)
	if n != nil {
		return n
	}
	d.take(vertexSteps)
	if len(d.spare) == 0 {
		d.spare = make([]needs, min(1024, max(8, len(d.order))))
	}
	n, d.spare = &d.spare[0], d.spare[1:]
	n.v, n.hash = v, hash
	d.order = append(d.order, n)
	d.found.add(n, d.order)
	return n
}

// need adds v to the vertices that the vertex at hand needs. r is the record of v's key, or nil.
func (d *search) need(v vertex, r *record) {
	d.take(edgeSteps)
	n := d.node(v)
	if n.r == nil && v.kind != aWaiter {
		n.r = r
	}
	d.edges = append(d.edges, n)
}

// needAt adds the waiter at index i of the queue of r.
func (d *search) needAt(r *record, i int) {
	v := r.queue[i].vertex(r.key)
	d.need(v, r)
	if n := d.edges[len(d.edges)-1]; n.r == nil {
		n.r, n.i = r, i
	}
}

// record returns the record of n's key.
func (d *search) record(n *needs) *record {
	if n.r == nil {
		n.r = d.s.keys.get(n.v.key)
	}
	return n.r
}

// session returns an open session.
func (d *search) session(id SessionID) *session {
	if d.owner == nil || d.owner.id != id {
		d.owner = d.s.sessions.get(id)
	}
	return d.owner
}

// explore finds all vertices that start needs, directly or not.
func (d *search) explore(start []vertex) {
	for _, v := range start {
		d.node(v)
	}
	for i := 0; i < len(d.order) && !d.tooLong(); i++ {
		n := d.order[i]
		first := len(d.edges)
		switch n.v.kind {
		case aWaiter:
			n.lacks = d.neededByWaiter(n)
		case aGrant:
			g := d.record(n).grant(n.v.token)
			n.gives = g.gives()
			d.neededByGrant(g)
		case treeHolders:
			d.treeHoldersOf(n.v, d.record(n))
		case holdersBelow:
			d.holdersBelow(n.v)
		case firstWaiters:
			d.firstWaiters(n.v, d.record(n))
		case firstBelow:
			d.firstBelow(n.v, d.record(n))
		default:
			n.freed = d.holdersOf(d.record(n))
		}
		n.vertices = d.edges[first:len(d.edges):len(d.edges)]
		n.missing = len(n.vertices)
	}
}

// markEnding marks all vertices that can end. An ending vertex tells each vertex in
// need of it, once. Not passes over all vertices until nothing changes: such passes
// are quadratic where readers and writers take turns in a queue.
func (d *search) markEnding() {
	d.listNeededBy()
	var work []*needs
	for _, n := range d.order {
		switch {
		case n.v.kind == anyHolder:
			slices.SortFunc(n.neededBy, func(a, b *needs) int { return cmp.Compare(a.lacks, b.lacks) })
			work = n.makeRoom(work)
		case len(n.vertices) == 0:
			n.ends = true
			work = append(work, n)
		}
	}
	for len(work) > 0 {
		n := work[len(work)-1]
		work = work[:len(work)-1]
		for _, by := range n.neededBy {
			if by.v.kind == anyHolder {
				by.freed += n.gives
				work = by.makeRoom(work)
			} else {
				work = by.lessOne(work)
			}
		}
	}
}

// listNeededBy fills needs.neededBy. All lists share one array: missing is the length of
// each list for a moment.
func (d *search) listNeededBy() {
	for _, n := range d.order {
		n.missing = 0
	}
	for _, n := range d.edges {
		n.missing++
	}
	all := make([]*needs, len(d.edges))
	for _, n := range d.order {
		n.neededBy, all = all[:0:n.missing], all[n.missing:]
	}
	for _, n := range d.order {
		n.missing = len(n.vertices)
		for _, needed := range n.vertices {
			needed.neededBy = append(needed.neededBy, n)
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

// vertex returns the vertex for which the waiters behind w wait, at key.
func (w *waiter) vertex(key string) vertex {
	if w.upgrade != 0 {
		return vertex{token: w.upgrade, key: key, kind: aGrant}
	}
	return vertex{requestID: w.requestID, order: w.order}
}
