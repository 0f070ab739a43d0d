package machine

import "slices"

// Queues decide the next holder of a key: the waiter that came first, unless a
// priority, a waiver of a delay, a named successor or an upgrade puts another waiter
// before.

// place is where a request would stand in the queues of its keys.
type place struct {
	index   int  // in the queue of its one key; a request for several keys stands at every tail
	passes  bool // waiters in that queue stand behind the index
	blocked bool // a holder or a waiter before it conflicts with it, or nothing is granted yet
	full    bool // a queue has as many waiters as are allowed
}

// placeIn returns the place of w in the queues of keys, and sets the order of w to
// that place. A queue is full if it has limit waiters.
func (s *State) placeIn(keys []string, w *waiter, client string, limit int) place {
	t := &s.keys
	p := place{blocked: !s.lifted}
	trees := t.trees > 0 || w.Tree
	for _, key := range keys {
		r := t.get(key)
		if !trees && (r == &noRecord || r.idle != 0) {
			continue // free, and without conflicts
		}
		p.index, w.order = t.placeInQueue(key, r, w, r.ghostOf(client))
		p.passes = p.index < len(r.queue)
		p.full = p.full || len(r.queue) >= limit
		p.blocked = p.blocked || t.heldAgainst(key, r, w, client) || r.waitsBehind(w, p.index) || trees && t.waitsBehindTree(key, w)
	}
	return p
}

// placeInQueue returns the index for w in key's queue, and the order there: at the
// tail, or before the waiters that w may pass. With a waiver w passes waiters of any
// priority: the same client left a ghost at the key.
//
// Only plain waiters are passed. Not a waiter for several keys or a tree, because
// all queues must agree on one order. Not a waiter with a lineage, because passing
// could close a cycle of waits through a client that did nothing wrong and waits
// already.
func (t *keyTable) placeInQueue(key string, r *record, w *waiter, waiver bool) (i int, order uint64) {
	i = len(r.queue)
	lowTail := i > 0 && r.queue[i-1].Priority < 0
	if w.set || w.Tree || !waiver && w.Priority == 0 && !lowTail {
		return i, w.order
	}
	floor := t.lastTreeOrder(key)
	for i > 0 {
		v := &r.queue[i-1]
		if !waiver && v.Priority >= w.Priority || !v.mayBePassed(floor) {
			break
		}
		i--
	}
	if i < len(r.queue) {
		return i, r.queue[i].order
	}
	return i, w.order
}

// mayBePassed reports whether another waiter may go before v. The trees that wait
// above and below the key have orders up to floor.
func (v *waiter) mayBePassed(floor uint64) bool {
	return v.upgrade == 0 && !v.set && !v.Tree && len(v.under) == 0 && v.passed < MaxPassed && v.order > floor
}

// pass counts that these waiters are passed once.
func pass(waiters []waiter) {
	for i := range waiters {
		waiters[i].passed++
	}
}

// enqueue puts w in the queues of its keys: at index i of a single key, or at the
// tails of several.
func (s *State) enqueue(owner *session, w *waiter, keys []string, i int) Outcome {
	out := Outcome{Code: Queued, Holder: s.inTheWay(keys, w, owner.client)}
	s.lineage.add(w)
	for _, key := range keys {
		r := s.keys.use(key)
		r = s.changeRecord(key, r, func(r *record) {
			if w.set {
				i = len(r.queue)
			}
			pass(r.queue[i:])
			r.insertWaiter(i, *w)
			r.nameCapacity(w)
		})
		out.Behind = max(out.Behind, r.behind(i))
		s.tellContended(key, 0)
		if w.Tree {
			s.recallBelow(key, s.slice)
		}
	}
	owner.index.queued(w.seq, location{key: keys[0], set: w.set, phase: waiting}, weightOf(keys, w.Meta, w.under))
	if w.set {
		s.sets.set(w.requestID, slices.Clone(keys))
	}
	return out
}

// removeWaiter removes and returns the waiter at index i of key's queue. The lineage is the
// caller's: a request for a thousand keys has two hundred tokens once.
func (s *State) removeWaiter(key string, i int) waiter {
	r := s.keys.get(key)
	w := r.queue[i]
	s.keys.editRecord(key, r, func(r *record) { r.removeWaiter(i) })
	return w
}

// removeRequest removes a waiting request from the queues of its keys.
func (s *State) removeRequest(owner *session, seq uint64, at location) {
	q := requestID{owner.id, seq}
	w := *s.waiterOf(q, at)
	gone := s.weigh(owner, &w) // before the request leaves
	s.lineage.remove(&w)
	for _, key := range s.keysOf(owner, seq, at) {
		s.removeWaiter(key, s.keys.get(key).find(&w))
		s.touch(key, s.keys.get(key))
		s.revisit(key, w.Tree)
	}
	s.sets.del(q)
	owner.index.dequeued(seq, gone)
}

// waiterOf returns the waiter of a waiting request at the first of its keys. The order is the
// same at the others, so find is enough there.
func (s *State) waiterOf(q requestID, at location) *waiter {
	r := s.keys.get(at.key)
	return &r.queue[r.position(q)]
}

// removeUpgrade removes from key's queue the upgrade of a grant that ends.
func (s *State) removeUpgrade(owner *session, key string, token Token) {
	r := s.keys.get(key)
	for i := range r.queue {
		switch r.queue[i].upgrade {
		case 0:
			return // upgrades stand before all others
		case token:
			w := s.removeWaiter(key, i)
			s.lineage.remove(&w)
			owner.index.dequeued(w.seq, s.weigh(owner, &w))
			return
		}
	}
}

// putSuccessorFirst puts the first waiter of the named client before all others in
// the queue of a grant about to be released, and returns false if this is not
// allowed. An upgrade of the grant does not count, because the upgrade ends with the
// grant.
func (s *State) putSuccessorFirst(owner *session, at location, client string) bool {
	r := s.keys.get(at.key)
	i := slices.IndexFunc(r.queue, func(w waiter) bool {
		o := s.sessions.get(w.session)
		return w.upgrade == 0 && o.client == client && !o.dead()
	})
	if i < 0 {
		return false
	}
	first := 0
	if r.queue[0].upgrade == at.token {
		first = 1
	}
	if w := &r.queue[i]; i > first && (w.set || w.Tree) {
		return false
	}
	floor := s.keys.lastTreeOrder(at.key)
	for j := first; j < i; j++ {
		if !r.queue[j].mayBePassed(floor) {
			return false
		}
	}
	s.removeUpgrade(owner, at.key, at.token)
	i -= first
	s.keys.edit(at.key, func(r *record) {
		w := r.queue[i]
		copy(r.queue[1:i+1], r.queue[:i])
		pass(r.queue[1 : i+1])
		if i > 0 {
			w.order = r.queue[1].order
			s.lineage.add(&w)
		}
		r.queue[0] = w
	})
	return true
}
