package machine

import "slices"

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

// withdrawWaiting removes the waiting requests for one key among seqs from the
// queues, all of a key in one pass: to find and remove each waiter by itself takes
// time in proportion to the whole queue.
func (s *State) withdrawWaiting(owner *session, seqs []uint64) {
	var keys []string
	waits := make(map[string]map[uint64]bool)
	for _, seq := range seqs {
		at, ok := owner.index.requests.get(seq)
		if !ok || at.phase != waiting || at.set {
			continue
		}
		if waits[at.key] == nil {
			waits[at.key] = make(map[uint64]bool)
			keys = append(keys, at.key)
		}
		waits[at.key][seq] = true
	}
	for _, key := range keys {
		leaves := func(w waiter) bool { return w.session == owner.id && w.upgrade == 0 && waits[key][w.seq] }
		if !slices.ContainsFunc(s.keys.get(key).queue, leaves) {
			continue // upgrades alone: the key does not change
		}
		tree := false
		var removed []waiter
		s.change(key, func(r *record) {
			removed = r.removeWaitersIf(func(w *waiter) bool { return leaves(*w) })
		})
		for i := range removed {
			w := &removed[i]
			s.lineage.remove(w)
			owner.index.dequeued(w.seq, s.weigh(owner, w))
			tree = tree || w.Tree
		}
		s.revisit(key, tree)
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
