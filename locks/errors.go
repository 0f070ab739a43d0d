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
	"github.com/wardmote/wardmote/internal/replica"
)

// The errors of this package match these with errors.Is.
var (
	// ErrHeld: TryAcquire found the key held. The error is a *HeldError.
	ErrHeld = errors.New("locks: held")

	// ErrLost: a grant ended without a request of its holder. The error is a
	// *LostError, also as the cause of the lock's context.
	ErrLost = errors.New("locks: lost")

	// ErrReleased: this process released the lock.
	ErrReleased = errors.New("locks: released")

	// ErrSessionLost: from Release: the session ended before the cluster heard of
	// the release. From Acquire and the like only with the node's end: they
	// outlive every other end of a session, and ask again in the next one. Then
	// the error is a *SessionError and matches cluster.ErrStopped.
	ErrSessionLost = errors.New("locks: session lost")

	// ErrClosed is returned by every call on a closed Client, and by the calls
	// which the close interrupted.
	ErrClosed = errors.New("locks: client closed")

	// ErrTooManyWaiters: the key's queue was full, or too many waiters would have to be
	// searched for a deadlock. Nothing was changed.
	ErrTooManyWaiters = errors.New("locks: too many waiters")

	// ErrTooManyKeys: this client would hold and wait for more than 50,000 keys, or for
	// more than 32 MiB of keys and metas. Nothing was granted. Another Client of the
	// same node has as much room.
	ErrTooManyKeys = errors.New("locks: too many keys of one client")

	// ErrQuota: the clients of this member together would have more sessions, keys, bytes
	// of keys and metas, or waits than one member may have. Nothing was granted, and nothing
	// was changed. The error is a *QuotaError.
	ErrQuota = errors.New("locks: over a quota of this member")

	// ErrDeadlock: the request would have closed a cycle of waits, and so would
	// have waited for ever. Nothing was changed. The error is a *DeadlockError.
	ErrDeadlock = errors.New("locks: deadlock")

	// ErrChanged: the key was granted after the token given to the option
	// IfToken. Nothing was granted. The error is a *ChangedError.
	ErrChanged = errors.New("locks: granted again since the token")

	// ErrTooOld: the cluster has forgotten the grants of the key after the
	// token given to the option IfToken, because the token is too old. Nothing
	// was granted.
	ErrTooOld = errors.New("locks: the token is too old")

	// ErrFutureToken: the token given to the option IfToken is larger than the
	// token of any grant of this cluster: it is of another cluster, whose grants
	// this cluster does not know. Nothing was granted. The error is a
	// *FutureTokenError.
	ErrFutureToken = errors.New("locks: the cluster has never granted so large a token")

	// ErrCapacity: a request for permits does not fit the key's capacity: see the
	// option Permits. Nothing was granted. The error is a *CapacityError.
	ErrCapacity = errors.New("locks: not within the capacity of the key")

	// ErrWrongMode: the call does not apply to the lock's mode; for example,
	// only an exclusive lock can set a value. Nothing was changed, and the lock
	// is still held.
	ErrWrongMode = errors.New("locks: not possible in this mode of the lock")

	// ErrNoSuccessor: HandOver or Resign named a client with no waiter for the
	// key, or a waiter that may not pass the others. The key was released to
	// the next waiter.
	ErrNoSuccessor = errors.New("locks: no such successor")

	// ErrNotHeld: the grant to be broken is not in force. Nothing was changed.
	ErrNotHeld = errors.New("locks: not held")

	// ErrVersion: a member of the cluster is too old for the request. Nothing
	// was changed. The request will work once all members are upgraded.
	ErrVersion = cluster.ErrVersion

	// ErrValuesFull: the cluster has reached its limit of values. The value was
	// not set.
	ErrValuesFull = errors.New("locks: too many values")
)

// errNoLock is the error of the methods of a zero Lock.
var errNoLock = errors.New("locks: the zero Lock was never acquired")

// Reason says why a grant or a session ended without a request of its client.
type Reason uint8

// The reasons. More may be added.
const (
	// SessionExpired: for a TTL no beat of the session reached the cluster. The
	// cluster may have granted the session's keys to others since.
	SessionExpired Reason = iota + 1

	// QuorumUnreachable: no beat was confirmed in time. The grant may still be
	// in force in the cluster, but can no longer be trusted here.
	QuorumUnreachable

	// HostSlept: the trust ended while the host was suspended.
	HostSlept

	// ProcessPaused: the trust ended while this process did not run: the
	// process was stopped or starved of CPU, or the host's clock jumped ahead.
	ProcessPaused

	// NodeStopped: the client's node has stopped.
	NodeStopped

	// ClientClosed: the client was closed.
	ClientClosed

	// Broken: an operator ended the grant by Break. The session lives on.
	Broken

	// ClusterReplaced: the cluster could not come back, and the client's node has
	// left the cluster for a successor. Later calls of the client work there.
	ClusterReplaced

	// SessionEnded: an operator ended the session by EndSession.
	SessionEnded
)

var reasonTexts = map[Reason]string{
	SessionExpired:    "session expired",
	QuorumUnreachable: "quorum unreachable",
	HostSlept:         "host slept",
	ProcessPaused:     "process paused",
	NodeStopped:       "node stopped",
	ClientClosed:      "client closed",
	Broken:            "broken by an operator",
	ClusterReplaced:   "cluster replaced by a successor",
	SessionEnded:      "session ended by an operator",
}

// String returns the reason as text for errors and logs.
func (r Reason) String() string { return cmp.Or(reasonTexts[r], "reason "+strconv.Itoa(int(r))) }

// is reports whether target is the sentinel error for r.
func (r Reason) is(target error) bool {
	switch r {
	case NodeStopped:
		return target == cluster.ErrStopped
	case ClientClosed:
		return target == ErrClosed
	case SessionEnded:
		return target == ErrSessionEnded
	}
	return false
}

// HeldError describes a holder or waiter in the way of a request for Key. The
// error matches ErrHeld.
type HeldError struct {
	Key    string
	Client string      // the Options.Name of the holder or waiter
	Node   string      // the member on which that client runs
	Token  fence.Token // of the grant; 0 for a waiter

	// Conflict is the conflicting key above or below Key, or empty if the
	// conflict is on Key itself. If the conflict is with any of very many keys
	// below, Conflict ends with a slash and stands for a key below it, and all
	// other fields but Key are empty.
	Conflict string

	// Delayed is true if the holder's session has expired and the delay of the
	// grant has not passed: see the option Delay.
	Delayed bool
}

func (e *HeldError) Error() string {
	if e.Conflict != "" {
		return fmt.Sprintf("locks: %q is taken: %s", e.Key, e.describe())
	}
	return "locks: " + e.describe()
}

// describe says who is in the way, and where.
func (e *HeldError) describe() string {
	key := cmp.Or(e.Conflict, e.Key)
	who := e.Client + " on " + e.Node
	switch {
	case e.Client == "":
		return fmt.Sprintf("something below %q is held", strings.TrimSuffix(key, "/"))
	case e.Delayed:
		return fmt.Sprintf("%q was held by %s, and the delay of the grant has not passed (token %d)", key, who, uint64(e.Token))
	case e.Token == 0:
		return fmt.Sprintf("%q is waited for by %s", key, who)
	}
	return fmt.Sprintf("%q is held by %s (token %d)", key, who, uint64(e.Token))
}

// Is reports whether target is ErrHeld.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// QuotaError names the quota that the clients of this member have used up together. Field is
// "sessions", "keys" (held or waited for), "bytes" (of these keys, their metas and lineages)
// or "waits", and Limit is the number that one member may have. Other members have quotas of
// their own. The error matches ErrQuota.
type QuotaError struct {
	Field string
	Limit int
}

func (e *QuotaError) Error() string {
	return fmt.Sprintf("%v: at most %d %s", ErrQuota, e.Limit, e.Field)
}

// Is reports whether target is ErrQuota.
func (e *QuotaError) Is(target error) bool { return target == ErrQuota }

// DeadlockError lists the cycle of waits which a request would have closed. The
// first element of Cycle is the request itself. Each element waits for the
// next, and the last waits for a lock of the request's own caller. Cycle is empty if a
// SetCapacity has closed the cycle during the wait. The error matches ErrDeadlock.
type DeadlockError struct {
	Key   string // of the refused request
	Cycle []Wait // at most 64 elements

	verb string
}

// Wait is one link of a cycle of waits.
type Wait struct {
	Client string      // the waiter's Options.Name
	Key    string      // the key that the waiter wants
	Token  fence.Token // of the grant in its way; 0 if the next element waits before it
}

func (e *DeadlockError) Error() string {
	text := fmt.Sprintf("locks: %s %q: deadlock", cmp.Or(e.verb, "acquire"), e.Key)
	sep := ": "
	for _, w := range e.Cycle {
		text += fmt.Sprintf("%s%s waits for %q", sep, w.Client, w.Key)
		if w.Token != 0 {
			text += fmt.Sprintf(" (token %d)", w.Token)
		}
		sep = ", "
	}
	return text
}

// Is reports whether target is ErrDeadlock.
func (e *DeadlockError) Is(target error) bool { return target == ErrDeadlock }

// ChangedError: the key was granted after Since, last under Token. The error
// matches ErrChanged.
type ChangedError struct {
	Key   string
	Since fence.Token // the token given to the option IfToken
	Token fence.Token
}

func (e *ChangedError) Error() string {
	return fmt.Sprintf("locks: acquire %q: granted again since token %d, last under token %d", e.Key, uint64(e.Since), uint64(e.Token))
}

// Is reports whether target is ErrChanged.
func (e *ChangedError) Is(target error) bool { return target == ErrChanged }

// FutureTokenError: the option IfToken named Token, while the cluster's last grant
// of any key had the token Last. The error matches ErrFutureToken.
type FutureTokenError struct {
	Key   string
	Token fence.Token // the token given to the option IfToken
	Last  fence.Token
}

func (e *FutureTokenError) Error() string {
	return fmt.Sprintf("locks: acquire %q: token %d is larger than every token of this cluster, the last is %d", e.Key, uint64(e.Token), uint64(e.Last))
}

// Is reports whether target is ErrFutureToken.
func (e *FutureTokenError) Is(target error) bool { return target == ErrFutureToken }

// CapacityError: the request for N permits does not fit the capacity Have of the key.
//
//   - Have is 0: the key has no capacity, and the request named none.
//   - N exceeds Have. If the capacity was lowered during the wait, the wait ended then.
//   - Otherwise the request named another capacity, Of, than the holders and the waiters
//     of the key, and no SetCapacity has set one.
//
// With N 0, a ChangeCapacity from Of met the set capacity Have, and changed nothing. The
// error matches ErrCapacity.
type CapacityError struct {
	Key  string
	N    int // permits asked for; 0: by ChangeCapacity
	Of   int // the capacity that the request named, 0 if none
	Have int // the capacity of the key, 0 if it has none
}

func (e *CapacityError) Error() string {
	if e.N == 0 {
		return fmt.Sprintf("locks: change the capacity of %q: it is set to %d, not to %d", e.Key, e.Have, e.Of)
	}
	text := fmt.Sprintf("locks: acquire %q: ", e.Key)
	switch {
	case e.Have == 0:
		return text + "the key has no capacity, and the request names none"
	case e.N > e.Have:
		return text + fmt.Sprintf("%d permits are more than the capacity, %d", e.N, e.Have)
	}
	return text + fmt.Sprintf("the request names the capacity %d, and the key has %d", e.Of, e.Have)
}

// Is reports whether target is ErrCapacity.
func (e *CapacityError) Is(target error) bool { return target == ErrCapacity }

// LostError names a lost grant and the reason. If the grant is of several keys,
// Key is the first. The error matches ErrLost, and also the reason's sentinel,
// cluster.ErrStopped, ErrClosed or ErrSessionEnded.
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

// SessionError: the session of a request ended before the grant. The error
// matches ErrSessionLost, and also the reason's sentinel, cluster.ErrStopped,
// ErrClosed or ErrSessionEnded. Nothing is held, and nothing will be granted late.
type SessionError struct {
	Key    string
	Reason Reason
}

func (e *SessionError) Error() string {
	return fmt.Sprintf("locks: wait for %q ended: %v", e.Key, e.Reason)
}

// Is reports whether target is ErrSessionLost or the sentinel of the reason.
func (e *SessionError) Is(target error) bool { return target == ErrSessionLost || e.Reason.is(target) }

// BudgetError: the lock may be trusted, but for a shorter time than was passed
// to Require.
type BudgetError struct {
	Key   string
	Token fence.Token
	Need  time.Duration
	Left  time.Duration
}

func (e *BudgetError) Error() string {
	return fmt.Sprintf("locks: %q (token %d) can be trusted for %v, need %v", e.Key, uint64(e.Token), e.Left, e.Need)
}

// endError is the end of a context as an error. The text is the cause's. The
// error matches both the cause and context.Canceled or DeadlineExceeded.
type endError struct{ cause, err error }

func (e *endError) Error() string   { return e.cause.Error() }
func (e *endError) Unwrap() []error { return []error{e.cause, e.err} }

// endOf returns the cause of ctx, which has ended.
func endOf(ctx context.Context) error {
	cause, err := replica.Cause(ctx), ctx.Err()
	if errors.Is(cause, err) {
		return cause
	}
	return &endError{cause: cause, err: err}
}

// whyEnded returns the cause of ctx, which has ended. If heard, the error of
// the call under ctx, matches cluster.ErrNoQuorum, the result matches
// cluster.ErrNoQuorum too, and has its reason.
func whyEnded(ctx context.Context, heard error) error {
	why := endOf(ctx)
	session, sessionEnded := errors.AsType[*SessionError](why)
	switch {
	case errors.Is(why, ErrClosed):
		return ErrClosed
	case sessionEnded:
		return session // without context.Canceled: the caller's context has not ended
	case errors.Is(heard, cluster.ErrNoQuorum) && !errors.Is(why, cluster.ErrNoQuorum):
		return fmt.Errorf("%w: %w", noQuorum(heard), why)
	}
	return why
}

// notInTime returns the error of a call that failed with err when a time limit
// of this package passed. The result does not match the end of the caller's
// ctx, which may not have ended.
func notInTime(err error) error {
	if errors.Is(err, cluster.ErrNoQuorum) {
		return noQuorum(err)
	}
	return errors.New("no answer in time")
}

// noQuorum returns the part of err that matches cluster.ErrNoQuorum, with the
// reason, and without the end of any context.
func noQuorum(err error) error {
	if lost, ok := errors.AsType[*replica.NoQuorum](err); ok {
		return lost
	}
	return cluster.ErrNoQuorum
}

// denied returns err, or if the leader has refused the request, a
// *cluster.DeniedError.
func denied(v cluster.Verb, key string, err error) error {
	if d, ok := errors.AsType[*replica.Denied](err); ok {
		return &cluster.DeniedError{Verb: v, Key: key, Reason: d.Reason}
	}
	return err
}

// callError adds the verb and the key of a call to err, unless err has both
// already.
func callError(verb, key string, err error) error {
	if err == ErrClosed || hasType[*cluster.ConfigError](err) || hasType[*SessionError](err) || hasType[*cluster.DeniedError](err) ||
		hasType[*WaitError](err) {
		return err
	}
	return fmt.Errorf("locks: %s %q: %w", verb, key, err)
}

// hasType reports whether err is or wraps an error of type E.
func hasType[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

func configError(field, format string, args ...any) *cluster.ConfigError {
	return &cluster.ConfigError{Field: field, Reason: fmt.Sprintf(format, args...)}
}
