package locks

import (
	"fmt"

	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/internal/machine"
)

// WaitError: ctx ended while a request waited in the queue of Key. Nothing is held,
// and nothing is granted late. The error matches the cause of ctx, and
// context.Canceled or context.DeadlineExceeded. If no leader was known at the end,
// the error matches cluster.ErrNoQuorum too.
//
// The facts are as of the cluster's answer when the request was queued: nobody is
// asked once ctx has ended. The holder may be another one by now. Position falls
// while the request waits, and rises for waiters of a higher priority alone; with
// Trace.Queued it is up to date.
type WaitError struct {
	Key      string
	Position int // the number of holders and waiters before the request

	// The holder or waiter in the way, as in a HeldError. All empty if the cluster
	// did not say: during the first TTL of its life it grants nothing to anybody.
	Client   string
	Node     string
	Token    fence.Token // of the grant; 0 for a waiter
	Conflict string      // the conflicting key, if not Key itself
	Delayed  bool        // the holder's session has expired, and the delay of its grant runs

	err error // the end of ctx
}

func (e *WaitError) Error() string {
	text := fmt.Sprintf("locks: acquire %q: %v; waited behind %d", e.Key, e.err, e.Position)
	if e.Position == 0 && e.Client == "" {
		text = fmt.Sprintf("locks: acquire %q: %v; waited first in the queue: a new cluster grants nothing for a TTL", e.Key, e.err)
	}
	if e.Client != "" {
		held := HeldError{Key: e.Key, Client: e.Client, Node: e.Node, Token: e.Token, Conflict: e.Conflict, Delayed: e.Delayed}
		text += ": " + held.describe()
	}
	return text
}

// Unwrap returns the end of ctx.
func (e *WaitError) Unwrap() error { return e.err }

// waitError returns the error of w, which was queued, for a call whose ctx ended with
// err. The caller does not hold the session's mu.
func (s *session) waitError(w *waiter, err error) *WaitError {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := w.inTheWay
	return &WaitError{
		Key:      w.key,
		Position: w.position,
		Client:   h.Client,
		Node:     h.Node,
		Token:    fence.Token(h.Token),
		Conflict: h.Key,
		Delayed:  h.Client != "" && h.Session == machine.SessionID{},
		err:      err,
	}
}
