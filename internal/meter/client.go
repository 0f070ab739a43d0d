package meter

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"weak"
)

// MaxReasons bounds the reasons that a Client counts by.
const MaxReasons = 16

// Failure is the kind of the error of a request for a lock.
type Failure uint8

// The kinds of failures.
const (
	FailedHeld     Failure = iota // a try found the key taken
	FailedEnded                   // the caller's context ended
	FailedNoQuorum                // the caller's context ended, and there was no leader
	FailedFull                    // a limit of the table was reached
	FailedDeadlock                // waiting would have closed a cycle
	FailedClosed                  // the client or its node has ended
	FailedOther                   // anything else
	Failures                      // their number
)

// FailureNames are the names of the kinds, in order.
var FailureNames = [Failures]string{"held", "ended", "no_quorum", "full", "deadlock", "closed", "other"}

// Client has the counts of a client, over all of its sessions. All fields may be used
// by any goroutine.
type Client struct {
	Waits  Span                // of the requests that were granted
	Failed [Failures]Counter   // requests
	Holds  Span                // of the grants that ended
	Held   atomic.Int64        // grants
	Lost   [MaxReasons]Counter // grants, shards included, by reason

	Beats        Latency // beats that were confirmed
	BeatsFailed  Counter
	Opened       Counter             // sessions
	SessionsLost [MaxReasons]Counter // by reason

	Retried        Counter
	CleanupsFailed Counter
	Shards         atomic.Int64 // owned
	ShardsGained   Counter
	ShardsEnded    Counter
	TokensRefused  Counter // by guards whose refusals this client counts

	mu     sync.Mutex
	tables []weak.Pointer[Labels]
	labels atomic.Pointer[[]weak.Pointer[Labels]] // a copy of tables; nil: none
}

// ClientFigures are the figures of a client that are read, and not counted.
type ClientFigures struct {
	Session bool          // a session is open
	TTL     time.Duration // of the session
	Trust   time.Duration // the session's locks may be trusted for so long
	Waiting int           // requests without a verdict
}

// Add makes the client count by the labels of t as well, for as long as t is in use
// elsewhere: the client alone does not keep t.
func (c *Client) Add(t *Labels) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tables = slices.DeleteFunc(c.tables, func(p weak.Pointer[Labels]) bool { return p.Value() == nil })
	c.tables = append(c.tables, weak.Make(t))
	c.labels.Store(new(slices.Clone(c.tables)))
}

// Series returns the series that count a request for key. Without labels the result is
// nil. Series calls users' functions.
func (c *Client) Series(key string) (series []*Series) {
	tables := c.labels.Load()
	if tables == nil {
		return nil
	}
	for _, p := range *tables {
		if t := p.Value(); t != nil {
			series = append(series, t.series(key))
		}
	}
	return series
}
