package machine

// How a client gives up a grant, or a request for a grant.

func (s *State) withdraw(owner *session, seq uint64) Outcome {
	if seq == 0 {
		return bad("Seq", 0)
	}
	out := Outcome{Code: OK}
	at, ok := owner.index.requests[seq]
	switch {
	case !ok:
		if !owner.spent.add(seq) {
			return bad("Seq", MaxGaps)
		}
	case at.phase == waiting:
		s.removeRequest(owner, seq, at)
	case at.phase == answered:
		out.Token = s.withdrawAnswer(owner, seq)
	case at.phase == granted:
		s.freeGrant(owner, seq, at, unknown)
	default:
		s.freeGrant(owner, seq, at, clean)
	}
	s.admitWaiters()
	return out
}

// withdrawAnswer forgets an answer. If it granted an upgrade, the upgrade is undone,
// and the result is the grant's token.
func (s *State) withdrawAnswer(owner *session, seq uint64) Token {
	a := s.answers.get(requestID{owner.id, seq})
	s.forgetAnswer(owner, seq)
	if a.out.Code != Granted {
		return 0
	}
	// The grant may be gone, or upgraded by another request since.
	_, at, g := s.grantOf(owner, a.out.Token)
	if g == nil || g.token != a.out.Token {
		return 0
	}
	if g.Mode == Exclusive && !g.broken {
		s.makeShared(at, false)
	}
	return a.out.Token
}

func (s *State) release(owner *session, c Release) Outcome {
	seq, at, g := s.grantOf(owner, c.Token)
	if g == nil {
		return Outcome{Code: NotHeld}
	}
	if c.To != "" {
		if g.set {
			return Outcome{Code: WrongMode}
		}
		if !s.putSuccessorFirst(owner, at, c.To) {
			return Outcome{Code: NoSuccessor}
		}
	}
	// A client releases only a known token, so the outcome is forgotten as seen.
	s.freeGrant(owner, seq, at, clean)
	s.admitWaiters()
	return Outcome{Code: OK}
}

// ending is the end of an exclusive grant, as the next holder must know it.
type ending uint8

const (
	clean   ending = iota // its holder released it
	unclean               // its session expired
	unknown               // its holder never knew of it, so nothing has changed
)

// freeGrant frees the grant that owner has under seq.
func (s *State) freeGrant(owner *session, seq uint64, at location, how ending) {
	x := owner.index
	if at.phase == granted {
		x.unseen--
	}
	for _, key := range s.keysOf(owner, seq, at) {
		r := s.keys.get(key)
		if len(r.queue) > 0 {
			s.removeUpgrade(owner, key, at.token)
			r = s.keys.get(key)
		}
		i := r.holder(at.token)
		g := &r.holders[i]
		delete(x.former, g.former)
		delete(x.former, g.first)
		tree := g.Tree
		s.changeRecord(key, r, func(r *record) {
			if g := &r.holders[i]; g.Mode == Exclusive && how != unknown {
				r.unclean = how == unclean || g.broken
			}
			r.removeHolder(i)
		})
		s.revisit(key, tree)
	}
	s.sets.del(requestID{owner.id, seq})
	delete(x.requests, seq)
	delete(x.tokens, at.token)
	delete(x.pending, seq)
}
