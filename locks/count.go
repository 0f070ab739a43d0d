package locks

import (
	"context"
	"errors"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/internal/meter"
)

// This file counts for the metrics of package lockshttp and for reports. A client counts from its
// beginning, since a program may ask for the metrics late.
//
// Grants of users' keys count as grants, and grants of the shards of Spread as shards:
// a shard is held for hours, and its wait says when the plan changed. Other keys of this
// package count as neither.

func init() {
	meter.OfClient = func(client any) *meter.Client { return &client.(*Client).meter }
	meter.ReadClient = func(client any) meter.ClientFigures { return client.(*Client).figures() }
}

// figures reads what the client does not count.
func (c *Client) figures() (f meter.ClientFigures) {
	s := c.currentSession()
	if s == nil {
		return f
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reason != 0 {
		return f
	}
	f.Session, f.TTL, f.Waiting = true, s.ttl, len(s.waiters)
	f.Trust = s.trust.remaining(c.now())
	return f
}

// counts returns the counts of a report. They are read one after the other while the
// client goes on: the losses first, since each counts as an end before it counts as a loss.
func (c *Client) counts() Counts {
	m := &c.meter
	sum := func(counters []meter.Counter) (n uint64) {
		for i := range counters {
			n += counters[i].Load()
		}
		return n
	}
	lost := sum(m.Lost[:])
	ended := m.Holds.Read().Count() + m.ShardsEnded.Load()
	return Counts{
		Sessions:     m.Opened.Load(),
		SessionsLost: sum(m.SessionsLost[:]),
		Granted:      m.Waits.Read().Count() + m.ShardsGained.Load(),
		Released:     ended - lost,
		Failed:       sum(m.Failed[:]),
		Lost:         lost,
		Beats:        m.Beats.Read().Count(),
		BeatsFailed:  m.BeatsFailed.Load(),
	}
}

// series returns the series that count a request for key by its label.
func (c *Client) series(key string) []*meter.Series {
	if reserved(key) {
		return nil
	}
	return c.meter.Series(key)
}

// countGranted counts a new grant that was waited for so long. The caller holds s.mu.
func (g *grant) countGranted(waited time.Duration) {
	switch m := &g.s.c.meter; {
	case g.call == CallSpread:
		m.Shards.Add(1)
		m.ShardsGained.Inc()
	case !reserved(g.key):
		m.Held.Add(1)
		m.Waits.Observe(waited)
	}
	for _, s := range g.rare().series {
		s.Waits.Observe(waited)
		s.Granted()
	}
}

// countEnded counts a grant that was held for so long: lost for a reason, or released if
// the reason is 0. The caller holds s.mu.
func (g *grant) countEnded(reason Reason, held time.Duration) {
	switch m := &g.s.c.meter; {
	case g.call == CallSpread:
		m.Shards.Add(-1)
		m.ShardsEnded.Inc()
		if reason != 0 {
			m.Lost[reason].Inc()
		}
	case !reserved(g.key):
		m.Held.Add(-1)
		m.Holds.Observe(held)
		if reason != 0 {
			m.Lost[reason].Inc()
		}
	}
	for _, s := range g.rare().series {
		s.Holds.Observe(held)
		s.Ended()
		if reason != 0 {
			s.Lost.Inc()
		}
	}
}

// countFailed counts a request that failed with err.
func (c *Client) countFailed(err error) { c.meter.Failed[failureOf(err)].Inc() }

// failureOf returns the kind of the error of a request.
func failureOf(err error) meter.Failure {
	switch {
	case errors.Is(err, ErrClosed), errors.Is(err, cluster.ErrStopped):
		return meter.FailedClosed
	case errors.Is(err, cluster.ErrNoQuorum):
		return meter.FailedNoQuorum
	case hasType[*HeldError](err), errors.Is(err, cluster.ErrFounding):
		return meter.FailedHeld
	case hasType[*DeadlockError](err):
		return meter.FailedDeadlock
	case errors.Is(err, ErrTooManyWaiters), errors.Is(err, ErrTooManyKeys), errors.Is(err, ErrQuota):
		return meter.FailedFull
	case hasType[*WaitError](err), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return meter.FailedEnded
	}
	return meter.FailedOther
}

// countBeatFailed counts a beat that failed, or that was cancelled because the session was
// lost. A beat that a later one has made needless is no failure, and neither is one at the
// end of the client.
func (s *session) countBeatFailed() {
	if reason := s.endReason(); reason != ClientClosed && reason != NodeStopped {
		s.c.meter.BeatsFailed.Inc()
	}
}
