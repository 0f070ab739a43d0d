package machine

// Delays: a grant with a Delay becomes a ghost when the session expires. A ghost
// keeps the key taken from everybody except the same client, until the leader's
// EndDelay, a Break, or the client's next request.

// delayGrant makes a ghost of a grant, which has a single key, whose session expires.
func (s *State) delayGrant(o *session, seq uint64, at location) {
	var delayed grant
	s.change(at.key, func(r *record) {
		g := r.grant(at.token)
		s.owners.remove(g.lineageToken())
		o.index.drop(seq, at, g, []string{at.key})
		r.countGrant(g, -1)
		*g = grant{
			token: g.token,
			at:    g.at,
			terms: &terms{Spec: g.Spec, ghost: &ghost{client: o.client, node: o.node}},
		}
		r.countGrant(g, 1)
		if g.Mode == Exclusive {
			r.unclean = true
		}
		delayed = *g
	})
	s.delays[at.token] = at.key
	s.countGhost(at.key, &delayed, 1)
	s.revisit(at.key, delayed.Tree) // the client may be waiting already
	s.step.events = append(s.step.events, Event{Kind: EventDelayed, Key: at.key, Token: at.token, Delay: delayed.Delay})
}

// endDelay frees the key of a ghost.
func (s *State) endDelay(token Token) Outcome {
	key, ok := s.delays[token]
	if !ok {
		return Outcome{Code: NotHeld}
	}
	s.freeGhost(key, s.keys.get(key).holder(token))
	s.admitWaiters()
	return Outcome{Code: OK}
}

// freeGhostsOf frees key from the ghosts of the client of that name.
func (s *State) freeGhostsOf(key, client string) {
	r := s.keys.get(key)
	for i, left := 0, r.ghosts; left > 0; {
		look(1)
		if r.holders[i].ghost != nil {
			left--
		}
		if g := &r.holders[i]; g.ghost == nil || g.ghost.client != client {
			i++
			continue
		}
		s.freeGhost(key, i)
		r = s.keys.get(key)
	}
}

// freeGhost removes the ghost at index i of key's holders.
func (s *State) freeGhost(key string, i int) {
	r := s.keys.get(key)
	token, tree := r.holders[i].token, r.holders[i].Tree
	delete(s.delays, token)
	s.countGhost(key, &r.holders[i], -1)
	s.change(key, func(r *record) { r.removeHolder(i) })
	s.revisit(key, tree)
}

// Delays calls f for each ghost, with its Delay in milliseconds, in no order, until
// f returns false.
func (s *State) Delays(f func(token Token, delay uint64) bool) {
	for token, key := range s.delays {
		if !f(token, s.keys.get(key).grant(token).Delay) {
			return
		}
	}
}
