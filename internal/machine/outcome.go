package machine

// Code is the verdict on a command. Codes travel on the wire: never renumber.
type Code uint8

const (
	OK      Code = 1 // done, or done before
	Granted Code = 2 // Token holds the grant's token
	Queued  Code = 3 // waiting; Behind says behind how many holders and waiters

	// Refusals. Nothing was changed, except that a command's Seen list has
	// been taken note of, and that the seq of a refused Acquire may be spent.
	Held           Code = 16 // Try: the key is held; Holder says by whom
	TooManyWaiters Code = 17 // Limit says how many may wait
	Founding       Code = 18 // Try: nothing is granted before the founding wait is over
	NoSession      Code = 19 // the session is not open
	NotHeld        Code = 20 // Release: the session does not hold that token
	Withdrawn      Code = 21 // Acquire: this seq was withdrawn, or its outcome was seen and forgotten
	WrongTerm      Code = 22 // proposed in another term than the present one; Limit is the present term
	Founded        Code = 23 // Found: founded already
	NotFounded     Code = 24 // nothing but Found and LeaderStart before Found
	BadCommand     Code = 25 // malformed, unknown or over a limit; Field and Limit say which
	TokensSpent    Code = 26 // the token counter has reached MaxToken
	TooManyUnseen  Code = 27 // the session remembers MaxUnseen outcomes already; a second copy is Withdrawn
)

// Holder describes the grant that stands in somebody's way.
type Holder struct {
	Session SessionID
	Client  string
	Node    string
	Token   Token
}

// Outcome is the answer to a command, the same on every voter.
type Outcome struct {
	Code   Code
	Token  Token  // Granted
	Behind uint32 // Queued
	Holder Holder // Held
	Field  string // BadCommand: what was wrong
	Limit  uint64 // BadCommand, TooManyWaiters, WrongTerm
}

// Reason says why a grant or session ended. Reasons travel on the wire: never
// renumber.
type Reason uint8

const (
	Expired Reason = 1 // the leader did not hear the session for its TTL
	Closed  Reason = 2 // the client closed the session
)

// EventKind says what an Event tells.
type EventKind uint8

const (
	EventGranted EventKind = 1 // a waiter became a holder: Session, Seq, Key, Token
	EventLost    EventKind = 2 // a grant ended with its session: Session, Seq, Key, Token, Reason
	EventEnded   EventKind = 3 // a session ended: Session, Reason; after its EventLost
	EventChanged EventKind = 4 // a key's holder or queue changed: Key; once per command and key, last
)

// Event is an effect of a command for somebody other than its proposer.
type Event struct {
	Kind    EventKind
	Session SessionID
	Seq     uint64
	Key     string
	Token   Token
	Reason  Reason
}
