package locks

import (
	"time"
)

// Final returns an error for the lead of Elect or the ShardWork of Spread to return,
// wrapped or not. Elect or Spread then ends with err itself, unwrapped, and with nil if
// err is nil; the keys are freed as always. All other errors are tried again: see Elect
// and Spread. Do and Once
// return the error of Final like any other.
func Final(err error) error { return &finalError{err} }

// finalError is the error of Final.
type finalError struct{ err error }

func (e *finalError) Error() string {
	if e.err == nil {
		return "locks: final: done"
	}
	return "locks: final: " + e.err.Error()
}

func (e *finalError) Unwrap() error { return e.err }

const (
	// leastFailure is twice the shortest pause after an error of a lead, since
	// pauses are half to all of a time.
	leastFailure = 200 * time.Millisecond

	// Of the errors of works, by key, some lines are written at once, and then
	// one after each pause. The pauses double.
	failureBurst     = 3
	leastFailureLine = 10 * time.Second
	mostFailureLine  = 10 * time.Minute
)

// warnFailed reports err, the error of a work that held l and that runs again: in the
// node's log, a few times and then less often, and to Trace.Retrying.
func (c *Client) warnFailed(key string, l *Lock, err error) {
	c.trace.retrying(l.g.traceCtx(), LockEvent{Key: key, Call: l.g.call, Token: l.Token(), Err: err})
	left, ok := c.failed.Pass(key)
	if !ok {
		return
	}
	c.rep.Log().Warn("work failed", "key", key, "token", uint64(l.Token()), "client", c.name(), "error", err, "more", left,
		"next", "the work runs again after a pause; an error of locks.Final would end it")
}
