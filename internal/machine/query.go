package machine

// The questions of readers. None of them changes the table.

// Owner returns the first holder of key and the holder's token; zero if nobody holds
// key.
func (s *State) Owner(key string) (SessionID, Token) {
	if r := s.keys.get(key); len(r.holders) > 0 {
		return r.holders[0].session, r.holders[0].token
	}
	return SessionID{}, 0
}

// Version returns the command count at which key's holders, queue or value last
// changed; 0 if nothing is remembered of the key.
func (s *State) Version(key string) uint64 {
	return s.keys.get(key).version
}

// Value returns the key's value; empty if it has none.
func (s *State) Value(key string) string {
	return s.keys.get(key).value
}

// Status describes key without the value, with at most the given number of holders
// and of waiters. The caller owns the result.
func (s *State) Status(key string, most int) Status {
	st := Status{Key: key, Last: s.forgotten}
	r := s.keys.get(key)
	st.Version = r.version
	st.Held, st.Queue = len(r.holders), len(r.queue)
	st.Unclean = r.unclean
	st.Permits, st.Of, st.Fixed = int(r.permits), int(r.capacity), r.fixed
	if r.last > 0 {
		st.Last = r.last
	}
	if len(r.holders) > 0 && r.holders[0].Block > 0 {
		st.Last = r.holders[0].token // the holder may go on granting out of its block
	}
	for i := range min(most, len(r.holders)) {
		st.Holders = append(st.Holders, s.grantStatus(&r.holders[i]))
	}
	for i := range min(most, len(r.queue)) {
		st.Waiters = append(st.Waiters, s.waiterStatus(r, i))
	}
	return st
}

func (s *State) grantStatus(g *grant) Grant {
	st := Grant{
		Spec:   g.Spec,
		Seq:    g.seq,
		Token:  g.token,
		Keys:   s.keyCount(g.requestID, g.is(markSet)),
		At:     g.at.ms(),
		Asked:  g.is(markAsked),
		Broken: g.is(markBroken),
	}
	if g.ghost != nil {
		st.Client, st.Node, st.Delayed = g.ghost.client, g.ghost.node, true
		return st
	}
	owner := s.sessions.get(g.session)
	st.Ending = owner.ending != 0
	st.Session, st.Client, st.Node, st.SessionMeta = g.session, owner.client, owner.node, owner.meta
	return st
}

func (s *State) waiterStatus(r *record, i int) Waiter {
	w := &r.queue[i]
	owner := s.sessions.get(w.session)
	return Waiter{
		Spec:    w.Spec,
		Session: w.session,
		Seq:     w.seq,
		Client:  owner.client,
		Node:    owner.node,
		Keys:    s.keyCount(w.requestID, w.set),
		Upgrade: w.upgrade != 0,
		Passed:  w.passed,
		Behind:  r.behind(i),
		At:      w.at,
	}
}

// keyCount returns the number of keys of a request.
func (s *State) keyCount(q requestID, set bool) int {
	if !set {
		return 1
	}
	keys := s.sets.get(q)
	return len(keys)
}

// Behind returns the number of holders and waiters before a session's waiting
// request, at the request's first key; false if the request does not wait.
func (s *State) Behind(id SessionID, seq uint64) (uint32, bool) {
	o := s.sessions.get(id)
	if o == nil {
		return 0, false
	}
	at, ok := o.index.requests.get(seq)
	if !ok || at.phase != waiting {
		return 0, false
	}
	r := s.keys.get(at.key)
	return r.behind(r.position(requestID{id, seq})), true
}

// Keys returns, in ascending order, at most n keys in use, with prefix, from first
// on.
func (s *State) Keys(prefix, first string, n int) []string {
	var keys []string
	for key := range s.keys.inUse.from(first, prefix) {
		if len(keys) == n {
			break
		}
		keys = append(keys, key)
	}
	return keys
}

// Opened reports whether a session is open, and not ending.
func (s *State) Opened(id SessionID) bool { return s.openSession(id) != nil }

// OpenedBy returns the process that has opened a session. Ok is false if the session is not
// open, or ending.
func (s *State) OpenedBy(id SessionID) (node string, boot uint64, ok bool) {
	o := s.openSession(id)
	if o == nil {
		return "", 0, false
	}
	return o.node, o.boot, true
}

// Session describes a session, open or ending.
func (s *State) Session(id SessionID) (SessionStatus, bool) {
	o := s.sessions.get(id)
	if o == nil {
		return SessionStatus{}, false
	}
	return o.status(), true
}

// Sessions calls f for each session, open or ending, in no order, until f returns false.
func (s *State) Sessions(f func(SessionStatus) bool) {
	s.sessions.all(func(_ SessionID, o *session) bool { return f(o.status()) })
}

func (o *session) status() SessionStatus {
	return SessionStatus{
		ID:      o.id,
		Client:  o.client,
		Node:    o.node,
		Boot:    o.boot,
		TTL:     o.ttl,
		Opened:  o.opened,
		Silent:  o.silent,
		Revoked: o.revoked,
		Ending:  o.ending != 0,
		Grants:  o.index.requests.grants(),
		Keys:    o.index.held,
		Waits:   o.index.waits,
		Meta:    o.meta,
	}
}

// Pends returns the number of requests and callers about which Pending returns events,
// mostly one event each, in constant time.
func (s *State) Pends(id SessionID) int {
	o := s.sessions.get(id)
	switch {
	case o == nil:
		return 0
	case o.dead():
		return 1
	}
	return o.index.requests.pending + len(o.index.enlisted)
}

// Pending returns, in the order of their seqs, the events to repeat to a client
// after a lost connection: outcomes told by an event alone and not listed as seen,
// and everything that the holder of a grant must know; then the parts of the session's
// callers. Of a revoked session there is EventRevoked alone, and of an ending one
// EventEnding. There are none if the session
// is not open.
func (s *State) Pending(id SessionID) []Event {
	o := s.sessions.get(id)
	switch {
	case o == nil:
		return nil
	case o.ending != 0:
		return []Event{{Kind: EventEnding, Session: id, Reason: o.ending}}
	case o.revoked:
		return []Event{revokedEvent(id)} // nothing else matters to the client
	case o.index.requests.pending+len(o.index.enlisted) == 0:
		return nil
	}
	events := make([]Event, 0, o.index.requests.pending+len(o.index.enlisted))
	for _, seq := range o.index.requests.pendingSeqs() {
		at := o.index.requests.at(seq)
		if at.phase == answered {
			a := s.answers.get(requestID{id, seq})
			switch {
			case !s.isTrue(o, a):
			case a.out.Code == Granted:
				events = append(events, grantedEvent(id, seq, at.key, a.out))
			default:
				events = append(events, refusedEvent(id, seq, at.key, a.out))
			}
			continue
		}
		events = s.appendGrantEvents(events, o, seq, at)
	}
	return s.appendParts(events, o)
}

// appendGrantEvents appends the events that the holder of a grant must know.
func (s *State) appendGrantEvents(events []Event, o *session, seq uint64, at location) []Event {
	g := s.keys.get(at.key).grant(at.token)
	if g.is(markUnseen) && g.is(markWaited) {
		events = append(events, grantedEvent(o.id, seq, at.key, s.grantedOutcome(o, seq, at)))
	}
	if g.is(markContended) {
		events = append(events, s.grantEvent(EventContended, o, g))
	}
	if g.is(markAsked) {
		events = append(events, s.grantEvent(EventAsked, o, g))
	}
	if g.is(markBroken) {
		e := s.grantEvent(EventLost, o, g)
		e.Reason = Broken
		events = append(events, e)
	}
	return events
}
