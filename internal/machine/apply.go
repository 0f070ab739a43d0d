package machine

import (
	"slices"
	"unicode/utf8"
)

// Apply takes one step. The outcome answers the proposer; the events are the
// step's effects on others, in an order that is part of the contract: losses
// and the grants that follow from them, then the session's end, then one
// EventChanged for each key, sorted. Apply never panics on a command that was
// decoded; a nil or unknown one is refused as BadCommand.
//
// The caller owns the events.
func (s *State) Apply(c Command) (Outcome, []Event) {
	s.commands++
	s.events, s.touched = nil, s.touched[:0]
	out := s.apply(c)

	if len(s.touched) > 1 {
		slices.Sort(s.touched)
		s.touched = slices.Compact(s.touched)
	}
	events := slices.Grow(s.events, len(s.touched))
	for _, key := range s.touched {
		events = append(events, Event{Kind: EventChanged, Key: key})
	}
	if cap(s.touched) > maxScratch {
		s.touched = nil
	}
	clear(s.touched)
	s.events = nil
	return out, events
}

// maxScratch bounds what is kept from one command to the next.
const maxScratch = 1024

func (s *State) apply(c Command) Outcome {
	if !s.founded {
		switch c.(type) {
		case Lift, Bound, Open, Acquire, Withdraw, Release, Silence, Hear, Expire, Close:
			return Outcome{Code: NotFounded}
		}
	}
	switch c := c.(type) {
	case Found:
		return s.found(c)
	case LeaderStart:
		if c.Term <= s.term {
			return s.wrongTerm()
		}
		s.term = c.Term
		return Outcome{Code: OK}
	case Lift:
		return s.lift(c)
	case Bound:
		if out, ok := checkTTL(c.TTL, MaxTTL); !ok {
			return out
		}
		if c.Term != s.term {
			return s.wrongTerm()
		}
		// The founding wait is the bound's: nothing shortens it.
		if s.lifted || c.TTL > s.bound {
			s.bound = c.TTL
		}
		return Outcome{Code: OK}
	case Open:
		return s.open(c)
	case Acquire:
		return s.acquire(c)
	case Withdraw:
		return s.withdraw(c)
	case Release:
		return s.release(c)
	case Silence:
		return s.mark(c.Session, c.Term, true)
	case Hear:
		return s.mark(c.Session, c.Term, false)
	case Expire:
		if c.Term != s.term {
			return s.wrongTerm()
		}
		return s.end(c.Session, Expired)
	case Close:
		return s.end(c.Session, Closed)
	}
	return bad("Command", 0)
}

func (s *State) found(c Found) Outcome {
	if s.founded {
		return Outcome{Code: Founded}
	}
	if c.Cluster == (ClusterID{}) {
		return bad("Cluster", 0)
	}
	if c.Floor == 0 || c.Floor > MaxToken {
		return bad("Floor", uint64(MaxToken))
	}
	if out, ok := checkTTL(c.TTL, MaxTTL); !ok {
		return out
	}
	s.cluster = c.Cluster
	s.founded = true
	s.last = c.Floor - 1
	s.bound = c.TTL
	return Outcome{Code: OK}
}

func (s *State) lift(c Lift) Outcome {
	if c.Term != s.term {
		return s.wrongTerm()
	}
	if s.lifted {
		return Outcome{Code: OK}
	}
	s.lifted = true
	// Every record is a queue, since nobody holds before this. In key order, so
	// that tokens do not hang on a map's.
	keys := make([]string, 0, s.keys.n)
	s.keys.all(func(key string, _ *record) bool {
		keys = append(keys, key)
		return true
	})
	slices.Sort(keys)
	for _, key := range keys {
		s.serve(key, s.edit(key))
	}
	return Outcome{Code: OK}
}

func (s *State) acquire(c Acquire) Outcome {
	owner, out := s.heed(c.Session, c.Seen)
	if owner == nil {
		return out
	}
	if c.Seq == 0 {
		return bad("Seq", 0)
	}
	if ref, ok := owner.index.refs[c.Seq]; ok {
		return s.recall(owner, c.Seq, ref)
	}
	if owner.spent.has(c.Seq) {
		return Outcome{Code: Withdrawn}
	}
	switch {
	case c.Key == "" || len(c.Key) > MaxKey || !utf8.ValidString(c.Key):
		return bad("Key", MaxKey)
	case c.Mode != Exclusive:
		return bad("Mode", uint64(Exclusive))
	case len(c.Meta) > MaxMeta:
		return bad("Meta", MaxMeta)
	case s.last >= MaxToken:
		// For good: the counter never falls, so the seq need not be spent.
		return Outcome{Code: TokensSpent}
	}
	if !owner.spent.add(c.Seq) {
		return bad("Seq", MaxGaps)
	}
	if owner.index.unseen >= MaxUnseen {
		// There is no room to remember this refusal. The seq is spent, so that
		// a late copy is refused too, if in other words.
		return Outcome{Code: TooManyUnseen, Limit: MaxUnseen}
	}

	r, taken := s.keys.get(c.Key)
	if s.lifted && !taken {
		r = &record{epoch: s.keys.epoch}
		s.keys.set(c.Key, r)
		s.touch(c.Key, r)
		s.give(r, owner, c.Key, grant{session: c.Session, seq: c.Seq, meta: string(c.Meta), unseen: true})
		owner.index.unseen++
		return Outcome{Code: Granted, Token: r.holder.token}
	}
	if c.Try {
		out := Outcome{Code: Founding}
		if s.lifted {
			holder, _ := s.sessions.get(r.holder.session)
			out = Outcome{Code: Held, Holder: Holder{
				Session: holder.id,
				Client:  holder.client,
				Node:    holder.node,
				Token:   r.holder.token,
			}}
		}
		return s.remember(owner, c.Seq, out)
	}
	limit := MaxWaiters
	if c.MaxWaiters > 0 {
		limit = min(limit, int(c.MaxWaiters))
	}
	if taken && len(r.queue) >= limit {
		return s.remember(owner, c.Seq, Outcome{Code: TooManyWaiters, Limit: uint64(limit)})
	}
	return s.enqueue(owner, c)
}

// recall answers a second copy of a request with what is now true of the first.
func (s *State) recall(owner *session, seq uint64, ref ref) Outcome {
	switch ref.state {
	case waiting:
		r, _ := s.keys.get(ref.key)
		return queued(r, owner.id, seq)
	case granted:
		r, _ := s.keys.get(ref.key)
		return Outcome{Code: Granted, Token: r.holder.token}
	case refused:
		out, _ := s.refusals.get(request{owner.id, seq})
		return *out
	}
	return Outcome{Code: Withdrawn} // seen, and forgotten
}

// remember keeps a refusal until its client has seen it: without, a late copy
// of a Try that was refused could be granted to nobody.
func (s *State) remember(owner *session, seq uint64, out Outcome) Outcome {
	s.refusals.set(request{owner.id, seq}, &out)
	owner.index.refs[seq] = ref{state: refused}
	owner.index.unseen++
	return out
}

func (s *State) withdraw(c Withdraw) Outcome {
	owner, out := s.heed(c.Session, c.Seen)
	if owner == nil {
		return out
	}
	if c.Seq == 0 {
		return bad("Seq", 0)
	}
	ref, ok := owner.index.refs[c.Seq]
	switch {
	case !ok:
		if !owner.spent.add(c.Seq) {
			return bad("Seq", MaxGaps)
		}
	case ref.state == waiting:
		s.leave(owner, c.Seq, ref.key)
	case ref.state == refused:
		s.forget(owner, c.Seq)
	default:
		s.free(owner, c.Seq, ref.key)
	}
	return Outcome{Code: OK}
}

func (s *State) release(c Release) Outcome {
	owner, out := s.heed(c.Session, c.Seen)
	if owner == nil {
		return out
	}
	seq, ok := owner.index.tokens[c.Token]
	if !ok {
		return Outcome{Code: NotHeld}
	}
	// Who releases a token has seen it: freeing also forgets the outcome.
	s.free(owner, seq, owner.index.refs[seq].key)
	return Outcome{Code: OK}
}

func (s *State) wrongTerm() Outcome { return Outcome{Code: WrongTerm, Limit: s.term} }

func bad(field string, limit uint64) Outcome {
	return Outcome{Code: BadCommand, Field: field, Limit: limit}
}

// checkTTL names the limit that ttl, in milliseconds, breaks.
func checkTTL(ttl, most uint64) (Outcome, bool) {
	if ttl < MinTTL {
		return bad("TTL", MinTTL), false
	}
	if ttl > most {
		return bad("TTL", most), false
	}
	return Outcome{}, true
}
