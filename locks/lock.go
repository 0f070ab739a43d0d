package locks

import (
	"context"
	"errors"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/internal/replica"
)

// Lock is one grant of one key, under one token; or one of several handles on it,
// if it was acquired with Reentrant. It ends once, by Release or by loss, and
// never comes back: the key acquired again is another Lock with a larger token.
//
// Its methods may be called from any goroutine. Those of a zero Lock fail.
type Lock struct {
	g      *grant
	parent context.Context

	// Guarded by the session's mu.
	ended     error // nil while held: a *LostError or ErrReleased
	depthLeft int   // how many of its owner's locks were left when it was released
	ctx       context.Context
	stop      context.CancelCauseFunc
}

// finish ends the lock for the given cause, and returns what cancels its
// context and its changes, nil if there are none. The caller holds the session's mu
// and runs it after unlocking.
func (l *Lock) markEnded(cause error) func() {
	l.ended = cause
	var stops []context.CancelCauseFunc
	if l.stop != nil {
		stops = append(stops, l.stop)
	}
	if l.g.rare != nil {
		for _, c := range l.g.rare.changes {
			if c.lock == l {
				stops = append(stops, c.cancel)
			}
		}
	}
	if stops == nil {
		return nil
	}
	return func() {
		for _, stop := range stops {
			stop(cause)
		}
	}
}

func (l *Lock) zero() bool { return l == nil || l.g == nil }

// Key is the key that was acquired.
func (l *Lock) Key() string {
	if l.zero() {
		return ""
	}
	return l.g.key
}

// Token is the grant's fencing token: larger than that of every grant before.
// Show it to whatever the lock protects. Upgrade changes it to a larger one.
func (l *Lock) Token() fence.Token {
	if l.zero() {
		return 0
	}
	s := l.g.s
	s.mu.Lock()
	defer s.mu.Unlock()
	return l.g.token
}

// held reports whether the lock has not ended, as far as was noticed.
func (l *Lock) held() bool { return l.endCause() == nil }

// Context ends when the lock does: by loss, with a *LostError as its cause, or by
// Release, with ErrReleased. It carries the token for fence.FromContext and the
// values of the context that the lock was acquired with, but not that one's end,
// save in Do, Elect and Spread, whose context ends the work, too.
//
// Acquire with a context that descends from it says that this lock is held on to
// meanwhile, so that the cluster can tell a wait that would never end: see
// ErrDeadlock.
//
// A running process sees its context end before the key is granted to anybody
// else. One that was paused sees it when it runs again, or within a tenth of a
// second: Err is right at once.
func (l *Lock) Context() context.Context {
	if l.zero() {
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(errNoLock)
		return ctx
	}
	s := l.g.s
	s.alive()
	s.mu.Lock()
	ctx := l.ctx
	s.mu.Unlock()
	if ctx != nil {
		return ctx
	}
	// Made when first asked for, since most locks' never is; and not under mu,
	// since the parent may be of a type of the caller's, whose methods are called
	// by this and may themselves ask a lock something.
	ctx, stop := context.WithCancelCause(withLineage(fence.NewContextFunc(l.parent, l.Token), l))
	s.mu.Lock()
	if l.ended != nil {
		// Before anybody has it: who ended the lock knew of none to cancel.
		ended := l.ended
		s.mu.Unlock()
		stop(ended)
		s.mu.Lock()
	}
	if first := l.ctx; first != nil { // another call was faster
		s.mu.Unlock()
		stop(nil)
		return first
	}
	l.ctx, l.stop = ctx, stop
	s.mu.Unlock()
	return ctx
}

// Err returns nil while the lock is held and may be trusted, and why it ended
// after that: a *LostError or ErrReleased. It reads the clocks, so that it is
// right at once after a pause.
func (l *Lock) Err() error {
	_, err := l.trustLeft()
	return err
}

// Remaining returns for how long the lock may be trusted even if no further beat
// is confirmed; 0 if it ended. Beats renew that, in the background.
func (l *Lock) Remaining() time.Duration {
	left, _ := l.trustLeft()
	return left
}

// left returns how long the lock may be trusted, or why it ended.
func (l *Lock) trustLeft() (time.Duration, error) {
	if l.zero() {
		return 0, errNoLock
	}
	s := l.g.s
	now := s.c.now()
	s.mu.Lock()
	left, ended := s.trust.remaining(now), l.ended
	s.mu.Unlock()
	if ended != nil {
		return 0, ended
	}
	if left > 0 {
		return left, nil
	}
	s.loseTrust(now)
	return 0, l.endCause()
}

// end returns why the lock ended, as far as was noticed.
func (l *Lock) endCause() error {
	l.g.s.mu.Lock()
	defer l.g.s.mu.Unlock()
	return l.ended
}

// Require returns nil if the lock may be trusted for d from now. If it may be
// trusted, but not for so long, the error is a *BudgetError, and the lock is
// held on; Renew may help. If it ended, the error is Err's. Call it before each
// side effect, with the longest time that the effect may take.
func (l *Lock) Require(d time.Duration) error {
	left, err := l.trustLeft()
	if err != nil {
		return err
	}
	if left < d {
		return &BudgetError{Key: l.g.key, Token: l.Token(), Need: d, Left: left}
	}
	return nil
}

// Renew beats now and returns nil when the beat is confirmed: then the lock may
// be trusted for a whole window from the moment of the call. On failure the
// window is what it was, and the error is Err's if the lock has ended, and else
// the end of ctx. Beats go on in the background whether Renew is called or not.
func (l *Lock) Renew(ctx context.Context) error {
	if err := l.Err(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return callError("renew", l.g.key, endOf(ctx))
	}
	s := l.g.s
	if err := s.c.beginCall(); err != nil {
		return err
	}
	defer s.c.calls.Done()
	bctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	sent := s.c.now()
	err := s.c.rep.Beat(bctx, s.id)
	if err == nil || errors.Is(err, replica.ErrNoSession) || errors.Is(err, cluster.ErrStopped) {
		s.handleBeatAnswer(sent, err, false)
	}
	switch ended := l.Err(); {
	case ended != nil:
		return ended
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return callError("renew", l.g.key, whyEnded(ctx, err))
	}
	return callError("renew", l.g.key, err)
}
