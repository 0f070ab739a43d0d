package term

import (
	"maps"
	"slices"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/wire"
)

// A Subscriber gets the events of sessions: a member's stream, or this node
// itself. No function may block.
type Subscriber struct {
	Event func(machine.Event)
	Bound func(wire.AttachAnswer) // the bound of sessions' TTLs has changed
	Stop  func()                  // the term has ended; nil: nothing to do
}

// Join adds a subscriber. Join reports false, and adds nothing, if the term has
// ended.
func (t *Term) Join(s *Subscriber) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.subscribers[s] = struct{}{}
	return true
}

// Quit removes a subscriber and all routes to the subscriber.
func (t *Term) Quit(s *Subscriber) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.subscribers, s)
	maps.DeleteFunc(t.sessions, func(_ machine.SessionID, o *Subscriber) bool { return o == s })
}

// Attach routes the events of open sessions to s, and tells s every event
// possibly missed: the grants not marked as seen by the session, and the ends of
// sessions.
func (t *Term) Attach(s *Subscriber, ids []machine.SessionID) {
	for _, id := range ids {
		if t.route(s, id) {
			continue
		}
		// A deposed leader may lack a newer session: only a confirmed leader may
		// deny a session.
		t.Confirm(func(ok bool) {
			if ok {
				s.Event(machine.Event{Kind: machine.EventEnded, Session: id, Reason: machine.Expired})
			}
		})
	}
}

// Detach ends the routing of a session's events.
func (t *Term) Detach(id machine.SessionID) {
	t.mu.Lock()
	delete(t.sessions, id)
	t.mu.Unlock()
}

// AnnounceBound tells every subscriber the bound of sessions' TTLs, in
// milliseconds.
func (t *Term) AnnounceBound(ttl uint64) {
	t.mu.Lock()
	subscribers := slices.Collect(maps.Keys(t.subscribers))
	t.mu.Unlock()
	for _, s := range subscribers {
		if s.Bound != nil {
			s.Bound(wire.AttachAnswer{Term: t.cfg.Term, TTL: ttl})
		}
	}
}

// tell tells an event to the subscriber of the session. A session without a
// subscriber is told when the member attaches.
func (t *Term) tell(e machine.Event) {
	t.mu.Lock()
	s := t.sessions[e.Session]
	if e.Kind == machine.EventEnded {
		delete(t.sessions, e.Session)
	}
	t.mu.Unlock()
	if s != nil {
		s.Event(e)
	}
}

// route routes the events of a session to s, and reports whether the session is
// open; if not, the Open is on the way or the session has ended. If the events went
// elsewhere before, s is told the events possibly missed. The route is made first
// and the table read then, so no event falls between; an event told twice does no
// harm.
func (t *Term) route(s *Subscriber, id machine.SessionID) (open bool) {
	t.mu.Lock()
	routed := t.sessions[id] == s
	t.mu.Unlock()
	if routed {
		return true
	}
	t.table.View(func(m *machine.State) { _, open = m.Session(id) })
	if !open {
		return false
	}
	t.mu.Lock()
	_, joined := t.subscribers[s]
	if joined {
		t.sessions[id] = s
	}
	t.mu.Unlock()
	if !joined {
		return true
	}
	var missed []machine.Event
	t.table.View(func(m *machine.State) {
		_, open = m.Session(id)
		missed = m.Pending(id)
	})
	if !open {
		// The session ended before the route was made, so no event will remove
		// the route.
		t.Detach(id)
		return false
	}
	for _, e := range missed {
		s.Event(e)
	}
	return true
}

// Beat takes a keepalive of a session of s. done gets CodeOK once a round begun
// after the call has confirmed the leader, CodeNoSession if the session is not
// open, and CodeNotLeader if the leader may have been replaced.
func (t *Term) Beat(s *Subscriber, id machine.SessionID, done func(wire.Code)) {
	t.route(s, id)
	t.keeper.receive(id, beat{time.Now(), done})
}

// Propose proposes a client's command for a session of s. With CodeOK the
// command is committed, with this outcome. CodeUnknown means: the command may
// have been applied, or may be applied later. With any other code nothing
// happened: CodeBad, no client proposes such a command; CodeVersion, some voter
// may not read the command yet; CodeBusy, too many commands wait;
// CodeNotLeader.
func (t *Term) Propose(s *Subscriber, cmd machine.Command, done func(machine.Outcome, wire.Code)) {
	t.propose(s, cmd, nil, done)
}

// propose is Propose for a command decoded from frame, or made by this process if
// frame is nil.
func (t *Term) propose(s *Subscriber, cmd machine.Command, frame []byte, done func(machine.Outcome, wire.Code)) {
	id, ok := clientCommand(cmd)
	if !ok {
		done(machine.Outcome{}, wire.CodeBad)
		return
	}
	t.route(s, id)
	if f := t.cfg.Format(cmd); f > 1 && f > t.table.Format() { // every table has format 1
		done(machine.Outcome{}, wire.CodeVersion)
		return
	}
	t.proposer.propose(cmd, frame, done)
}

// clientCommand returns the session of a client's command, and false for a command
// reserved to the leader.
func clientCommand(c machine.Command) (id machine.SessionID, ok bool) {
	switch c := c.(type) {
	case machine.Open:
		return c.Session, true
	case machine.Acquire:
		return c.Session, true
	case machine.Withdraw:
		return c.Session, true
	case machine.Release:
		return c.Session, true
	case machine.Close:
		return c.Session, true
	case machine.Upgrade:
		return c.Session, true
	case machine.Downgrade:
		return c.Session, true
	case machine.SetValue:
		return c.Session, true
	case machine.Ask:
		return c.Session, true
	case machine.Break:
		return c.Session, true
	}
	return id, false
}
