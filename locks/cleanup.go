package locks

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
)

// A caller may give up a wait, or fail to release a grant. The cluster must
// still be told. The caller cannot wait, since the caller's context has ended;
// and the client must not forget, since the key would stay taken for as long as
// the session's beats arrive. So each session tells the cluster in the
// background.

// cleanup is a command to free a grant or withdraw a request of this client.
type cleanup struct {
	ctx         context.Context // for Trace
	call        Call            // of the request
	keys        []string
	value       *machine.SetValue // to be stored first; nil once the cluster has answered
	token       fence.Token       // the grant to release; 0: withdraw seq
	seq         uint64            // the request to withdraw; 0: nothing but the value
	successor   string            // if not empty: release to this client, if it waits
	noSuccessor error             // why there was no release to successor
	upgraded    *grant            // the grant that the withdrawn request was to upgrade
	hooks       []*lossHook       // to return before the grant is released
	more        []*cleanup        // further withdrawals that go in the same command
	since       time.Time         // of a lazy release: when it was noted
	noted       bool              // a lazy release that waits to be taken along or sent
	carried     int               // the requests under way that take a lazy release along
	settled     bool              // the cluster has answered, or the session has ended
	done        chan struct{}     // closed when the cluster has answered or the session has ended
}

// command returns the command to propose.
func (d *cleanup) command(id machine.SessionID, seen []uint64) machine.Command {
	if d.value != nil {
		v := *d.value
		v.Seen = seen
		return v
	}
	if d.token == 0 {
		c := machine.Withdraw{Session: id, Seq: d.seq, Seen: seen}
		for _, o := range d.more {
			c.More = append(c.More, o.seq)
		}
		return c
	}
	return machine.Release{Session: id, Token: machine.Token(d.token), To: d.successor, Seen: seen}
}

// retryWithoutSuccessor reports whether the release must be sent again without
// a successor, because that client was not waiting or a member does not know of
// successors. If so, retryWithoutSuccessor clears d.successor and keeps the
// reason in d.noSuccessor.
func (d *cleanup) retryWithoutSuccessor(out machine.Outcome, err error) bool {
	switch {
	case d.successor == "":
		return false
	case unknownToCluster(out, err):
		d.noSuccessor = ErrVersion
	case err != nil:
		return false
	case out.Code == machine.NoSuccessor:
		d.noSuccessor = ErrNoSuccessor
	default:
		return false
	}
	d.successor = ""
	return true
}

// valueAnswered reports whether the command of the value was answered, with the
// session still open, so that the cleanup goes on with the rest. A refusal is final
// too: the grant was broken, or the cluster has no room.
func (s *session) valueAnswered(d *cleanup, out machine.Outcome, err error) bool {
	if d.value == nil || err != nil || out.Code == machine.NoSession {
		return false
	}
	s.mu.Lock()
	delete(s.cleanups.owed, d.value)
	s.mu.Unlock()
	d.value = nil
	return true
}

// owe stores cmd, a value of l's grant, in the background, before the grant is
// released. If l has ended, the release is under way or the session's end will free
// the key: then the value goes alone.
func (l *Lock) owe(cmd *machine.SetValue) {
	s := l.g.s
	s.mu.Lock()
	ended := l.ended != nil
	if !ended {
		l.g.ensureRare().owed = cmd
	}
	s.mu.Unlock()
	if ended {
		s.startCleanup(&cleanup{ctx: l.g.traceCtx(), call: l.g.call, keys: l.g.keys(), value: cmd})
	}
}

// proposeOwed stores the values that no cleanup has stored, before the session is
// closed: see proposeClose. A second copy of a value changes nothing.
func (s *session) proposeOwed(ctx context.Context) {
	s.mu.Lock()
	owed := slices.Collect(maps.Keys(s.cleanups.owed))
	clear(s.cleanups.owed)
	s.mu.Unlock()
	for _, cmd := range owed {
		_, _ = s.c.rep.Propose(ctx, *cmd)
	}
}

const (
	maxCleanupWorkers = 256 // concurrent cleanups of a session
	maxWithdrawing    = 2   // of them: commands that withdraw waits
)

// cleanups are the unanswered cleanups of a session, guarded by the session's
// mu.
type cleanups struct {
	queue       []*cleanup                       // not yet taken by a worker
	withdrawals []*cleanup                       // the same, of waits
	lazy        []*cleanup                       // noted releases, the oldest first: see lazy.go
	lazyDue     time.Time                        // when run looks at lazy next; zero: not before another release is noted
	workers     int                              // goroutines that run runCleanups
	withdrawing int                              // commands under way that withdraw waits
	byKey       map[string]map[*cleanup]struct{} // by each of their keys: noted, queued and running
	owed        map[*machine.SetValue]struct{}   // values of cleanups without an answer
}

// startCleanup sends d in the background, until the cluster has answered or the
// session has ended. The end of the session frees everything.
func (s *session) startCleanup(d *cleanup) {
	s.mu.Lock()
	if d.value != nil {
		s.cleanups.owed[d.value] = struct{}{}
	}
	if s.reason != 0 {
		s.mu.Unlock()
		return
	}
	s.cleanups.register(d)
	s.unlockAndSend([]*cleanup{d})
}

// register makes d known to requests for its keys, until settle.
func (cl *cleanups) register(d *cleanup) {
	d.done = make(chan struct{})
	for _, key := range d.keys {
		if cl.byKey[key] == nil {
			cl.byKey[key] = make(map[*cleanup]struct{})
		}
		cl.byKey[key][d] = struct{}{}
	}
}

// enqueue puts d, which is registered, into the queue, and reports whether the caller must
// start another worker.
func (cl *cleanups) enqueue(d *cleanup) (start bool) {
	if d.withdrawsWait() {
		cl.withdrawals = append(cl.withdrawals, d)
		// Otherwise the workers that withdraw come back for the rest.
		start = cl.withdrawing < maxWithdrawing || len(cl.withdrawals)%(1+machine.MaxWithdrawn) == 0
	} else {
		cl.queue = append(cl.queue, d)
		start = true
	}
	if start = start && cl.workers < maxCleanupWorkers; start {
		cl.workers++
	}
	return start
}

// mayWithdraw reports whether a worker may take withdrawals of waits: there are some, and
// they fill a command, or few commands are under way.
func (cl *cleanups) mayWithdraw() bool {
	n := len(cl.withdrawals)
	return n > machine.MaxWithdrawn || n > 0 && cl.withdrawing < maxWithdrawing
}

// runCleanups applies the cleanups of the queue, until the queue is empty.
func (s *session) runCleanups() {
	cl := &s.cleanups
	s.mu.Lock()
	for d := cl.take(); d != nil; d = cl.take() {
		withdraws := d.withdrawsWait()
		s.mu.Unlock()
		s.applyCleanup(d)
		s.mu.Lock()
		if withdraws {
			cl.withdrawing--
		}
		cl.settle(d)
		for _, o := range d.more {
			cl.settle(o)
		}
	}
	cl.workers--
	s.mu.Unlock()
}

// take removes the oldest cleanup from the queue and returns it, or nil if there is none for
// this worker. Withdrawals of waits go first, as many as a command may have together. While
// maxWithdrawing such commands are under way, fewer stay behind and gather: when a caller
// gives up thousands of waits, the client's next request for the key waits for a few commands
// and not for thousands.
func (cl *cleanups) take() *cleanup {
	if !cl.mayWithdraw() {
		if len(cl.queue) == 0 {
			return nil
		}
		d := cl.queue[0]
		cl.queue = cl.queue[1:]
		return d
	}
	d := cl.withdrawals[0]
	keys, n := len(d.keys), 1
	for ; n < len(cl.withdrawals) && n <= machine.MaxWithdrawn; n++ {
		if keys += len(cl.withdrawals[n].keys); keys > machine.MaxWithdrawnKeys {
			break
		}
	}
	d.more = slices.Clone(cl.withdrawals[1:n])
	cl.withdrawals = cl.withdrawals[n:]
	cl.withdrawing++
	return d
}

// withdrawsWait reports whether d withdraws an acquire. The withdrawal of an upgrade
// goes alone, since its answer has the token.
func (d *cleanup) withdrawsWait() bool {
	return d.value == nil && d.token == 0 && d.upgraded == nil
}

// settle forgets d, which the cluster has answered, or which the end of the session
// has made needless. Of a release that several requests take along the first answer counts.
func (cl *cleanups) settle(d *cleanup) {
	if d.settled {
		return
	}
	d.settled = true
	for _, key := range d.keys {
		if of := cl.byKey[key]; len(of) > 1 {
			delete(of, d)
		} else {
			delete(cl.byKey, key)
		}
	}
	close(d.done)
}

// applyCleanup sends d, again after each failure, and returns when the cluster
// has answered or the session has ended.
func (s *session) applyCleanup(d *cleanup) {
	s.awaitCancels()
	awaitDone(d.hooks, grace(s.ttl))
	var retry backoff
	for s.ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(s.ctx, grace(s.ttl))
		out, err := s.propose(ctx, func(seen []uint64) machine.Command { return d.command(s.id, seen) })
		cancel()
		switch {
		case s.valueAnswered(d, out, err):
			if d.token == 0 && d.seq == 0 {
				return
			}
			continue
		case d.retryWithoutSuccessor(out, err):
			continue
		case err != nil:
		case out.Code == machine.OK, out.Code == machine.NotHeld:
			if d.upgraded != nil && out.Token != 0 {
				s.mu.Lock()
				d.upgraded.raiseToken(out.Token)
				s.mu.Unlock()
			}
			return
		default:
			// The session is gone in the cluster, or has too many requests for
			// the table. The session ends, and so do the session's cleanups.
			s.lose(SessionExpired)
			return
		}
		if s.ctx.Err() != nil {
			return
		}
		s.c.meter.CleanupsFailed.Inc()
		s.c.trace.cleanupFailed(d.ctx, LockEvent{Key: d.keys[0], Call: d.call, Token: d.token, Err: err})
		_ = retry.wait(s.ctx, s.ctx)
	}
}

// releaseIsPending reports whether a cleanup is about to release the grant of
// key with the given token. The caller holds s.mu.
func (s *session) releaseIsPending(key string, token fence.Token) bool {
	for d := range s.cleanups.byKey[key] {
		if d.token == token {
			return true
		}
	}
	return false
}

// awaitCleanups waits until the cluster has answered all of this session's
// cleanups for keys: a new request must not meet the remains of an earlier one. Noted
// releases of the keys are sent.
func (s *session) awaitCleanups(ctx context.Context, keys []string) error {
	pending := make(map[*cleanup]struct{})
	s.mu.Lock()
	for _, key := range keys {
		maps.Copy(pending, s.cleanups.byKey[key])
	}
	s.unlockAndSend(s.cleanups.removeLazy(func(d *cleanup) bool { _, is := pending[d]; return is }))
	ended, alsoEnded := replica.Ends(ctx)
	for d := range pending {
		select {
		case <-d.done:
		case <-s.ctx.Done():
			return nil
		case <-s.c.closing.Done():
			return ErrClosed
		case <-ended:
			return s.c.whyEnded(ctx)
		case <-alsoEnded:
			return s.c.whyEnded(ctx)
		}
	}
	return nil
}
