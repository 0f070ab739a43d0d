package machine

import "slices"

// How a grant changes its mode.

func (s *State) upgrade(owner *session, c Upgrade) Outcome {
	if out, isCopy := s.answerCopy(owner, c.Seq); isCopy {
		return out
	}
	if len(c.Under) > MaxUnder {
		return bad("Under", MaxUnder)
	}
	_, at, g := s.grantOf(owner, c.Token)
	switch {
	case g == nil || g.is(markBroken):
		return Outcome{Code: NotHeld} // for good, so the seq need not be spent
	case g.Mode == Permit || g.is(markSet):
		return Outcome{Code: WrongMode} // for good too
	}
	if out := s.spendSeq(owner, c.Seq); out.Code != 0 {
		return out
	}
	r := s.keys.get(at.key)
	if g.Mode == Exclusive || slices.ContainsFunc(r.queue, func(w waiter) bool { return w.upgrade == g.token }) {
		// For the moment: a late copy must not upgrade a grant downgraded since.
		return s.refuse(owner, c.Seq, Outcome{Code: WrongMode})
	}
	w := waiter{
		requestID: requestID{c.Session, c.Seq},
		since:     s.commands,
		order:     0, // before every waiter, at this key and above and below it
		at:        s.at,
		upgrade:   g.token,
		Spec:      Spec{Mode: Exclusive, Tree: g.Tree},
		under:     s.lineageOf(owner, append([]Token{g.token}, c.Under...)),
	}
	if out := s.roomForRequest(owner, weightOf(nil, "", w.under)); out.Code != 0 {
		return out
	}
	if out := s.waitsForEver(owner, &w, []string{at.key}, 0); out.Code != 0 {
		s.recallCycle(out)
		return s.refuse(owner, c.Seq, out)
	}
	r = s.keys.get(at.key)
	if !s.keys.heldAgainst(at.key, r, &w, owner.client) {
		owner.index.unseen++
		out := s.makeExclusive(owner, at.key, &w, false)
		s.step.noteQueues(at.key) // conditions of waiters may not hold any more
		s.admitWaiters()
		return out
	}
	if out := s.roomToWait(owner); out.Code != 0 {
		return out
	}
	s.lineage.add(&w)
	s.change(at.key, func(r *record) { r.insertWaiter(0, w) })
	s.tellContended(at.key, w.upgrade)
	owner.index.queued(w.seq, location{key: at.key, phase: waiting}, s.weigh(owner, &w))
	r = s.keys.get(at.key)
	return Outcome{Code: Queued, Behind: r.behind(0)}
}

// makeExclusive makes the shared grant that w upgrades exclusive, under the next
// token: another reader may have shown a larger token than the grant had.
func (s *State) makeExclusive(owner *session, key string, w *waiter, waited bool) Outcome {
	x := owner.index
	s.last++
	r := s.change(key, func(r *record) {
		g := r.grant(w.upgrade)
		if g.former != g.first {
			delete(x.former, g.former)
		}
		g.amend(func(t *terms) {
			if t.first == 0 {
				t.first = g.token
			}
			t.former, t.Mode = g.token, Exclusive
		})
		g.token = s.last
		r.last = g.token
	})
	g := r.grant(s.last)
	x.addFormer(g.former, g.seq)
	at := x.requests.at(g.seq)
	at.token = g.token
	x.requests.set(g.seq, at)
	x.unseen-- // remember counts it again
	out := Outcome{Code: Granted, Token: g.token, Waiters: uint32(len(r.queue))}
	return s.remember(owner, w.seq, &answer{out: out, key: key, late: waited})
}

func (s *State) downgrade(owner *session, c Downgrade) Outcome {
	_, at, g := s.grantOf(owner, c.Token)
	switch {
	case g == nil || g.is(markBroken) || g.token != c.Token:
		return Outcome{Code: NotHeld}
	case g.Mode == Permit || g.is(markSet) || g.Block > 0: // an upgrade's token would be above the block
		return Outcome{Code: WrongMode}
	case g.Mode == Exclusive:
		s.makeShared(at, true)
		s.admitWaiters()
	}
	return Outcome{Code: OK}
}

// makeShared makes an exclusive grant shared. With released, the holder gives up the
// exclusive part like a clean release.
func (s *State) makeShared(at location, released bool) {
	r := s.change(at.key, func(r *record) {
		r.grant(at.token).amend(func(t *terms) { t.Mode = Shared })
		if released {
			r.unclean = false
		}
	})
	s.revisit(at.key, r.grant(at.token).Tree)
}
