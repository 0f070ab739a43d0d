package machine

import "slices"

// Grants: how a request becomes a grant, and the commands and events about a grant
// that stays. release.go frees a grant.

// giveKeys makes w a holder of its keys, under the next token. The caller has
// verified that no holder and no waiter before w conflicts, and that a token is
// left. If waited is true, only an event tells the client of the grant.
func (s *State) giveKeys(owner *session, w *waiter, keys []string, waited bool) Outcome {
	s.last++
	token := s.last
	spec := w.Spec
	if spec.Block > 0 && !s.keys.waitedForAbove(keys[0]) {
		spec.Block = s.reserve(owner.id, w.Block)
	} else {
		spec.Block = 0
	}
	g := grant{
		requestID: w.requestID,
		token:     token,
		terms:     (&terms{Spec: spec}).kept(),
		at:        momentOf(s.at),
		marks:     markUnseen | markIf(w.set, markSet) | markIf(waited, markWaited),
	}
	var r *record
	for _, key := range keys {
		r = s.keys.use(key)
		g.mark(markContended, g.is(markContended) || len(r.queue) > 0 || w.Tree && s.keys.waitedForBelow(key))
	}
	for _, key := range keys {
		switch {
		case w.set:
			r = s.keys.get(key) // and not the last key's
			g.mark(markUnseen, key == keys[0])
		case r.ghosts > 0: // a request for several keys waives no delay
			s.freeGhostsOf(key, owner.client)
			r = s.keys.get(key)
		}
		s.changeRecord(key, r, func(r *record) {
			r.last = g.token + Token(g.Block)
			r.addHolder(g)
			r.nameCapacity(w)
		})
	}
	x := owner.index
	s.owners.add(g.token, x)
	at := location{key: keys[0], token: g.token, set: w.set, phase: granted}
	x.requests.set(w.seq, at)
	x.held += len(keys)
	if w.set && !waited { // else enqueue has kept them
		s.sets.set(w.requestID, slices.Clone(keys))
	}
	if g.mark(markUnseen, true); g.pends() {
		x.requests.pend(w.seq, true)
	}
	return s.grantedOutcome(owner, w.seq, at)
}

// reserve takes up to n tokens out of the counter for a grant of the session id: the
// holder gives them to its own later locks, without the cluster. Every later grant has a
// larger token. The result is how many are reserved.
//
// A successor of a lost cluster begins above the tokens of the former one because a
// cluster grants less than 2^21 tokens in a second. Grants that are committed one by one
// cannot be faster, but blocks could. So the blocks of one second of the leaders' clock
// have MaxReserved tokens together: then there are none until the next second, and a
// holder without a block asks the cluster for each lock.
//
// A session gets a whole block or none, and takes no more in a second than it leaves for the
// others: alone a half of MaxReserved, two sessions at once a third each, and so on. So a
// modest session finds a block however many greedy ones there are.
func (s *State) reserve(id SessionID, n uint16) uint16 {
	if n == 0 {
		return 0
	}
	if second := s.at / 1000; second > s.second {
		s.second, s.reserved = second, 0
	}
	o := s.editSession(s.sessions.get(id))
	if o.second != s.second {
		o.second, o.reserved = s.second, 0
	}
	if o.reserved+uint64(n) > MaxReserved-min(s.reserved+uint64(n), MaxReserved) {
		return 0
	}
	n = uint16(min(Token(n), MaxToken-s.last))
	o.reserved += uint64(n)
	s.reserved += uint64(n)
	s.last += Token(n)
	return n
}

func (s *State) extend(owner *session, c Extend) Outcome {
	if c.Block == 0 || c.Block > MaxBlock {
		return bad("Block", MaxBlock)
	}
	_, at, g := s.grantOf(owner, c.Token)
	if g == nil || g.Block == 0 {
		return Outcome{Code: NotHeld}
	}
	out := Outcome{Code: OK}
	if r := s.keys.get(at.key); r.last != c.Last || g.is(markContended|markAsked|markBroken) || s.keys.waitedForAbove(at.key) {
		return out
	}
	out.Token = s.last
	if out.Block = uint32(s.reserve(owner.id, uint16(c.Block))); out.Block > 0 {
		s.keys.edit(at.key, func(r *record) { r.last = s.last })
	}
	return out
}

// grantedOutcome returns the outcome of a granted request, with the present value
// and the present number of waiters.
func (s *State) grantedOutcome(owner *session, seq uint64, at location) Outcome {
	out := Outcome{Code: Granted, Token: at.token}
	if !at.set {
		r := s.keys.get(at.key)
		out.Waiters, out.Value, out.Unclean = uint32(len(r.queue)), r.value, r.unclean
		out.Block = uint32(r.grant(at.token).Block)
		return out
	}
	for _, key := range s.keysOf(owner, seq, at) {
		out.Waiters += uint32(len(s.keys.get(key).queue))
	}
	return out
}

func grantedEvent(id SessionID, seq uint64, key string, out Outcome) Event {
	return Event{
		Kind:    EventGranted,
		Session: id,
		Seq:     seq,
		Key:     key,
		Token:   out.Token,
		Waiters: out.Waiters,
		Value:   out.Value,
		Unclean: out.Unclean,
		Block:   out.Block,
	}
}

// grantOf finds the grant that owner has under token, or had before an upgrade; nil
// if there is none.
func (s *State) grantOf(owner *session, token Token) (seq uint64, at location, g *grant) {
	seq, ok := owner.index.requests.granted(token)
	if !ok {
		if seq, ok = owner.index.former[token]; !ok {
			return 0, location{}, nil
		}
	}
	at = owner.index.requests.at(seq)
	return seq, at, s.keys.get(at.key).grant(at.token)
}

// keysOf returns the keys of a request that waits or holds. The compiler puts the function's
// code into its callers, so that the list of one key takes no memory of its own there:
// TestACycleTakesNoMemory.
func (s *State) keysOf(owner *session, seq uint64, at location) []string {
	if at.set {
		return s.keysOfSet(owner, seq)
	}
	return []string{at.key}
}

//go:noinline
func (s *State) keysOfSet(owner *session, seq uint64) []string {
	return s.sets.get(requestID{owner.id, seq})
}

// setFlag changes by f a flag about which the holder of a grant is told, at all
// keys of the grant.
func (s *State) setFlag(owner *session, seq uint64, f func(*grant)) {
	at := owner.index.requests.at(seq)
	for _, key := range s.keysOf(owner, seq, at) {
		s.keys.edit(key, func(r *record) { f(r.grant(at.token)) })
	}
	owner.index.requests.pend(seq, true)
}

// touchGrant notes a change of a grant, at all of its keys.
func (s *State) touchGrant(owner *session, seq uint64) {
	for _, key := range s.keysOf(owner, seq, owner.index.requests.at(seq)) {
		s.change(key, func(*record) {})
	}
}

// tellContended tells the holders of key, and of trees above, about a waiting
// request, except the holder of the token by. Each grant is told once. The holders
// below a waiting tree are not told, since there may be a million, unless they have a
// block: see recallBelow.
func (s *State) tellContended(key string, by Token) {
	s.tellContendedAt(key, false, by)
	if s.keys.trees > 0 {
		for p, r := range s.keys.recordsAbove(key) {
			if r.trees > 0 && len(r.holders) > 0 {
				s.tellContendedAt(p, true, by)
			}
		}
	}
}

func (s *State) tellContendedAt(key string, treesOnly bool, by Token) {
	r := s.keys.get(key)
	if n := len(r.holders); n > 16 && !r.holders[0].is(markContended) {
		s.step.events = slices.Grow(s.step.events, n)
	}
	for i := range r.holders {
		g := &r.holders[i]
		if g.is(markContended) || g.ghost != nil || g.token == by || treesOnly && !g.Tree {
			continue
		}
		owner := s.sessions.get(g.session)
		s.step.events = append(s.step.events, s.grantEvent(EventContended, owner, g))
		s.setFlag(owner, g.seq, func(g *grant) { g.mark(markContended, true) })
		r = s.keys.get(key) // the edit may have cloned it
	}
}

// recall tells the holders that keep key by a block of tokens about a request that does
// not wait: a holder that does not use the key gives it back.
func (s *State) recall(key string, tree bool) {
	if r := s.keys.get(key); len(r.holders) > 0 && r.holders[0].Block > 0 {
		s.tellContendedAt(key, false, 0)
	}
	if tree {
		s.recallBelow(key, s.slice)
	}
}

// recallCycle tells the holders in a cycle of waits that keep their keys by blocks of tokens:
// the table cannot know that a holder has no lock of the key, so that nobody waits for the
// holder. The holder gives the key back, and the next request of the same kind closes no
// cycle.
func (s *State) recallCycle(out Outcome) {
	for _, l := range out.Cycle {
		if l.Token != 0 {
			s.recall(l.Key, false)
		}
	}
}

// recallBelow tells the holders that keep keys below key by a block of tokens about a
// request for the tree: MaxSlice of them in one step, for all trees of the step together. A
// tree for which none of these is left tells one holder.
//
// Every tree makes progress. A holder is told once, so the number of those not told falls
// with each call. After a call for a tree, a holder below was told, unless all were told
// before. As soon as the first of these frees its key, the tree is visited, and the next call
// follows, in a step with recalls of its own. A grant below a waiting request has no block,
// so the number never rises: see giveKeys.
//
// A visit tells two more at most. A thousand holders that free their keys in one entry make as
// many visits, and the number of those told doubles with each round.
func (s *State) recallBelow(key string, most int) {
	most = min(most, max(1, s.slice-s.step.recalls))
	var keys []string
	for k := range s.keys.keysBelow(key, recallable) {
		if keys = append(keys, k); len(keys) == most {
			break
		}
	}
	s.step.recalls += len(keys)
	for _, k := range keys {
		s.tellContendedAt(k, false, 0)
	}
}

// grantEvent returns an event about a grant of owner's.
func (s *State) grantEvent(kind EventKind, owner *session, g *grant) Event {
	return Event{Kind: kind, Session: g.session, Seq: g.seq, Key: owner.index.requests.at(g.seq).key, Token: g.token}
}

func (s *State) ask(c Ask) Outcome {
	asker := s.usable(c.Session)
	if asker == nil {
		return Outcome{Code: NoSession}
	}
	if !validKey(c.Key) {
		return bad("Key", MaxKey)
	}
	r := s.keys.get(c.Key)
	asked := false
	for i := range r.holders {
		g := &r.holders[i]
		if g.ghost != nil || c.Token != 0 && i != r.named(c.Token) {
			continue
		}
		asked = true
		owner := s.sessions.get(g.session)
		e := s.grantEvent(EventAsked, owner, g)
		e.By = asker.client
		s.step.events = append(s.step.events, e)
		if !g.is(markAsked) {
			s.setFlag(owner, g.seq, func(g *grant) { g.mark(markAsked, true) })
			s.touchGrant(owner, g.seq)
			r = s.keys.get(c.Key) // the edit may have cloned it
		}
	}
	if !asked {
		return s.notHeld(r)
	}
	return Outcome{Code: OK}
}

// notHeld refuses a command about a grant that does not hold the key of r, and names a
// holder, if there is one.
func (s *State) notHeld(r *record) Outcome {
	out := Outcome{Code: NotHeld}
	if len(r.holders) > 0 {
		out.Holder = s.describeHolder(&r.holders[0], "")
	}
	return out
}

func (s *State) breakGrant(c Break) Outcome {
	if s.usable(c.Session) == nil {
		return Outcome{Code: NoSession}
	}
	if !validKey(c.Key) {
		return bad("Key", MaxKey)
	}
	r := s.keys.get(c.Key)
	i := r.named(c.Token)
	if i < 0 {
		return s.notHeld(r)
	}
	g := &r.holders[i]
	switch {
	case g.ghost != nil:
		return s.endDelay(g.token)
	case g.is(markBroken):
		return Outcome{Code: OK}
	}
	owner := s.sessions.get(g.session)
	if owner.ending == Closed {
		return Outcome{Code: OK} // its holder has ended it well, and the key is about to be free
	}
	e, tree := s.grantEvent(EventLost, owner, g), g.Tree
	e.Reason = Broken
	s.setFlag(owner, e.Seq, func(g *grant) { g.mark(markBroken, true) })
	s.touchGrant(owner, e.Seq)
	s.removeUpgrade(owner, c.Key, e.Token)
	s.step.events = append(s.step.events, e)
	s.revisit(c.Key, tree)
	s.admitWaiters()
	return Outcome{Code: OK}
}
