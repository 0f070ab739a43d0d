package machine

import "slices"

// The edges of the graph of waits: the vertices that must end before another does.

// neededByGrant returns the waiters under a grant. The grant needs all of them.
func (d *search) neededByGrant(v vertex) []vertex {
	g := d.grant(v)
	if g.broken || g.ghost != nil || d.s.sessions.get(g.session).dead() {
		return nil
	}
	waiters := d.s.lineage.waiters(g.lineageToken())
	vertices := make([]vertex, len(waiters))
	for i, q := range waiters {
		vertices[i] = vertex{requestID: q}
	}
	return vertices
}

// neededByWaiter returns all conflicts of a waiter, at all of its keys, and how much
// the holders of a key must free if not all of them must end.
func (d *search) neededByWaiter(q requestID) (vertices []vertex, lacks int) {
	s := d.s
	owner := s.sessions.get(q.session)
	if owner.dead() {
		return nil, 0 // a slice takes it out of its queues
	}
	for _, key := range s.keysOf(owner, q.seq, owner.index.requests.at(q.seq)) {
		r := s.keys.get(key)
		i := d.positionOf(q, key, r)
		w := &r.queue[i]
		vertices = d.appendHolders(vertices, key, r, w, owner.client)
		lacks = r.lackedBy(w)
		if s.keys.trees > 0 {
			vertices = d.appendTreeHolders(vertices, key, w)
		}
		if w.upgrade != 0 {
			continue
		}
		vertices = d.appendWaiters(vertices, key, r, i)
		if s.keys.trees > 0 {
			vertices = d.appendTreeWaiters(vertices, key, w)
		}
	}
	return vertices, lacks
}

// lackedBy returns how many permits must be freed before w can be granted its own; for
// a waiter of another mode one place, which is all that a shared waiter needs.
func (r *record) lackedBy(w *waiter) int {
	if w.Mode != Permit {
		return 1
	}
	return int(r.permits) + int(w.N) - int(r.capacity)
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
// waiters behind, are enough: the rest conflict with that last waiter too. Waiters of dead
// sessions are left out: they leave without waiting for the rest.
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
		if d.s.sessions.get(v.session).dead() {
			continue
		}
		d.position[v.requestID] = queued{key, i}
		vertices = append(vertices, v.vertex(key))
		if v.Mode != Shared {
			break
		}
	}
	return vertices
}

// lastAlone returns the index of the last waiter in key's queue, up to index i, that
// is not shared and not of a dead session; -1 if there is none.
func (d *search) lastAlone(key string, r *record, i int) int {
	alone, ok := d.alone[key]
	if !ok {
		for j := range r.queue {
			d.steps++
			if r.queue[j].Mode != Shared && !d.s.sessions.get(r.queue[j].session).dead() {
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
