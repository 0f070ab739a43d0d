package locks

import (
	"time"

	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/internal/machine"
)

// event takes what the cluster tells of the session. It must not block.
func (s *session) handleEvent(e machine.Event) {
	switch e.Kind {
	case machine.EventGranted:
		s.handleGranted(e.Seq, machine.Outcome{
			Code:    machine.Granted,
			Token:   e.Token,
			Waiters: e.Waiters,
			Value:   e.Value,
			Unclean: e.Unclean,
		})
	case machine.EventRefused:
		s.handleRefused(e.Seq, machine.Outcome{Code: e.Code, Token: e.Token})
	case machine.EventAsked, machine.EventContended:
		s.handleNotice(e)
	case machine.EventLost:
		s.loseGrant(e.Seq, e.Key, e.Token, reasonOf(e.Reason))
	case machine.EventEnded:
		s.lose(reasonOf(e.Reason))
	}
}

// granted makes a waiter's lock, or upgrades one, if the session may still be
// trusted; if not the session ends, which frees the key. A grant that nobody
// waits for is a repeated one, or one that is being withdrawn.
func (s *session) handleGranted(seq uint64, out machine.Outcome) {
	if !s.alive() {
		return
	}
	s.mu.Lock()
	w := s.waiters[seq]
	if w == nil || s.draining || s.reason != 0 {
		s.mu.Unlock()
		return
	}
	var owed *cleanup
	if w.upgrades != nil {
		w.upgrades.noteUpgraded(out)
	} else {
		w.lock = s.newLock(w, out)
		if g := w.lock.g; w.early.lost != 0 {
			owed = g.releaseCleanup("")
			g.markLost(w.early.lost, nil) // nobody has its context yet
		}
	}
	s.resolve(w, out)
	s.mu.Unlock()
	// Its proposal may still be looking for a leader, to be told what is known.
	w.cancel(nil)
	if owed != nil {
		s.startCleanup(owed)
	}
}

// newLock makes the lock that w was granted. The caller holds s.mu.
func (s *session) newLock(w *waiter, out machine.Outcome) *Lock {
	g := &grant{
		s:          s,
		key:        w.key,
		seq:        w.seq,
		since:      time.Now(),
		firstToken: fence.Token(out.Token),
		token:      fence.Token(out.Token),
		mode:       w.cmd.Mode,
		unclean:    out.Unclean,
	}
	g.lock = &Lock{g: g, parent: w.parent}
	if w.cmd.Keys != nil {
		g.ensureRare().keys = w.cmd.Keys
	}
	if out.Value != "" {
		g.ensureRare().value = out.Value
	}
	s.grants[w.seq] = g
	s.c.trace.acquired(LockEvent{Key: g.key, Token: g.token, Took: g.since.Sub(w.since)})
	if w.early.asked {
		g.noteAsked(w.early.by)
	}
	if w.early.contended || out.Waiters > 0 {
		g.noteContended()
	}
	return g.lock
}

// refused ends a wait that the cluster refused late.
func (s *session) handleRefused(seq uint64, out machine.Outcome) {
	s.mu.Lock()
	w := s.waiters[seq]
	if w == nil {
		s.mu.Unlock()
		return
	}
	s.resolve(w, out)
	s.mu.Unlock()
	w.cancel(nil)
}

// noted takes what the holder of a grant is to know.
func (s *session) handleNotice(e machine.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.grants[e.Seq]; g != nil {
		g.raiseToken(e.Token)
		if e.Kind == machine.EventAsked {
			g.noteAsked(e.By)
		} else {
			g.noteContended()
		}
		return
	}
	if w := s.waiters[e.Seq]; w != nil {
		if e.Kind == machine.EventAsked {
			w.early.asked, w.early.by = true, e.By
		} else {
			w.early.contended = true
		}
	}
}

// loseGrant ends one grant, the seq of whose request is given. One that was broken
// is freed in the cluster as soon as its locks have ended: that it is, tells the
// cluster that nobody believes in it any more. This goes also for one that is not
// known here: its lock was released or ended by Close before.
func (s *session) loseGrant(seq uint64, key string, token machine.Token, reason Reason) {
	s.mu.Lock()
	g := s.grants[seq]
	if w := s.waiters[seq]; w != nil && g == nil {
		w.early.lost = reason // the answer that it was granted is still to come
		s.mu.Unlock()
		return
	}
	if g == nil && token == 0 {
		s.mu.Unlock()
		return // it has ended, and whoever ended it has seen to the rest
	}
	d := &cleanup{keys: []string{key}, token: fence.Token(token)}
	var cancels []func()
	if g != nil {
		g.raiseToken(token)
		d = g.releaseCleanup("")
		cancels = g.markLost(reason, nil)
	}
	owed := reason != Broken || s.releaseIsPending(d.keys[0], d.token)
	s.unlockAndCancel(cancels)
	if !owed {
		s.startCleanup(d)
	}
}

func reasonOf(r machine.Reason) Reason {
	switch r {
	case machine.Closed:
		return ClientClosed
	case machine.Broken:
		return Broken
	}
	return SessionExpired
}
