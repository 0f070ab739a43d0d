package locks

import (
	"context"
	"time"

	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/internal/machine"
)

// handleEvent handles an event from the cluster for the session, and must not
// block.
func (s *session) handleEvent(e machine.Event) {
	if e.Kind != machine.EventEnded && s.hasEnded() {
		return // the cluster hears of the end now, and all locks have ended
	}
	switch e.Kind {
	case machine.EventGranted:
		s.handleGranted(e.Seq, machine.Outcome{
			Code:    machine.Granted,
			Token:   e.Token,
			Waiters: e.Waiters,
			Value:   e.Value,
			Unclean: e.Unclean,
			Block:   e.Block,
		})
	case machine.EventRefused:
		s.handleRefused(e.Seq, machine.Outcome{Code: e.Code, Token: e.Token, Limit: e.Limit})
	case machine.EventAsked, machine.EventContended:
		s.handleNotice(e)
	case machine.EventPart:
		s.handlePart(e)
	case machine.EventLost:
		s.loseGrant(e.Seq, e.Key, e.Token, reasonOf(e.Reason))
	case machine.EventRevoked:
		s.lose(reasonOf(e.Reason)) // run closes the session in answer
	case machine.EventEnded:
		s.lose(reasonOf(e.Reason))
		if e.Reason == machine.Moved {
			// The node tells others that nothing here trusts the cluster any more.
			// Another goroutine may have begun to end the session.
			s.awaitCancels()
		}
	}
}

// handleGranted makes the waiter's lock, or upgrades the waiter's grant. If the
// session can no longer be trusted, the session ends instead, and so the key is
// freed. A grant without a waiter is a repeated event, or is being withdrawn.
func (s *session) handleGranted(seq uint64, out machine.Outcome) {
	if !s.alive() {
		return
	}
	s.mu.Lock()
	w := s.waiters[seq]
	if w == nil || s.refusal() != nil {
		s.mu.Unlock()
		return
	}
	var release *cleanup
	if w.upgrades != nil {
		w.upgrades.noteUpgraded(out)
	} else {
		w.lock = s.newLock(w, out)
		if g := w.lock.g; w.early.lost != 0 {
			release = g.releaseCleanup("")
			g.markLost(w.early.lost, nil) // no caller has its context yet
		}
	}
	s.resolve(w, out)
	s.mu.Unlock()
	if release != nil {
		s.startCleanup(release)
	}
}

// newLock makes the grant and the lock of w. The caller holds s.mu.
func (s *session) newLock(w *waiter, out machine.Outcome) *Lock {
	g := newGrant()
	*g = grant{
		s:          s,
		lock:       g.lock,
		key:        w.key,
		seq:        w.seq,
		since:      time.Now(),
		firstToken: fence.Token(out.Token),
		token:      fence.Token(out.Token),
		mode:       w.cmd.Mode,
		call:       w.call,
		lazy:       w.options&(optLazy|optSticky) != 0,
		sticky:     w.options&optSticky != 0,
		unclean:    out.Unclean,
	}
	if g.sticky && out.Block > 0 {
		g.kept = newKept(w, out)
	}
	s.addGrant(g, w.parent, &w.acquireRequest)
	if w.cmd.Keys != nil {
		g.ensureRare().keys = w.cmd.Keys
	}
	if out.Value != "" {
		g.ensureRare().value = out.Value
	}
	s.noteGranted(g, &w.acquireRequest)
	if w.early.asked {
		g.noteAsked(w.early.by)
	}
	if w.early.contended || out.Waiters > 0 {
		g.noteContended()
	}
	return g.lock
}

// addGrant makes the first lock of g, the grant of req. The caller holds s.mu.
func (s *session) addGrant(g *grant, parent context.Context, req *acquireRequest) {
	g.lock.g, g.lock.parent = g, parent
	if req.traced != nil {
		g.ensureRare().traced = req.traced
	}
	if req.series != nil {
		g.ensureRare().series = req.series
	}
}

// noteGranted adds g, the grant of req, to the session's grants. The caller holds s.mu.
func (s *session) noteGranted(g *grant, req *acquireRequest) {
	s.grants[g.seq] = g
	s.own.addGrant(g)
	took := g.since.Sub(req.began)
	g.countGranted(took)
	s.c.trace.acquired(g.traceCtx(), g.event(LockEvent{Took: took}))
}

// handleRefused ends the wait of a request that was queued first and then
// refused.
func (s *session) handleRefused(seq uint64, out machine.Outcome) {
	s.mu.Lock()
	w := s.waiters[seq]
	if w == nil {
		s.mu.Unlock()
		return
	}
	s.resolve(w, out)
	s.mu.Unlock()
}

// handleNotice handles the news for a holder: the grant is contended, or a
// client has called Ask.
func (s *session) handleNotice(e machine.Event) {
	s.mu.Lock()
	g, w := s.grants[e.Seq], s.waiters[e.Seq]
	if g == nil && w == nil {
		s.unlockAndGiveBack(e)
		return
	}
	defer s.mu.Unlock()
	if g != nil {
		g.raiseToken(e.Token)
	}
	switch asked := e.Kind == machine.EventAsked; {
	case g != nil && asked:
		g.noteAsked(e.By)
	case g != nil:
		g.noteContended()
	case w != nil && asked:
		w.early.asked, w.early.by = true, e.By
	case w != nil:
		w.early.contended = true
	}
}

// loseGrant ends the grant of the request seq. If the grant was broken,
// loseGrant also releases the grant in the cluster, as soon as the locks have
// ended: the release tells the cluster that no lock of this grant is trusted
// any more. If Release or Close has ended the grant before, nothing is known of
// the grant here; loseGrant releases the grant all the same.
func (s *session) loseGrant(seq uint64, key string, token machine.Token, reason Reason) {
	s.mu.Lock()
	g := s.grants[seq]
	s.forgetKept(key, seq)
	if w := s.waiters[seq]; w != nil && g == nil {
		w.early.lost = reason // the answer with the grant has not arrived yet
		s.mu.Unlock()
		return
	}
	if g == nil && token == 0 {
		s.mu.Unlock()
		return // the grant has ended, and the rest was done then
	}
	d := &cleanup{ctx: context.Background(), keys: []string{key}, token: fence.Token(token)}
	var cancels []func()
	if g != nil {
		g.raiseToken(token)
		d = g.releaseCleanup("")
		cancels = g.markLost(reason, nil)
	}
	// Also if the grant has ended before: Close ends locks and frees their keys later, and
	// a Break may come between.
	d.hooks = s.hooksOf(seq)
	done := reason != Broken || s.releaseIsPending(d.keys[0], d.token)
	s.unlockAndCancel(cancels)
	if !done {
		s.startCleanup(d)
	}
}

// reasonOf converts the machine's reason to this package's.
func reasonOf(r machine.Reason) Reason {
	switch r {
	case machine.Closed:
		return ClientClosed
	case machine.Broken:
		return Broken
	case machine.Moved:
		return ClusterReplaced
	case machine.Revoked:
		return SessionEnded
	}
	return SessionExpired
}
