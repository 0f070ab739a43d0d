// Package refused counts the messages and connections refused by a node, by
// kind, and tells the operator, by kind and not too often. Every room of the node
// notes its refusals here, so that a flood costs a counter and no line.
//
// The kinds are few and fixed, and each has its own pauses: a flood of one kind
// silences no other kind. Health shows the latest refusal of each kind beside its
// count, since an important refusal may be among the untold. docs/refused.md explains
// each kind to operators.
package refused

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/logging"
	"github.com/wardmote/wardmote/internal/timing"
)

// Kind is a kind of refusals. Each has one counter and one line in the log.
type Kind string

const (
	Handshake Kind = "handshake" // no common secret, or a certificate that proves nothing here
	Identity  Kind = "identity"  // a preamble names another process than the certificate
	Role      Kind = "role"      // the certificate does not allow the kind of message
	Raft      Kind = "raft"      // raft must not see the message
	Session   Kind = "session"   // the session belongs to another process
	Claim     Kind = "claim"     // a claim about the cluster that nothing confirms
	Packet    Kind = "packet"    // a gossip packet of a stranger
	Flood     Kind = "flood"     // a bound on resources is reached
)

// next has the operator's action for each kind.
var next = map[Kind]string{
	Handshake: "if the other side is a member, give it the same Security and Cluster, and a valid certificate; else look for the stranger at the address",
	Identity:  "give each member a certificate of its own name, or correct Security.Identity",
	Role:      "give voters a certificate of the voter role, or make the member thin",
	Raft:      "compare the versions of both members, and stop the sender if it goes on",
	Session:   "look for a program at the address that acts in another member's name",
	Claim:     "look for a program at the address that acts in another member's name",
	Packet:    "if the sender is a member, give it the same Security and Cluster; else look for the stranger at the address",
	Flood:     "look for the program that opens so many connections or requests",
}

// Kinds returns all kinds, in order.
func Kinds() []Kind { return slices.Sorted(maps.Keys(next)) }

// Log counts and tells refusals. A nil Log does neither. The methods may be called
// from any goroutine.
type Log struct {
	log   *slog.Logger
	limit *logging.Limiter

	mu     sync.Mutex
	totals map[Kind]*Total
}

// Total is the sum of the refusals of a kind, with the latest.
type Total struct {
	Kind   Kind
	Count  uint64
	From   string // the side refused last
	Detail string // of the latest refusal
	At     time.Time
	Next   string // an operator's next action
}

// maxText bounds the texts of a refusal, in bytes: a stranger may have chosen parts
// of them.
const maxText = 256

// New returns a Log that tells refusals to log.
func New(log *slog.Logger) *Log {
	return &Log{log: log, limit: logging.NewLimiter(1, timing.TellAgain, timing.ChatterMost), totals: make(map[Kind]*Total)}
}

// Note counts a refusal. from names the refused side, by name or address. The
// detail is the refused act, with the reason. Note blocks for the log alone.
func (l *Log) Note(k Kind, from, detail string) {
	if l == nil {
		return
	}
	from, detail = from[:min(len(from), maxText)], detail[:min(len(detail), maxText)]
	l.mu.Lock()
	t := l.totals[k]
	if t == nil {
		t = &Total{Kind: k, Next: next[k]}
		l.totals[k] = t
	}
	t.Count++
	t.From, t.Detail, t.At = from, detail, time.Now()
	l.mu.Unlock()
	if more, ok := l.limit.Pass(string(k)); ok {
		l.log.Warn("refused", "kind", string(k), "from", from, "detail", detail, "more", more, "next", next[k])
	}
}

// Totals returns the refusals so far, by kind. Kinds without a refusal are left out.
func (l *Log) Totals() []Total {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var totals []Total
	for _, k := range slices.Sorted(maps.Keys(l.totals)) {
		totals = append(totals, *l.totals[k])
	}
	return totals
}

// Counts returns the number of refusals so far, by kind.
func (l *Log) Counts() map[Kind]uint64 {
	if l == nil {
		return nil
	}
	counts := make(map[Kind]uint64)
	for _, t := range l.Totals() {
		counts[t.Kind] = t.Count
	}
	return counts
}
