// Package replica is the seam between locks and cluster: the interface that a lock
// client needs from its node. Package cluster implements Replica; package locks
// and its tests call Replica.
package replica

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/wardmote/wardmote/internal/host"
	"github.com/wardmote/wardmote/internal/machine"
)

// Replica gives this process access to the replicated lock table, on any leader.
// All methods may be called from any goroutine.
type Replica interface {
	// Member returns the member name of this process.
	Member() string

	// Boot returns the number of this process: new and larger at each start of the
	// member.
	Boot() uint64

	// Dir names this process's directory, for the Opens of its sessions; zero: it has none.
	Dir() machine.DirID

	// Cluster returns the ID of the cluster, or zero while the ID is unknown.
	Cluster() machine.ClusterID

	// TTL returns the largest session TTL that the cluster grants, as far as this
	// member knows, in whole milliseconds.
	TTL() time.Duration

	// Clock returns the clock of this process's host. nil: package time.
	Clock() *host.Clock

	// NextLook returns the time from now to the next moment of a look that is taken again
	// and again: above zero, and every at most. All such looks of the process share these
	// moments, and with them the wake-ups of an idle process.
	NextLook(now time.Time, every time.Duration) time.Duration

	// Log returns the node's logger, which discards if the node has none.
	Log() *slog.Logger

	// NewKey draws the key of a session to be opened: see Claim. Under TLS the key is of
	// use on the streams of this member's process alone.
	NewKey() machine.SessionKey

	// Claim shows the key of a session to be opened to the leader, and to every later
	// leader until Detach. A leader takes the requests for a session from the streams
	// alone on which the key was shown, so Claim comes before the session's Open.
	// Claim does not block.
	Claim(key machine.SessionKey)

	// Propose sends cmd to the leader, waits until cmd is committed and applied,
	// and returns the outcome. After a leader change or a lost answer, Propose
	// sends cmd again, until ctx ends. A second copy is harmless, because a
	// command names the grant or the request that it changes.
	//
	// A Close, a Release or a Withdraw fails with ErrAllEnd if there is no leader
	// and every other member has said that it ends.
	//
	// If the error is a *Error with Unknown false, cmd was not applied. If the *Error
	// wraps a *Denied, the leader's Security.Authorize has refused cmd. After any
	// other error cmd may have been applied, or may be applied later.
	Propose(ctx context.Context, cmd machine.Command) (machine.Outcome, error)

	// Beat sends a keepalive of the session to the leader. Beat returns nil when a
	// majority of the voters, asked after the arrival of the beat, has confirmed
	// that the leader was not replaced. Beat fails with ErrNoSession if the
	// session is not open. After other failures Beat sends again, until ctx ends,
	// so the caller must count trust from the start of its call of Beat.
	Beat(ctx context.Context, id machine.SessionID) error

	// Attach sends the events of an open session to sink until Detach. Attach comes
	// after Claim and the Open, and before the session's first request. The events
	// continue after a leader change or a reconnection. After each, sink gets
	// again all grants with an outcome that the session has not yet marked as
	// seen, and EventEnded if the session has ended meanwhile. The calls of sink
	// for a session come one after the other. A call of sink must not block.
	Attach(id machine.SessionID, sink func(machine.Event))

	// Detach ends Claim and Attach. After Detach every request for the session, Close
	// included, is refused: Detach is the last call.
	Detach(id machine.SessionID)

	// Read answers q from a state that was current at some moment during the
	// call. If q.Version is not zero, Read waits until the answer's Version is
	// different from q.Version.
	Read(ctx context.Context, q Query) (Answer, error)

	// Scan lists keys by prefix, from a state that was current at some moment
	// during the call. If q.Since is not zero, Scan waits until there is a change
	// to report.
	Scan(ctx context.Context, q Scan) (Scanned, error)

	// Values lists values by prefix, from a state that was current at some moment during
	// the call.
	Values(ctx context.Context, q ValuesQuery) (ValuesPage, error)

	// Sessions lists open sessions, from a state that was current at some moment during
	// the call. If q.Gone is set, Sessions waits until the session is not open.
	Sessions(ctx context.Context, q SessionsQuery) (SessionsPage, error)

	// Local runs f on this member's own copy of the lock table and returns facts about the
	// copy, or returns false without a call of f if this member has none. Local asks
	// nobody, and the copy may be of the past. f must be short and must not keep the
	// table: entries wait for f.
	Local(f func(*machine.State)) (Copy, bool)

	// Reached returns nil if this member knows a leader now. Otherwise Reached
	// returns the reason, the same as a call that ends now.
	Reached() error

	// Done returns a channel that is closed when the node begins to stop. Every
	// session of this process then ends its locks, and closes itself in the
	// cluster by Propose. Soon after that every call fails with a *Error that
	// wraps the node's ErrStopped.
	Done() <-chan struct{}

	// Enter registers an open session before its first lock: a node ends after
	// its guests. Enter returns nil once Done is closed.
	Enter() *Guest
}

// Copy describes a member's own copy of the lock table.
type Copy struct {
	Index   uint64    // the copy has every entry up to this index of the log
	Current time.Time // when the copy was current, but for the entries of the last moments
	Times   Times     // of the sessions; nil unless this member leads
}

// Times knows the deadlines of sessions: the leader does.
type Times interface {
	// Describe fills in the fields of grants that only the leader knows.
	Describe(grants []machine.Grant)

	// TimesLeft returns the milliseconds until each session expires if it is not heard
	// again.
	TimesLeft(sessions []machine.SessionStatus) []uint64
}

// Query asks for the state of a key, or of a group. Query, Scan and their answers travel between
// members in these fields: package wire says how fields may change.
type Query struct {
	Key string // the answer has its holders and its queue, up to Waiters of each
	// Waiters is the largest length of each list: the holders and the waiters of
	// Key. At most MaxListed.
	Waiters int
	// Value asks for the value stored with Key.
	Value bool
	// Session and Seq, if not zero, name a request. The answer has the number of
	// holders and waiters ahead of this request.
	Session machine.SessionID
	Seq     uint64
	// Group, if not empty, names a group of shards. The answer has its state.
	Group string
	// Since, if not zero, is the Version of the GroupStatus that the reader has: the
	// answer may leave out the callers that have not changed since.
	Since uint64
	// Version, if not zero, is the Version of an earlier answer: Read waits for a
	// different Version.
	Version uint64
}

// Scan asks for all keys with a prefix and with a holder or a waiter.
type Scan struct {
	Prefix string
	From   string // the smallest key of the answer
	Limit  int    // at most MaxScanned
	// Since, if not zero, is the Version of an earlier answer: Scan waits for a
	// change and answers with the keys changed after Since, free keys included.
	Since uint64
	// Shards asks for the shards of a group in place of the keys: Prefix is the group's
	// name and "/". See Scanned.PackShards.
	Shards bool
}

// Limits of a Query and a Scan.
const (
	MaxListed  = 1024
	MaxScanned = 256
	// MaxScannedEach is the largest number of holders and of waiters in the
	// status of each scanned key.
	MaxScannedEach = 16
)

// Answer is the requested state. All parts are of the same moment.
type Answer struct {
	Status  machine.Status
	Behind  uint32 // number of holders and waiters ahead of the named request
	Waits   bool   // the named request waits
	Version uint64 // the version of the requested key, and of the group, together; never zero

	// Group is the state of Query.Group: nil if the table does not know the group, or if
	// none was asked for.
	Group *machine.GroupStatus
	// Since, if not zero, is the Query.Since: Group has only the callers that came or
	// changed since, and Gone the IDs of callers that have gone since. An ID that is in
	// both lists has come again. If Since is zero, Group has all callers.
	Since uint64
	Gone  []uint32
}

// Scanned has the requested keys. All parts are of the same moment. If Since was
// zero, the keys are in ascending order.
type Scanned struct {
	Keys []machine.Status
	// More means that there are more keys. The next Scan continues after the last
	// key, or, if Since was not zero, from Version.
	More    bool
	Version uint64 // later changes are not in this answer; never zero
	Lost    bool   // the changes after Since are forgotten: list all keys again

	// In place of Keys, if the Scan has asked for Shards.
	Shards []byte
	Owners []ShardOwner
	Last   string // the last of the keys in place of which they stand
}

// ErrNoSession is returned by Beat for a session that is not open.
var ErrNoSession = errors.New("session is not open")

// ErrAllEnd: no leader is left to be told of free keys, since every other member has
// announced its end.
var ErrAllEnd = errors.New("every other member has ended")

// Errors of the node. Package cluster exports them under the same names, where
// their meaning stands.
var (
	ErrStopped  = errors.New("cluster: node stopped")
	ErrNoQuorum = errors.New("cluster: no quorum")
	ErrDenied   = errors.New("cluster: denied")
	ErrVersion  = errors.New("cluster: a member of an earlier version does not know this")
)

// NoQuorum is ErrNoQuorum with a reason made of facts: see cluster.Health.
type NoQuorum struct{ Reason string }

func (e *NoQuorum) Error() string { return ErrNoQuorum.Error() + ": " + e.Reason }

// Unwrap returns ErrNoQuorum.
func (e *NoQuorum) Unwrap() error { return ErrNoQuorum }

// Denied is a refusal by Security.Authorize. Package cluster exports the facts as a
// DeniedError.
type Denied struct{ Reason string }

func (e *Denied) Error() string { return ErrDenied.Error() + ": " + e.Reason }

// Unwrap returns ErrDenied.
func (e *Denied) Unwrap() error { return ErrDenied }

// Of returns the Replica of a *cluster.Node. Package cluster sets it when the
// program starts. It stands here, and not as a method of the node, because users
// cannot name the type Replica.
var Of func(node any) Replica

// Check returns why q is over its limits, or nil.
func (q Query) Check() error {
	if len(q.Key) > machine.MaxKey || len(q.Group) > machine.MaxKey || q.Waiters < 0 || q.Waiters > MaxListed {
		return errOverLimits
	}
	return nil
}

// Check returns why s is over its limits, or nil. From may be the successor of
// a key, which is one byte longer than the key.
func (s Scan) Check() error {
	if len(s.Prefix) > machine.MaxKey || len(s.From) > machine.MaxKey+1 || s.Limit < 1 || s.Limit > MaxScanned {
		return errOverLimits
	}
	return nil
}

var errOverLimits = errors.New("cluster: query over its limits")

// Error reports that a call ended without a verdict.
type Error struct {
	Unknown bool  // the command may have been applied, or may be applied later
	Err     error // the reason, for example the context's error joined with ErrNoQuorum
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }
