package locks

import (
	"fmt"
	"time"

	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/internal/machine"
)

// grant is what the session has of one key in the cluster, or of several under
// one token. Locks are the handles on it: one, unless an owner has entered again.
type grant struct {
	s     *session
	key   string // the first, if there are several
	seq   uint64 // of the request that it answered: its name for as long as it lasts
	since time.Time

	firstToken fence.Token // by which the cluster knows it in a lineage

	// Guarded by s.mu.
	token       fence.Token // an upgrade raises it
	lock        *Lock       // the first handle
	rare        *rareFields // what few grants have; nil if nothing
	mode        machine.Mode
	downgrading bool // exclusive, but the cluster may have heard that it is to be shared
	tokenUnsure bool // the token may have risen unnoticed: an upgrade was given up
	unclean     bool // the exclusive holder before did not release
	asked       bool // somebody asked to let go,
	contended   bool // somebody waits
}

type rareFields struct {
	keys      []string // if there are several
	value     string   // left by the holder before
	rev       uint64   // of the last SetValue
	asked     chan struct{}
	contended chan struct{}
	entry     *ownerEntry      // of the owner who may enter again
	changing  chan struct{}    // size 1: held by who changes the mode
	changes   []*runningChange // that one's, and those that wait for it
}

// extra returns the grant's, made if there is none. The caller holds s.mu.
func (g *grant) ensureRare() *rareFields {
	if g.rare == nil {
		g.rare = &rareFields{}
	}
	return g.rare
}

// nextRev numbers a SetValue, so that a late copy of an earlier one changes
// nothing.
func (g *grant) nextRev() uint64 {
	g.s.mu.Lock()
	defer g.s.mu.Unlock()
	x := g.ensureRare()
	x.rev++
	return x.rev
}

// keys returns all that is held. It never changes.
func (g *grant) keys() []string {
	if g.rare != nil && g.rare.keys != nil {
		return g.rare.keys
	}
	return []string{g.key}
}

// depth counts the locks that are held on the grant. The caller holds s.mu.
func (g *grant) depth() int {
	if g.rare != nil && g.rare.entry != nil {
		return len(g.rare.entry.locks)
	}
	return 1
}

// finish ends the grant and all of its locks for the given cause, and returns
// what cancels their contexts, added to cancels. The caller holds s.mu, and runs
// it after unlocking.
func (g *grant) endLocks(cause error, cancels []func()) []func() {
	delete(g.s.grants, g.seq)
	end := func(l *Lock) {
		if cancel := l.markEnded(cause); cancel != nil {
			cancels = append(cancels, cancel)
		}
	}
	if g.rare == nil || g.rare.entry == nil {
		end(g.lock)
		return cancels
	}
	e := g.rare.entry
	delete(g.s.entries, e.name)
	for l := range e.locks {
		end(l)
	}
	clear(e.locks)
	return cancels
}

// leave ends the lock at its holder's wish. It reports whether that was the
// grant's last, which then has ended, too. The caller holds the session's mu and
// runs cancels after unlocking.
func (l *Lock) markReleased() (last bool, cancels []func()) {
	if l.g.depth() == 1 {
		return true, l.g.endLocks(ErrReleased, nil)
	}
	locks := l.g.rare.entry.locks
	delete(locks, l)
	l.depthLeft = len(locks)
	if cancel := l.markEnded(ErrReleased); cancel != nil {
		cancels = append(cancels, cancel)
	}
	return false, cancels
}

// lose ends the grant because it was lost, and adds to cancels like finish. The
// caller holds s.mu.
func (g *grant) markLost(reason Reason, cancels []func()) []func() {
	lost := &LostError{Key: g.key, Token: g.token, Reason: reason}
	cancels = g.endLocks(lost, cancels)
	g.s.c.trace.lost(LockEvent{Key: g.key, Token: g.token, Took: time.Since(g.since), Err: lost})
	return cancels
}

// adopt takes a token that the cluster says the grant has. The caller holds s.mu.
func (g *grant) raiseToken(token machine.Token) { g.token = max(g.token, fence.Token(token)) }

// debt returns what the cluster is owed when the grant has ended here: its
// release, to the client of the given name if there is one. The caller holds s.mu.
func (g *grant) releaseCleanup(to string) *cleanup {
	// The token may be one behind, if an upgrade was given up: the cluster takes
	// the one before, too.
	return &cleanup{keys: g.keys(), token: g.token, successor: to}
}

// noteAsked notes that somebody asked to let go. The caller holds s.mu.
func (g *grant) noteAsked(by string) {
	if g.asked {
		return // told again
	}
	g.asked = true
	if g.rare != nil && g.rare.asked != nil {
		close(g.rare.asked)
	}
	g.s.c.trace.asked(LockEvent{Key: g.key, Token: g.token, By: by})
}

// noteContended notes that somebody waits. The caller holds s.mu.
func (g *grant) noteContended() {
	if g.contended {
		return
	}
	g.contended = true
	if g.rare != nil && g.rare.contended != nil {
		close(g.rare.contended)
	}
	g.s.c.trace.contended(LockEvent{Key: g.key, Token: g.token})
}

func (g *grant) wrongMode(verb, why string) error {
	return fmt.Errorf("%w: cannot %s %q: %s", ErrWrongMode, verb, g.key, why)
}
