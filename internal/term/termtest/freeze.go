package termtest

import "github.com/wardmote/wardmote/internal/host"

// Clock implements replica.Replica.
func (m *Member) Clock() *host.Clock {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.clock
}

// SetClock gives the member a clock of its own, for clients that are made later.
func (m *Member) SetClock(c *host.Clock) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.clock = c
}

// Freeze stops the member's process like SIGSTOP until Thaw: the member's clock and timers
// stand, it sends nothing, and what it receives arrives when it goes on. The member must
// have a clock of its own.
func (m *Member) Freeze() {
	m.c.t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.clock == nil {
		m.c.t.Fatal("a member without a clock of its own cannot be frozen")
	}
	m.clock.Freeze()
}

// Thaw ends Freeze.
func (m *Member) Thaw() {
	m.mu.Lock()
	m.clock.Thaw()
	arrivals := m.arrivals
	m.arrivals = nil
	m.mu.Unlock()
	for _, arrive := range arrivals {
		arrive()
	}
}

// awake has a message arrive, once the member is not frozen.
func (m *Member) awake(arrive func()) {
	m.mu.Lock()
	if m.clock.Frozen() {
		m.arrivals = append(m.arrivals, arrive)
		m.mu.Unlock()
		return
	}
	m.mu.Unlock()
	arrive()
}
