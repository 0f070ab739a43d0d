package term

import (
	"math"
	"sync/atomic"

	"github.com/wardmote/wardmote/internal/machine"
)

// This file tells members that attach of sessions that are not open. One request can
// name 16,384 of them, each costs an event, and a member that does not read its stream
// lets the events pile up. So the events that are not on their way yet are counted, of
// all members together, and a request beyond the bound is refused as CodeBusy: its
// member attaches again. A member with few of them is never refused, so that no member
// keeps the others out.

const (
	maxDenials   = 32 << 10 // some 100 bytes each
	leastDenials = 1 << 10  // of a stream, beyond the bound too
)

// denials counts the events of one subscriber that are not on their way yet.
type denials struct{ atomic.Int64 }

// hasQuit marks the denials of a subscriber that has quit.
const hasQuit = math.MinInt64 / 2

// mayDeny counts n events for s, and reports false, without counting them, if they are
// too many.
func (t *Term) mayDeny(s *Subscriber, n int) bool {
	if s.Later == nil {
		return true // nothing piles up
	}
	own := s.denials.Add(int64(n))
	if own < 0 {
		return true // s has quit, and nothing is told
	}
	if t.denied.Add(int64(n)) <= maxDenials || own <= leastDenials {
		return true
	}
	t.told(s, n)
	return false
}

// told takes n events for s off the count.
func (t *Term) told(s *Subscriber, n int) {
	if s.Later != nil && s.denials.Add(-int64(n)) >= 0 {
		t.denied.Add(-int64(n))
	}
}

// quitDenials takes the events of s that are left off the count.
func (t *Term) quitDenials(s *Subscriber) {
	if left := s.denials.Swap(hasQuit); left > 0 {
		t.denied.Add(-left)
	}
}

// denyOpen tells s that sessions are not open, after a round: a deposed leader may lack a
// newer session, and only a confirmed leader may deny a session. The events are
// counted already: see mayDeny.
func (t *Term) denyOpen(s *Subscriber, ids []machine.SessionID) {
	if len(ids) == 0 {
		return
	}
	t.Confirm(func(ok bool) {
		if !ok {
			t.told(s, len(ids))
			return
		}
		for _, id := range ids {
			ended := func() machine.Event {
				t.told(s, 1)
				return machine.Event{Kind: machine.EventEnded, Session: id, Reason: machine.Expired}
			}
			if s.Later != nil {
				s.Later(ended)
			} else {
				s.Event(ended())
			}
		}
	})
}

// unopened counts the sessions that are not open.
func (t *Term) unopened(ids []machine.SessionID) (n int) {
	t.table.View(func(m *machine.State) {
		for _, id := range ids {
			if !m.Opened(id) {
				n++
			}
		}
	})
	return n
}
