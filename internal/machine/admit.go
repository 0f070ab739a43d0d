package machine

import "slices"

// Admission: after a change, the waiters that no longer have to wait are granted.

// admitWaiters grants all grantable waiters in the queues of revisit, and in the queues noted
// meanwhile. When the work of a step is used up, the rest of the queues is put off: see visit.go.
func (s *State) admitWaiters() {
	p := &s.step
	p.admitting = true
	work, next := workPerKey*s.admits, 0
	var begun []visit // and not finished: behind the others, which have waited as long
	for ; next < len(p.revisit) && work > 0; next++ {
		rest, done, left := s.visit(p.revisit[next], work)
		if work = left; !done {
			begun = append(begun, rest)
		}
	}
	p.admitting = false
	for _, v := range slices.Concat(p.revisit[next:], begun) {
		s.putOff(v)
	}
	if cap(p.revisit) > maxScratch {
		p.revisit = nil
	}
	clear(p.revisit)
	p.forgetRevisits()
	if len(p.blocked) > maxScratch {
		p.blocked = make(map[requestID]string)
	}
	clear(p.blocked)
}

// note has queues looked at, once however often they are noted before the first look: a
// session may end with thousands of grants below one tree, or of one tree. A grant frees no
// waiter, or else notes the queue again.
func (p *step) note(q queues) {
	if len(p.revisit) == 0 || p.isNew(q) && (p.admitting || p.revisit[0].queues != q) {
		p.revisit = append(p.revisit, visit{queues: q})
	}
}

// isNew reports whether queues, other than the first of revisit, are to be noted.
func (p *step) isNew(q queues) bool {
	if p.admitting {
		return true
	}
	_, noted := p.noted[q]
	p.noted[q] = struct{}{}
	return !noted
}

// noteQueues is note of the queues of single keys.
func (p *step) noteQueues(keys ...string) {
	for _, key := range keys {
		p.note(queues{key: key})
	}
}

// forgetRevisits empties the list of queues to be looked at.
func (p *step) forgetRevisits() {
	p.revisit = p.revisit[:0]
	if len(p.noted) > maxScratch {
		p.noted = make(map[queues]struct{})
	}
	clear(p.noted)
}

// admitFrom grants the grantable waiters of key's queue, from the head on, and refuses the waiters
// whose condition no longer holds. It stops after the grant that uses up the work; done is false
// then, since grantable waiters may be left. Plain readers never stop it: they are granted
// together, quickly. The work that is left is negative after a long grant.
//
// One pass is enough: a waiter in conflict with another is in conflict with it as a
// holder too, so a grant never frees a waiter behind. Permits are the exception, and
// all permits of a key wait in its own queue.
func (s *State) admitFrom(key string, work int) (done bool, left int) {
	r := s.keys.get(key)
	if r == &noRecord || r.idle != 0 {
		return true, work - 1
	}
	looks := 1 + len(r.queue)/listPerWork
	grants, events := s.keys.grants, len(s.step.events)
	s.refuseChanged(key)
	p := queuePass{s: s, key: key, r: s.keys.get(key)}
	spent := func() int {
		return max(looks, workPerKey*(s.keys.grants-grants), workPerKey*(len(s.step.events)-events))
	}
	var owner *session
	done = true
	for i := 0; i < len(p.r.queue) && s.lifted && p.last() < MaxToken; {
		look(1)
		w := &p.r.queue[i]
		if owner == nil || owner.id != w.session {
			owner = s.sessions.get(w.session)
		}
		held := p.heldAgainst(w, owner.client)
		switch {
		case w.Conditional && (p.granted || len(p.readers) > 0):
			// A condition names no later token than there was when it came. So it is refused
			// below, with all that are like it, and the waiters behind have another pass.
			i = len(p.r.queue)
		case owner.dead() || held || i > 0 && w.Mode != Shared || p.heldByTree(w) || p.blockedElsewhere(owner, w):
			if w.Tree && !owner.dead() {
				s.recallBelow(key, 2)
			}
			// Every waiter behind an exclusive waiter or a permit waits for it. A
			// shared waiter may wait for a tree, for another key or for a ghost,
			// while the waiters behind need not.
			if i++; w.Mode != Shared || held && p.r.ghosts == 0 {
				i = len(p.r.queue)
			}
		case w.isPlainReader() && p.waivedBy(w, owner.client) == 0: // so that its client has no ghost to be freed
			p.readers = append(p.readers, i)
			i++
		default:
			i -= p.grantReaders()
			p.admit(owner, i)
			owner = nil // the grant may have changed it
			done = spent() < work
		}
		if !done {
			break
		}
	}
	p.grantReaders()
	if p.granted {
		s.refuseChanged(key)
	}
	s.tidy(key)
	return done, work - spent()
}

// tidy makes a key without holders and waiters idle, and takes from a key without permits the
// capacity that no SetCapacity has set.
func (s *State) tidy(key string) {
	r := s.keys.get(key)
	if r == &noRecord || r.idle != 0 {
		return
	}
	if r.capacity != 0 && !r.fixed && !r.hasPermits() {
		r = s.keys.editRecord(key, r, func(r *record) { r.capacity = 0 }) // the next request names another
	}
	if len(r.holders) == 0 && len(r.queue) == 0 {
		s.makeIdle(key, r)
	}
}

// queuePass is a look at the waiters of a key, from the head of the queue on. Ten thousand
// shared requests may wait for one key. So what is the same for all of them is found once: no
// grant of the pass changes it, since a shared grant is in the way of none of them. And the
// plain readers among them leave the queue together.
type queuePass struct {
	s       *State
	key     string
	r       *record
	granted bool  // any waiter
	readers []int // the indices of plain readers that are about to be granted, in order

	waived map[string]int // how many holders are no hindrance for the shared requests of a client; "": for requests for several keys
	trees  [2]shut        // for a shared request, and for one for a tree
}

// shut says what trees do to the shared requests of a pass.
type shut struct {
	known bool
	held  bool   // a holder above or below is in the way
	order uint64 // of the first waiter above or below that is in the way of those behind it: see firstTreeOrder
}

// last is the last token, once the readers are granted.
func (p *queuePass) last() Token { return p.s.last + Token(len(p.readers)) }

// heldAgainst is record.heldAgainst, once the readers are granted.
func (p *queuePass) heldAgainst(w *waiter, client string) bool {
	if w.Mode != Shared {
		return len(p.readers) > 0 || p.r.heldAgainst(w, client)
	}
	n := len(p.r.holders) + len(p.readers) - p.waivedBy(w, client)
	return n >= MaxHolders || n > 0 && len(p.r.holders) > 0 && p.r.holders[0].Mode != Shared
}

// waivedBy returns how many holders are ghosts that w, a shared request, need not wait for.
func (p *queuePass) waivedBy(w *waiter, client string) int {
	if w.set || p.r.ghosts == 0 {
		return 0
	}
	n, known := p.waived[client]
	if !known {
		if p.waived == nil {
			p.waived = make(map[string]int)
		}
		n, _ = p.r.waived(w, client)
		p.waived[client] = n
	}
	return n
}

// heldByTree is keyTable.heldAgainstByTree.
func (p *queuePass) heldByTree(w *waiter) bool {
	if w.Mode != Shared {
		return p.s.keys.heldAgainstByTree(p.key, w)
	}
	return p.shutFor(w).held
}

func (p *queuePass) shutFor(w *waiter) *shut {
	at := &p.trees[bit(w.Tree, 1)]
	if !at.known {
		*at = shut{known: true, held: p.s.keys.heldAgainstByTree(p.key, w), order: p.s.keys.firstTreeOrder(p.key, w)}
	}
	return at
}

// blockedElsewhere reports whether w has to wait for a waiter above or below the key, or
// at another key of w. Nothing in the key's own record conflicts with w.
func (p *queuePass) blockedElsewhere(owner *session, w *waiter) bool {
	switch {
	case w.upgrade != 0:
		return false
	case w.Mode != Shared && p.s.keys.waitsBehindTree(p.key, w):
		return true
	case w.Mode == Shared && p.shutFor(w).order < w.order:
		return true
	}
	return w.set && p.s.blockedAtOthers(owner, p.key, w)
}

// admit makes the waiter at index i a holder.
func (p *queuePass) admit(owner *session, i int) {
	ghosts := p.r.ghosts
	p.s.admit(owner, p.key, i)
	p.granted, p.r = true, p.s.keys.get(p.key)
	if p.r.ghosts != ghosts {
		clear(p.waived)
	}
}

// isPlainReader reports whether w is a request that leaves only its queue when it is granted.
func (w *waiter) isPlainReader() bool {
	return w.Mode == Shared && !w.Conditional && !w.set && w.upgrade == 0 && w.Block == 0
}

// grantReaders grants the readers, as admit would one by one, in a single edit. The result is
// their number.
func (p *queuePass) grantReaders() (n int) {
	s := p.s
	if n = len(p.readers); n == 0 {
		return 0
	}
	s.step.events = slices.Grow(s.step.events, n)
	p.r = s.changeRecord(p.key, p.r, func(r *record) {
		r.holders = slices.Grow(r.holders, n)
		var owner *session
		below := r.trees > 0 && s.keys.waitedForBelow(p.key)
		for granted, i := range p.readers {
			w := &r.queue[i]
			if owner == nil || owner.id != w.session {
				owner = s.sessions.get(w.session)
			}
			others := len(r.queue) - granted - 1
			s.admitReader(owner, r, w, others, others > 0 || w.Tree && below)
		}
		r.queue = removeAll(r.queue, p.readers)
	})
	p.granted, p.readers = true, p.readers[:0]
	return n
}

// admitReader makes w, a plain reader in the queue of r, a holder. The caller removes it;
// others wait for the key, and contended says whether anybody waits for what w holds.
func (s *State) admitReader(owner *session, r *record, w *waiter, others int, contended bool) {
	s.lineage.remove(w)
	s.last++
	x := owner.index
	x.wait(-1)
	if len(w.under) > 0 {
		x.weigh(weight{bytes: weightOf(nil, "", w.under).bytes + len(w.under)*tokenBytes}, -1)
	}
	r.last = s.last
	r.countWaiter(w, -1)
	r.addHolder(grant{
		requestID: w.requestID,
		token:     s.last,
		terms:     (&terms{Spec: w.Spec}).kept(),
		at:        momentOf(s.at),
		marks:     markUnseen | markWaited | markIf(contended, markContended),
	})
	s.owners.add(s.last, x)
	x.requests.pendAt(x.requests.set(w.seq, location{key: r.key, token: s.last, phase: granted}), true)
	x.held++
	out := Outcome{Token: s.last, Waiters: uint32(others), Value: r.value, Unclean: r.unclean}
	s.step.events = append(s.step.events, grantedEvent(owner.id, w.seq, r.key, out))
}

// blockedAtOthers reports whether w has to wait at another of its keys than key.
func (s *State) blockedAtOthers(owner *session, key string, w *waiter) bool {
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
		s.step.noteQueues(key)
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
		for _, other := range keys {
			if other != key && s.keys.get(other).conditions > 0 {
				s.step.noteQueues(other) // a condition may not hold any more
			}
		}
		key = keys[0]
	}
	s.step.events = append(s.step.events, grantedEvent(owner.id, w.seq, key, out))
}

// refuseChanged refuses, late, the waiters of key whose condition no longer holds.
func (s *State) refuseChanged(key string) {
	r := s.keys.get(key)
	if r.conditions == 0 {
		return
	}
	last := r.last
	s.refuseWaiters(key, Outcome{Code: Changed, Token: last}, func(w *waiter) bool { return w.Conditional && w.IfToken < last })
}

// refuseWaiters refuses, late, the chosen waiters for key alone, in a single pass, and
// notes the queues to be looked at once for all of them: thousands of trees may wait for
// thousands of waiters.
func (s *State) refuseWaiters(key string, out Outcome, chosen func(*waiter) bool) {
	if s.keys.get(key).firstWaiter(chosen) < 0 {
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
