package machine

// Admission: after a change, the waiters that no longer have to wait are granted.

// admitWaiters looks at the queues of all keys in revisit, and of the keys added
// meanwhile, until no waiter there could be granted.
func (s *State) admitWaiters() {
	p := &s.step
	for i := 0; i < len(p.revisit); i++ {
		s.admitFrom(p.revisit[i])
	}
	if cap(p.revisit) > maxScratch {
		p.revisit = nil
	}
	clear(p.revisit)
	p.revisit = p.revisit[:0]
	if len(p.blocked) > maxScratch {
		p.blocked = make(map[requestID]string)
	}
	clear(p.blocked)
}

// admitFrom grants all grantable waiters of key's queue, from the head on. A key
// without holders and waiters becomes idle then.
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
	for i := 0; i < len(r.queue) && s.lifted && s.last < MaxToken; {
		w := &r.queue[i]
		owner := s.sessions.get(w.session)
		held := r.heldAgainst(w, owner.client)
		if held || i > 0 && w.Mode != Shared || s.keys.heldAgainstByTree(key, w) || s.blockedElsewhere(owner, key, w) {
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
		r = s.keys.get(key)
		if s.keys.conditions > 0 {
			break // a condition may not hold any more: the key is in revisit again
		}
	}
	if len(r.holders) == 0 && len(r.queue) == 0 {
		s.makeIdle(key, r)
	}
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
	return s.keys.heldAgainst(key, r, w, client) || r.waitsBehind(w, r.position(w.requestID)) || s.keys.waitsBehindTree(key, w)
}

// admit makes the waiter at index i of key's queue a holder.
func (s *State) admit(owner *session, key string, i int) {
	w := s.removeWaiter(key, i)
	owner.index.waits--
	var out Outcome
	if w.upgrade != 0 {
		out = s.makeExclusive(owner, key, &w, true)
		s.step.revisit = append(s.step.revisit, key)
	} else {
		keys := s.keysOf(owner, w.seq, owner.index.requests[w.seq])
		for _, other := range keys {
			if other != key {
				s.removeWaiter(other, s.keys.get(other).position(w.requestID))
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
	r := s.keys.get(key)
	for i := 0; i < len(r.queue); {
		if w := &r.queue[i]; !w.Conditional || r.last <= w.IfToken {
			i++
			continue
		}
		w := s.removeWaiter(key, i)
		r = s.change(key, func(*record) {})
		owner := s.sessions.get(w.session)
		owner.index.waits--
		owner.index.unseen-- // remember counts it again
		out := s.remember(owner, w.seq, &answer{out: Outcome{Code: Changed, Token: r.last}, key: key, late: true})
		s.revisit(key, w.Tree)
		s.step.events = append(s.step.events, refusedEvent(owner.id, w.seq, key, out))
	}
}

func refusedEvent(id SessionID, seq uint64, key string, out Outcome) Event {
	return Event{Kind: EventRefused, Session: id, Seq: seq, Key: key, Code: out.Code, Token: out.Token}
}
