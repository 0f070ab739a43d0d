package machine

// How a client gives up a grant.

func (s *State) release(owner *session, c Release) Outcome {
	seq, at, g := s.grantOf(owner, c.Token)
	if g == nil {
		return Outcome{Code: NotHeld}
	}
	if c.To != "" {
		if g.set {
			return Outcome{Code: WrongMode}
		}
		if g.broken || owner.revoked || !s.putSuccessorFirst(owner, at, c.To) {
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
	keys := s.keysOf(owner, seq, at)
	x.weight.add(weightOf(keys, s.keys.get(keys[0]).grant(at.token).Meta, nil), -1)
	for _, key := range keys {
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
	x.held -= len(keys)
	delete(x.pending, seq)
}
