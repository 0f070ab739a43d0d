package machine

import "slices"

// Exactly once: how the table recognizes a second copy of a request, and the answer
// to the copy. See doc.go.

// answer is the outcome of a request that is in no record: a refusal, or the
// grant of an upgrade.
type answer struct {
	out  Outcome
	key  string // the request's first, if it was granted or refused late
	late bool   // answered Queued first, so only an event told the client
}

// fromSession notes the Seen list of a command from an open session, and calls f with
// the session for writing.
func (s *State) fromSession(id SessionID, seenSeqs []uint64, f func(*session) Outcome) Outcome {
	o := s.openSession(id)
	if o == nil {
		return Outcome{Code: NoSession}
	}
	if len(seenSeqs) > MaxSeen || slices.Contains(seenSeqs, 0) {
		return bad("Seen", MaxSeen)
	}
	o = s.editSession(o)
	var unknown []uint64
	for _, seq := range seenSeqs {
		if !s.noteSeen(o, seq) {
			unknown = append(unknown, seq)
		}
	}
	if !o.spent.addAll(unknown) {
		return bad("Seen", MaxGaps)
	}
	return f(o)
}

// noteSeen forgets the outcome of a request, but not that the seq is spent. A waiting
// request has no outcome yet and goes on waiting. noteSeen returns false for an unknown
// seq, which becomes spent: the client has given the request up.
func (s *State) noteSeen(o *session, seq uint64) bool {
	at, ok := o.index.requests.get(seq)
	if !ok {
		return false
	}
	switch at.phase {
	case granted:
		r := s.keys.edit(at.key, func(r *record) { r.grant(at.token).mark(markUnseen, false) })
		if !r.grant(at.token).pends() {
			o.index.requests.pend(seq, false)
		}
		at.phase = seen
		o.index.requests.set(seq, at)
		o.index.unseen--
	case answered:
		s.forgetAnswer(o, seq)
	}
	return true
}

// answerCopy answers a second copy of a request with the present truth about the
// first copy.
func (s *State) answerCopy(owner *session, seq uint64) (out Outcome, isCopy bool) {
	if seq == 0 {
		return bad("Seq", 0), true
	}
	at, ok := owner.index.requests.get(seq)
	if !ok {
		return Outcome{Code: Withdrawn}, owner.spent.has(seq)
	}
	q := requestID{owner.id, seq}
	switch at.phase {
	case waiting:
		out := Outcome{Code: Queued}
		w := s.waiterOf(q, at)
		for _, key := range s.keysOf(owner, seq, at) {
			r := s.keys.get(key)
			out.Behind = max(out.Behind, r.behind(r.find(w)))
		}
		return out, true
	case granted:
		return s.grantedOutcome(owner, seq, at), true
	case answered:
		if a := s.answers.get(q); s.isTrue(owner, a) {
			return a.out, true
		}
	}
	return Outcome{Code: Withdrawn}, true // the outcome was seen, or an upgraded grant has ended
}

// isTrue reports whether an answer is still true. The grant of an upgrade is not
// true any more when the grant has ended.
func (s *State) isTrue(owner *session, a *answer) bool {
	_, _, g := s.grantOf(owner, a.out.Token)
	return a.out.Code != Granted || g != nil
}

// spendSeq marks seq as spent. The outcome is a refusal if there is no memory left
// for the request's outcome.
func (s *State) spendSeq(owner *session, seq uint64) Outcome {
	if s.last >= MaxToken {
		// For good: the counter never falls, so the seq need not be spent.
		return Outcome{Code: TokensSpent}
	}
	if !owner.spent.add(seq) {
		return bad("Seq", MaxGaps)
	}
	if owner.index.unseen >= MaxUnseen {
		// This refusal cannot be remembered. The seq is spent, so that a late copy is
		// refused too, as Withdrawn.
		return Outcome{Code: TooManyUnseen, Limit: MaxUnseen}
	}
	return Outcome{}
}

// remember keeps the answer to a request without a record until the client has seen
// the answer. Otherwise a late copy of a refused Try could be granted to a client
// that has gone away. While the answers of a session tell of MaxDetails bytes of other
// clients, later ones are kept without: a member that lists nothing as seen would fill
// the memory of all voters, and their images.
func (s *State) remember(o *session, seq uint64, a *answer) Outcome {
	out := a.out
	if d := a.details(); o.index.details+d > MaxDetails {
		a.out.Holder, a.out.Cycle = Holder{}, nil
	} else {
		o.index.details += d
	}
	s.answers.set(requestID{o.id, seq}, a)
	o.index.requests.set(seq, location{key: a.key, phase: answered})
	o.index.unseen++
	if a.late {
		o.index.requests.pend(seq, true)
	}
	return out
}

// details returns the bytes by which an answer tells of other clients.
func (a *answer) details() int {
	n := len(a.out.Holder.Client) + len(a.out.Holder.Node) + len(a.out.Holder.Key)
	for i := range a.out.Cycle {
		n += linkBytes + len(a.out.Cycle[i].Client) + len(a.out.Cycle[i].Key)
	}
	return n
}

// linkBytes is the memory of a Link without its texts.
const linkBytes = 40

func (s *State) forgetAnswer(o *session, seq uint64) {
	q := requestID{o.id, seq}
	o.index.details -= s.answers.get(q).details()
	s.answers.del(q)
	o.index.requests.remove(seq)
	o.index.unseen--
}
