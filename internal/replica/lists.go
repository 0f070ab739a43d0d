package replica

import "github.com/wardmote/wardmote/internal/machine"

// The questions for lists besides Scan. They travel between members as Query does.

// ValuesQuery asks for the keys with a prefix and with a value.
type ValuesQuery struct {
	Prefix string
	From   string // the smallest key of the answer
	Limit  int    // at most MaxScanned
}

// ValuesPage has the values. All are of the same moment, the keys in ascending order.
type ValuesPage struct {
	Values []machine.KeyValue
	More   bool // there are more keys: the next question continues after the last key
}

// SessionsQuery asks for the open sessions in the order of their Refs.
type SessionsQuery struct {
	From  machine.SessionRef // the smallest Ref of the answer
	Limit int                // at most MaxScanned

	// Gone asks another question: Sessions waits until no session has the Ref From, and
	// answers with an empty page.
	Gone bool
}

// SessionsPage has the sessions. All are of the same moment.
type SessionsPage struct {
	Sessions []ListedSession
	More     bool               // there are more sessions: the next question continues at NextFrom
	NextFrom machine.SessionRef // set with More
}

// ListedSession is a session that has not ended, for readers. The session's ID is not in it.
type ListedSession struct {
	Ref    machine.SessionRef
	Client string
	Node   string
	TTL    uint64 // milliseconds
	Opened uint64 // unix milliseconds of the clock of the leader of that time, for people to read
	Left   uint64 // milliseconds until the session expires if it is not heard again
	Ending bool   // by EndSession, and the client has not answered; or its keys are being freed
	Keys   int    // that it holds
	Waits  int
	Meta   string
}

// MaxPageBytes bounds the keys and values, or the names and metas, of a page. At least
// one element is in a page.
const MaxPageBytes = 256 << 10

// Check returns why q is over its limits, or nil. From may be the successor of a key,
// which is one byte longer than the key.
func (q ValuesQuery) Check() error {
	return Scan{Prefix: q.Prefix, From: q.From, Limit: q.Limit}.Check()
}

// Check returns why q is over its limits, or nil.
func (q SessionsQuery) Check() error {
	if q.Limit < 1 || q.Limit > MaxScanned {
		return errOverLimits
	}
	return nil
}
