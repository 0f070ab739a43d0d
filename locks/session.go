package locks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
)

// session is a client's session, from the opening until the end. A session ends
// once and for good.
type session struct {
	c      *Client
	id     machine.SessionID
	ttl    time.Duration
	opened time.Time

	guest *replica.Guest // the node waits for the session
	idle  chan struct{}  // closed when the session has ended and working is 0

	// ctx ends when the session ends.
	ctx    context.Context
	cancel context.CancelFunc

	wakeup   chan struct{} // size 1: makes run read the clocks
	closed   chan struct{} // closed when run has returned
	closeErr error         // the result of telling the cluster; read after closed is closed

	// mu is never held while waiting, nor while a user's code runs.
	mu         sync.Mutex
	trust      trust
	reason     Reason // 0 while the session lives
	draining   bool   // the client is closing: no more grants
	working    int    // number of functions that run under locks, for Do and the like
	lastSeq    uint64
	cancelling int       // number of goroutines that cancel contexts of ended locks now
	cancelled  sync.Cond // cancelling has become smaller
	waiters    map[uint64]*waiter
	kept       map[string]*kept  // keys of the option Sticky that no lock holds
	grants     map[uint64]*grant // by the seqs of their requests, since tokens may rise
	entries    map[ownerEntryName]*ownerEntry
	seen       []uint64  // seqs to report as seen with the next command
	beats      []*beat   // without an answer yet, the oldest first
	nextCheck  time.Time // when run plans to read the clocks
	cleanups   cleanups
	enlisted   map[uint64]*enlistment // by the seqs of their Enlists
	lostKeys   int                    // at the end of the session
	own        *ownIndex              // nil until the first page of it is read
	hooks      map[*lossHook]struct{} // of lost locks, until they have returned
}

// newSession returns a session that the cluster has opened under id. The caller
// starts run.
func newSession(c *Client, id machine.SessionID, t trust, guest *replica.Guest) *session {
	s := &session{
		c:       c,
		id:      id,
		guest:   guest,
		idle:    make(chan struct{}),
		ttl:     t.ttl,
		opened:  time.Now(),
		wakeup:  make(chan struct{}, 1),
		closed:  make(chan struct{}),
		trust:   t,
		waiters: make(map[uint64]*waiter),
		grants:  make(map[uint64]*grant),
		kept:    make(map[string]*kept),
		entries: make(map[ownerEntryName]*ownerEntry),
		hooks:   make(map[*lossHook]struct{}),

		cleanups: cleanups{byKey: make(map[string]map[*cleanup]struct{}), owed: make(map[*machine.SetValue]struct{})},
	}
	s.cancelled.L = &s.mu
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// unlockAndCancel unlocks s.mu, held by the caller, and calls cancels, the
// functions to cancel the contexts of locks marked as ended.
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

// awaitCancels waits until the contexts of all locks marked as ended have
// ended, no matter which goroutine marked them. Only then may the cluster be
// told that a key is free: the goroutine that marked a lock may be slower than
// another which has seen the mark.
func (s *session) awaitCancels() {
	s.mu.Lock()
	for s.cancelling > 0 {
		s.cancelled.Wait()
	}
	s.mu.Unlock()
}

// hasEnded reports whether the session has ended, without reading the clocks.
func (s *session) hasEnded() bool { return s.endReason() != 0 }

// endReason returns why the session ended, or 0 while the session lives.
func (s *session) endReason() Reason {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reason
}

// refusal returns the error of a new request if the session takes no more
// requests. The caller holds s.mu.
func (s *session) refusal() error {
	switch {
	case s.draining:
		return ErrClosed
	case s.reason != 0:
		return errNoSession
	}
	return nil
}

// lose ends the session, and all locks and waits with it. The first reason
// counts. When lose returns, or when any other call finds the session ended,
// all of its locks are marked as ended; their contexts are cancelled before
// lose returns.
func (s *session) lose(reason Reason) {
	s.mu.Lock()
	if s.reason != 0 {
		s.mu.Unlock()
		return
	}
	s.reason = reason
	if s.working == 0 {
		close(s.idle)
	}
	cancels := s.loseGrants(reason)
	s.lostKeys += len(s.kept)
	clear(s.kept)
	waiters := slices.SortedFunc(maps.Values(s.waiters), func(a, b *waiter) int { return cmp.Compare(a.seq, b.seq) })
	clear(s.waiters)
	s.c.meter.SessionsLost[reason].Inc()
	if s.own != nil {
		s.own.waits = machine.StringSet{}
	}
	s.c.trace.sessionLost(reason)
	s.unlockAndCancel(cancels)

	for _, w := range waiters {
		w.end(&SessionError{Key: w.key, Reason: reason})
	}
	s.cancel()
}

// loseGrants marks all grants and their locks as lost, and returns the
// functions to cancel their contexts. The caller holds s.mu.
func (s *session) loseGrants(reason Reason) []func() {
	// In the order of the grants, for the Trace.
	grants := slices.SortedFunc(maps.Values(s.grants), func(a, b *grant) int { return cmp.Compare(a.token, b.token) })
	var cancels []func()
	for _, g := range grants {
		s.lostKeys += len(g.keys())
		cancels = g.markLost(reason, cancels)
	}
	return cancels
}

// drain ends all locks and waits because the client is closing. The session
// itself continues to send beats until all work has returned, so that no key is
// freed while work under the key still runs.
func (s *session) drain() {
	s.mu.Lock()
	if s.reason != 0 || s.draining {
		s.mu.Unlock()
		return
	}
	s.draining = true
	cancels := s.loseGrants(ClientClosed)
	waiters := slices.Collect(maps.Values(s.waiters))
	s.unlockAndCancel(cancels)
	for _, w := range waiters {
		w.end(ErrClosed)
	}
}

// beginWork counts a function that runs under a lock of the session, until
// endWork. The result is false if the session has ended.
func (s *session) beginWork() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reason != 0 {
		return false
	}
	s.working++
	return true
}

func (s *session) endWork() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.working--
	if s.working == 0 && s.reason != 0 {
		close(s.idle)
	}
}

// awaitWork waits, for a TTL at most, until the work of Do, Elect, Spread and
// Once under the session's locks has returned. The result is false if work runs
// on. The session has ended.
func (s *session) awaitWork() bool {
	t := time.NewTimer(s.ttl)
	defer t.Stop()
	select {
	case <-s.idle:
		return true
	case <-t.C:
		return false
	}
}

// proposeClose closes the session in the cluster, and waits until all of its keys are
// free: at once, or with thousands of keys some entries later. A time limit bounds the
// call, since a session without beats expires anyway; with thousands of keys the limit is
// longer, since each slice is an entry. No caller's context bounds the call, since Close
// continues after the caller has left.
func (s *session) proposeClose() error {
	s.awaitCancels()
	s.mu.Lock()
	more := s.lostKeys / machine.MaxSlice
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), grace(s.ttl)+time.Duration(more)*sliceGrace)
	defer cancel()
	s.proposeOwed(ctx)
	out, err := s.c.rep.Propose(ctx, machine.Close{Session: s.id})
	if err == nil && out.Code != machine.OK && out.Code != machine.NoSession {
		err = outcomeError("close a session", out)
	}
	if err != nil && !errors.Is(err, replica.ErrAllEnd) { // else nobody is left to be told
		if ctx.Err() != nil {
			err = notInTime(err)
		}
		return fmt.Errorf("locks: close: the cluster did not confirm that all keys are free, keys may stay taken for up to %v: %w", s.ttl, err)
	}
	return nil
}
