package locks

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/internal/machine"
)

// Release gives the key up. When it returns, whatever it returns, this process
// no longer holds the lock; its context ended, with the cause ErrReleased, before
// the cluster was told. Of the locks of an owner (see Reentrant) the last one
// released frees the key, and the others end by themselves.
//
// If the cluster did not hear within ctx the error says so and wraps ctx's end:
// the client goes on telling it in the background, and the next holder waits for
// that, or for a TTL at most. So does the error if the session ended before, which
// frees the key as well; it then matches ErrSessionLost. A lock that was lost
// before, or turns out to have been, returns its *LostError, one that was released
// before ErrReleased; neither call has an effect on any later grant of the key.
func (l *Lock) Release(ctx context.Context) error { return l.releaseTo(ctx, "") }

// HandOver releases the key to the first waiter of the client of that name, which
// goes before the others. If no request of that client waits for the key, or one
// before it may not be passed (see Priority), the key is released to whoever is
// next, and the error matches ErrNoSuccessor. So it is, with an error that matches
// ErrVersion, while a member of the cluster is too old to know of this.
//
// Like Release it ends the lock before the cluster is told, and for the same
// reason: where the cluster agrees, the successor runs before the answer is here.
// That is why the lock cannot be held on if there is no such successor. Other
// errors are Release's. A lock that its owner has entered several times (see
// Reentrant) is not handed over: the error matches ErrWrongMode, as it does for
// no other reason, and the lock is held on.
func (l *Lock) HandOver(ctx context.Context, client string) error {
	switch {
	case client == "":
		return configError("client", "empty")
	case len(client) > machine.MaxName:
		return configError("client", "%d bytes exceed %d", len(client), machine.MaxName)
	case !utf8.ValidString(client):
		return configError("client", "not valid UTF-8")
	}
	return l.releaseTo(ctx, client)
}

// letGo ends the lock and, if it was the grant's last, has the cluster free the
// key, to the client of the given name if there is one.
func (l *Lock) releaseTo(ctx context.Context, to string) error {
	if err := l.Err(); err != nil {
		return err
	}
	g, s := l.g, l.g.s
	// Before the lock is let go, so that Close knows of this call if it comes
	// between: it then waits for it.
	entered := s.c.beginCall()
	if entered == nil {
		defer s.c.calls.Done()
	}
	s.mu.Lock()
	if ended := l.ended; ended != nil {
		s.mu.Unlock()
		return ended
	}
	if to != "" && g.depth() > 1 {
		s.mu.Unlock()
		return g.wrongMode("hand over", "its owner has entered it several times")
	}
	last, cancels := l.markReleased()
	if last {
		s.c.trace.released(LockEvent{Key: g.key, Token: g.token, Took: time.Since(g.since)})
	}
	d := g.releaseCleanup(to)
	s.unlockAndCancel(cancels)
	if !last || entered != nil {
		return nil // others of its owner hold on, or the client's Close is about to free the key
	}
	return s.proposeRelease(ctx, d)
}

// unheard is the error of a command that failed with err because the session ended.
func (s *session) unheardError(err error) error {
	switch why := s.endReason(); {
	case errors.Is(err, cluster.ErrNoQuorum):
		return fmt.Errorf("%w: %v: %w", ErrSessionLost, why, cluster.ErrNoQuorum)
	case why == NodeStopped:
		return fmt.Errorf("%w: %w", ErrSessionLost, cluster.ErrStopped)
	default:
		return fmt.Errorf("%w: %v", ErrSessionLost, why)
	}
}

// tellReleased has the cluster free a key, and sees to it that it will be told
// if it did not hear within ctx.
func (s *session) proposeRelease(ctx context.Context, d *cleanup) error {
	s.awaitCancels()
	var out machine.Outcome
	err := endOf(ctx)
	if ctx.Err() == nil {
		rctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(s.ctx, cancel)()
		for {
			out, err = s.propose(rctx, func(seen []uint64) machine.Command { return d.command(s.id, seen) })
			if !d.retryWithoutSuccessor(out, err) {
				break
			}
		}
		switch {
		case err == nil:
		case ctx.Err() != nil:
			err = whyEnded(ctx, err)
		case s.hasEnded(): // and not the end of ctx, as which it reached the proposal
			err = s.unheardError(err)
		}
	}
	switch {
	case err != nil:
		s.startCleanup(d)
		err = fmt.Errorf("locks: release %q (token %d): the cluster did not hear, the key may stay taken for up to %v: %w",
			d.keys[0], uint64(d.token), s.ttl, err)
		if d.noSuccessor != nil {
			return fmt.Errorf("%w; to be released to whoever is next: %w", err, d.noSuccessor)
		}
		return err
	case out.Code == machine.OK, out.Code == machine.NotHeld:
		// NotHeld answers a repeated release whose first copy freed the key.
		if d.noSuccessor != nil {
			return callError("hand over", d.keys[0], fmt.Errorf("released to whoever was next: %w", d.noSuccessor))
		}
		return nil
	case out.Code == machine.NoSession:
		s.lose(SessionExpired)
		return &LostError{Key: d.keys[0], Token: d.token, Reason: SessionExpired}
	}
	return callError("release", d.keys[0], outcomeError("release", out))
}
