package termtest

import (
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/term"
)

// A connection is a member's stream to a leader. As on a real stream, the messages
// arrive in the order of their sending, and no message arrives on a later stream: so
// no request overtakes its session's key, and no Detach overtakes a request.
type connection struct {
	m          *Member
	leader     *leadership
	subscriber *term.Subscriber // of the leader's Term

	arriving sync.Mutex // a message; locked before mu
	mu       sync.Mutex
	sent     []message // not arrived yet, the oldest first
}

// A message acts at the leader, for the subscriber of its stream.
type message func(*term.Term, *term.Subscriber)

// send has a message arrive after a delay of up to latency, and after all messages
// sent before.
func (n *connection) send(latency time.Duration, msg message) {
	n.mu.Lock()
	n.sent = append(n.sent, msg)
	n.mu.Unlock()
	n.m.after(latency, n.arrive) // takes a message for each one sent, in their order
}

// arrive hands the leader the oldest message under way. A message on a stream that the
// member has left meanwhile arrives all the same: the end of the stream follows.
func (n *connection) arrive() {
	if n.leader.later(n.arrive) {
		return
	}
	n.arriving.Lock()
	defer n.arriving.Unlock()
	n.mu.Lock()
	msg := n.sent[0]
	n.sent = n.sent[1:]
	n.mu.Unlock()
	n.m.mu.Lock()
	left := n.m.connection != n
	n.m.mu.Unlock()
	if left {
		n.m.alone(msg)
		return
	}
	msg(n.leader.term, n.subscriber)
}

// mostUnderWay bounds the sessions of a member that a message under way can be of.
const mostUnderWay = 100

// alone hands the leader of the moment a message on a stream of its own, which the
// member has left: the keys were shown there before the message, and nobody hears the
// events.
func (m *Member) alone(msg message) {
	l := m.c.leading()
	if l == nil || l.later(func() { m.alone(msg) }) {
		return
	}
	s := &term.Subscriber{Node: m.name, Boot: m.Boot(), Event: func(machine.Event) {}}
	if !l.term.Join(s) {
		return
	}
	defer l.term.Quit(s)
	m.mu.Lock()
	claimed := m.claimed[max(0, len(m.claimed)-mostUnderWay):]
	m.mu.Unlock()
	l.term.Show(s, claimed...)
	msg(l.term, s)
}

// Reconnect ends the member's connection to the leader and makes another. The
// member's sessions are told again every event not marked as seen.
func (m *Member) Reconnect() {
	m.leave()
	l := m.c.leading()
	if l == nil || l.later(m.Reconnect) {
		return
	}
	s := &term.Subscriber{Node: m.name, Boot: m.Boot(), Event: m.push}
	if _, cut := m.network(); cut != nil || !l.term.Join(s) {
		return
	}
	for {
		m.mu.Lock()
		claims := len(m.claimed)
		keys, fresh := m.keysLocked()
		m.mu.Unlock()
		l.term.Attach(s, keys, fresh)
		m.mu.Lock()
		again, taken := len(m.claimed) > claims, m.cut != nil || m.connection != nil
		if !again && !taken {
			m.connection = &connection{m: m, leader: l, subscriber: s} // no request overtakes its key
		}
		m.mu.Unlock()
		if taken {
			l.term.Quit(s)
		}
		if taken || !again {
			return
		}
	}
}

// keysLocked lists the keys of the attached sessions, and of those being opened.
func (m *Member) keysLocked() (keys, fresh []machine.SessionKey) {
	for _, s := range m.sinks {
		if s.to != nil {
			keys = append(keys, s.key)
		} else {
			fresh = append(fresh, s.key)
		}
	}
	return keys, fresh
}

// leave ends the connection.
func (m *Member) leave() {
	m.mu.Lock()
	n := m.connection
	m.connection = nil
	m.mu.Unlock()
	if n != nil {
		n.leader.term.Quit(n.subscriber)
	}
}

// push takes an event from the leader: the network delays or loses the event. The
// events of a session keep their order. One reconnection makes good for all events lost
// before: it may tell many events, and if each lost one of these led to another, their
// number would grow without end.
func (m *Member) push(e machine.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sinks[e.Session]
	switch {
	case s == nil || s.to == nil || m.cut != nil:
		return
	case m.c.chance(m.faults.LosePush):
		if !m.lost {
			m.lost = true
			time.AfterFunc(m.c.upTo(pushAgain), m.tellAgain)
		}
		return
	}
	at := time.Now().Add(m.c.upTo(m.faults.Latency))
	if !at.After(s.last) {
		at = s.last.Add(1)
	}
	s.last = at
	time.AfterFunc(time.Until(at), func() {
		m.mu.Lock()
		attached := m.sinks[e.Session] == s
		m.mu.Unlock()
		if attached {
			m.awake(func() { s.to(e) })
		}
	})
}

// tellAgain makes good for lost events.
func (m *Member) tellAgain() {
	m.mu.Lock()
	m.lost = false
	m.mu.Unlock()
	m.Reconnect()
}
