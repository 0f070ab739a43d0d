// Package replica is the seam between locks and cluster: what a lock client
// needs of the node it runs on. cluster implements it; locks and its tests
// consume it.
package replica

import (
	"context"
	"errors"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
)

// Replica reaches the replicated lock table from this process, wherever the
// leader is. Its methods may be called from any goroutine.
type Replica interface {
	// Member is the name of the member this process is.
	Member() string

	// Cluster is the ID of the cluster it belongs to; zero before it knows.
	Cluster() machine.ClusterID

	// TTL is the largest session TTL the cluster grants, as far as this member
	// knows, in whole milliseconds.
	TTL() time.Duration

	// Propose has cmd committed and applied, and returns its outcome. It
	// forwards to the leader, and repeats the command over leader changes and
	// lost answers until ctx ends: commands name what they mean, so a second
	// copy is harmless. When it returns an error, nothing was applied if the
	// error is a *Error with Unknown false; otherwise the command may have been
	// applied, or may yet be.
	Propose(ctx context.Context, cmd machine.Command) (machine.Outcome, error)

	// Beat sends one keepalive of the session and returns nil once a majority
	// of the voters has confirmed, after the beat arrived, that its leader had
	// not been replaced. It fails with ErrNoSession if the session is not open.
	// It tries again, with new sends, until ctx ends: the caller must count
	// trust from its own call of Beat.
	Beat(ctx context.Context, id machine.SessionID) error

	// Attach routes the events of an open session to sink until Detach, over
	// leader changes and reconnections: after each, grants whose outcome the
	// session has not yet marked as seen are told again, and EventEnded if the
	// session has ended meanwhile. Calls of sink come one at a time for each
	// session and must not block.
	Attach(id machine.SessionID, sink func(machine.Event))
	Detach(id machine.SessionID)

	// Read answers q from state that was current at some moment during the
	// call. With q.Version set it waits until the answer's version differs.
	Read(ctx context.Context, q Query) (Answer, error)

	// Scan lists keys by prefix, from state that was current at some moment
	// during the call. With q.Since set it waits until there is something to
	// tell.
	Scan(ctx context.Context, q Scan) (Scanned, error)

	// Reached returns nil if a leader is known at the moment, and if not what a
	// call that ended now would say of that.
	Reached() error

	// Done is closed when the node stops; every call then fails with a *Error
	// wrapping the node's ErrStopped.
	Done() <-chan struct{}
}

// Query asks for the state of keys.
type Query struct {
	Key  string   // told whole: holders and queue, each up to Waiters of it
	Also []string // told by holder only; at most MaxAlso, of MaxAlsoBytes in all
	// Waiters bounds the lists of Key's holders and waiters; at most MaxListed.
	Waiters int
	// Value asks for what was left with Key.
	Value bool
	// Session and Seq, if not zero, ask how many this request waits behind.
	Session machine.SessionID
	Seq     uint64
	// Version, if not zero, is an earlier answer's: wait until it differs.
	Version uint64
}

// Scan asks for the keys that begin with a prefix and are held or waited for.
type Scan struct {
	Prefix string
	From   string // the first key to tell
	Limit  int    // at most MaxScanned
	// Since, if not zero, is an earlier answer's Version: wait, and tell instead
	// the keys that changed after it, those that are free now too.
	Since uint64
}

// Limits of a Query and a Scan.
const (
	MaxAlso      = 4096
	MaxAlsoBytes = 960 << 10 // so that a Query is one frame
	MaxListed    = 1024
	MaxScanned   = 256
	// Of each scanned key so many holders and waiters are told at most.
	MaxScannedEach = 16
)

// Answer is the state asked for, all of one moment.
type Answer struct {
	Status  machine.Status
	Also    []Owner // one for each of Query.Also
	Behind  uint32  // whom the request waits for
	Waits   bool    // the request waits
	Version uint64  // of all keys asked for; never zero
}

// Scanned is the keys asked for, all of one moment, in ascending order if Since
// was zero.
type Scanned struct {
	Keys []machine.Status
	// More tells that there are more keys: go on from after the last one, or,
	// with Since, from Version.
	More    bool
	Version uint64 // changes after this were not seen; never zero
	Lost    bool   // what changed after Since is not remembered: list anew
}

// Owner is the first holder of one of Query.Also; zero if nobody holds the key.
type Owner struct {
	Session machine.SessionID
	Token   machine.Token
}

// ErrNoSession is returned by Beat for a session that is not open.
var ErrNoSession = errors.New("session is not open")

// Errors of the node. Package cluster exports them under the same names, where
// their meaning stands.
var (
	ErrStopped  = errors.New("cluster: node stopped")
	ErrNoQuorum = errors.New("cluster: no quorum")
	ErrVersion  = errors.New("cluster: a member of an earlier version does not know this")
)

// Of returns the Replica of a *cluster.Node. Package cluster sets it when the
// program starts. It stands here, and not as a method of the node, because users
// cannot name the type Replica.
var Of func(node any) Replica

// Check returns why q is over its limits, or nil.
func (q Query) Check() error {
	over := len(q.Key) > machine.MaxKey || len(q.Also) > MaxAlso || q.Waiters < 0 || q.Waiters > MaxListed
	size := 0
	for _, key := range q.Also {
		size += len(key)
		over = over || len(key) > machine.MaxKey || size > MaxAlsoBytes
	}
	if over {
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

// Error is a failure to reach a verdict.
type Error struct {
	Unknown bool  // the command may have been applied, or may yet be
	Err     error // why, for example the context's error joined with ErrNoQuorum
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }
