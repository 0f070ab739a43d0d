package machine

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// How an Acquire arrives: it is a copy, or is refused, granted at once, or
// queued.

func (s *State) acquire(owner *session, c *Acquire) Outcome {
	if len(c.Freed) > 0 {
		if out := s.freeFirst(owner, c); out.Code != 0 {
			return out
		}
	}
	if out, isCopy := s.answerCopy(owner, c.Seq); isCopy {
		return out
	}
	if out := c.check(); out.Code != 0 {
		return out
	}
	if out := s.spendSeq(owner, c.Seq); out.Code != 0 {
		return out
	}
	w := waiter{
		requestID: requestID{c.Session, c.Seq},
		since:     s.commands,
		order:     s.commands,
		at:        s.at,
		set:       c.Key == "",
		Spec:      c.Spec,
		under:     s.lineageOf(owner, c.Under),
	}
	keys := []string{c.Key}
	if w.set {
		keys = c.Keys
	}
	if out := s.roomForRequest(owner, weightOf(keys, w.Meta, w.under)); out.Code != 0 {
		return out
	}
	if out := s.checkKey(&w, c.Key); out.Code != 0 {
		return s.refuse(owner, c.Seq, out)
	}
	limit := MaxWaiters
	if c.MaxWaiters > 0 {
		limit = min(limit, int(c.MaxWaiters))
	}
	p := s.placeIn(keys, &w, owner.client, limit)
	if !p.blocked {
		return s.acquireNow(owner, &w, keys, p)
	}
	switch {
	case c.Try && !s.lifted:
		return s.refuse(owner, c.Seq, Outcome{Code: Founding})
	case c.Try:
		for _, key := range keys {
			s.recall(key, w.Tree)
		}
		return s.refuse(owner, c.Seq, s.heldOutcome(keys, &w, owner.client))
	case p.full:
		return s.refuse(owner, c.Seq, Outcome{Code: TooManyWaiters, Limit: uint64(limit)})
	}
	if out := s.roomToWait(owner); out.Code != 0 {
		return out
	}
	if out := s.waitsForEver(owner, &w, keys, p.index); out.Code != 0 {
		s.recallCycle(out)
		return s.refuse(owner, c.Seq, out)
	}
	return s.enqueue(owner, &w, keys, p.index)
}

// OnlyWaits reports whether c would do nothing for now but stand behind a request that waits
// for the same key already. Then neither the client nor anybody else gains by haste. It is a
// guess for the leader, as Cost is: the table may change before the entry.
func (s *State) OnlyWaits(c *Acquire) bool {
	if c.Key == "" || c.Try || c.MaxWaiters > 0 || len(c.Freed) > 0 || len(c.Under) > 0 {
		return false
	}
	if c.Mode != Exclusive || c.Tree || c.Conditional || c.Priority != 0 {
		return false
	}
	o := s.usable(c.Session)
	if o == nil {
		return false
	}
	if _, asked := o.index.requests.get(c.Seq); asked {
		return false
	}
	r := s.keys.get(c.Key)
	n := len(r.queue)
	return len(r.holders) == 1 && r.holders[0].ghost == nil && n > 0 && r.queue[0].Priority >= 0 && r.queue[n-1].Priority >= 0
}

// check returns the refusal of keys, attributes and lists that are over a limit
// or malformed, and the zero Outcome if there are none.
func (c *Acquire) check() Outcome {
	set := c.Key == "" && len(c.Keys) > 0
	if !set && (len(c.Keys) > 0 || !validKey(c.Key)) {
		return bad("Key", MaxKey)
	}
	if out := c.Spec.check(set); out.Code != 0 {
		return out
	}
	if len(c.Under) > MaxUnder {
		return bad("Under", MaxUnder)
	}
	share := 1
	if c.Tree {
		share = TreeShare
	}
	if most := MaxKeys / share; len(c.Keys) > most {
		return bad("Keys", uint64(most))
	}
	bytes, levels := 0, 0
	for i, key := range c.Keys {
		if !validKey(key) {
			return bad("Key", MaxKey)
		}
		if i > 0 && c.Keys[i-1] >= key {
			return bad("Keys", 0)
		}
		bytes += len(key)
		levels += levelsOf(key)
	}
	if most := MaxKeyBytes / share; bytes > most {
		return bad("Keys", uint64(most))
	}
	if most := MaxLevels / share; levels > most {
		return bad("Keys", uint64(most))
	}
	return Outcome{}
}

// levelsOf returns the number of keys above key.
func levelsOf(key string) int { return strings.Count(key, "/") }

func validKey(key string) bool { return key != "" && len(key) <= MaxKey && utf8.ValidString(key) }

// checkKey returns the refusal of a condition or a capacity that does not fit the
// key, and the zero Outcome if both fit.
func (s *State) checkKey(w *waiter, key string) Outcome {
	if w.Conditional {
		if out := s.grantedSince(key, w.IfToken); out.Code != Granted {
			return out
		}
	}
	return s.keys.get(key).checkCapacity(w)
}

// refuse refuses a request whose seq is spent, and remembers the refusal.
func (s *State) refuse(owner *session, seq uint64, out Outcome) Outcome {
	return s.remember(owner, seq, &answer{out: out})
}

// acquireNow grants a request without a wait, in its place: readers may be granted
// before a waiting writer, which counts as passed once.
func (s *State) acquireNow(owner *session, w *waiter, keys []string, p place) Outcome {
	if p.passes && !w.set {
		s.keys.edit(keys[0], func(r *record) { pass(r.queue[p.index:]) })
	}
	out := s.giveKeys(owner, w, keys, false)
	owner.index.unseen++
	owner.index.weigh(weightOf(keys, w.Meta, nil), 1)
	if s.keys.conditions > 0 {
		s.step.noteQueues(keys...)
	}
	s.admitWaiters()
	return out
}

// heldOutcome refuses a Try because its keys are not free, and describes a
// conflicting grant or waiter.
func (s *State) heldOutcome(keys []string, w *waiter, client string) Outcome {
	return Outcome{Code: Held, Holder: s.inTheWay(keys, w, client)}
}

// inTheWay describes a grant or a waiter in conflict with w; the zero Holder if the
// search finds none.
func (s *State) inTheWay(keys []string, w *waiter, client string) Holder {
	for _, key := range keys {
		if h := s.conflictAt(key, w, client); h != (Holder{}) {
			if w.set && h.Key == "" {
				h.Key = key
			}
			return h
		}
	}
	return Holder{}
}

// lineageOf returns the lineage tokens of the grants in under, without repeats and
// without tokens never granted. Any token of a grant names an own grant; only the
// lineage token names a grant of another session.
func (s *State) lineageOf(owner *session, under []Token) []Token {
	var tokens []Token
	for _, t := range under {
		if t == 0 || t > s.last {
			continue
		}
		if _, _, g := s.grantOf(owner, t); g != nil {
			t = g.lineageToken()
		}
		if !slices.Contains(tokens, t) {
			tokens = append(tokens, t)
		}
	}
	return tokens
}
