package machine

// How a client gives up a grant.

func (s *State) release(owner *session, c Release) Outcome {
	seq, at, g := s.grantOf(owner, c.Token)
	if g == nil {
		return Outcome{Code: NotHeld}
	}
	if c.To != "" {
		if g.is(markSet) {
			return Outcome{Code: WrongMode}
		}
		if g.is(markBroken) || owner.revoked || !s.putSuccessorFirst(owner, at, c.To) {
			return Outcome{Code: NoSuccessor}
		}
	}
	// A client releases only a known token, so the outcome is forgotten as seen.
	s.freeGrant(owner, seq, at, clean)
	s.admitWaiters()
	return Outcome{Code: OK}
}

// freeFirst releases the grants of c.Freed, and grants their keys to the waiters as a Release does. A second
// copy of c finds the grants gone. The outcome is a refusal of a malformed c, which frees
// nothing, and otherwise zero.
func (s *State) freeFirst(owner *session, c *Acquire) Outcome {
	tokens := c.Freed
	switch out := c.check(); {
	case out.Code != 0:
		return out
	case c.Seq == 0:
		return bad("Seq", 0)
	case len(tokens) > MaxFreed:
		return bad("Freed", MaxFreed)
	}
	keys := 0
	for _, token := range tokens {
		if seq, at, g := s.grantOf(owner, token); g != nil {
			keys += len(s.keysOf(owner, seq, at))
		}
	}
	if keys > MaxFreedKeys {
		return bad("Freed", MaxFreedKeys)
	}
	for _, token := range tokens {
		if seq, at, g := s.grantOf(owner, token); g != nil {
			s.freeGrant(owner, seq, at, clean)
		}
	}
	s.admitWaiters()
	return Outcome{}
}

// manner is the end of an exclusive grant, as the next holder must know it.
type manner uint8

const (
	clean   manner = iota // its holder released it
	unclean               // its session expired
	unknown               // its holder never knew of it, so nothing has changed
)

// freeGrant frees the grant that owner has under seq.
func (s *State) freeGrant(owner *session, seq uint64, at location, how manner) {
	keys := s.keysOf(owner, seq, at)
	g := s.keys.get(keys[0]).grant(at.token)
	s.owners.remove(g.lineageToken())
	owner.index.drop(seq, at, g, keys)
	for _, key := range keys {
		r := s.keys.get(key)
		if len(r.queue) > 0 {
			s.removeUpgrade(owner, key, at.token)
			r = s.keys.get(key)
		}
		i := r.holder(at.token)
		tree := r.holders[i].Tree
		s.changeRecord(key, r, func(r *record) {
			if g := &r.holders[i]; g.Mode == Exclusive && how != unknown {
				r.unclean = how == unclean || g.is(markBroken)
			}
			r.removeHolder(i)
		})
		s.revisit(key, tree)
	}
	s.sets.del(requestID{owner.id, seq})
}

// drop forgets the grant g of keys, which the request of seq has.
func (x *index) drop(seq uint64, at location, g *grant, keys []string) {
	if at.phase == granted {
		x.unseen--
	}
	x.weigh(weightOf(keys, g.Meta, nil), -1)
	delete(x.former, g.former)
	delete(x.former, g.first)
	x.requests.remove(seq)
	x.held -= len(keys)
}
