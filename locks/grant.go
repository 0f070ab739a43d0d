package locks

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/meter"
)

// grant is one grant of the session: of one key, or of several keys under one
// token. Locks are the handles on a grant. A grant has one Lock, unless the
// option Reentrant has added more.
type grant struct {
	s     *session
	key   string // the first, if there are several
	seq   uint64 // of its request; identifies the grant while its token rises
	since time.Time

	firstToken fence.Token // identifies the grant in a lineage

	// Guarded by s.mu.
	token       fence.Token                // raised by an upgrade
	lock        *Lock                      // the first handle
	extra       atomic.Pointer[rareFields] // fields that few grants need: see rare
	mode        machine.Mode
	call        Call  // of its request
	downgrading bool  // exclusive, but the cluster may have made it shared already
	tokenUnsure bool  // an upgrade was given up, and may have raised the token
	lazy        bool  // of the option Lazy or Sticky
	sticky      bool  // of the option Sticky
	kept        *kept // of the option Sticky: the cluster's grant and its block; nil without a block
	unclean     bool  // the previous exclusive holder did not release
	asked       bool  // a client asked for the key by Ask
	contended   bool  // another request waits
}

// newGrant returns an empty grant with its first lock, in one piece of memory.
func newGrant() *grant {
	x := new(struct {
		grant
		first Lock
	})
	x.lock = &x.first
	return &x.grant
}

type rareFields struct {
	keys      []string          // if there are several
	value     string            // left by an earlier holder
	rev       uint64            // of the last SetValue
	owed      *machine.SetValue // to be stored before the release; nil: none
	asked     chan struct{}
	contended chan struct{}
	entry     *ownerEntry      // of the option Reentrant
	changing  chan struct{}    // size 1: full while a change runs
	changes   []*runningChange // running, or waiting for its turn
	series    []*meter.Series  // count the grant by its label
	hooks     []*lossHook      // of all locks of the grant
	traced    context.Context  // of Trace.Acquiring; nil: the first handle's parent
}

// noRare is shared by all grants that have not called ensureRare, for reading.
var noRare rareFields

// rare returns the fields that few grants need, for reading. Keys and traced are set
// before the grant is told to anybody, and can be read without a lock.
func (g *grant) rare() *rareFields {
	if x := g.extra.Load(); x != nil {
		return x
	}
	return &noRare
}

// ensureRare returns g.rare for writing. The caller holds s.mu.
func (g *grant) ensureRare() *rareFields {
	x := g.extra.Load()
	if x == nil {
		x = &rareFields{}
		g.extra.Store(x)
	}
	return x
}

// nextRev returns the number of the next SetValue. By the number, the cluster
// recognizes and ignores a late copy of an earlier SetValue.
func (g *grant) nextRev() uint64 {
	g.s.mu.Lock()
	defer g.s.mu.Unlock()
	x := g.ensureRare()
	x.rev++
	return x.rev
}

// keys returns all keys of the grant. The result never changes.
func (g *grant) keys() []string {
	if g.rare().keys != nil {
		return g.rare().keys
	}
	return []string{g.key}
}

// traceCtx returns the context for Trace functions about the grant.
func (g *grant) traceCtx() context.Context {
	if g.rare().traced != nil {
		return g.rare().traced
	}
	return g.lock.parent
}

// event completes e, an event of the grant. The caller holds s.mu.
func (g *grant) event(e LockEvent) LockEvent {
	e.Key, e.Call, e.Token = g.key, g.call, g.token
	return e
}

// depth returns the number of locks held on the grant. The caller holds s.mu.
func (g *grant) depth() int {
	if g.rare().entry != nil {
		return len(g.rare().entry.locks)
	}
	return 1
}

// endLocks ends the grant and all of its locks for the given cause. endLocks
// appends to cancels the functions to cancel their contexts. The caller holds
// s.mu, and calls these functions after unlocking.
func (g *grant) endLocks(cause error, cancels []func()) []func() {
	delete(g.s.grants, g.seq)
	g.s.own.removeGrant(g)
	if g.rare().entry == nil {
		return g.lock.markEnded(cause, cancels)
	}
	e := g.rare().entry
	delete(g.s.entries, e.name)
	for l := range e.locks {
		cancels = l.markEnded(cause, cancels)
	}
	clear(e.locks)
	return cancels
}

// markReleased ends the lock because the holder releases the lock. last is true
// if the grant had no other lock, and so has ended too. The caller holds the
// session's mu, and calls cancels after unlocking.
func (l *Lock) markReleased() (last bool, cancels []func()) {
	if l.g.depth() == 1 {
		return true, l.g.endLocks(ErrReleased, nil)
	}
	locks := l.g.rare().entry.locks
	delete(locks, l)
	l.depthLeft = len(locks)
	return false, l.markEnded(ErrReleased, nil)
}

// markLost ends the grant and its locks because the grant was lost, and appends
// to cancels like endLocks. The caller holds s.mu.
func (g *grant) markLost(reason Reason, cancels []func()) []func() {
	lost := &LostError{Key: g.key, Token: g.token, Reason: reason}
	cancels = g.endLocks(lost, cancels)
	held := time.Since(g.since)
	g.countEnded(reason, held)
	g.s.c.trace.lost(g.traceCtx(), g.event(LockEvent{Took: held, Err: lost}))
	return cancels
}

// raiseToken sets the grant's token to token, unless token is older. The caller
// holds s.mu.
func (g *grant) raiseToken(token machine.Token) { g.token = max(g.token, fence.Token(token)) }

// clusterToken returns the token by which the cluster knows the grant: a lock of the option
// Sticky has a larger one. The caller holds s.mu.
func (g *grant) clusterToken() fence.Token {
	if g.kept != nil {
		return g.kept.token
	}
	return g.token
}

// releaseCleanup returns the cleanup to release the grant in the cluster: to
// the client named to, unless to is empty. The caller holds s.mu.
func (g *grant) releaseCleanup(to string) *cleanup {
	// After an upgrade that was given up, this token may be the previous one.
	// The cluster accepts the previous token too.
	return &cleanup{ctx: g.traceCtx(), call: g.call, keys: g.keys(), token: g.clusterToken(), successor: to, value: g.rare().owed}
}

// noteAsked records the first Ask for the key. The caller holds s.mu.
func (g *grant) noteAsked(by string) {
	if g.asked {
		return // a repeated event
	}
	g.asked = true
	if g.rare().asked != nil {
		close(g.rare().asked)
	}
	g.s.c.trace.asked(g.traceCtx(), g.event(LockEvent{By: by}))
}

// noteContended records the first waiter since the grant. The caller holds
// s.mu.
func (g *grant) noteContended() {
	if g.contended {
		return
	}
	g.contended = true
	if g.rare().contended != nil {
		close(g.rare().contended)
	}
	g.s.c.trace.contended(g.traceCtx(), g.event(LockEvent{}))
}

func (g *grant) wrongMode(verb, why string) error {
	return fmt.Errorf("%w: cannot %s %q: %s", ErrWrongMode, verb, g.key, why)
}
