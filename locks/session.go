package locks

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
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

	wakeup   chan struct{} // size 1: look at the clocks again
	closed   chan struct{} // closed when run has returned
	closeErr error         // what telling the cluster came to; read once closed is closed

	// mu is never held over a wait, nor while anything of a user's runs.
	mu         sync.Mutex
	trust      trust
	reason     Reason // 0 as long as the session lives
	draining   bool   // the client is closing: nothing more is granted
	lastSeq    uint64
	cancelling int       // who is cancelling the contexts of ended locks just now
	cancelled  sync.Cond // ending has fallen
	waiters    map[uint64]*waiter
	grants     map[uint64]*grant // by the seqs of their requests, since tokens may rise
	entries    map[ownerEntryName]*ownerEntry
	seen       []uint64  // seqs to be told as seen with the next command
	beats      []*beat   // under way, the oldest first
	nextCheck  time.Time // when run means to look at the clocks next
	cleanups   cleanups
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
		wakeup:  make(chan struct{}, 1),
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
