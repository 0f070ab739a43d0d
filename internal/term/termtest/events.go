package termtest

import (
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
)

// A sink is a session's receiver of events on the member.
type sink struct {
	to func(machine.Event)

	mu       sync.Mutex
	last     time.Time // when the latest event arrives; no later event arrives before
	detached bool
}

// Attach implements replica.Replica.
func (m *Member) Attach(id machine.SessionID, to func(machine.Event)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sinks[id] = &sink{to: to}
}

// Detach implements replica.Replica.
func (m *Member) Detach(id machine.SessionID) {
	m.mu.Lock()
	s, l := m.sinks[id], m.leader
	delete(m.sinks, id)
	delete(m.heard, id)
	m.mu.Unlock()
	if l != nil {
		l.term.Detach(id)
	}
	if s != nil {
		s.mu.Lock()
		s.detached = true
		s.mu.Unlock()
	}
}

// push takes an event from the leader: the network delays or loses the event.
func (m *Member) push(e machine.Event) {
	m.mu.Lock()
	s, faults, cut := m.sinks[e.Session], m.faults, m.cut
	m.mu.Unlock()
	switch {
	case s == nil || cut != nil:
	case m.c.chance(faults.LosePush):
		time.AfterFunc(m.c.upTo(pushAgain), m.Reconnect)
	default:
		s.tell(e, m.c.upTo(faults.Latency))
	}
}

// tell calls the sink after d, and after all earlier events.
func (s *sink) tell(e machine.Event, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := time.Now().Add(d)
	if !at.After(s.last) {
		at = s.last.Add(1)
	}
	s.last = at
	time.AfterFunc(time.Until(at), func() {
		s.mu.Lock()
		detached := s.detached
		s.mu.Unlock()
		if !detached {
			s.to(e)
		}
	})
}
