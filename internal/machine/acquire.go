package machine

import (
	"slices"
	"unicode/utf8"
)

// How a request comes in: what is refused, what is granted at once, what waits.

func (s *State) acquire(c Acquire) Outcome {
	owner, out := s.heed(c.Session, c.Seen)
	if owner == nil {
		return out
	}
	if out, known := s.recall(owner, c.Seq); known {
		return out
	}
	keys, out := c.check()
	if out.Code != 0 {
		return out
	}
	if out := s.spend(owner, c.Seq); out.Code != 0 {
		return out
	}
	w := waiter{
		session:     c.Session,
		seq:         c.Seq,
		since:       s.commands,
		order:       s.commands,
		at:          s.at,
		delay:       c.Delay,
		ifToken:     c.IfToken,
		of:          c.Of,
		mode:        c.Mode,
		tree:        c.Tree,
		set:         c.Key == "",
		conditional: c.Conditional,
		priority:    c.Priority,
		meta:        string(c.Meta),
		under:       s.heldBy(owner, c.Under),
	}
	refuse := func(out Outcome) Outcome { return s.reply(owner, c.Seq, &answer{out: out}) }
	if c.Conditional {
		if out := s.since(c.Key, c.IfToken); out.Code != Granted {
			return refuse(out)
		}
	}
	if c.Mode == Permit {
		if of := s.capacity(c.Key); of != 0 && of != c.Of {
			return refuse(Outcome{Code: WrongCapacity, Limit: uint64(of)})
		}
	}
	place, taken := 0, !s.lifted
	limit := MaxWaiters
	if c.MaxWaiters > 0 {
		limit = min(limit, int(c.MaxWaiters))
	}
	full := false
	trees := s.trees > 0 || w.tree
	for _, key := range keys {
		if !trees {
			if r, ok := s.keys.get(key); !ok || r.rest != 0 {
				continue // free, and nothing to look at
			}
		}
		r, ok := s.keys.get(key)
		if !ok {
			r = &record{}
		}
		place, w.order = s.place(key, &w, r.waives(owner.client))
		full = full || len(r.queue) >= limit
		taken = taken || s.barred(key, r, &w, owner.client) || r.queues(&w, place) || trees && s.follows(key, &w)
	}
	if !taken {
		if r, ok := s.keys.get(keys[0]); ok && !w.set && place < len(r.queue) {
			pass(s.edit(keys[0]).queue[place:]) // readers before a writer
		}
		out := s.give(owner, &w, keys, false)
		owner.index.unseen++
		if s.conditions > 0 {
			s.dirty = append(s.dirty, keys...)
		}
		s.settle()
		return out
	}
	switch {
	case c.Try && !s.lifted:
		return refuse(Outcome{Code: Founding})
	case c.Try:
		for _, key := range keys {
			if h := s.inTheWay(key, &w, owner.client); h != (Holder{}) {
				if w.set && h.Key == "" {
					h.Key = key
				}
				return refuse(Outcome{Code: Held, Holder: h})
			}
		}
		return refuse(Outcome{Code: Held}) // by whom is not found
	case full:
		return refuse(Outcome{Code: TooManyWaiters, Limit: uint64(limit)})
	}
	if cycle := s.try(owner, w, keys, place); cycle != nil {
		return refuse(Outcome{Code: Deadlock, Cycle: cycle})
	}
	return s.enqueue(owner, w, keys, place)
}

// try puts w in its queues on trial, if it is made under other grants, and returns
// the cycle of waits that it would close.
func (s *State) try(owner *session, w waiter, keys []string, place int) (cycle []Link) {
	if len(w.under) == 0 {
		return nil
	}
	x, q := owner.index, request{w.session, w.seq}
	x.refs[w.seq] = ref{key: keys[0], set: w.set, state: waiting}
	if w.set {
		s.sets.set(q, keys)
	}
	made := keys[:0:0]
	for _, key := range keys {
		if _, ok := s.keys.get(key); !ok {
			made = append(made, key)
			s.record(key)
		}
		r := s.edit(key)
		if at := len(r.queue); w.set {
			s.insert(key, r, at, w)
		} else {
			s.insert(key, r, place, w)
		}
	}
	if cycle = s.deadlock(node{request: q}); cycle == nil && w.upgrade != 0 {
		cycle = s.deadlock(node{token: w.upgrade, key: keys[0], kind: aGrant})
	}
	for _, key := range keys {
		r := s.edit(key)
		s.take(key, r, r.position(w.session, w.seq))
	}
	for _, key := range made {
		s.drop(key)
	}
	s.sets.del(q)
	delete(x.refs, w.seq)
	return cycle
}

// heldBy returns those of the tokens that were granted, each as the first of its
// grant. Of other sessions' grants the first must be named.
func (s *State) heldBy(owner *session, under []Token) []Token {
	var tokens []Token
	for _, t := range under {
		if t == 0 || t > s.last {
			continue
		}
		if _, _, g := s.holding(owner, t); g != nil {
			t = g.name()
		}
		if !slices.Contains(tokens, t) {
			tokens = append(tokens, t)
		}
	}
	return tokens
}

// check returns the keys of a request that can be asked for, or what is wrong.
func (c *Acquire) check() (keys []string, out Outcome) {
	set := c.Key == "" && len(c.Keys) > 0
	switch {
	case !set && (len(c.Keys) > 0 || !validKey(c.Key)):
		return nil, bad("Key", MaxKey)
	case c.Mode > Permit:
		return nil, bad("Mode", uint64(Permit))
	case c.Mode == Permit && (c.Of == 0 || c.Of > MaxHolders), c.Mode != Permit && c.Of != 0:
		return nil, bad("Of", MaxHolders)
	case c.Tree && c.Mode == Permit:
		return nil, bad("Tree", 0)
	case c.Priority != 0 && (set || c.Tree):
		return nil, bad("Priority", 0)
	case c.Delay > MaxDelay, c.Delay > 0 && set:
		return nil, bad("Delay", MaxDelay)
	case c.Conditional && set, !c.Conditional && c.IfToken != 0:
		return nil, bad("IfToken", 0)
	case set && c.Mode == Permit:
		return nil, bad("Keys", 0)
	case len(c.Meta) > MaxMeta:
		return nil, bad("Meta", MaxMeta)
	case len(c.Under) > MaxUnder:
		return nil, bad("Under", MaxUnder)
	}
	if !set {
		return []string{c.Key}, Outcome{}
	}
	if len(c.Keys) > MaxKeys {
		return nil, bad("Keys", MaxKeys)
	}
	size := 0
	for i, key := range c.Keys {
		if !validKey(key) {
			return nil, bad("Key", MaxKey)
		}
		if i > 0 && c.Keys[i-1] >= key {
			return nil, bad("Keys", 0)
		}
		size += len(key)
	}
	if size > MaxKeyBytes {
		return nil, bad("Keys", MaxKeyBytes)
	}
	return slices.Clone(c.Keys), Outcome{}
}

func validKey(key string) bool { return key != "" && len(key) <= MaxKey && utf8.ValidString(key) }

// capacity returns what the permits of key are out of; 0 if there is none.
func (s *State) capacity(key string) uint32 {
	r, ok := s.keys.get(key)
	if !ok {
		return 0
	}
	if len(r.holders) > 0 && r.holders[0].mode == Permit {
		return r.holders[0].of
	}
	for i := range r.queue {
		if r.queue[i].mode == Permit {
			return r.queue[i].of
		}
	}
	return 0
}

// waives reports whether a delay of key was left by the client of that name.
func (r *record) waives(client string) bool {
	return r.ghosts > 0 && slices.ContainsFunc(r.holders, func(g grant) bool {
		return g.ghost != nil && g.ghost.client == client
	})
}

// recall answers a second copy of a request with what is now true of the first.
func (s *State) recall(owner *session, seq uint64) (out Outcome, known bool) {
	if seq == 0 {
		return bad("Seq", 0), true
	}
	at, ok := owner.index.refs[seq]
	switch {
	case !ok && owner.spent.has(seq):
		return Outcome{Code: Withdrawn}, true
	case !ok:
		return Outcome{}, false
	case at.state == waiting:
		out := Outcome{Code: Queued}
		for _, key := range s.keysOf(owner, seq, at) {
			r, _ := s.keys.get(key)
			out.Behind = max(out.Behind, r.behind(r.position(owner.id, seq)))
		}
		return out, true
	case at.state == granted:
		return s.told(owner, seq, at), true
	case at.state == answered:
		if a, _ := s.answers.get(request{owner.id, seq}); s.stands(owner, a) {
			return a.out, true
		}
	}
	return Outcome{Code: Withdrawn}, true // seen and forgotten, or an upgrade of what is gone
}

// stands reports whether an answer is still true: one that grants an upgrade is
// not when the grant has ended.
func (s *State) stands(owner *session, a *answer) bool {
	if a.out.Code != Granted {
		return true
	}
	_, _, g := s.holding(owner, a.out.Token)
	return g != nil
}

// spend notes that seq was used. It refuses what there is no room to remember.
func (s *State) spend(owner *session, seq uint64) Outcome {
	if s.last >= MaxToken {
		// For good: the counter never falls, so the seq need not be spent.
		return Outcome{Code: TokensSpent}
	}
	if !owner.spent.add(seq) {
		return bad("Seq", MaxGaps)
	}
	if owner.index.unseen >= MaxUnseen {
		// There is no room to remember this refusal. The seq is spent, so that
		// a late copy is refused too, if in other words.
		return Outcome{Code: TooManyUnseen, Limit: MaxUnseen}
	}
	return Outcome{}
}
