package machine

import "slices"

// Admission: after a change, the waiters that no longer have to wait are granted.

// admitWaiters looks at the queues of all keys in revisit, and of the keys added
// meanwhile, until no waiter there could be granted.
func (s *State) admitWaiters() {
	p := &s.step
	s.onceEach()
	for i := 0; i < len(p.revisit); i++ {
		s.admitFrom(p.revisit[i])
	}
	if cap(p.revisit) > maxScratch {
		p.revisit = nil
	}
	clear(p.revisit)
	p.revisit = p.revisit[:0]
	if len(p.noted) > maxScratch {
		p.noted = make(map[string]struct{})
	}
	clear(p.noted)
	if len(p.blocked) > maxScratch {
		p.blocked = make(map[requestID]string)
	}
	clear(p.blocked)
}

// onceEach keeps the first of each key in revisit: a session may end with thousands of
// grants below one tree. A grant frees no waiter, or else notes the queue again.
func (s *State) onceEach() {
	p := &s.step
	if len(p.revisit) < 3 {
		return
	}
	p.revisit = slices.DeleteFunc(p.revisit, func(key string) bool {
		_, noted := p.noted[key]
		p.noted[key] = struct{}{}
		return noted
	})
}

// admitFrom grants all grantable waiters of key's queue, from the head on. A key
// without holders and waiters becomes idle then, and a key without permits loses the
// capacity that no SetCapacity has set.
//
// One pass is enough: a waiter in conflict with another is in conflict with it as a
// holder too, so a grant never frees a waiter behind. Permits are the exception, and
// all permits of a key wait in its own queue.
func (s *State) admitFrom(key string) {
	r := s.keys.get(key)
	if r == &noRecord || r.idle != 0 {
		return
	}
	if s.keys.conditions > 0 {
		s.refuseChanged(key)
		r = s.keys.get(key)
	}
	if s.lifted {
		r = s.admitReaders(key, r)
	}
	var known sharedPass
	for i := 0; i < len(r.queue) && s.lifted && s.last < MaxToken; {
		w := &r.queue[i]
		owner := s.sessions.get(w.session)
		held := known.heldAgainst(r, w, owner.client)
		if owner.dead() || held || i > 0 && w.Mode != Shared || known.heldByTree(s, key, w) || s.blockedElsewhere(owner, key, w) {
			if w.Tree && !owner.dead() {
				s.recallBelow(key, 2)
			}
			// Every waiter behind an exclusive waiter or a permit waits for it. A
			// shared waiter may wait for a tree, for another key or for a ghost,
			// while the waiters behind need not.
			if w.Mode != Shared || held && r.ghosts == 0 {
				break
			}
			i++
			continue
		}
		s.admit(owner, key, i)
		r, known.clients = s.keys.get(key), nil
		if s.keys.conditions > 0 {
			break // a condition may not hold any more: the key is in revisit again
		}
	}
	if r.capacity != 0 && !r.fixed && !r.hasPermits() {
		r = s.keys.editRecord(key, r, func(r *record) { r.capacity = 0 }) // the next request names another
	}
	if len(r.holders) == 0 && len(r.queue) == 0 {
		s.makeIdle(key, r)
	}
}

// admitReaders grants the plain readers at the head of key's queue, as admit would one by one,
// in a single edit: there may be ten thousand. The result is the record after the edit.
func (s *State) admitReaders(key string, r *record) *record {
	if s.keys.trees > 0 || s.keys.conditions > 0 || r.ghosts > 0 || len(r.holders) > 0 && r.holders[0].Mode != Shared {
		return r
	}
	n, most := 0, min(uint64(len(r.queue)), uint64(max(0, MaxHolders-len(r.holders))), uint64(MaxToken-s.last))
	var owner *session
	for n < int(most) {
		w := &r.queue[n]
		if owner == nil || owner.id != w.session {
			owner = s.sessions.get(w.session)
		}
		if w.Mode != Shared || w.set || w.upgrade != 0 || w.Block != 0 || owner.dead() {
			break
		}
		n++
	}
	if n < 2 {
		return r
	}
	s.step.events = slices.Grow(s.step.events, n)
	return s.changeRecord(key, r, func(r *record) {
		r.holders = slices.Grow(r.holders, n)
		for i := range n {
			w := &r.queue[i]
			if owner.id != w.session {
				owner = s.sessions.get(w.session)
			}
			s.admitReader(owner, r, w, len(r.queue)-i-1)
		}
		clear(r.queue[:n-1])
		r.queue = remove(r.queue[n-1:], 0)
	})
}

// admitReader makes w, a plain reader at the head of the queue of r, a holder. The caller
// removes it; others are left behind it.
func (s *State) admitReader(owner *session, r *record, w *waiter, others int) {
	s.lineage.remove(w)
	s.last++
	x := owner.index
	x.wait(-1)
	if len(w.under) > 0 {
		x.weigh(weight{bytes: weightOf(nil, "", w.under).bytes + len(w.under)*tokenBytes}, -1)
	}
	r.last = s.last
	r.holders = append(r.holders, grant{
		requestID: w.requestID,
		token:     s.last,
		terms:     (&terms{Spec: w.Spec}).kept(),
		at:        momentOf(s.at),
		marks:     markUnseen | markWaited | markIf(others > 0, markContended),
	})
	s.owners.add(s.last, x)
	x.requests.pendAt(x.requests.set(w.seq, location{key: r.key, token: s.last, phase: granted}), true)
	x.held++
	out := Outcome{Token: s.last, Waiters: uint32(others), Value: r.value, Unclean: r.unclean}
	s.step.events = append(s.step.events, grantedEvent(owner.id, w.seq, r.key, out))
}

// sharedPass is what a pass over a queue knows of all shared waiters. Thousands may wait
// for one key below, or for the ghosts of thousands: a search for each of them, at every
// release there, takes seconds.
type sharedPass struct {
	tree    [2]bool         // a holder above or below is in the way of others, and of trees: no grant changes that
	clients map[string]bool // whether the holders are in the way of the client's; "": of requests for several keys
}

// heldAgainst is record.heldAgainst.
func (p *sharedPass) heldAgainst(r *record, w *waiter, client string) bool {
	if r.ghosts == 0 || w.Mode != Shared {
		return r.heldAgainst(w, client)
	}
	if w.set {
		client = ""
	}
	held, known := p.clients[client]
	if !known {
		if p.clients == nil {
			p.clients = make(map[string]bool)
		}
		held = r.heldAgainst(w, client)
		p.clients[client] = held
	}
	return held
}

// heldByTree is keyTable.heldAgainstByTree.
func (p *sharedPass) heldByTree(s *State, key string, w *waiter) bool {
	if w.Mode != Shared {
		return s.keys.heldAgainstByTree(key, w)
	}
	at := &p.tree[bit(w.Tree, 1)]
	*at = *at || s.keys.heldAgainstByTree(key, w)
	return *at
}

// blockedElsewhere reports whether w has to wait for a waiter above or below key, or
// at another key of w. Nothing in key's own record conflicts with w.
func (s *State) blockedElsewhere(owner *session, key string, w *waiter) bool {
	if w.upgrade != 0 {
		return false
	}
	if s.keys.waitsBehindTree(key, w) {
		return true
	}
	if !w.set {
		return false
	}
	// Try the key that blocked last time first: the release of a set of a thousand
	// keys calls this once for each key.
	q := w.requestID
	if other, ok := s.step.blocked[q]; ok && other != key && s.blockedAt(other, w, owner.client) {
		return true
	}
	keys := s.sets.get(q)
	for _, other := range keys {
		if other != key && s.blockedAt(other, w, owner.client) {
			s.step.blocked[q] = other
			return true
		}
	}
	return false
}

// blockedAt reports whether w, which stands in key's queue, has to wait there.
func (s *State) blockedAt(key string, w *waiter, client string) bool {
	r := s.keys.get(key)
	return s.keys.heldAgainst(key, r, w, client) || r.waitsBehind(w, r.find(w)) || s.keys.waitsBehindTree(key, w)
}

// admit makes the waiter at index i of key's queue a holder.
func (s *State) admit(owner *session, key string, i int) {
	w := s.removeWaiter(key, i)
	s.lineage.remove(&w)
	owner.index.wait(-1)
	var out Outcome
	if w.upgrade != 0 {
		owner.index.weigh(weightOf(nil, "", w.under), -1)
		out = s.makeExclusive(owner, key, &w, true)
		s.step.revisit = append(s.step.revisit, key)
	} else {
		keys := s.keysOf(owner, w.seq, owner.index.requests.at(w.seq))
		owner.index.weigh(weightOf(keys, w.Meta, w.under), -1)
		owner.index.weigh(weightOf(keys, w.Meta, nil), 1)
		for _, other := range keys {
			if other != key {
				s.removeWaiter(other, s.keys.get(other).find(&w))
			}
		}
		out = s.giveKeys(owner, &w, keys, true)
		if s.keys.conditions > 0 {
			s.step.revisit = append(s.step.revisit, keys...)
		}
		key = keys[0]
	}
	s.step.events = append(s.step.events, grantedEvent(owner.id, w.seq, key, out))
}

// refuseChanged refuses, late, the waiters of key whose condition no longer holds.
func (s *State) refuseChanged(key string) {
	last := s.keys.get(key).last
	s.refuseWaiters(key, Outcome{Code: Changed, Token: last}, func(w *waiter) bool { return w.Conditional && w.IfToken < last })
}

// refuseWaiters refuses, late, the chosen waiters for key alone, in a single pass, and
// notes the queues to be looked at once for all of them: thousands of trees may wait for
// thousands of waiters.
func (s *State) refuseWaiters(key string, out Outcome, chosen func(*waiter) bool) {
	r, i := s.keys.get(key), 0
	for i < len(r.queue) && !chosen(&r.queue[i]) {
		i++
	}
	if i == len(r.queue) {
		return
	}
	var removed []waiter
	s.change(key, func(r *record) { removed = r.removeWaitersIf(chosen) })
	tree := false
	for i := range removed {
		w := &removed[i]
		s.lineage.remove(w)
		s.refuseLate(key, w, out)
		tree = tree || w.Tree
	}
	s.revisit(key, tree)
}

// refuseLate gives a waiter for key alone, which has left the queue, a refusal for its
// outcome.
func (s *State) refuseLate(key string, w *waiter, out Outcome) {
	owner := s.sessions.get(w.session)
	if owner.dead() {
		owner.index.dequeued(w.seq, s.weigh(owner, w)) // nobody asks for the outcome
		return
	}
	owner.index.wait(-1)
	owner.index.weigh(s.weigh(owner, w), -1)
	owner.index.unseen-- // remember counts it again
	s.remember(owner, w.seq, &answer{out: out, key: key, late: true})
	s.step.events = append(s.step.events, refusedEvent(owner.id, w.seq, key, out))
}

func refusedEvent(id SessionID, seq uint64, key string, out Outcome) Event {
	return Event{Kind: EventRefused, Session: id, Seq: seq, Key: key, Code: out.Code, Token: out.Token, Limit: out.Limit}
}
