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
