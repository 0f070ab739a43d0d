package machine

import (
	"slices"
)

// How a grant changes its mode.

func (s *State) upgrade(c Upgrade) Outcome {
	owner, out := s.heed(c.Session, c.Seen)
	if owner == nil {
		return out
	}
	if out, known := s.recall(owner, c.Seq); known {
		return out
	}
	if len(c.Under) > MaxUnder {
		return bad("Under", MaxUnder)
	}
	_, at, g := s.holding(owner, c.Token)
	switch {
	case g == nil || g.broken:
		return Outcome{Code: NotHeld} // for good, so the seq need not be spent
	case g.mode == Permit || g.set:
		return Outcome{Code: WrongMode} // so is this
	}
	if out := s.spend(owner, c.Seq); out.Code != 0 {
		return out
	}
	r, _ := s.keys.get(at.key)
	if g.mode == Exclusive || slices.ContainsFunc(r.queue, func(w waiter) bool { return w.upgrade == g.token }) {
		// For the moment: a late copy must not upgrade what was downgraded since.
		return s.reply(owner, c.Seq, &answer{out: Outcome{Code: WrongMode}})
	}
	w := waiter{
		session: c.Session,
		seq:     c.Seq,
		since:   s.commands,
		order:   0, // before everyone, at this key and above and below it
		at:      s.at,
		upgrade: g.token,
		mode:    Exclusive,
		tree:    g.tree,
		under:   s.heldBy(owner, append([]Token{g.token}, c.Under...)),
	}
	if cycle := s.try(owner, w, []string{at.key}, 0); cycle != nil {
		return s.reply(owner, c.Seq, &answer{out: Outcome{Code: Deadlock, Cycle: cycle}})
	}
	if !s.barred(at.key, r, &w, owner.client) {
		owner.index.unseen++
		out := s.promote(owner, at.key, &w, false)
		s.dirty = append(s.dirty, at.key) // conditions of waiters may not hold any more
		s.settle()
		return out
	}
	r = s.edit(at.key)
	s.touch(at.key, r)
	s.insert(at.key, r, 0, w)
	s.contend(at.key, g.token)
	owner.index.refs[w.seq] = ref{key: at.key, state: waiting}
	owner.index.waits++
	owner.index.unseen++
	return Outcome{Code: Queued, Behind: r.behind(0)}
}

// promote makes a shared grant exclusive, under the next token: whoever shared the
// key meanwhile may have shown a larger one than it had.
func (s *State) promote(owner *session, key string, w *waiter, waited bool) Outcome {
	r := s.edit(key)
	s.touch(key, r)
	i := r.holder(w.upgrade)
	g := &r.holders[i]
	x := owner.index
	s.last++
	delete(x.tokens, g.token)
	if g.first == 0 {
		g.first = g.token
	}
	if g.former != g.first {
		delete(x.former, g.former)
	}
	g.former, g.token, g.mode = g.token, s.last, Exclusive
	s.spot(key, r)
	r.last = g.token
	x.tokens[g.token] = g.seq
	x.was(g.former, g.seq)
	at := x.refs[g.seq]
	at.token = g.token
	x.refs[g.seq] = at
	x.unseen-- // reply counts it again
	out := Outcome{Code: Granted, Token: g.token, Waiters: uint32(len(r.queue))}
	return s.reply(owner, w.seq, &answer{out: out, key: key, late: waited})
}

func (s *State) downgrade(c Downgrade) Outcome {
	owner, out := s.heed(c.Session, c.Seen)
	if owner == nil {
		return out
	}
	_, at, g := s.holding(owner, c.Token)
	switch {
	case g == nil || g.broken || g.token != c.Token:
		return Outcome{Code: NotHeld}
	case g.mode == Permit || g.set:
		return Outcome{Code: WrongMode}
	case g.mode == Exclusive:
		s.edit(at.key).unclean = false // its holder is here, and lets go of it
		s.demote(at)
		s.settle()
	}
	return Outcome{Code: OK}
}

// demote makes an exclusive grant a shared one.
func (s *State) demote(at ref) {
	r := s.edit(at.key)
	s.touch(at.key, r)
	g := &r.holders[r.holder(at.token)]
	g.mode = Shared
	s.spot(at.key, r)
	s.left(at.key, g.tree)
}
