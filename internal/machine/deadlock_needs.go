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
func (d *search) neededByGrant(g *grant) {
	if d.endsByItself(g) {
		return
	}
	t := g.lineageToken()
	n := d.s.lineage.count(t)
	if !d.take(edgeSteps * n) {
		return
	}
	d.order, d.edges = slices.Grow(d.order, n), slices.Grow(d.edges, n)
	for _, w := range d.s.lineage.waiters(t) {
		d.need(vertex{requestID: w.requestID, order: w.order}, nil)
	}
}

// holdersOf adds the holders of r's key, and returns the permits, or places, of those that end
// by themselves.
func (d *search) holdersOf(r *record) (freed int) {
	d.take(len(r.holders))
	for i := range r.holders {
		if g := &r.holders[i]; d.endsByItself(g) {
			freed += g.gives()
		} else {
			d.need(vertex{token: g.token, key: r.key, kind: aGrant}, r)
		}
	}
	return freed
}

// neededByWaiter adds all conflicts of a waiter, at all of its keys, and returns how much
// the holders of a key must free if not all of them must end.
func (d *search) neededByWaiter(n *needs) (lacks int) {
	s, q := d.s, n.v.requestID
	owner := d.session(q.session)
	if owner.dead() {
		return 0 // a slice takes it out of its queues
	}
	if n.r != nil && !n.r.queue[n.i].set {
		return d.neededAt(n.r, n.i, owner.client)
	}
	w := &waiter{requestID: q, order: n.v.order} // enough for find; all queues agree on the order
	for _, key := range s.keysOf(owner, q.seq, owner.index.requests.at(q.seq)) {
		if d.tooLong() {
			break
		}
		if d.met == nil || d.met.key != key {
			d.met = s.keys.get(key)
		}
		// The waiters under a grant come in the order of the queue.
		if d.i++; d.i >= len(d.met.queue) || d.met.queue[d.i].requestID != q {
			d.i = d.met.find(w)
		}
		lacks = d.neededAt(d.met, d.i, owner.client)
	}
	return lacks
}

// neededAt is neededByWaiter of the waiter at index i of the queue of r, at this key.
func (d *search) neededAt(r *record, i int, client string) (lacks int) {
	w := &r.queue[i]
	d.take(1)
	d.needHolders(r, w, client)
	lacks = r.lackedBy(w)
	trees := d.s.keys.trees > 0
	if trees {
		d.needTreeHolders(d.surroundingsOf(r), w)
	}
	if w.upgrade != 0 {
		return lacks
	}
	lacks = max(lacks, d.needWaiters(r, i))
	if trees {
		d.needTreeWaiters(d.surroundingsOf(r), w)
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

// needHolders adds the holders of r's key in conflict with w, as a single vertex if possible.
func (d *search) needHolders(r *record, w *waiter, client string) {
	switch {
	case !r.heldAgainst(w, client):
		return
	case w.Mode == r.holders[0].Mode && w.Mode != Exclusive:
		d.need(vertex{key: r.key, kind: anyHolder}, r) // there are too many
		return
	case w.upgrade == 0 && !r.ghostOf(client):
		d.need(vertex{key: r.key, kind: allHolders}, r)
		return
	}
	d.take(len(r.holders))
	for i := range r.holders {
		if g := &r.holders[i]; g.token != w.upgrade && !g.waivedBy(w, client) && !d.endsByItself(g) {
			d.need(vertex{token: g.token, key: r.key, kind: aGrant}, r)
		}
	}
}

// needWaiters adds waiters in conflict with the waiter at index i of the queue of r, from
// before that index. The last waiter that is not shared, and the shared waiters behind, are
// enough: the rest conflict with that last waiter too. Waiters of dead sessions are left
// out: they leave without waiting for the rest.
//
// A plain waiter needs nothing but the holders of key and the waiters before itself. So the
// plain waiters next to index i are passed over, and the waiter at index i needs the holders
// in their place: a queue of thousands is a few vertices. The result is how much the holders
// must free for the waiters passed over. Not all plain waiters are passed over, but those up
// to the first waiter with a lineage: otherwise thousands would pass over thousands.
func (d *search) needWaiters(r *record, i int) (lacks int) {
	w := &r.queue[i]
	plain := d.s.keys.trees == 0 && r.ghosts == 0
	all := false
	for i--; i >= 0 && d.take(1); i-- {
		if w.Mode == Shared {
			// Not each shared waiter by itself: each would pass over all waiters
			// before.
			if i = d.lastAlone(r, i); i < 0 {
				break
			}
		}
		v := &r.queue[i]
		if d.session(v.session).dead() {
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
		d.needAt(r, i)
		plain = false
		if v.Mode != Shared {
			break
		}
	}
	if all {
		d.need(vertex{key: r.key, kind: allHolders}, r)
	}
	if lacks > 0 {
		d.need(vertex{key: r.key, kind: anyHolder}, r)
	}
	return lacks
}

// lastAlone returns the index of the last waiter in the queue of r, up to index i, that
// is not shared and not of a dead session; -1 if there is none.
func (d *search) lastAlone(r *record, i int) int {
	x := d.surroundingsOf(r)
	if !x.aloneKnown {
		x.aloneKnown = true
		d.take(len(r.queue))
		for j := range r.queue {
			if r.queue[j].Mode != Shared && !d.session(r.queue[j].session).dead() {
				x.alone = append(x.alone, j)
			}
		}
	}
	n, _ := slices.BinarySearch(x.alone, i+1)
	if n == 0 {
		return -1
	}
	return x.alone[n-1]
}
