package term

import (
	"time"

	"github.com/wardmote/wardmote/internal/machine"
)

// This file lets an entry wait for company. A client that has released a key for which others
// wait, and asks for it again, only joins the queue. In an entry of its own the request gains
// nobody anything, and keeps the command that comes next, mostly the release of the next
// holder, waiting for two entries in place of one. So such requests go with the next other
// command, or alone after half of the time of an entry without work. Where entries are
// short, as in memory, nothing waits.
//
// A request that waits is answered when it is granted, and its place in the queue is behind
// somebody who waits already. One that may be granted, or told to a holder, has an entry at
// once. What can be seen: a HandOver of the same moment may be in the entry before the request
// of the client that it names, as it may on the way to the leader.

const (
	leastPatience = 100 * time.Microsecond // timers are no better
	mostPatience  = 20 * time.Millisecond  // whatever the disks are like
	mostPatient   = 16                     // commands that wait for company; a look at each is cheap
)

// mayWait reports whether the commands in the lanes may wait for others, and arms the timer
// that ends the wait. The caller holds p.mu.
func (p *proposer) mayWait(m *machine.State) bool {
	if p.own.waiting() > 0 || p.waiting > mostPatient {
		return p.hurry()
	}
	patience := min(p.pace.least()/2, mostPatience)
	if patience < leastPatience {
		return p.hurry()
	}
	for _, l := range p.turns.lanes() {
		if l.credit < 0 && l.waiting() > 0 {
			return p.hurry() // entries pay its debt, and company would have it wait for many
		}
		for i := range l.queue[l.head:] {
			if !p.onlyWaits(m, &l.queue[l.head+i]) {
				return p.hurry()
			}
		}
	}
	switch now := p.table.Clock.Now(); {
	case p.due.IsZero():
		p.due = now.Add(patience)
		p.company.Reset(patience)
		return true
	case now.Before(p.due):
		return true
	}
	return p.hurry()
}

// hurry ends the wait.
func (p *proposer) hurry() bool {
	if !p.due.IsZero() {
		p.due = time.Time{}
		p.company.Stop()
	}
	return false
}

func (p *proposer) onlyWaits(m *machine.State, q *proposal) bool {
	if q.gone() {
		return true
	}
	if q.cmd == nil {
		q.cmd = decodeFrame(q.frame)
	}
	c, ok := q.cmd.(machine.Acquire)
	return ok && m.OnlyWaits(&c)
}
