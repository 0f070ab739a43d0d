package machine

import (
	"slices"
	"unicode/utf8"
)

// session is what the table keeps for one client, as it stands in an image:
// grants, waiters and refusals are in the other tables, and index finds them.
// Like a record, it is cloned before it is changed if its epoch is old.
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
	// Before the TTL, which the bound may have passed since the first copy.
	if _, ok := s.sessions.get(c.Session); ok {
		return Outcome{Code: OK}
	}
	if out, ok := checkTTL(c.TTL, s.bound); !ok {
		return out
	}
	s.sessions.set(c.Session, &session{
		epoch:  s.sessions.epoch,
		id:     c.Session,
		client: c.Client,
		node:   c.Node,
		ttl:    c.TTL,
		meta:   string(c.Meta),
		index:  newIndex(),
	})
	return Outcome{Code: OK}
}

// heed returns an open session for writing, once it has taken note of what its
// client has seen. Without a session the outcome is the refusal.
func (s *State) heed(id SessionID, seen []uint64) (*session, Outcome) {
	o, ok := s.sessions.get(id)
	if !ok {
		return nil, Outcome{Code: NoSession}
	}
	if len(seen) > MaxSeen || slices.Contains(seen, 0) {
		return nil, bad("Seen", MaxSeen)
	}
	o = s.editSession(o)
	for _, seq := range seen {
		if !s.see(o, seq) {
			return nil, bad("Seen", MaxGaps)
		}
	}
	return o, Outcome{}
}

// see forgets the outcome of a request, but not that its seq is spent. A seq
// never heard of is spent by it: its client has given it up. A request that
// waits has no outcome to be seen yet, so it goes on waiting.
func (s *State) see(o *session, seq uint64) bool {
	r, ok := o.index.refs[seq]
	if !ok {
		return o.spent.add(seq)
	}
	switch r.state {
	case granted:
		s.edit(r.key).holder.unseen = false
		o.index.refs[seq] = ref{key: r.key, state: seen}
		o.index.unseen--
		delete(o.index.pending, seq)
	case refused:
		s.forget(o, seq)
	}
	return true
}

// forget drops a remembered refusal.
func (s *State) forget(o *session, seq uint64) {
	s.refusals.del(request{o.id, seq})
	delete(o.index.refs, seq)
	o.index.unseen--
}

// mark sets or clears a session's silence.
func (s *State) mark(id SessionID, term uint64, silent bool) Outcome {
	if term != s.term {
		return s.wrongTerm()
	}
	o, ok := s.sessions.get(id)
	if !ok {
		return Outcome{Code: NoSession}
	}
	if o.silent != silent {
		s.editSession(o).silent = silent
	}
	return Outcome{Code: OK}
}

// end ends a session. All of its waiters leave before any of its grants is
// freed, so none of them is granted; then its grants are freed in the order of
// their tokens, each serving its key's next waiter.
func (s *State) end(id SessionID, reason Reason) Outcome {
	o, ok := s.sessions.get(id)
	if !ok {
		return Outcome{Code: NoSession}
	}
	// Queue by queue, and not waiter by waiter: all of a session's thousands
	// may stand in one queue. The keys need no order: with their holders in
	// place, or the founding wait, nobody is granted here.
	queues := make(map[string]struct{})
	for seq, r := range o.index.refs {
		switch r.state {
		case waiting:
			queues[r.key] = struct{}{}
		case refused:
			s.refusals.del(request{id, seq})
		}
	}
	for key := range queues {
		r := s.edit(key)
		before := len(r.queue)
		r.queue = slices.DeleteFunc(r.queue, func(w waiter) bool { return w.session == id })
		s.waiters -= before - len(r.queue)
		s.serve(key, r)
	}

	tokens := make([]Token, 0, len(o.index.tokens))
	for token := range o.index.tokens {
		tokens = append(tokens, token)
	}
	slices.Sort(tokens)
	for _, token := range tokens {
		seq := o.index.tokens[token]
		key := o.index.refs[seq].key
		s.events = append(s.events, Event{
			Kind:    EventLost,
			Session: id,
			Seq:     seq,
			Key:     key,
			Token:   token,
			Reason:  reason,
		})
		s.free(o, seq, key)
	}
	s.sessions.del(id)
	s.events = append(s.events, Event{Kind: EventEnded, Session: id, Reason: reason})
	return Outcome{Code: OK}
}

// Session describes an open session.
func (s *State) Session(id SessionID) (SessionStatus, bool) {
	o, ok := s.sessions.get(id)
	if !ok {
		return SessionStatus{}, false
	}
	return o.status(), true
}

// Sessions calls f for each open session, in no order, until it returns false.
func (s *State) Sessions(f func(SessionStatus) bool) {
	s.sessions.all(func(_ SessionID, o *session) bool { return f(o.status()) })
}

func (o *session) status() SessionStatus {
	return SessionStatus{
		ID:     o.id,
		Client: o.client,
		Node:   o.node,
		TTL:    o.ttl,
		Silent: o.silent,
		Grants: len(o.index.tokens),
		Waits:  o.index.waits,
	}
}

// Pending returns, in the order of their seqs, the grants that a session holds
// after waiting for them and has not said it knows of: the events to tell again
// to a client that may have lost them. It is empty if the session is not open.
func (s *State) Pending(id SessionID) []Event {
	o, ok := s.sessions.get(id)
	if !ok || len(o.index.pending) == 0 {
		return nil
	}
	events := make([]Event, 0, len(o.index.pending))
	for seq := range o.index.pending {
		key := o.index.refs[seq].key
		r, _ := s.keys.get(key)
		events = append(events, Event{Kind: EventGranted, Session: id, Seq: seq, Key: key, Token: r.holder.token})
	}
	slices.SortFunc(events, func(a, b Event) int {
		if a.Seq < b.Seq {
			return -1
		}
		return 1
	})
	return events
}
