package locks

import (
	"context"
	"sync"
	"time"

	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
)

// waiter is a request without a final answer yet, and its waiting call.
type waiter struct {
	acquireRequest
	seq      uint64
	parent   context.Context // of the lock to be made
	upgrades *grant          // the grant that the request upgrades; nil for an acquire

	bound replica.Either // the context of the waiting call; ends with the caller's, and with ended
	ended chan struct{}  // closed when verdict is set, or when the call must end without one
	once  sync.Once      // closes ended
	why   error          // set before ended is closed: why the call must end; nil with a verdict

	// Guarded by the session's mu.
	verdict machine.Outcome // Granted, or the code of a late refusal
	lock    *Lock           // the lock that was granted
	early   earlyEvents

	// The cluster's latest word on the queue, for a WaitError.
	position int
	inTheWay machine.Holder
}

// newWaiter returns the waiter of a call under ctx. The caller closes w.bound.
func newWaiter(ctx, parent context.Context, req acquireRequest) *waiter {
	w := &waiter{acquireRequest: req, parent: parent, ended: make(chan struct{})}
	w.bound.Begin(ctx, w)
	return w
}

// end ends the call of w: because of a verdict, or for the cause why.
func (w *waiter) end(why error) {
	w.once.Do(func() {
		w.why = why
		close(w.ended)
	})
}

// Done implements replica.Ender.
func (w *waiter) Done() <-chan struct{} { return w.ended }

// Err implements replica.Ender.
func (w *waiter) Err() error {
	select {
	case <-w.ended:
		if w.why == nil {
			return context.Canceled
		}
		return w.why
	default:
		return nil
	}
}

// earlyEvents are the events about a grant that arrived before the grant did:
// events overtake answers.
type earlyEvents struct {
	asked     bool
	by        string // the client that asked
	contended bool
	lost      Reason
}

// register completes w, with a new seq, and adds w to the session's waiters. This
// comes before the proposal, since the event of the grant may overtake the
// answer. The proposal of an Acquire, for keys, takes the releases freed along.
//
// The error is errCleanups if a release of the keys is on its way by itself, as of a call
// that gave up, or in another call's proposal. The request could overtake such a release and
// meet the session's own grant.
func (s *session) register(w *waiter, keys []string) (freed []*cleanup, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.refusal(); err != nil {
		return nil, err
	}
	if w.upgrades == nil {
		if !s.cleanups.canTake(keys) {
			return nil, errCleanups
		}
		var load freedLoad
		own := s.cleanups.chooseLazy(keys, &load) // all that canTake has counted
		kept := s.takeKept(w, keys, &load)
		freed = append(s.cleanups.takeLazy(own, &load), kept...)
	}
	s.lastSeq++
	w.seq = s.lastSeq
	s.waiters[w.seq] = w
	s.own.addWaiter(w)
	if len(s.waiters)+len(s.grants) == 1 {
		select { // from now on, run must read the clocks more often
		case s.wakeup <- struct{}{}:
		default:
		}
	}
	return freed, nil
}

// awaitVerdict handles out and err, the results of the proposal of w, and
// removes w. If out is Queued, awaitVerdict first waits until the verdict has
// come or ctx ends.
func (s *session) awaitVerdict(ctx context.Context, w *waiter, out machine.Outcome, err error) waitResult {
	switch {
	case err != nil:
	case out.Code == machine.Granted:
		s.handleGranted(w.seq, out)
	case out.Code == machine.Queued:
		s.mu.Lock()
		w.position, w.inTheWay = int(out.Behind), out.Holder
		s.mu.Unlock()
		s.traceQueue(ctx, w, out)
		called, ended := replica.Ends(ctx)
		select {
		case <-called:
		case <-ended:
		}
	}
	return s.removeWaiter(w, out, err)
}

// traceQueue calls Trace.Queued with the number of requests and holders before w, and
// with the first holder, at first and after each change, while w waits. out has queued
// w. If Trace.Queued is nil, traceQueue returns at once.
func (s *session) traceQueue(ctx context.Context, w *waiter, out machine.Outcome) {
	if s.c.trace.to().Queued == nil {
		return
	}
	told := LockEvent{Key: w.key, Call: w.call, Behind: int(out.Behind)}
	if h := out.Holder; h.Token != 0 && h.Key == "" {
		told.Holder = &Holder{Client: h.Client, Node: h.Node, Token: fence.Token(h.Token)}
	}
	tell := func() {
		told.Took = time.Since(w.began)
		s.c.trace.queued(w.traceCtx(w.parent), told)
	}
	tell()
	metaTold := false
	q := replica.Query{Key: w.key, Session: s.id, Seq: w.seq, Waiters: 1}
	for a, err := range s.c.follow(ctx, q, neverFinal) {
		if err != nil || !a.Waits {
			return // if w has left the queue, its verdict is on the way
		}
		var now *Holder
		if holders := s.c.newStatus(a.Status).Holders; len(holders) > 0 {
			now = &holders[0]
		}
		changed := int(a.Behind) != told.Behind
		switch {
		case now == nil || told.Holder == nil:
			changed = changed || now != told.Holder
		case now.Token != told.Holder.Token:
			changed, metaTold = true, false
		}
		if now != nil && now.Meta != nil && !metaTold {
			changed, metaTold = true, true
		}
		if !changed {
			continue
		}
		s.mu.Lock()
		w.position = int(a.Behind)
		s.mu.Unlock()
		told.Behind, told.Holder = int(a.Behind), now
		tell()
	}
}

// resolve records the verdict on w, and adds the seq of w to the seqs to report
// as seen. The caller holds s.mu.
func (s *session) resolve(w *waiter, verdict machine.Outcome) {
	delete(s.waiters, w.seq)
	s.own.removeWaiter(w)
	s.seen = append(s.seen, w.seq)
	w.verdict = verdict
	w.end(nil) // the proposal may still be looking for a leader, although the verdict is known
}

// waitResult is the result of a waiter's call.
type waitResult struct {
	out       machine.Outcome
	err       error // of the proposal
	withdrawn bool  // the request was given up without a verdict
}

// removeWaiter removes w, because its call returns. out and err are the results
// of the proposal. A grant or a place in a queue that the call does not return
// is given back in the background.
func (s *session) removeWaiter(w *waiter, out machine.Outcome, err error) waitResult {
	s.mu.Lock()
	if w.verdict.Code != 0 {
		s.mu.Unlock()
		return waitResult{out: w.verdict}
	}
	delete(s.waiters, w.seq)
	s.own.removeWaiter(w)
	known := err == nil && (out.Code == machine.Granted || out.Code == machine.Queued || out.Code == machine.Withdrawn)
	o := waitResult{out: out, err: err, withdrawn: known || mayBeApplied(err)}
	if !o.withdrawn && out.Code != machine.NoSession {
		// Also if the seq was never used: a gap among the seqs costs the table
		// memory.
		s.seen = append(s.seen, w.seq)
	}
	if o.withdrawn && w.upgrades != nil {
		w.upgrades.tokenUnsure = true
	}
	s.mu.Unlock()
	if o.withdrawn {
		s.startCleanup(&cleanup{ctx: w.traceCtx(w.parent), call: w.call, keys: w.allKeys(), seq: w.seq, upgraded: w.upgrades})
	}
	return o
}
