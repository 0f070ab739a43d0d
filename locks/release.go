package locks

import (
	"context"
	"errors"
	"fmt"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
)

// Release releases the lock. When Release returns, with or without an error,
// this process no longer holds the lock. The lock's context ends, with the
// cause ErrReleased, before the cluster is told. If an owner holds several
// locks (see Reentrant), only the last release frees the key.
//
// If the cluster did not answer within ctx, the error wraps the cause of ctx.
// The client keeps telling the cluster in the background, and the key stays
// taken until the cluster hears, or for a TTL at most. If the session ended
// before the cluster heard, and so freed the key as well, the error matches
// ErrSessionLost. If the lock was lost before, Release returns the *LostError;
// if the lock was released before, ErrReleased. In both cases Release has no
// effect on any later grant of the key.
//
// With the option Lazy, Release waits for nothing, and its only errors are those of a lock
// that has ended before.
func (l *Lock) Release(ctx context.Context) error { return l.releaseTo(ctx, "") }

// HandOver releases the key to the first waiter of the client with the given
// name, before all other waiters. If the client has no request in the queue, or
// an earlier waiter may not be passed (see Priority), the key is released to
// the next waiter, and the error matches ErrNoSuccessor. If a member of the
// cluster is too old for HandOver, the key is released to the next waiter, and
// the error matches ErrVersion.
//
// Like Release, HandOver ends the lock before the cluster is told, since the
// successor may run before the cluster's answer arrives here. Therefore the
// lock ends even if there is no such successor. If the lock's owner has several
// locks (see Reentrant), the error matches ErrWrongMode, and the lock is still
// held; no other failure matches ErrWrongMode. All other errors are Release's.
func (l *Lock) HandOver(ctx context.Context, client string) error {
	if err := checkText("client", client, machine.MaxName); err != nil {
		return err
	}
	return l.releaseTo(ctx, client)
}

// releaseTo ends the lock. After the last lock of a grant, releaseTo releases
// the grant in the cluster: to the client named to, unless to is empty.
func (l *Lock) releaseTo(ctx context.Context, to string) error {
	if err := checkContext(ctx); err != nil {
		return err
	}
	now, err := l.readTrust()
	if err != nil {
		return err
	}
	g, s := l.g, l.g.s
	// Registered before the lock ends, so that a Close in between waits for
	// this call.
	closed := s.c.beginCall()
	if closed == nil {
		defer s.c.calls.Done()
	}
	s.mu.Lock()
	if ended := l.ended; ended != nil {
		s.mu.Unlock()
		return ended
	}
	if to != "" && g.depth() > 1 {
		s.mu.Unlock()
		return g.wrongMode("hand over", "its owner holds several locks of the grant")
	}
	last, cancels := l.markReleased()
	if last {
		held := now.Sub(g.since)
		g.countEnded(0, held)
		s.c.trace.released(g.traceCtx(), g.event(LockEvent{Took: held}))
	}
	lazy, wanted := last && g.lazy && to == "", g.contended || g.asked
	if lazy && closed == nil && s.keep(g, len(cancels) > 0) {
		s.unlockAndCancel(cancels)
		if len(cancels) > 0 {
			s.mu.Lock()
			g.kept.ending = false
			s.mu.Unlock()
		}
		return nil
	}
	d := g.releaseCleanup(to)
	s.unlockAndCancel(cancels)
	if last && closed != nil && d.value != nil {
		s.startCleanup(d)
	}
	if !last || closed != nil {
		return nil // the owner has other locks, or the client's Close is about to free the key
	}
	switch {
	case lazy && (wanted || d.value != nil):
		s.startCleanup(d)
		return nil
	case lazy:
		s.releaseLater(d)
		return nil
	}
	defer s.c.mayBlock(ctx, g.key)()
	return s.proposeRelease(ctx, d)
}

// unheardError returns the error of a command that failed with err because the
// session ended.
func (s *session) unheardError(err error) error {
	switch why := s.endReason(); {
	case errors.Is(err, cluster.ErrNoQuorum):
		return fmt.Errorf("%w: %v: %w", ErrSessionLost, why, noQuorum(err))
	case why == NodeStopped:
		return fmt.Errorf("%w: %w", ErrSessionLost, cluster.ErrStopped)
	default:
		return fmt.Errorf("%w: %v", ErrSessionLost, why)
	}
}

// proposeRelease proposes the release d. If the cluster did not answer within
// ctx, a cleanup proposes the release again.
func (s *session) proposeRelease(ctx context.Context, d *cleanup) error {
	s.awaitCancels()
	var out machine.Outcome
	err := endOf(ctx)
	if ctx.Err() == nil {
		var rctx replica.Either
		rctx.Begin(ctx, s.ctx)
		defer rctx.Close()
		for {
			out, err = s.propose(&rctx, func(seen []uint64) machine.Command { return d.command(s.id, seen) })
			if !s.valueAnswered(d, out, err) && !d.retryWithoutSuccessor(out, err) {
				break
			}
		}
		switch {
		case err == nil:
		case ctx.Err() != nil:
			err = whyEnded(ctx, err)
		case s.hasEnded(): // and not ctx, although the proposal ended with a context's error
			err = s.unheardError(err)
		}
	}
	switch {
	case err != nil:
		s.startCleanup(d)
		err = fmt.Errorf("locks: release %q (token %d): the cluster could not be told, the key may stay taken for up to %v: %w",
			d.keys[0], uint64(d.token), s.ttl, err)
		if d.noSuccessor != nil {
			return fmt.Errorf("%w; the key will go to the next waiter: %v", err, d.noSuccessor) // no %w: it was not released
		}
		return err
	case out.Code == machine.OK, out.Code == machine.NotHeld:
		// NotHeld answers a repeated release if the first copy freed the key.
		if d.noSuccessor != nil {
			return callError("hand over", d.keys[0], fmt.Errorf("released to the next waiter: %w", d.noSuccessor))
		}
		return nil
	case out.Code == machine.NoSession:
		s.lose(SessionExpired)
		return &LostError{Key: d.keys[0], Token: d.token, Reason: SessionExpired}
	}
	return callError("release", d.keys[0], outcomeError("release", out))
}
