package machine

// Code is the verdict on a command. Codes are part of messages: never renumber.
type Code uint8

const (
	OK      Code = 1 // done, or done before
	Granted Code = 2 // Token is the grant's token
	Queued  Code = 3 // the request waits behind the number of holders and waiters in Behind; Holder is one of them

	// Refusals. Nothing was changed, except that the command's Seen list was noted,
	// that the seq of a refused Acquire may be spent, that the grants of its Freed list
	// are released unless the Code is BadCommand, NoSession or WrongFormat, and that with Held
	// and Deadlock keys that are kept by blocks of tokens are recalled.
	Held           Code = 16 // Try: the key is held, by Holder; Reshard: a caller or a holder of the old number is left
	TooManyWaiters Code = 17 // Limit waiters are allowed; 0: the search for a deadlock would be too long, see MaxSearch
	Founding       Code = 18 // Try: nothing is granted before the founding wait is over
	NoSession      Code = 19 // the session is not open
	NotHeld        Code = 20 // the session does not hold that token; Ask, Break: nobody does, and Holder holds the key
	Withdrawn      Code = 21 // this seq was withdrawn, or its outcome was seen and forgotten
	WrongTerm      Code = 22 // the present term, in Limit, is another than the command's
	Founded        Code = 23 // Found: founded already
	NotFounded     Code = 24 // only Found and LeaderStart come before Found
	BadCommand     Code = 25 // malformed, unknown or over a limit: see Field and Limit
	TokensSpent    Code = 26 // the token counter has reached MaxToken
	TooManyUnseen  Code = 27 // the session remembers MaxUnseen outcomes already; a second copy is Withdrawn
	Deadlock       Code = 28 // waiting would close the cycle in Cycle
	WrongCapacity  Code = 29 // Permit: the key's capacity, in Limit, is less than N, or another than Of; SetCapacity: it is another than From; 0: it has none
	Changed        Code = 30 // Conditional: the key was granted since, last under Token
	TooOld         Code = 31 // Conditional: grants up to Token are forgotten, so the answer is not known
	WrongMode      Code = 32 // the command does not apply to a grant of this mode
	NoSuccessor    Code = 33 // Release: no waiter of that client may go first
	ValuesFull     Code = 34 // SetValue: no room; Limit values or bytes are allowed
	WrongFormat    Code = 35 // the table's format, in Limit, has no such command: see Raise
	NodeEnded      Code = 36 // Open: the process has ended, by the word of a later one: see Forget
	TooManyKeys    Code = 37 // the session would hold and wait for more than Limit keys, or bytes of keys; a second copy is Withdrawn
	NeverGranted   Code = 38 // Conditional: no grant of this cluster has so large a token; the last is Token
	WrongShards    Code = 39 // Enlist, Resize: the group has another number of shards, in Limit; Resize: 0, no group has the name
	TooManyCallers Code = 40 // Enlist: Limit callers are allowed, of a group or of a session
	TooManyGroups  Code = 41 // Enlist, Resize: Limit groups, or shards of all groups, are allowed
	Resizing       Code = 42 // Resize: the group is being resized to the number in Limit
	WrongVersion   Code = 43 // Decline, Assign, Reshard: the present version, in Limit, is another than the command's
	NoCaller       Code = 44 // Decline, Dismiss: the group has no such caller
	NoSuchSession  Code = 45 // EndSession: no session with the Ref is open

	TooManyCapacities Code = 46 // SetCapacity: Limit keys with a set capacity are allowed

	// TooMuchOfNode: the sessions of the node would have more than Limit of Field together:
	// see nodeload.go. A second copy of an Acquire or an Upgrade is Withdrawn.
	TooMuchOfNode Code = 48

	// Unfinished is no refusal: the session is ending, and has something left, or queues are
	// to be looked at. See EndSlice and AdmitSlice.
	Unfinished Code = 47
)

// Holder describes a grant in conflict with a request or, with Token 0, a waiter in
// conflict. Session is zero if the session has expired and the grant's delay runs.
type Holder struct {
	Session SessionID
	Client  string
	Node    string
	Token   Token
	Key     string // the key that it holds or waits for, if not the one asked for
}

// Link is one step of a cycle of waits: Client waits for Key. The next link's client
// holds Key under Token or, with Token 0, waits for Key and goes first. The client
// of the first link would close the cycle, and holds the Token of the last link.
type Link struct {
	Client string
	Key    string
	Token  Token
}

// Outcome is the answer to a command, the same on every voter.
type Outcome struct {
	Code    Code
	Token   Token  // Granted, Changed, TooOld, NeverGranted; OK of a Withdraw of an upgrade: the grant's present token; OK of an Extend: the token before the block
	Behind  uint32 // Queued
	Waiters uint32 // Granted: number of waiters for the keys
	Value   string // Granted: the key's value
	Unclean bool   // Granted: the exclusive holder before did not release
	Block   uint32 // Granted, OK of an Extend: tokens after Token that belong to the grant: see Spec
	Holder  Holder // Held, Queued, NotHeld; zero if nothing is granted
	Cycle   []Link // Deadlock; at most MaxCycle links
	Field   string // BadCommand: the field that is wrong; TooMuchOfNode: NodeKeys and the like
	Limit   uint64 // BadCommand, TooMuchOfNode, TooManyWaiters, TooManyKeys, WrongTerm, WrongCapacity, ValuesFull, WrongFormat, WrongShards and the others of groups
}

// Reason is the reason for which a grant or session ended. Reasons are part of
// messages: never renumber.
type Reason uint8

const (
	Expired Reason = 1 // the leader did not hear the session for its TTL
	Closed  Reason = 2 // the client closed the session
	Broken  Reason = 3 // by a Break
	Ended   Reason = 4 // the client's process has ended: see Forget
	Moved   Reason = 5 // the member has left the cluster; told by the member itself, never by a table
	Revoked Reason = 9 // by an EndSession
)

// EventKind is the kind of an Event. Kinds are part of messages: never renumber.
type EventKind uint8

const (
	EventGranted   EventKind = 1 // a waiter became a holder: Session, Seq, Key, Token, Waiters, Value, Unclean, Block
	EventLost      EventKind = 2 // a grant ended with its session, or is broken: Session, Seq, Key, Token, Reason
	EventEnded     EventKind = 3 // a session ended: Session, Reason; after its EventLost
	EventChanged   EventKind = 4 // a key's holders, queue or value changed: Key; once per command and key, last
	EventRefused   EventKind = 5 // a waiter was refused: Session, Seq, Key, Code, Token, Limit; the Cycle of a Deadlock is not told
	EventAsked     EventKind = 6 // a holder is asked to release: Session, Seq, Key, Token, By
	EventContended EventKind = 7 // a grant has its first waiter, or a refused request met a grant with a Block: Session, Seq, Key, Token
	EventDelayed   EventKind = 8 // an expired grant's keys stay taken until EndDelay: Token, Key, Delay
	EventPart      EventKind = 9 // a caller's part of a group: Session, Seq of the Enlist, Key is the group, Value: see DecodePart

	// EventRevoked tells a client that its session is revoked, and is to be closed:
	// Session, Reason. It comes before the grants that the step made possible.
	EventRevoked EventKind = 11

	// EventEnding tells that a session is ending, and is over for its client: Session,
	// Reason. Its grants that are left are lost by later commands: see EndSlice. In the place
	// of EventEnded, which follows with the last of them.
	EventEnding EventKind = 12

	// EventPutOff is for the leader: waiters are left to be granted by an AdmitSlice. Once
	// per command.
	EventPutOff EventKind = 13

	// EventGroup is for the leader and for readers: a group changed, or is gone. Key is
	// the group. Once per command and group, after all EventChanged.
	EventGroup EventKind = 10
)

// Event is an effect of a command on a session other than the proposer's. For a
// grant of several keys, Key is the first key.
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
	Block   uint32 // like an Outcome's
	By      string // name of the client that asks
	Delay   uint64 // milliseconds
	Limit   uint64 // like an Outcome's
}
