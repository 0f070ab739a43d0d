package locks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
)

// Lock is one grant of one key, under one token. It ends once, by Release or by
// loss, and never comes back: the key acquired again is another Lock with a
// larger token.
//
// Its methods may be called from any goroutine. Those of a zero Lock fail.
type Lock struct {
	s      *session
	key    string
	token  fence.Token
	parent context.Context
	since  time.Time // when the grant was heard of

	// Guarded by s.mu.
	ended error           // nil while held: a *LostError or ErrReleased
	ctx   context.Context // made when first asked for, since most locks' never is
	stop  context.CancelCauseFunc
}

// finish ends the lock for the given cause, and returns what cancels its
// context, nil if that was never asked for. The caller holds s.mu and runs it
// after unlocking.
func (l *Lock) finish(cause error) func() {
	l.ended = cause
	delete(l.s.locks, l.token)
	if l.stop == nil {
		return nil
	}
	stop := l.stop
	return func() { stop(cause) }
}

func (l *Lock) zero() bool { return l == nil || l.s == nil }

// Key is the key that was acquired.
func (l *Lock) Key() string {
	if l.zero() {
		return ""
	}
	return l.key
}

// Token is the grant's fencing token: larger than that of every grant before.
// Show it to whatever the lock protects.
func (l *Lock) Token() fence.Token {
	if l.zero() {
		return 0
	}
	return l.token
}

// Context ends when the lock does: by loss, with a *LostError as its cause, or by
// Release, with ErrReleased. It carries the token for fence.FromContext and the
// values of the context that the lock was acquired with, but not that one's end,
// save in Do, Elect and Spread, whose context ends the work, too.
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
	l.s.alive()
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	if l.ctx == nil {
		l.ctx, l.stop = context.WithCancelCause(fence.NewContext(l.parent, l.token))
		if l.ended != nil {
			l.stop(l.ended)
		}
	}
	return l.ctx
}

// Err returns nil while the lock is held and may be trusted, and why it ended
// after that: a *LostError or ErrReleased. It reads the clocks, so that it is
// right at once after a pause.
func (l *Lock) Err() error {
	_, err := l.left()
	return err
}

// Remaining returns for how long the lock may be trusted even if no further beat
// is confirmed; 0 if it ended. Beats renew that, in the background.
func (l *Lock) Remaining() time.Duration {
	left, _ := l.left()
	return left
}

// left returns how long the lock may be trusted, or why it ended.
func (l *Lock) left() (time.Duration, error) {
	if l.zero() {
		return 0, errNoLock
	}
	now := l.s.c.now()
	l.s.mu.Lock()
	left, ended := l.s.trust.left(now), l.ended
	l.s.mu.Unlock()
	if ended != nil {
		return 0, ended
	}
	if left > 0 {
		return left, nil
	}
	l.s.expire(now)
	return 0, l.end()
}

// end returns why the lock ended, as far as was noticed.
func (l *Lock) end() error {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	return l.ended
}

// Require returns nil if the lock may be trusted for d from now. If it may be
// trusted, but not for so long, the error is a *BudgetError, and the lock is
// held on; Renew may help. If it ended, the error is Err's. Call it before each
// side effect, with the longest time that the effect may take.
func (l *Lock) Require(d time.Duration) error {
	left, err := l.left()
	if err != nil {
		return err
	}
	if left < d {
		return &BudgetError{Key: l.key, Token: l.token, Need: d, Left: left}
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
		return callError("renew", l.key, endOf(ctx))
	}
	s := l.s
	if err := s.c.enter(); err != nil {
		return err
	}
	defer s.c.calls.Done()
	bctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	sent := s.c.now()
	err := s.c.rep.Beat(bctx, s.id)
	if err == nil || errors.Is(err, replica.ErrNoSession) || errors.Is(err, cluster.ErrStopped) {
		s.beaten(sent, err, false)
	}
	switch ended := l.Err(); {
	case ended != nil:
		return ended
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return callError("renew", l.key, whyEnded(ctx, err))
	}
	return callError("renew", l.key, err)
}

// Release gives the key up. When it returns, whatever it returns, this process
// no longer holds the lock; its context ended, with the cause ErrReleased, before
// the cluster was told.
//
// If the cluster did not hear within ctx the error says so and wraps ctx's end:
// the client goes on telling it in the background, and the next holder waits for
// that, or for a TTL at most. A lock that was lost before, or turns out to have
// been, returns its *LostError, one that was released before ErrReleased; neither
// call has an effect on any later grant of the key.
func (l *Lock) Release(ctx context.Context) error {
	if l.zero() {
		return errNoLock
	}
	s := l.s
	if err := l.Err(); err != nil {
		return err
	}
	// Before the lock is let go, so that Close knows of this call if it comes
	// between: it then waits for it.
	entered := s.c.enter()
	s.mu.Lock()
	if ended := l.ended; ended != nil {
		s.mu.Unlock()
		if entered == nil {
			s.c.calls.Done()
		}
		return ended
	}
	cancel := l.finish(ErrReleased)
	s.c.trace.released(LockEvent{Key: l.key, Token: l.token, Took: time.Since(l.since)})
	s.mu.Unlock()
	if cancel != nil {
		cancel()
	}
	if entered != nil {
		return nil // the client's Close is just about to free the key
	}
	defer s.c.calls.Done()
	return l.tellReleased(ctx)
}

// tellReleased has the cluster free the key, and sees to it that it will be told
// if it did not hear within ctx.
func (l *Lock) tellReleased(ctx context.Context) error {
	s := l.s
	var out machine.Outcome
	err := endOf(ctx)
	if ctx.Err() == nil {
		rctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(s.ctx, cancel)()
		out, err = s.propose(rctx, func(seen []uint64) machine.Command {
			return machine.Release{Session: s.id, Token: machine.Token(l.token), Seen: seen}
		})
		if err != nil && ctx.Err() != nil {
			err = whyEnded(ctx, err)
		}
	}
	switch {
	case err != nil:
		s.cleanUp(&debt{key: l.key, token: l.token})
		return fmt.Errorf("locks: release %q (token %d): the cluster did not hear, the key may stay taken for up to %v: %w",
			l.key, uint64(l.token), s.ttl, err)
	case out.Code == machine.OK, out.Code == machine.NotHeld:
		// NotHeld answers a repeated release whose first copy freed the key.
		return nil
	case out.Code == machine.NoSession:
		s.lose(SessionExpired)
		return &LostError{Key: l.key, Token: l.token, Reason: SessionExpired}
	}
	return callError("release", l.key, outcomeError("", out))
}
