package machine

import (
	"maps"
	"slices"
	"unicode/utf8"
)

// session is what the table keeps for one client, as it stands in an image:
// grants, waiters and answers are in the other tables, and index finds them.
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
	at, ok := o.index.refs[seq]
	if !ok {
		return o.spent.add(seq)
	}
	switch at.state {
	case granted:
		for _, key := range s.keysOf(o, seq, at) {
			r := s.edit(key)
			g := &r.holders[r.holder(at.token)]
			g.unseen = false
			if !g.pends() {
				delete(o.index.pending, seq)
			}
		}
		at.state = seen
		o.index.refs[seq] = at
		o.index.unseen--
	case answered:
		s.forget(o, seq)
	}
	return true
}

// reply keeps the outcome of a request that is in no record, until its client
// has seen it: without, a late copy of a Try that was refused could be granted
// to nobody.
func (s *State) reply(o *session, seq uint64, a *answer) Outcome {
	s.answers.set(request{o.id, seq}, a)
	o.index.refs[seq] = ref{key: a.key, state: answered}
	o.index.unseen++
	if a.late {
		o.index.await(seq)
	}
	return a.out
}

// forget drops what reply keeps.
func (s *State) forget(o *session, seq uint64) {
	s.answers.del(request{o.id, seq})
	delete(o.index.refs, seq)
	delete(o.index.pending, seq)
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

// finish ends a session. All of its waiters leave before any of its grants is
// freed, so none of them is granted; then its grants are freed in the order of
// their tokens, save those that a delay keeps taken; then who waited for them is
// served.
func (s *State) finish(id SessionID, reason Reason) Outcome {
	o, ok := s.sessions.get(id)
	if !ok {
		return Outcome{Code: NoSession}
	}
	// Queue by queue, and not waiter by waiter: all of a session's thousands
	// may stand in one queue.
	queues := make(map[string]struct{})
	for seq, at := range o.index.refs {
		switch at.state {
		case waiting:
			for _, key := range s.keysOf(o, seq, at) {
				queues[key] = struct{}{}
			}
			if at.set {
				s.sets.del(request{id, seq})
			}
		case answered:
			s.answers.del(request{id, seq})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(queues)) {
		r := s.edit(key)
		s.touch(key, r)
		var gone []waiter
		r.queue = slices.DeleteFunc(r.queue, func(w waiter) bool {
			if w.session == id {
				gone = append(gone, w)
			}
			return w.session == id
		})
		tree := false
		for i := range gone {
			s.taken(key, r, &gone[i])
			tree = tree || gone[i].tree
		}
		s.left(key, tree)
	}

	waited := slices.Clone(s.dirty)
	s.dirty = s.dirty[:0]

	for _, token := range slices.Sorted(maps.Keys(o.index.tokens)) {
		seq := o.index.tokens[token]
		at := o.index.refs[seq]
		s.events = append(s.events, Event{
			Kind:    EventLost,
			Session: id,
			Seq:     seq,
			Key:     at.key,
			Token:   token,
			Reason:  reason,
		})
		if _, _, g := s.holding(o, token); reason == Expired && g.delay > 0 && !g.broken {
			s.delay(o, at)
		} else {
			how := unclean
			if reason == Closed {
				how = clean
			}
			s.end(o, seq, at, how)
		}
	}
	s.dirty = append(s.dirty, waited...)
	s.settle()
	s.sessions.del(id)
	s.events = append(s.events, Event{Kind: EventEnded, Session: id, Reason: reason})
	return Outcome{Code: OK}
}

// delay makes a grant of an expired session one that stands in everybody's way
// but its own client's, until EndDelay.
func (s *State) delay(o *session, at ref) {
	r := s.edit(at.key)
	s.touch(at.key, r)
	g := &r.holders[r.holder(at.token)]
	*g = grant{
		token: g.token,
		at:    g.at,
		delay: g.delay,
		of:    g.of,
		mode:  g.mode,
		tree:  g.tree,
		meta:  g.meta,
		ghost: &ghost{client: o.client, node: o.node},
	}
	if g.mode == Exclusive {
		r.unclean = true
	}
	s.delays[g.token] = at.key
	r.ghosts++
	s.left(at.key, g.tree) // its own client may be waiting already
	s.events = append(s.events, Event{Kind: EventDelayed, Key: at.key, Token: g.token, Delay: g.delay})
}

// endDelay frees the key of a grant whose session has ended.
func (s *State) endDelay(token Token) Outcome {
	key, ok := s.delays[token]
	if !ok {
		return Outcome{Code: NotHeld}
	}
	delete(s.delays, token)
	s.vacate(key, s.edit(key), token)
	s.settle()
	return Outcome{Code: OK}
}

// Delays calls f for each grant of an expired session whose delay, in
// milliseconds, runs, in no order, until it returns false.
func (s *State) Delays(f func(token Token, delay uint64) bool) {
	for token, key := range s.delays {
		r, _ := s.keys.get(key)
		if !f(token, r.holders[r.holder(token)].delay) {
			return
		}
	}
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

// Pending returns, in the order of their seqs, the events to tell again to a
// client that may have lost them: requests answered by an event alone that it has
// not said it knows of, and what the holder of a grant is to know. It is empty if
// the session is not open.
func (s *State) Pending(id SessionID) []Event {
	o, ok := s.sessions.get(id)
	if !ok || len(o.index.pending) == 0 {
		return nil
	}
	events := make([]Event, 0, len(o.index.pending))
	for _, seq := range slices.Sorted(maps.Keys(o.index.pending)) {
		at := o.index.refs[seq]
		if at.state == answered {
			a, _ := s.answers.get(request{id, seq})
			if !s.stands(o, a) {
				continue
			}
			if a.out.Code == Granted {
				events = append(events, grantedEvent(id, seq, at.key, a.out))
			} else {
				events = append(events, Event{Kind: EventRefused, Session: id, Seq: seq, Key: at.key, Code: a.out.Code, Token: a.out.Token})
			}
			continue
		}
		r, _ := s.keys.get(at.key)
		g := &r.holders[r.holder(at.token)]
		if g.unseen && g.waited {
			events = append(events, grantedEvent(id, seq, at.key, s.told(o, seq, at)))
		}
		e := Event{Session: id, Seq: seq, Key: at.key, Token: g.token}
		if g.contended {
			e.Kind = EventContended
			events = append(events, e)
		}
		if g.asked {
			e.Kind = EventAsked
			events = append(events, e)
		}
		if g.broken {
			e.Kind, e.Reason = EventLost, Broken
			events = append(events, e)
		}
	}
	return events
}
