package locks

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/term/termtest"
)

// testTTL is the TTL of a world's sessions.
const testTTL = termtest.DefaultTTL

// A world is a real leader on a log in memory, and the members of package termtest.
type world struct{ *termtest.Cluster }

func newWorld(t testing.TB) *world {
	return &world{termtest.New(t, termtest.Config{})}
}

// join adds a member.
func (w *world) join(name string) *member { return &member{termMember: w.Join(name)} }

type termMember = termtest.Member // has a method Member, so the field is not called so

// A member is a replica.Replica in a world.
type member struct {
	*termMember
	dozed atomic.Int64
}

// client returns a client on m. The caller closes it.
func (m *member) client(opts Options) *Client {
	c := newClient(m, opts)
	c.slept = func() time.Duration { return m.Slept() + time.Duration(m.dozed.Load()) }
	return c
}

// doze is Sleep before the leader has noticed: only the host's sleep counter advances.
func (m *member) doze(d time.Duration) { m.dozed.Add(int64(d)) }

// expire is the leader's verdict on one client.
func expire(w *world, c *Client) machine.Command {
	return machine.Expire{Session: c.currentSession().id, Term: w.TermNumber()}
}

// busy returns the number of grants and waiters.
func (w *world) busy() int {
	n := w.Counts()
	return n.Grants + n.Waiters
}

// sizes returns the number of waiters and locks that a session keeps.
func (s *session) sizes() (waiters, locks int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiters), len(s.grants)
}
