package machine

import "slices"

// The edges of the graph of waits: the vertices that must end before another does.

// endsByItself reports whether a grant waits for no waiter under it. Then it is no part of
// a cycle, and mostly no vertex.
func (d *search) endsByItself(g *grant) bool {
	return g.is(markBroken) || g.ghost != nil || d.s.lineage[g.lineageToken()] == nil || d.s.sessions.get(g.session).dead()
}

// gives returns the permits, or the place, that g frees by its end.
func (g *grant) gives() int { return max(1, int(g.N)) }

// neededByGrant adds the waiters under a grant. The grant needs all of them.
func (d *search) neededByGrant(v vertex) {
	g := d.grant(v)
	if d.endsByItself(g) {
		return
	}
	t := g.lineageToken()
	if !d.take(edgeSteps * d.s.lineage.count(t)) {
		return
	}
	for _, w := range d.s.lineage.waiters(t) {
		d.need(vertex{requestID: w.requestID, order: w.order})
	}
}

// holdersOf adds the holders of key, and returns the permits, or places, of those that end
// by themselves.
func (d *search) holdersOf(key string) (freed int) {
	r := d.s.keys.get(key)
	d.take(len(r.holders))
	for i := range r.holders {
		if g := &r.holders[i]; d.endsByItself(g) {
			freed += g.gives()
		} else {
			d.need(vertex{token: g.token, key: key, kind: aGrant})
		}
	}
	return freed
}

// neededByWaiter adds all conflicts of a waiter, at all of its keys, and returns how much
// the holders of a key must free if not all of them must end.
func (d *search) neededByWaiter(v vertex) (lacks int) {
	s, q := d.s, v.requestID
	owner := s.sessions.get(q.session)
	if owner.dead() {
		return 0 // a slice takes it out of its queues
	}
	w := &waiter{requestID: q, order: v.order} // enough for find; all queues agree on the order
	for _, key := range s.keysOf(owner, q.seq, owner.index.requests.at(q.seq)) {
		if d.tooLong() {
			break
		}
		r := s.keys.get(key)
		i := r.find(w)
		w = &r.queue[i]
		d.take(1)
		d.needHolders(key, r, w, owner.client)
		lacks = r.lackedBy(w)
		if s.keys.trees > 0 {
			d.needTreeHolders(key, w)
		}
		if w.upgrade != 0 {
			continue
		}
		lacks = max(lacks, d.needWaiters(key, r, i))
		if s.keys.trees > 0 {
			d.needTreeWaiters(key, w)
		}
	}
	return lacks
}

// lackedBy returns how many permits must be freed before w can be granted its own; for
// a waiter of another mode one place, which is all that a shared waiter needs.
func (r *record) lackedBy(w *waiter) int {
	if w.Mode != Permit {
		return 1
	}
	return int(r.permits) + int(w.N) - int(r.capacity)
}

// needHolders adds the holders of key in conflict with w, as a single vertex if possible.
func (d *search) needHolders(key string, r *record, w *waiter, client string) {
	switch {
	case !r.heldAgainst(w, client):
		return
	case w.Mode == r.holders[0].Mode && w.Mode != Exclusive:
		d.need(vertex{key: key, kind: anyHolder}) // there are too many
		return
	case w.upgrade == 0 && !r.ghostOf(client):
		d.need(vertex{key: key, kind: allHolders})
		return
	}
	d.take(len(r.holders))
	for i := range r.holders {
		if g := &r.holders[i]; g.token != w.upgrade && !g.waivedBy(w, client) && !d.endsByItself(g) {
			d.need(vertex{token: g.token, key: key, kind: aGrant})
		}
	}
}

// needWaiters adds waiters in conflict with the waiter at index i of key's queue, from
// before that index. The last waiter that is not shared, and the shared waiters behind, are
// enough: the rest conflict with that last waiter too. Waiters of dead sessions are left
// out: they leave without waiting for the rest.
//
// A plain waiter needs nothing but the holders of key and the waiters before itself. So the
// plain waiters next to index i are passed over, and the waiter at index i needs the holders
// in their place: a queue of thousands is a few vertices. The result is how much the holders
// must free for the waiters passed over. Not all plain waiters are passed over, but those up
// to the first waiter with a lineage: otherwise thousands would pass over thousands.
func (d *search) needWaiters(key string, r *record, i int) (lacks int) {
	w := &r.queue[i]
	plain := d.s.keys.trees == 0 && r.ghosts == 0
	all := false
	for i--; i >= 0 && d.take(1); i-- {
		if w.Mode == Shared {
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
		if plain && w.Mode != Shared && !v.set && v.upgrade == 0 && len(v.under) == 0 {
			switch {
			case !r.heldAgainst(v, ""):
			case v.Mode == Permit && w.Mode == Permit && r.permits > 0:
				lacks = max(lacks, r.lackedBy(v))
			default:
				all = true
			}
			continue
		}
		d.needAt(key, r, i)
		plain = false
		if v.Mode != Shared {
			break
		}
	}
	if all {
		d.need(vertex{key: key, kind: allHolders})
	}
	if lacks > 0 {
		d.need(vertex{key: key, kind: anyHolder})
	}
	return lacks
}

// needAt adds the waiter at index i of key's queue.
func (d *search) needAt(key string, r *record, i int) {
	d.need(r.queue[i].vertex(key))
}

// lastAlone returns the index of the last waiter in key's queue, up to index i, that
// is not shared and not of a dead session; -1 if there is none.
func (d *search) lastAlone(key string, r *record, i int) int {
	alone, ok := d.alone[key]
	if !ok {
		d.take(len(r.queue))
		for j := range r.queue {
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
