package machine

import (
	"maps"
	"slices"
)

// How a client takes back requests for grants.

func (s *State) withdraw(owner *session, c *Withdraw) Outcome {
	seqs := append([]uint64{c.Seq}, c.More...)
	switch {
	case len(c.More) > MaxWithdrawn:
		return bad("More", MaxWithdrawn)
	case slices.Contains(seqs, 0):
		return bad("Seq", 0)
	}
	keys := 0
	var unknown []uint64
	for _, seq := range seqs {
		at, ok := owner.index.requests.get(seq)
		switch {
		case !ok:
			unknown = append(unknown, seq)
		case at.phase != answered:
			keys += len(s.keysOf(owner, seq, at))
		}
	}
	if len(c.More) > 0 && keys > MaxWithdrawnKeys {
		return bad("More", MaxWithdrawnKeys)
	}
	// The seqs of requests that were not applied yet are spent, all in one pass.
	if !owner.spent.addAll(unknown) {
		return bad("Seq", MaxGaps)
	}
	out := Outcome{Code: OK, Token: s.withdrawOne(owner, c.Seq)}
	s.withdrawWaiting(owner, c.More)
	for _, seq := range c.More {
		if at, ok := owner.index.requests.get(seq); ok && !s.isUpgrade(owner, seq, at) {
			s.withdrawOne(owner, seq)
		}
	}
	s.admitWaiters()
	return out
}

// isUpgrade reports whether the request seq is an upgrade that waits, after
// withdrawWaiting, or that was granted.
func (s *State) isUpgrade(owner *session, seq uint64, at location) bool {
	switch at.phase {
	case waiting:
		return !at.set
	case answered:
		return s.answers.get(requestID{owner.id, seq}).out.Code == Granted
	}
	return false
}

// withdrawOne takes back one request, if the table has it. If the request was an
// upgrade, the result is the grant's token.
func (s *State) withdrawOne(owner *session, seq uint64) Token {
	switch at, ok := owner.index.requests.get(seq); {
	case !ok:
	case at.phase == waiting:
		s.removeRequest(owner, seq, at)
	case at.phase == answered:
		return s.withdrawAnswer(owner, seq)
	case at.phase == granted:
		s.freeGrant(owner, seq, at, unknown)
	default:
		s.freeGrant(owner, seq, at, clean)
	}
	return 0
}

// withdrawWaiting removes the waiting requests among seqs from the queues, but for upgrades.
func (s *State) withdrawWaiting(owner *session, seqs []uint64) {
	gone := make(map[uint64]struct{}, len(seqs))
	queues := make(map[string]struct{})
	for _, seq := range seqs {
		if at, ok := owner.index.requests.get(seq); ok && at.phase == waiting {
			gone[seq] = struct{}{}
			for _, key := range s.keysOf(owner, seq, at) {
				queues[key] = struct{}{}
			}
		}
	}
	s.leave(owner, queues, func(w *waiter) bool {
		_, leaves := gone[w.seq]
		return leaves && w.upgrade == 0
	})
}

// leave removes the waiters of a session that leave from the queues of these keys, which are
// all keys of their requests: all of a queue in one pass, since to find and remove each waiter
// by itself takes time in proportion to the whole queue.
func (s *State) leave(o *session, queues map[string]struct{}, leaves func(*waiter) bool) {
	theirs := func(w *waiter) bool { return w.session == o.id && leaves(w) }
	weights := make(map[uint64]weight)
	for _, key := range slices.Sorted(maps.Keys(queues)) {
		if s.keys.get(key).firstWaiter(theirs) < 0 {
			continue // the key does not change
		}
		var removed []waiter
		s.change(key, func(r *record) { removed = r.removeWaitersIf(theirs) })
		tree := false
		for i := range removed {
			w := &removed[i]
			if _, known := weights[w.seq]; !known {
				s.lineage.remove(w)
				weights[w.seq] = s.weigh(o, w) // the same at each key
			}
			tree = tree || w.Tree
		}
		s.revisit(key, tree)
	}
	for seq, w := range weights {
		s.sets.del(requestID{o.id, seq})
		o.index.dequeued(seq, w)
	}
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
	if g.Mode == Exclusive && !g.is(markBroken) {
		s.makeShared(at, false)
	}
	return a.out.Token
}
