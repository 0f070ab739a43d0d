package locks

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/fence"
)

// The sentinels that this package's errors match with errors.Is.
var (
	// ErrHeld says that TryAcquire found the key held. The error is a *HeldError.
	ErrHeld = errors.New("locks: held")

	// ErrLost says that a grant ended without its holder asking for it. The
	// error is a *LostError, also as the cause of the lock's context.
	ErrLost = errors.New("locks: lost")

	// ErrReleased says that this process let the lock go itself.
	ErrReleased = errors.New("locks: released")

	// ErrSessionLost says that the session ended while a request of it waited:
	// nothing was granted, and the place in the queue is gone. The error is a
	// *SessionError. Asking again is safe and opens a new session.
	ErrSessionLost = errors.New("locks: session lost")

	// ErrClosed is returned by every call on a Client that was closed, and ends
	// those that wait.
	ErrClosed = errors.New("locks: client closed")

	// ErrTooManyWaiters says that a key's queue was full. Nothing was changed.
	ErrTooManyWaiters = errors.New("locks: too many waiters")
)

// errNoLock is what the methods of a zero Lock say.
var errNoLock = errors.New("locks: not a lock: it was not acquired")

// Reason says why a grant or a session ended without its client asking for it.
type Reason uint8

// The reasons. More may be added.
const (
	// SessionExpired: the cluster had not heard the session for its TTL, and
	// may have granted its keys to others since.
	SessionExpired Reason = iota + 1

	// QuorumUnreachable: no beat was confirmed in time. The grant may still
	// stand in the cluster, but it can no longer be trusted here.
	QuorumUnreachable

	// HostSlept: the host was suspended for so long that the trust ran out.
	HostSlept

	// ProcessPaused: this process did not run for so long that the trust ran
	// out: it was stopped, starved of CPU, or its host's clock jumped ahead.
	ProcessPaused

	// NodeStopped: the node that the client was made for has stopped.
	NodeStopped

	// ClientClosed: the client was closed.
	ClientClosed
)

// String is the reason as it stands in errors and logs.
func (r Reason) String() string {
	switch r {
	case SessionExpired:
		return "session expired"
	case QuorumUnreachable:
		return "quorum unreachable"
	case HostSlept:
		return "host slept"
	case ProcessPaused:
		return "process paused"
	case NodeStopped:
		return "node stopped"
	case ClientClosed:
		return "client closed"
	}
	return "reason " + strconv.Itoa(int(r))
}

// is reports whether target is another package's word for r, or ErrClosed.
func (r Reason) is(target error) bool {
	switch r {
	case NodeStopped:
		return target == cluster.ErrStopped
	case ClientClosed:
		return target == ErrClosed
	}
	return false
}

// HeldError says by whom a key is held. It matches ErrHeld.
type HeldError struct {
	Key    string
	Client string      // the holder's Options.Name
	Node   string      // the member it runs on
	Token  fence.Token // of its grant
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("locks: %q is held by %s on %s (token %d)", e.Key, e.Client, e.Node, uint64(e.Token))
}

// Is reports whether target is ErrHeld.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// LostError says which grant was lost, and why. It matches ErrLost, and
// cluster.ErrStopped or ErrClosed if that is the reason.
type LostError struct {
	Key    string
	Token  fence.Token
	Reason Reason
}

func (e *LostError) Error() string {
	return fmt.Sprintf("locks: lost %q (token %d): %v", e.Key, uint64(e.Token), e.Reason)
}

// Is reports whether target is ErrLost or the sentinel of the reason.
func (e *LostError) Is(target error) bool { return target == ErrLost || e.Reason.is(target) }

// SessionError says that a request's session ended before it was granted. It
// matches ErrSessionLost, and cluster.ErrStopped or ErrClosed if that is the
// reason. Nothing is held, and nothing will be granted late.
type SessionError struct {
	Key    string
	Reason Reason
}

func (e *SessionError) Error() string {
	return fmt.Sprintf("locks: wait for %q ended: %v", e.Key, e.Reason)
}

// Is reports whether target is ErrSessionLost or the sentinel of the reason.
func (e *SessionError) Is(target error) bool { return target == ErrSessionLost || e.Reason.is(target) }

// BudgetError says that a lock may be trusted, but not for as long as Require
// was asked for.
type BudgetError struct {
	Key   string
	Token fence.Token
	Need  time.Duration
	Left  time.Duration
}

func (e *BudgetError) Error() string {
	return fmt.Sprintf("locks: %q (token %d) is certain for %v, need %v", e.Key, uint64(e.Token), e.Left, e.Need)
}

// endError is the end of a context as an error: its text is the cause's, and it
// matches both the cause and context.Canceled or DeadlineExceeded.
type endError struct{ cause, err error }

func (e *endError) Error() string   { return e.cause.Error() }
func (e *endError) Unwrap() []error { return []error{e.cause, e.err} }

// endOf returns why ctx, which has ended, did so.
func endOf(ctx context.Context) error {
	cause, err := context.Cause(ctx), ctx.Err()
	if errors.Is(cause, err) {
		return cause
	}
	return &endError{cause: cause, err: err}
}

// whyEnded returns why ctx, which has ended, did so; with heard, what the call
// that ctx bounded came to, if that says that no quorum was found.
func whyEnded(ctx context.Context, heard error) error {
	why := endOf(ctx)
	var session *SessionError
	switch {
	case errors.Is(why, ErrClosed):
		return ErrClosed
	case errors.As(why, &session):
		return session // and not context.Canceled: the caller's context is none the wiser
	case errors.Is(heard, cluster.ErrNoQuorum) && !errors.Is(why, cluster.ErrNoQuorum):
		return fmt.Errorf("%w: %w", cluster.ErrNoQuorum, why)
	}
	return why
}

// callError says what a call on a key came to, unless err says so itself.
func callError(verb, key string, err error) error {
	var config *cluster.ConfigError
	var session *SessionError
	if err == ErrClosed || errors.As(err, &config) || errors.As(err, &session) {
		return err
	}
	return fmt.Errorf("locks: %s %q: %w", verb, key, err)
}
