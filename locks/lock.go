package locks

import (
	"context"
	"errors"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/internal/replica"
)

// Lock is one grant of one key, under one token. With the option Reentrant,
// several Locks may share a grant. A Lock ends once, by Release or by loss, and
// never comes back: acquiring the key again returns another Lock with a larger
// token.
//
// The methods may be called from any goroutine. The methods of a zero Lock
// fail.
type Lock struct {
	g      *grant
	parent context.Context // of the lock's context
	bare   bool            // the end of parent does not end the lock's context

	// Guarded by the session's mu.
	ended     error // nil while held: a *LostError or ErrReleased
	depthLeft int   // the number of its owner's other locks when it was released
	ctx       context.Context
	stop      context.CancelCauseFunc
}

// markEnded ends the lock for the given cause. markEnded appends to cancels the
// functions to cancel the lock's context and changes, and to start the functions of
// BeforeNext. The caller holds the session's mu, and calls these functions after
// unlocking.
func (l *Lock) markEnded(cause error, cancels []func()) []func() {
	l.ended = cause
	if stop := l.stop; stop != nil {
		cancels = append(cancels, func() { stop(cause) })
	}
	for _, c := range l.g.rare().changes {
		if c.lock == l {
			cancels = append(cancels, func() { c.cancel(cause) })
		}
	}
	return l.endHooks(cause, cancels)
}

func (l *Lock) zero() bool { return l == nil || l.g == nil }

// readGrant returns read of l's grant, with the session's mu held, or the zero
// value if l is zero.
func readGrant[T any](l *Lock, read func(*grant) T) (result T) {
	if l.zero() {
		return result
	}
	l.g.s.mu.Lock()
	defer l.g.s.mu.Unlock()
	return read(l.g)
}

// Key returns the key that was acquired, the first key of a Set.
func (l *Lock) Key() string {
	return readGrant(l, func(g *grant) string { return g.key })
}

// Token returns the grant's fencing token, larger than the token of every
// earlier grant. Send the token with each access to the protected resource.
// Upgrade changes the token to a larger one.
func (l *Lock) Token() fence.Token {
	return readGrant(l, func(g *grant) fence.Token { return g.token })
}

// held reports whether the lock has not ended, as far as was noticed.
func (l *Lock) held() bool { return l.endCause() == nil }

// Context returns a context with the lifetime of the lock: the context ends by
// loss, with a *LostError as its cause, or by Release, with the cause
// ErrReleased. The context has the token, for fence.FromContext, and the values
// of the context with which the lock was acquired. The end of that context does
// not end the lock's, except in Do, Elect and Spread.
//
// Acquire with a derived context tells the cluster that this lock is held
// during the wait, so that the cluster can find cycles of waits: see
// ErrDeadlock.
//
// In a running process, the context ends before the key is granted to anybody
// else. In a process that was paused, the context ends within a tenth of a
// second of running again; Err is right at once.
func (l *Lock) Context() context.Context {
	if l.zero() {
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(errNoLock)
		return ctx
	}
	s := l.g.s
	s.c.clock.Await()
	s.alive()
	if ctx := readGrant(l, func(*grant) context.Context { return l.ctx }); ctx != nil {
		return ctx
	}
	// The context is made by the first call, since most locks' contexts are
	// never used. mu is not held, since the parent may be of a caller's type:
	// the parent's methods are called here, and may call a lock's methods.
	parent := l.parent
	if l.bare {
		parent = context.WithoutCancel(parent)
	}
	ctx, stop := context.WithCancelCause(withLineage(fence.NewContextFunc(parent, l.Token), l))
	s.mu.Lock()
	if l.ended != nil {
		// The lock has ended, and found no context to cancel. No caller has
		// this context yet.
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

// Err returns nil while the lock is held and may be trusted, and after that the
// reason for its end: a *LostError or ErrReleased. Err reads the clocks, so the
// answer is right immediately after a pause.
func (l *Lock) Err() error {
	_, err := l.trustLeft()
	return err
}

// Remaining returns for how long the lock may be trusted even if no further
// beat is confirmed, or 0 if the lock has ended. Beats in the background extend
// the trust.
func (l *Lock) Remaining() time.Duration {
	left, _ := l.trustLeft()
	return left
}

// trustLeft returns for how long the lock may be trusted, or why the lock
// ended.
func (l *Lock) trustLeft() (time.Duration, error) {
	if l.zero() {
		return 0, errNoLock
	}
	l.g.s.c.clock.Await()
	left := l.g.s.trustLeft(l.g.s.c.now())
	if ended := l.endCause(); ended != nil {
		return 0, ended
	}
	return left, nil
}

// readTrust is Err, with the reading of package time that was made for it.
func (l *Lock) readTrust() (now time.Time, err error) {
	if l.zero() {
		return now, errNoLock
	}
	s := l.g.s
	s.c.clock.Await()
	clocks, now := s.c.readClocks()
	s.mu.Lock()
	if ended := l.ended; ended != nil || s.reason == 0 && s.trust.remaining(clocks) > 0 {
		s.mu.Unlock()
		return now, ended
	}
	s.mu.Unlock()
	return now, l.Err() // ends the session
}

// endCause returns why the lock ended, or nil, as far as was noticed.
func (l *Lock) endCause() error {
	return readGrant(l, func(*grant) error { return l.ended })
}

// Require returns nil if the lock may be trusted for d from now. If the trust
// is shorter, the error is a *BudgetError, and the lock is still held; Renew
// may help. If the lock has ended, the error is Err's. Call Require before each
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

// Renew sends a beat now and returns nil when the beat is confirmed: then the
// lock may be trusted for a whole window from the moment of the call. On
// failure the trust is unchanged; the error is Err's if the lock has ended, and
// the cause of ctx otherwise. Beats in the background do not depend on Renew.
func (l *Lock) Renew(ctx context.Context) error {
	if err := checkContext(ctx); err != nil {
		return err
	}
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
	defer s.c.mayBlock(ctx, l.g.key)()
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
