package locks

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
)

const (
	// A session is beaten for this often in a TTL. With as many beats under
	// way, the oldest is given up for the next: none is held up by another.
	beatsPerTTL = 3

	// While something is held or waited for, the clocks are looked at this
	// often: a suspended host's timers stand still, so that none can be set for
	// the moment at which a sleep has used up the trust.
	sleepCheck = 100 * time.Millisecond
)

// session is a client's session from the moment it was opened until it ends,
// which it does once and for good.
type session struct {
	c   *Client
	id  machine.SessionID
	ttl time.Duration

	// ctx ends when the session does.
	ctx    context.Context
	cancel context.CancelFunc

	wakeup     chan struct{} // size 1: look at the clocks again
	closed   chan struct{} // closed when run has returned
	closeErr error         // what telling the cluster came to; read once closed is closed

	// mu is never held over a wait, nor while anything of a user's runs.
	mu       sync.Mutex
	trust    trust
	reason   Reason // 0 as long as the session lives
	draining bool   // the client is closing: nothing more is granted
	lastSeq  uint64
	cancelling   int       // who is cancelling the contexts of ended locks just now
	cancelled    sync.Cond // ending has fallen
	waiters  map[uint64]*waiter
	grants   map[uint64]*grant // by the seqs of their requests, since tokens may rise
	entries  map[ownerEntryName]*ownerEntry
	seen     []uint64  // seqs to be told as seen with the next command
	beats    []*beat   // under way, the oldest first
	nextCheck     time.Time // when run means to look at the clocks next
	cleanups cleanups
}

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

func newSessionID() (id machine.SessionID) {
	_, _ = rand.Read(id[:]) // never fails
	return id
}

func newSession(c *Client, id machine.SessionID, t trust) *session {
	s := &session{
		c:       c,
		id:      id,
		ttl:     t.ttl,
		wakeup:    make(chan struct{}, 1),
		closed:  make(chan struct{}),
		trust:   t,
		waiters: make(map[uint64]*waiter),
		grants:  make(map[uint64]*grant),
		entries: make(map[ownerEntryName]*ownerEntry),
	}
	s.cancelled.L = &s.mu
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// unlockAndCancel unlocks s.mu, which the caller holds, and runs what cancels the
// contexts of locks that it has marked as ended.
func (s *session) unlockAndCancel(cancels []func()) {
	if len(cancels) == 0 {
		s.mu.Unlock()
		return
	}
	s.cancelling++
	s.mu.Unlock()
	for _, cancel := range cancels {
		cancel()
	}
	s.mu.Lock()
	s.cancelling--
	s.cancelled.Broadcast()
	s.mu.Unlock()
}

// awaitCancels waits until the contexts of all locks that were marked as ended
// have ended, whoever marked them. Only then may the cluster be told that a key is
// free: a goroutine that sees a mark may be faster than the one that made it.
func (s *session) awaitCancels() {
	s.mu.Lock()
	for s.cancelling > 0 {
		s.cancelled.Wait()
	}
	s.mu.Unlock()
}

// run beats until the session ends, ends it when its trust is spent or its node
// stops, and then tells the cluster, so that the keys are free early.
func (s *session) run() {
	defer close(s.closed)
	// The first beat is due a third of a TTL after the session was asked for.
	last := s.trust.sent
	timer := time.NewTimer(0)
	defer timer.Stop()
	for s.ctx.Err() == nil {
		now := s.c.now()
		// A host that slept has missed beats: it beats at once.
		if now.since(last) >= s.ttl/beatsPerTTL || now.sleptSince(last) > sleepCheck {
			last = now
			s.sendBeat(now)
		}
		d, ok := s.checkTrust(now, s.ttl/beatsPerTTL-now.since(last))
		if !ok {
			break
		}
		timer.Reset(d)
		select {
		case <-timer.C:
		case <-s.wakeup:
		case <-s.ctx.Done():
		case <-s.c.rep.Done():
			s.lose(NodeStopped)
		}
	}
	s.c.rep.Detach(s.id)
	switch s.endReason() {
	case SessionExpired, NodeStopped:
		// It is gone already, or cannot be told.
	default:
		s.closeErr = s.proposeClose()
	}
}

// look ends the session if its trust is spent. If not it returns how long run
// may sleep: until the trust ends or the next beat is due.
func (s *session) checkTrust(now instant, due time.Duration) (time.Duration, bool) {
	s.mu.Lock()
	left := s.trust.remaining(now)
	d := min(left, max(due, 0))
	if len(s.grants)+len(s.waiters) > 0 {
		d = min(d, sleepCheck)
	}
	over := s.reason != 0
	if left > 0 {
		s.nextCheck = now.at.Add(d)
	}
	s.mu.Unlock()
	if over || left > 0 {
		return d, !over
	}
	s.loseTrust(now)
	return 0, false
}

// expire ends the session because its trust is spent.
func (s *session) loseTrust(now instant) {
	s.mu.Lock()
	reason := s.trust.lossReason(now, now.at.Sub(s.nextCheck))
	s.mu.Unlock()
	s.lose(reason)
}

// alive reports whether the session lives and its trust is open by the clocks,
// ending it if it is not.
func (s *session) alive() bool {
	now := s.c.now()
	s.mu.Lock()
	left, over := s.trust.remaining(now), s.reason != 0
	s.mu.Unlock()
	if over {
		return false
	}
	if left <= 0 {
		s.loseTrust(now)
		return false
	}
	return true
}

// over reports whether the session has ended, without a look at the clocks.
func (s *session) hasEnded() bool { return s.endReason() != 0 }

func (s *session) endReason() Reason {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reason
}

// lose ends the session, and all its locks and waits with it. The first reason
// counts. When it returns, or any other call finds the session ended, the state
// of its locks says so; their contexts are cancelled before it returns.
func (s *session) lose(reason Reason) {
	s.mu.Lock()
	if s.reason != 0 {
		s.mu.Unlock()
		return
	}
	s.reason = reason
	cancels := s.loseGrants(reason)
	waiters := s.removeAllWaiters()
	s.c.trace.sessionLost(reason)
	s.unlockAndCancel(cancels)

	for _, w := range waiters {
		w.cancel(&SessionError{Key: w.key, Reason: reason})
	}
	s.cancel()
}

// endLocks marks all locks as lost and returns what cancels their contexts. The
// caller holds s.mu.
func (s *session) loseGrants(reason Reason) []func() {
	var cancels []func()
	grants := slices.Collect(maps.Values(s.grants))
	// In the order of the grants, for the Trace.
	slices.SortFunc(grants, func(a, b *grant) int { return cmp.Compare(a.token, b.token) })
	for _, g := range grants {
		cancels = g.markLost(reason, cancels)
	}
	return cancels
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

// shut ends all locks and waits because the client is closing, but not the
// session: it beats on until the works have returned, so that no key is freed
// under one of them.
func (s *session) drain() {
	s.mu.Lock()
	if s.reason != 0 || s.draining {
		s.mu.Unlock()
		return
	}
	s.draining = true
	cancels := s.loseGrants(ClientClosed)
	var waits []context.CancelCauseFunc
	for _, w := range s.waiters {
		waits = append(waits, w.cancel)
	}
	s.unlockAndCancel(cancels)
	for _, cancel := range waits {
		cancel(ErrClosed)
	}
}

// close ends the session, waits for its goroutine, and returns whether the
// cluster heard.
func (s *session) close() error {
	s.lose(ClientClosed)
	<-s.closed
	return s.closeErr
}

// tellClosed has the cluster close the session, which frees all its keys in one
// step. It is bounded, since the cluster expires what it does not hear of, but by
// nobody's context: Close goes on when its caller has left.
func (s *session) proposeClose() error {
	s.awaitCancels()
	ctx, cancel := context.WithTimeout(context.Background(), grace(s.ttl))
	defer cancel()
	out, err := s.c.rep.Propose(ctx, machine.Close{Session: s.id})
	if err == nil && out.Code != machine.OK && out.Code != machine.NoSession {
		err = outcomeError("close a session", out)
	}
	if err != nil {
		if ctx.Err() != nil {
			err = notInTime(err)
		}
		return fmt.Errorf("locks: close: the cluster did not hear, keys may stay taken for up to %v: %w", s.ttl, err)
	}
	return nil
}

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

func reasonOf(r machine.Reason) Reason {
	switch r {
	case machine.Closed:
		return ClientClosed
	case machine.Broken:
		return Broken
	}
	return SessionExpired
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

// beat is one keepalive under way.
type beat struct {
	sent   instant
	cancel context.CancelFunc
	stale  bool // a later one made it needless
}

// beat sends a keepalive, and does not wait for the answer.
func (s *session) sendBeat(now instant) {
	s.mu.Lock()
	left := s.trust.remaining(now)
	if s.reason != 0 || left <= 0 {
		s.mu.Unlock()
		return
	}
	if len(s.beats) == beatsPerTTL {
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

// dropBeats gives up the beats sent no later than sent. The caller holds s.mu.
func (s *session) dropBeats(sent instant) {
	for len(s.beats) > 0 && !s.beats[0].sent.at.After(sent.at) {
		s.beats[0].stale = true
		s.beats[0].cancel()
		s.beats = s.beats[1:]
	}
}

// beaten takes the answer to a beat sent at sent.
func (s *session) handleBeatAnswer(sent instant, err error, stale bool) {
	switch {
	case err == nil:
		s.extendTrust(sent)
	case errors.Is(err, replica.ErrNoSession):
		s.lose(SessionExpired)
	case errors.Is(err, cluster.ErrStopped):
		s.lose(NodeStopped)
	case !stale && !s.hasEnded():
		// The window is left as it is: it ends the session unless another beat
		// is confirmed in time.
		s.c.trace.beatFailed(err)
	}
}

// confirm opens the window anew from sent, when a beat was sent that is now
// confirmed. A window that is over stays so, even if nobody noticed yet.
func (s *session) extendTrust(sent instant) {
	now := s.c.now()
	s.mu.Lock()
	if s.reason != 0 {
		s.mu.Unlock()
		return
	}
	if s.trust.remaining(now) <= 0 {
		s.mu.Unlock()
		s.loseTrust(now)
		return
	}
	if sent.since(s.trust.sent) > 0 {
		s.trust.sent = sent
		s.dropBeats(sent)
	}
	s.mu.Unlock()
}

// propose sends a command with what there is to be told as seen, and keeps that
// for the next if it may not have arrived.
func (s *session) propose(ctx context.Context, command func(seen []uint64) machine.Command) (machine.Outcome, error) {
	s.mu.Lock()
	n := min(len(s.seen), machine.MaxSeen)
	seen := slices.Clone(s.seen[:n])
	if s.seen = s.seen[n:]; len(s.seen) == 0 {
		s.seen = nil
	}
	s.mu.Unlock()

	out, err := s.c.rep.Propose(ctx, command(seen))
	if n > 0 && (err != nil || out.Code == machine.BadCommand || out.Code == machine.WrongFormat) {
		s.mu.Lock()
		s.seen = append(s.seen, seen...)
		s.mu.Unlock()
	}
	return out, err
}

// poke makes run look at the clocks.
func (s *session) wakeRun() {
	select {
	case s.wakeup <- struct{}{}:
	default:
	}
}
