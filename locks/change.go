package locks

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
)

// errWithdrawn: a request was given up before the cluster answered.
var errWithdrawn = errors.New("locks: request withdrawn")

// runningChange is a change of a grant, under way or waiting for its turn. A
// change is cancelled when its lock ends, but not when the lock's context ends:
// in Do, Elect and Spread that context ends with the caller's context too,
// while the work holds the key until the work returns, and may store a last
// value.
type runningChange struct {
	lock   *Lock
	cancel context.CancelCauseFunc
}

// runChange runs f, which changes something about the grant in the cluster.
// Changes of a grant run one at a time. The context of f ends when ctx or the
// lock ends. runChange returns nil if f returned the code OK, or the code
// Granted while the lock is held.
func (l *Lock) runChange(ctx context.Context, verb string, f func(context.Context) (machine.Outcome, error)) error {
	if err := checkContext(ctx); err != nil {
		return err
	}
	if err := l.Err(); err != nil {
		return err
	}
	g, s := l.g, l.g.s
	if ctx.Err() != nil {
		return callError(verb, g.key, endOf(ctx))
	}
	if err := s.c.beginCall(); err != nil {
		return err
	}
	defer s.c.calls.Done()
	defer s.c.mayBlock(ctx, g.key)()
	cctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c := &runningChange{lock: l, cancel: cancel}
	s.mu.Lock()
	if ended := l.ended; ended != nil {
		s.mu.Unlock()
		return ended
	}
	x := g.ensureRare()
	if x.changing == nil {
		x.changing = make(chan struct{}, 1)
	}
	x.changes = append(x.changes, c)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		x.changes = slices.DeleteFunc(x.changes, func(o *runningChange) bool { return o == c })
		s.mu.Unlock()
	}()
	select {
	case x.changing <- struct{}{}:
	case <-cctx.Done():
		return l.changeError(ctx, verb, s.c.rep.Reached())
	}
	defer func() { <-x.changing }()

	out, err := f(cctx)
	switch {
	case err != nil:
		return l.changeError(ctx, verb, err)
	case out.Code == machine.OK:
		return nil
	case out.Code == machine.Granted:
		return l.Err()
	case out.Code == machine.NotHeld:
		// Only Break takes a grant from a live session. The event of the break
		// is late.
		s.loseGrant(g.seq, g.key, 0, Broken)
		return l.Err()
	case out.Code == machine.NoSession:
		s.lose(SessionExpired)
		return l.Err()
	case out.Code == machine.WrongMode:
		return g.wrongMode(verb, "the cluster refused it")
	case out.Code == machine.ValuesFull:
		return fmt.Errorf("%w: the cluster's limit is %d", ErrValuesFull, out.Limit)
	}
	return callError(verb, g.key, outcomeError(verb, out))
}

// changeError returns the error of a change that failed with err or did not
// start.
func (l *Lock) changeError(ctx context.Context, verb string, err error) error {
	failed, ok := errors.AsType[*replica.Error](err)
	switch ended := l.Err(); {
	case ended != nil:
		return ended
	case ctx.Err() != nil:
		err = whyEnded(ctx, err)
	}
	if ok && failed.Unknown {
		return callError(verb, l.g.key, fmt.Errorf("the cluster may have received the command, or may yet: %w", err))
	}
	if errors.Is(err, ErrDeadlock) || errors.Is(err, ErrWrongMode) {
		return err
	}
	return callError(verb, l.g.key, err)
}
