package machine

import (
	"maps"
	"slices"
)

// The edges of the graph of waits: the vertices that must end before another does.

// neededByGrant returns the waiters under a grant. The grant needs all of them.
func (d *search) neededByGrant(v vertex) []vertex {
	g := d.grant(v)
	if g.broken || g.ghost != nil {
		return nil
	}
	waiters := d.s.lineage.waiters(g.lineageToken())
	vertices := make([]vertex, len(waiters))
	for i, q := range waiters {
		vertices[i] = vertex{requestID: q}
	}
	return vertices
}

// neededByWaiter returns all conflicts of a waiter, at all of its keys.
func (d *search) neededByWaiter(q requestID) (vertices []vertex) {
	s := d.s
	owner := s.sessions.get(q.session)
	for _, key := range s.keysOf(owner, q.seq, owner.index.requests[q.seq]) {
		r := s.keys.get(key)
		i := d.positionOf(q, key, r)
		w := &r.queue[i]
		vertices = d.appendHolders(vertices, key, r, w, owner.client)
		if s.keys.trees > 0 {
			vertices = d.appendTreeHolders(vertices, key, w)
		}
		if w.upgrade != 0 {
			continue
		}
		vertices = d.appendWaiters(vertices, key, r, i)
		for v, at := range s.keys.treeWaiters(key, w) {
			d.steps++
			if v.standsBefore(q, w.order) {
				vertices = append(vertices, v.vertex(at))
			}
		}
	}
	return vertices
}

// positionOf returns the index of a waiter in key's queue.
func (d *search) positionOf(q requestID, key string, r *record) int {
	if p, ok := d.position[q]; ok && p.key == key {
		return p.i
	}
	i := r.position(q)
	d.steps += i
	return i
}

// appendHolders appends the holders of key in conflict with w, as a single vertex if
// possible.
func (d *search) appendHolders(vertices []vertex, key string, r *record, w *waiter, client string) []vertex {
	switch {
	case !r.heldAgainst(w, client):
		return vertices
	case w.Mode == r.holders[0].Mode && w.Mode != Exclusive:
		return append(vertices, vertex{key: key, kind: anyHolder}) // there are too many
	case w.upgrade == 0 && !r.ghostOf(client):
		return append(vertices, vertex{key: key, kind: allHolders})
	}
	for i := range r.holders {
		d.steps++
		if g := &r.holders[i]; g.token != w.upgrade && !g.waivedBy(w, client) {
			vertices = append(vertices, vertex{token: g.token, key: key, kind: aGrant})
		}
	}
	return vertices
}

// appendWaiters appends waiters in conflict with the waiter at index i of key's
// queue, from before that index. The last waiter that is not shared, and the shared
// waiters behind, are enough: the rest conflict with that last waiter too.
func (d *search) appendWaiters(vertices []vertex, key string, r *record, i int) []vertex {
	shared := r.queue[i].Mode == Shared
	for i--; i >= 0; i-- {
		d.steps++
		if shared {
			// Not each shared waiter by itself: each would pass over all waiters
			// before.
			if i = d.lastAlone(key, r, i); i < 0 {
				break
			}
		}
		v := &r.queue[i]
		d.position[v.requestID] = queued{key, i}
		vertices = append(vertices, v.vertex(key))
		if v.Mode != Shared {
			break
		}
	}
	return vertices
}

// lastAlone returns the index of the last waiter in key's queue, up to index i, that
// is not shared; -1 if all are.
func (d *search) lastAlone(key string, r *record, i int) int {
	alone, ok := d.alone[key]
	if !ok {
		for j := range r.queue {
			d.steps++
			if r.queue[j].Mode != Shared {
				alone = append(alone, j)
			}
		}
		d.alone[key] = alone
	}
	n, _ := slices.BinarySearch(alone, i+1)
	if n == 0 {
		return -1
	}
	return alone[n-1]
}

// appendTreeHolders appends the holders above and below key that conflict with w.
func (d *search) appendTreeHolders(vertices []vertex, key string, w *waiter) []vertex {
	add := func(v vertex) {
		d.steps++
		if treesConflict(w.Tree, w.Mode, &d.grant(v).Spec) {
			vertices = append(vertices, v)
		}
	}
	for p := range above(key) {
		for _, v := range d.s.keys.get(p).grantVertices(p) {
			add(v)
		}
	}
	// There may be a million holders below. Only grants with waiters under them can be
	// in a cycle, and the lineage knows these.
	if !d.known {
		d.known, d.below = true, d.waitedUnder()
	}
	for _, v := range d.below {
		if isBelow(v.key, key) {
			add(v)
		}
	}
	return vertices
}

// waitedUnder returns the grants with waiters under them.
func (d *search) waitedUnder() (grants []vertex) {
	s := d.s
	for _, t := range slices.Sorted(maps.Keys(s.lineage)) {
		o := d.holderOf(t)
		if o == nil {
			continue
		}
		seq, at, _ := s.grantOf(o, t)
		for _, key := range s.keysOf(o, seq, at) {
			grants = append(grants, vertex{token: at.token, key: key, kind: aGrant})
		}
	}
	return grants
}

// holderOf returns the session with the grant of a lineage token; nil if no session
// has the grant. Mostly the session under the grant is the holder. Otherwise one
// search through all sessions is enough, even a search in vain: an ended grant does
// not come back.
func (d *search) holderOf(t Token) *session {
	s := d.s
	b := s.lineage[t]
	has := func(o *session) bool {
		_, _, g := s.grantOf(o, t)
		return g != nil && g.lineageToken() == t
	}
	if b.gone {
		return nil
	}
	if o := s.sessions.get(b.holder); o != nil && has(o) {
		return o
	}
	for id, o := range s.sessions.all {
		d.steps++
		if has(o) {
			b.holder = id
			return o
		}
	}
	b.gone = true
	return nil
}
