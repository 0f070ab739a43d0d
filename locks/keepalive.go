package locks

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/internal/replica"
)

const (
	// beatsPerTTL is how many beats a session sends in a TTL. With as many
	// beats unanswered, the oldest is cancelled for the next: no beat delays
	// another.
	beatsPerTTL = 3

	// sleepCheck is how often the session reads the clocks while it has grants
	// or waiters. A suspended host's timers stand still, so no timer can be set
	// for the moment when a sleep has used up the trust.
	sleepCheck = 100 * time.Millisecond
)

// run sends beats until the session ends. When the trust is spent or the node
// stops, run ends the session. Then it tells the cluster, so that the keys are
// free early.
func (s *session) run() {
	defer close(s.closed)
	// The first beat is due a third of a TTL after the request for the session.
	last := s.trust.sent
	timer := s.c.clock.NewTimer(0)
	defer timer.Stop()
	for {
		now := s.c.now()
		// A host has missed beats after a sleep, so the session sends a beat at
		// once.
		if now.since(last) >= s.ttl/beatsPerTTL || now.sleptSince(last) > sleepCheck {
			last = now
			s.sendBeat(now)
		}
		s.sendLazy(now.at)
		left := s.trustLeft(now)
		if left == 0 {
			break
		}
		timer.Reset(s.planCheck(now, min(left, max(s.ttl/beatsPerTTL-now.since(last), 0))))
		select {
		case <-timer.C:
		case <-s.wakeup:
		case <-s.ctx.Done():
		case <-s.c.rep.Done():
			s.lose(NodeStopped)
		}
	}
	s.awaitCancels()
	s.awaitHooks()
	s.guest.Ended()
	defer s.guest.Left()
	defer s.c.rep.Detach(s.id) // last: the cluster takes the Close from the session's owner
	switch s.endReason() {
	case SessionExpired, ClusterReplaced:
		// The cluster has ended the session already, or has itself ended.
	case NodeStopped:
		// Nobody has waited for the work yet, and a stopping node waits for a
		// short time only: then the keys are free when the TTL has passed.
		if s.awaitWork() {
			_ = s.proposeClose()
		}
	default:
		s.closeErr = s.proposeClose()
	}
}

// planCheck returns how long run may sleep after now: d, the time until the
// trust ends or the next beat is due, but not past the next sleepCheck and the time of
// the next sendLazy.
func (s *session) planCheck(now instant, d time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.grants)+len(s.waiters) > 0 {
		d = min(d, s.c.rep.NextLook(now.at, sleepCheck))
	}
	if due := s.cleanups.lazyDue; !due.IsZero() {
		d = min(d, max(due.Sub(now.at), 0))
	}
	s.nextCheck = now.at.Add(d)
	return d
}

// trustLeft returns for how long after now the session's grants may be trusted,
// or 0 if the session has ended. If the trust is spent, trustLeft ends the
// session.
func (s *session) trustLeft(now instant) time.Duration {
	s.mu.Lock()
	trust, due, over := s.trust, s.nextCheck, s.reason != 0
	s.mu.Unlock()
	if over {
		return 0
	}
	if left := trust.remaining(now); left > 0 {
		return left
	}
	s.lose(trust.lossReason(now, now.at.Sub(due)))
	return 0
}

// alive reports whether the session has not ended and its trust is open by the
// clocks. If the trust is spent, alive ends the session.
func (s *session) alive() bool { return s.trustLeft(s.c.now()) > 0 }

// beat is a keepalive without an answer yet.
type beat struct {
	sent   instant
	cancel context.CancelFunc
	stale  bool // a later beat was confirmed or replaced it
}

// sendBeat sends a keepalive, and does not wait for the answer.
func (s *session) sendBeat(now instant) {
	left := s.trustLeft(now)
	if left == 0 {
		return
	}
	s.mu.Lock()
	if len(s.beats) == beatsPerTTL {
		s.c.meter.BeatsFailed.Inc()
		s.dropBeats(s.beats[0].sent)
	}
	ctx, cancel := context.WithTimeout(s.ctx, left)
	b := &beat{sent: now, cancel: cancel}
	s.beats = append(s.beats, b)
	s.mu.Unlock()

	s.c.goTask(func() {
		err := s.c.rep.Beat(ctx, s.id)
		cancel()
		s.mu.Lock()
		stale := b.stale
		if i := slices.Index(s.beats, b); i >= 0 {
			s.beats = slices.Delete(s.beats, i, i+1)
		}
		s.mu.Unlock()
		s.handleBeatAnswer(b.sent, err, stale)
	})
}

// dropBeats cancels the beats sent no later than sent. The caller holds s.mu.
func (s *session) dropBeats(sent instant) {
	for len(s.beats) > 0 && !s.beats[0].sent.at.After(sent.at) {
		s.beats[0].stale = true
		s.beats[0].cancel()
		s.beats = s.beats[1:]
	}
}

// handleBeatAnswer handles the answer to a beat sent at sent.
func (s *session) handleBeatAnswer(sent instant, err error, stale bool) {
	if err != nil && !stale && !errors.Is(err, cluster.ErrStopped) {
		s.countBeatFailed()
	}
	switch {
	case err == nil:
		s.c.meter.Beats.Observe(s.c.now().since(sent))
		s.c.trace.beatConfirmed(s.c.clock.Now().Sub(sent.at))
		s.extendTrust(sent)
	case errors.Is(err, replica.ErrNoSession):
		s.lose(SessionExpired)
	case errors.Is(err, cluster.ErrStopped):
		s.lose(NodeStopped)
	case !stale && !s.hasEnded():
		// The window of trust does not change: its end ends the session unless
		// another beat is confirmed in time.
		s.c.trace.beatFailed(err)
	}
}

// extendTrust restarts the window of trust at sent, because a beat sent then is
// now confirmed. A window once over stays over, even if nobody has noticed yet.
func (s *session) extendTrust(sent instant) {
	if !s.alive() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if sent.since(s.trust.sent) > 0 {
		s.trust.sent = sent
		s.dropBeats(sent)
	}
}
