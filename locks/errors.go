package locks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
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
	// *SessionError. Asking again is safe and opens a new session. Of a Release
	// it says that the cluster had not heard of it by then.
	ErrSessionLost = errors.New("locks: session lost")

	// ErrClosed is returned by every call on a Client that was closed, and ends
	// those that wait.
	ErrClosed = errors.New("locks: client closed")

	// ErrTooManyWaiters says that a key's queue was full. Nothing was changed.
	ErrTooManyWaiters = errors.New("locks: too many waiters")

	// ErrDeadlock says that a request would have waited for ever, since who it
	// would wait for waits for its caller. Nothing was changed. The error is a
	// *DeadlockError.
	ErrDeadlock = errors.New("locks: deadlock")

	// ErrChanged says that the key was granted to somebody since the token that
	// the option IfToken named. Nothing was granted. The error is a
	// *ChangedError.
	ErrChanged = errors.New("locks: granted to others since")

	// ErrTooOld says that the token that the option IfToken named is so old
	// that the cluster no longer knows who was granted the key since. Nothing
	// was granted.
	ErrTooOld = errors.New("locks: what was granted since is forgotten")

	// ErrCapacity says that the option Permit named another capacity than those
	// who hold permits of the key or wait for some. Nothing was changed. The
	// error is a *CapacityError.
	ErrCapacity = errors.New("locks: another capacity is in use")

	// ErrWrongMode says that a lock is not of the mode that something can be
	// done with: a value is set by an exclusive lock, for example. Nothing was
	// changed, and the lock is held on.
	ErrWrongMode = errors.New("locks: not possible in the lock's mode")

	// ErrNoSuccessor says that a key was to be handed over to a client that did
	// not wait for it, or that others must not be passed for. The key was
	// released to whoever was next.
	ErrNoSuccessor = errors.New("locks: no such successor")

	// ErrNotHeld says that a grant that was to be broken is not in force.
	// Nothing was changed.
	ErrNotHeld = errors.New("locks: not held")

	// ErrVersion says that a member of the cluster is too old for what was asked.
	// Nothing was changed; it will pass once all members are upgraded.
	ErrVersion = cluster.ErrVersion

	// ErrValuesFull says that the cluster keeps as many values already as it
	// may. The value was not set.
	ErrValuesFull = errors.New("locks: no room for a value")
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

	// Broken: an operator took the grant away by Break. The session lives on.
	Broken
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
	case Broken:
		return "broken by an operator"
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

// HeldError says what stands in the way of a request for Key. It matches
// ErrHeld.
type HeldError struct {
	Key    string
	Client string      // the holder's Options.Name, or that of who waits
	Node   string      // the member it runs on
	Token  fence.Token // of its grant; 0 if it waits

	// Conflict is the key above or below Key that is held or waited for; empty
	// if it is Key itself. Where it is one of very many below, all else is empty
	// and Conflict ends with a slash.
	Conflict string

	// Delayed tells that the holder's session has expired and the delay of the
	// grant runs: see the option Delay.
	Delayed bool
}

func (e *HeldError) Error() string {
	key := e.Key
	prefix := "locks: "
	if e.Conflict != "" {
		prefix = fmt.Sprintf("locks: %q is taken: ", key)
		key = e.Conflict
	}
	who := e.Client + " on " + e.Node
	switch {
	case e.Client == "":
		return fmt.Sprintf("%ssomething below %q is held", prefix, strings.TrimSuffix(key, "/"))
	case e.Delayed:
		return fmt.Sprintf("%s%q was held by %s, and the delay of its grant runs (token %d)", prefix, key, who, uint64(e.Token))
	case e.Token == 0:
		return fmt.Sprintf("%s%q is waited for by %s", prefix, key, who)
	}
	return fmt.Sprintf("%s%q is held by %s (token %d)", prefix, key, who, uint64(e.Token))
}

// Is reports whether target is ErrHeld.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// DeadlockError tells the cycle of waits that a request would have closed. The
// first of Cycle is the request itself, and each waits for what the next one
// has; the last waits for something that the request's own caller holds. It
// matches ErrDeadlock.
type DeadlockError struct {
	Key   string // that was asked for
	Cycle []Wait // at most 64 are told

	verb string
}

// Wait is one link of a cycle of waits.
type Wait struct {
	Client string      // who waits: its Options.Name
	Key    string      // for what
	Token  fence.Token // held under which grant; 0 if the next one waits before it
}

func (e *DeadlockError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "locks: %s %q: deadlock", cmp.Or(e.verb, "acquire"), e.Key)
	for i, w := range e.Cycle {
		sep := ", "
		if i == 0 {
			sep = ": "
		}
		fmt.Fprintf(&b, "%s%s waits for %q", sep, w.Client, w.Key)
		if w.Token != 0 {
			fmt.Fprintf(&b, " (token %d)", uint64(w.Token))
		}
	}
	return b.String()
}

// Is reports whether target is ErrDeadlock.
func (e *DeadlockError) Is(target error) bool { return target == ErrDeadlock }

// ChangedError says that a key was granted after Since, last under Token. It
// matches ErrChanged.
type ChangedError struct {
	Key   string
	Since fence.Token // what the option IfToken named
	Token fence.Token
}

func (e *ChangedError) Error() string {
	return fmt.Sprintf("locks: acquire %q: granted to others since token %d, last under token %d", e.Key, uint64(e.Since), uint64(e.Token))
}

// Is reports whether target is ErrChanged.
func (e *ChangedError) Is(target error) bool { return target == ErrChanged }

// CapacityError says that Permit named the capacity Of while others hold or wait
// for permits of a key whose capacity is Have. It matches ErrCapacity.
type CapacityError struct {
	Key  string
	Of   int
	Have int
}

func (e *CapacityError) Error() string {
	return fmt.Sprintf("locks: acquire %q: a permit of %d was asked for, but others' are of %d", e.Key, e.Of, e.Have)
}

// Is reports whether target is ErrCapacity.
func (e *CapacityError) Is(target error) bool { return target == ErrCapacity }

// LostError says which grant was lost, and why; of one for several keys Key is
// the first. It matches ErrLost, and cluster.ErrStopped or ErrClosed if that is
// the reason.
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

// notInTime is why the cluster did not answer, err, within a bound of this package's
// own. That is not the end of the caller's ctx.
func notInTime(err error) error {
	if errors.Is(err, cluster.ErrNoQuorum) {
		return cluster.ErrNoQuorum
	}
	return errors.New("no answer in time")
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

func configError(field, format string, args ...any) *cluster.ConfigError {
	return &cluster.ConfigError{Field: field, Reason: fmt.Sprintf(format, args...)}
}
