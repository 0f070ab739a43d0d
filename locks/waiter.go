package locks

import (
	"context"
	"slices"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
)

// waiter is a request that was not yet answered for good.
type waiter struct {
	acquireRequest
	seq      uint64
	since    time.Time
	parent   context.Context         // of the lock's context
	upgrades *grant                  // not nil: this is no request for a lock
	cancel   context.CancelCauseFunc // ends the call
	answered chan struct{}           // closed when verdict is set

	// Guarded by the session's mu.
	verdict machine.Outcome // Granted, or why it was refused late
	lock    *Lock           // what was granted
	early   earlyEvents
}

// early is what the cluster told of a grant before it told of the grant: events
// overtake answers.
type earlyEvents struct {
	asked     bool
	by        string // who asked
	contended bool
	lost      Reason
}

// register gives a waiter its seq, before the cluster hears of it: the grant may
// be told before the request is answered.
func (s *session) register(w *waiter) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.draining:
		return ErrClosed
	case s.reason != 0:
		return errNoSession
	}
	s.lastSeq++
	w.seq = s.lastSeq
	s.waiters[w.seq] = w
	if len(s.waiters)+len(s.grants) == 1 {
		s.wakeRun()
	}
	return nil
}

// await takes the cluster's first answer to w. If that is to wait, it waits, until
// the second has come or ctx ends.
func (s *session) awaitVerdict(ctx context.Context, w *waiter, out machine.Outcome) {
	switch out.Code {
	case machine.Granted:
		s.handleGranted(w.seq, out)
	case machine.Queued:
		s.traceQueue(ctx, w, int(out.Behind))
		select {
		case <-w.answered:
		case <-ctx.Done():
		}
	}
}

// answer notes the verdict on w, which is to be told as seen. The caller holds
// s.mu.
func (s *session) resolve(w *waiter, verdict machine.Outcome) {
	delete(s.waiters, w.seq)
	s.seen = append(s.seen, w.seq)
	w.verdict = verdict
	close(w.answered)
}

// outcome is what a waiter's call came to.
type waitResult struct {
	out       machine.Outcome
	err       error // of proposing it
	withdrawn bool  // it was given up without a verdict
}

// dismiss ends w's part, for its call returns: out and err are what proposing it
// came to. What the call does not return is given back, in the background.
func (s *session) removeWaiter(w *waiter, out machine.Outcome, err error) waitResult {
	s.mu.Lock()
	if w.verdict.Code != 0 {
		s.mu.Unlock()
		return waitResult{out: w.verdict}
	}
	delete(s.waiters, w.seq)
	o := waitResult{out: out, err: err}
	switch {
	case err != nil && mayBeApplied(err):
		o.withdrawn = true
	case err != nil:
		s.seen = append(s.seen, w.seq) // never used, but a gap among the seqs costs the table
	case out.Code == machine.Granted, out.Code == machine.Queued, out.Code == machine.Withdrawn:
		o.withdrawn = true
	case out.Code != machine.NoSession:
		s.seen = append(s.seen, w.seq)
	}
	if o.withdrawn && w.upgrades != nil {
		w.upgrades.tokenUnsure = true
	}
	s.mu.Unlock()
	if o.withdrawn {
		s.startCleanup(&cleanup{keys: w.allKeys(), seq: w.seq, upgraded: w.upgrades})
	}
	return o
}

// takeWaiters forgets all waiters and returns them, in the order of asking. The
// caller holds s.mu.
func (s *session) removeAllWaiters() []*waiter {
	waiters := make([]*waiter, 0, len(s.waiters))
	for _, w := range s.waiters {
		waiters = append(waiters, w)
	}
	clear(s.waiters)
	slices.SortFunc(waiters, func(a, b *waiter) int { return int(int64(a.seq) - int64(b.seq)) })
	return waiters
}
