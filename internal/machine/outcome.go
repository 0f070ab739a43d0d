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
	Deadlock       Code = 28 // waiting would close the cycle that Cycle tells
	WrongCapacity  Code = 29 // Permit: others hold or wait for permits of the capacity in Limit
	Changed        Code = 30 // Conditional: granted since, last under Token
	TooOld         Code = 31 // Conditional: grants up to Token are forgotten, so nobody knows
	WrongMode      Code = 32 // the grant is not of the mode that this can be done with
	NoSuccessor    Code = 33 // Release: no waiter of that client may go first
	ValuesFull     Code = 34 // SetValue: no room; Limit says how many values or bytes there may be
	WrongFormat    Code = 35 // the table's format, in Limit, has no such command: see Raise
)

// Holder describes the grant that stands in somebody's way; with Token 0, a
// waiter that does. Session is zero if it has ended and its delay runs.
type Holder struct {
	Session SessionID
	Client  string
	Node    string
	Token   Token
	Key     string // that it holds or waits for, if not the one asked for
}

// Link is one step of a cycle of waits: who waits, and for what. The next
// link's client is the holder of Key under Token or, with Token 0, a waiter that
// goes first. The first link's client is who closes the cycle, and the last
// link's Token is one that it holds.
type Link struct {
	Client string
	Key    string
	Token  Token
}

// Outcome is the answer to a command, the same on every voter.
type Outcome struct {
	Code    Code
	Token   Token  // Granted, Changed, TooOld; OK of a Withdraw of an upgrade: the grant's now
	Behind  uint32 // Queued
	Waiters uint32 // Granted: how many wait for the key
	Value   string // Granted: left with the key
	Unclean bool   // Granted: the exclusive holder before did not release
	Holder  Holder // Held
	Cycle   []Link // Deadlock
	Field   string // BadCommand: what was wrong
	Limit   uint64 // BadCommand, TooManyWaiters, WrongTerm, WrongCapacity, ValuesFull
}

// Reason says why a grant or session ended. Reasons travel on the wire: never
// renumber.
type Reason uint8

const (
	Expired Reason = 1 // the leader did not hear the session for its TTL
	Closed  Reason = 2 // the client closed the session
	Broken  Reason = 3 // by a Break
)

// EventKind says what an Event tells. Kinds travel on the wire: never renumber.
type EventKind uint8

const (
	EventGranted   EventKind = 1 // a waiter became a holder: Session, Seq, Key, Token, Waiters, Value, Unclean
	EventLost      EventKind = 2 // a grant ended with its session, or is broken: Session, Seq, Key, Token, Reason
	EventEnded     EventKind = 3 // a session ended: Session, Reason; after its EventLost
	EventChanged   EventKind = 4 // a key's holders, queue or value changed: Key; once per command and key, last
	EventRefused   EventKind = 5 // a waiter was refused: Session, Seq, Key, Code, Token
	EventAsked     EventKind = 6 // a holder is asked to let go: Session, Seq, Key, Token, By
	EventContended EventKind = 7 // somebody waits for what a holder holds, the first since its grant: Session, Seq, Key, Token
	EventDelayed   EventKind = 8 // an expired grant's keys stay taken until EndDelay: Token, Key, Delay
)

// Event is an effect of a command for somebody other than its proposer. Of a
// grant of several keys, Key is the first.
type Event struct {
	Kind    EventKind
	Session SessionID
	Seq     uint64
	Key     string
	Token   Token
	Reason  Reason
	Code    Code
	Waiters uint32
	Value   string
	Unclean bool
	By      string // name of the client that asks
	Delay   uint64 // milliseconds
}
