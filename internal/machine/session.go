package machine

import (
	"maps"
	"slices"
	"unicode/utf8"
)

// session is the table's part for one client, as in an image. The session's grants,
// waiters and answers are in the other tables, and index finds them there. A session
// with an epoch older than the table's belongs to an image, and is cloned before a
// change.
type session struct {
	epoch  uint64
	id     SessionID
	client string
	node   string
	ttl    uint64
	meta   string
	silent bool
	spent  spans // seqs that can never be granted anew

	// index is shared by all clones and not part of an image: with a million
	// grants it would be too large to copy.
	index *index
}

// editSession returns an open session for writing.
func (s *State) editSession(o *session) *session {
	if o.epoch != s.sessions.epoch {
		c := *o
		c.epoch = s.sessions.epoch
		c.spent = slices.Clone(o.spent)
		o = &c
		s.sessions.set(o.id, o)
	}
	return o
}

func validName(name string) bool { return len(name) <= MaxName && utf8.ValidString(name) }

func (s *State) open(c Open) Outcome {
	switch {
	case c.Session == (SessionID{}):
		return bad("Session", 0)
	case c.Client == "" || !validName(c.Client):
		return bad("Client", MaxName)
	case !validName(c.Node):
		return bad("Node", MaxName)
	case len(c.Meta) > MaxMeta:
		return bad("Meta", MaxMeta)
	}
	// Before the TTL is checked: the bound may have fallen below it since the first
	// copy.
	if s.sessions.get(c.Session) != nil {
		return Outcome{Code: OK}
	}
	if out := checkTTL(c.TTL, s.bound); out.Code != 0 {
		return out
	}
	s.sessions.set(c.Session, &session{
		epoch:  s.sessions.epoch,
		id:     c.Session,
		client: c.Client,
		node:   c.Node,
		ttl:    c.TTL,
		meta:   c.Meta,
		index:  newIndex(),
	})
	return Outcome{Code: OK}
}

// markSilent sets or removes a session's mark of Silence.
func (s *State) markSilent(id SessionID, silent bool) Outcome {
	o := s.sessions.get(id)
	if o == nil {
		return Outcome{Code: NoSession}
	}
	if o.silent != silent {
		s.editSession(o).silent = silent
	}
	return Outcome{Code: OK}
}

// endSession ends a session, in this order:
//
//  1. its waiters leave all queues, so that none of them is granted;
//  2. its grants are freed in the order of their tokens, except that a grant with
//     a Delay becomes a ghost when the session expires;
//  3. the waiters for these keys are granted.
func (s *State) endSession(id SessionID, reason Reason) Outcome {
	o := s.sessions.get(id)
	if o == nil {
		return Outcome{Code: NoSession}
	}
	s.removeWaitersAndAnswers(o)
	afterWaiters := slices.Clone(s.step.revisit)
	s.step.revisit = s.step.revisit[:0]

	for _, token := range slices.Sorted(maps.Keys(o.index.tokens)) {
		seq := o.index.tokens[token]
		at := o.index.requests[seq]
		_, _, g := s.grantOf(o, token)
		e := s.grantEvent(EventLost, o, g)
		e.Reason = reason
		s.step.events = append(s.step.events, e)
		switch {
		case reason == Closed:
			s.freeGrant(o, seq, at, clean)
		case g.Delay > 0 && !g.broken:
			s.delayGrant(o, at)
		default:
			s.freeGrant(o, seq, at, unclean)
		}
	}
	s.step.revisit = append(s.step.revisit, afterWaiters...)
	s.admitWaiters()
	s.sessions.del(id)
	s.step.events = append(s.step.events, Event{Kind: EventEnded, Session: id, Reason: reason})
	return Outcome{Code: OK}
}

// removeWaitersAndAnswers removes a session's waiters from all queues, and its
// answers.
func (s *State) removeWaitersAndAnswers(o *session) {
	queues := make(map[string]struct{})
	for seq, at := range o.index.requests {
		switch at.phase {
		case waiting:
			for _, key := range s.keysOf(o, seq, at) {
				queues[key] = struct{}{}
			}
			if at.set {
				s.sets.del(requestID{o.id, seq})
			}
		case answered:
			s.answers.del(requestID{o.id, seq})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(queues)) {
		var removed []waiter
		s.change(key, func(r *record) { removed = r.removeWaitersOf(o.id) })
		tree := false
		for i := range removed {
			s.lineage.remove(removed[i].under, removed[i].requestID)
			tree = tree || removed[i].Tree
		}
		s.revisit(key, tree)
	}
}
