package machine

import (
	"slices"
)

// How a grant, or a request for one, is given up: by itself, for a successor, because
// somebody asks, or because somebody breaks it.

func (s *State) withdraw(c Withdraw) Outcome {
	owner, out := s.heed(c.Session, c.Seen)
	if owner == nil {
		return out
	}
	if c.Seq == 0 {
		return bad("Seq", 0)
	}
	out = Outcome{Code: OK}
	at, ok := owner.index.refs[c.Seq]
	switch {
	case !ok:
		if !owner.spent.add(c.Seq) {
			return bad("Seq", MaxGaps)
		}
	case at.state == waiting:
		s.leave(owner, c.Seq, at)
	case at.state == answered:
		a, _ := s.answers.get(request{owner.id, c.Seq})
		s.forget(owner, c.Seq)
		if a.out.Code != Granted {
			break
		}
		// An upgrade. Its grant may be gone, or be another's by now.
		if _, at, g := s.holding(owner, a.out.Token); g != nil && g.token == a.out.Token {
			out.Token = g.token
			if g.mode == Exclusive && !g.broken {
				s.demote(at)
			}
		}
	case at.state == granted:
		s.end(owner, c.Seq, at, unknown)
	default:
		s.end(owner, c.Seq, at, clean)
	}
	s.settle()
	return out
}

func (s *State) release(c Release) Outcome {
	owner, out := s.heed(c.Session, c.Seen)
	if owner == nil {
		return out
	}
	seq, at, g := s.holding(owner, c.Token)
	if g == nil {
		return Outcome{Code: NotHeld}
	}
	if c.To != "" {
		if g.set {
			return Outcome{Code: WrongMode}
		}
		if !s.favour(owner, at, c.To) {
			return Outcome{Code: NoSuccessor}
		}
	}
	// Who releases a token has seen it: freeing also forgets the outcome.
	s.end(owner, seq, at, clean)
	s.settle()
	return Outcome{Code: OK}
}

// favour puts the first waiter of the client of that name before all others at
// the key of a grant that is to be released, if they may all be passed. An upgrade
// of that grant is not in its way: it goes with it.
func (s *State) favour(owner *session, at ref, client string) bool {
	r, _ := s.keys.get(at.key)
	i := slices.IndexFunc(r.queue, func(w waiter) bool {
		o, _ := s.sessions.get(w.session)
		return w.upgrade == 0 && o.client == client
	})
	if i < 0 {
		return false
	}
	var floor uint64
	if s.trees > 0 {
		floor = s.treesBefore(at.key)
	}
	first := slices.IndexFunc(r.queue, func(w waiter) bool { return w.upgrade != at.token })
	if w := &r.queue[i]; i > first && (w.set || w.tree) ||
		slices.ContainsFunc(r.queue[first:i], func(v waiter) bool { return !v.passable() || v.order <= floor }) {
		return false
	}
	r = s.edit(at.key)
	s.dropUpgrade(owner, at.key, r, at.token)
	i -= first
	if i == 0 {
		return true
	}
	w := r.queue[i]
	pass(r.queue[:i])
	copy(r.queue[1:i+1], r.queue[:i])
	w.order = r.queue[1].order
	r.queue[0] = w
	return true
}

func (s *State) ask(c Ask) Outcome {
	asker, ok := s.sessions.get(c.Session)
	if !ok {
		return Outcome{Code: NoSession}
	}
	if !validKey(c.Key) {
		return bad("Key", MaxKey)
	}
	r, ok := s.keys.get(c.Key)
	if !ok || len(r.holders) == 0 {
		return Outcome{Code: NotHeld}
	}
	for _, g := range slices.Clone(r.holders) {
		if g.ghost != nil {
			continue
		}
		owner, _ := s.sessions.get(g.session)
		if !g.asked {
			s.note(owner, g.seq, func(g *grant) { g.asked = true })
			s.touchAll(owner, g.seq)
		}
		s.events = append(s.events, Event{
			Kind:    EventAsked,
			Session: g.session,
			Seq:     g.seq,
			Key:     owner.index.refs[g.seq].key,
			Token:   g.token,
			By:      asker.client,
		})
	}
	return Outcome{Code: OK}
}

func (s *State) breakGrant(c Break) Outcome {
	if _, ok := s.sessions.get(c.Session); !ok {
		return Outcome{Code: NoSession}
	}
	if !validKey(c.Key) {
		return bad("Key", MaxKey)
	}
	r, ok := s.keys.get(c.Key)
	if !ok {
		return Outcome{Code: NotHeld}
	}
	i := r.holder(c.Token)
	if i < 0 {
		out := Outcome{Code: NotHeld}
		if len(r.holders) > 0 {
			out.Holder = s.describe(&r.holders[0])
		}
		return out
	}
	g := r.holders[i]
	switch {
	case g.ghost != nil:
		return s.endDelay(g.token)
	case g.broken:
		return Outcome{Code: OK}
	}
	owner, _ := s.sessions.get(g.session)
	at := owner.index.refs[g.seq]
	s.note(owner, g.seq, func(g *grant) { g.broken = true })
	s.touchAll(owner, g.seq)
	s.dropUpgrade(owner, c.Key, s.edit(c.Key), g.token)
	s.events = append(s.events, Event{
		Kind:    EventLost,
		Session: g.session,
		Seq:     g.seq,
		Key:     at.key,
		Token:   g.token,
		Reason:  Broken,
	})
	s.left(c.Key, g.tree)
	s.settle()
	return Outcome{Code: OK}
}
