package machine

// Token numbers a grant. Every grant's token is larger than every token
// granted before it (I2). Zero means no token.
type Token uint64

// MaxToken bounds tokens to 53 bits, so that a token survives a JSON number, a
// Lua double and a signed SQL BIGINT.
const MaxToken Token = 1<<53 - 1

// SessionID names a session. The ID is a hash of the session's key: see SessionKey.
type SessionID [16]byte

// ClusterID names a founded cluster. The founder draws the ID at random.
type ClusterID [16]byte

// A Command is one step of the machine. The log carries commands and nothing else. A
// proposer may send a command many times: a second copy changes nothing more than
// the first.
//
// The commands are the struct types below, not pointers to them.
type Command interface{ command() }

// Found is the first command of a cluster. Found sets the cluster's name, the floor
// of the tokens and the bound of the sessions' TTLs. A founded machine queues every
// Acquire and grants nothing until Lift, since survivors of an earlier cluster may
// still trust their locks. A founded machine refuses a second Found of its cluster.
//
// Found of another cluster begins a successor on this table: every session ends as
// if it expired, the founding wait begins again, with a bound that is no shorter than
// the TTL of any of these sessions, and the tokens go on above both the floor and the
// table's last token. Values stay. The table may lack the last
// entries of the former cluster, so every idle key without a value is forgotten:
// IfToken of an earlier token then is too old, instead of wrong.
type Found struct {
	Cluster ClusterID
	Floor   Token  // the first token granted
	TTL     uint64 // milliseconds
}

// LeaderStart opens a leader's term. The table refuses a term that does not rise.
type LeaderStart struct{ Term uint64 }

// Lift ends the founding wait: the heads of all queues are granted, keys in
// ascending order, with AdmitSlices if there are many. The table refuses a Lift outside its term. A second Lift changes
// nothing.
type Lift struct{ Term uint64 }

// Bound sets the largest TTL of new sessions. Open sessions keep their TTLs. Before
// Lift the bound only rises, because the founding wait is as long as the bound. The
// table refuses a Bound outside its term.
type Bound struct {
	Term uint64
	TTL  uint64 // milliseconds
}

// Raise raises the table's format: see format.go. A format never falls. The table
// refuses a Raise outside its term, or above MaxFormat.
type Raise struct {
	Term   uint64
	Format uint64
}

// Open opens a session. To open an open session again is not an error and changes
// nothing; for another process than the session's the table refuses the Open. A
// client draws a new key for each session, so never opens a closed or expired ID
// again.
type Open struct {
	Session SessionID
	Client  string
	Node    string
	Boot    uint64 // of the node's process: see Forget
	Dir     DirID  // of the node's process; zero: no Forget ends the session
	TTL     uint64 // milliseconds; MinTTL up to the bound
	Meta    string // up to MaxMeta bytes for readers
}

// Acquire asks for a grant of Key, or of all Keys under one token. The pair
// (Session, Seq) identifies the request: a second copy gets the outcome of the
// first.
type Acquire struct {
	Session SessionID
	Seq     uint64   // 1, 2, 3 … in the session's order of requests
	Key     string   // either one key,
	Keys    []string // or one or more in ascending order without repeats, granted together
	Spec

	Try        bool   // refuse instead of queueing
	MaxWaiters uint32 // refuse if so many wait already; 0 means MaxWaiters

	// Under is the request's lineage: the grants that the caller keeps during the
	// wait, each by its first token. A waiter for one of these grants also waits for
	// this request. Tokens never granted are passed over.
	Under []Token

	// Freed lists grants of Session to release first, in this same step, whatever comes of
	// the request: see Release. Tokens that Session does not hold free nothing. At most
	// MaxFreed grants, which have MaxFreedKeys keys together. The step grants the keys to
	// their waiters before it looks at the request.
	Freed []Token

	// Seen lists seqs whose outcomes the client has and will not ask for again. The
	// table forgets the outcomes, but not that the seqs are spent. At most MaxSeen,
	// in any order; the seq of a waiting request is passed over.
	Seen []uint64
}

// Upgrade asks for the shared grant Token to become exclusive, under a new token. An
// Upgrade goes before every waiter of the key. The pair (Session, Seq) identifies
// the Upgrade, like an Acquire. Afterwards Release and a further Upgrade may name
// the first token or the previous token, and Withdraw the first Seq; SetValue and
// Downgrade may not.
type Upgrade struct {
	Session SessionID
	Seq     uint64
	Token   Token
	Under   []Token // besides Token
	Seen    []uint64
}

// Downgrade makes the exclusive grant Token shared. The token stays. Token must
// be the grant's present token, so that a late copy does not undo an upgrade.
type Downgrade struct {
	Session SessionID
	Token   Token
	Seen    []uint64
}

// SetValue stores a value with the key of the exclusive grant Token, for the next
// holders to read. An empty value deletes the value. Token must be the grant's
// present token. The table forgets fading values when there are too many. The table
// never forgets a lasting value, and refuses a new lasting value when there are too
// many.
type SetValue struct {
	Session SessionID
	Token   Token
	Rev     uint64 // 1, 2, 3 … in the order in which the holder sets values: a late copy changes nothing
	Value   []byte
	Fade    bool // the value is a fading one
	Seen    []uint64
}

// Extend reserves up to Block further tokens for the grant Token, which has a block, so that
// the holder has tokens left when the block ends. Last is the last token of the grant's
// latest block: a late copy changes nothing. In the outcome OK, Token is the token before
// the new block and Block the number of its tokens: none for a copy, for a grant that another
// request has recalled, and if no tokens are left (see State.reserve).
type Extend struct {
	Session SessionID
	Token   Token
	Last    Token
	Block   uint32 // 1 up to MaxBlock
	Seen    []uint64
}

// Withdraw takes back the request (Session, Seq), whichever state it is in:
//
//   - a waiter leaves the queue;
//   - a grant is freed;
//   - an upgrade is undone if its outcome was not seen, and the outcome of the
//     Withdraw tells the grant's present token;
//   - a request that was not applied yet is refused when it arrives.
//
// More lists further Acquires to take back, at most MaxWithdrawn: a client may give
// up thousands of waits at once, and the waits of one key leave its queue in one
// pass. The Withdraw is refused if these requests, with Seq, have more than
// MaxWithdrawnKeys keys. An upgrade in More is passed over. The outcome is about Seq.
type Withdraw struct {
	Session SessionID
	Seq     uint64
	More    []uint64
	Seen    []uint64
}

// Release frees the grant Token of Session and grants the keys to their next
// waiters, in this single step unless these are more than MaxAdmitted. A token not held by Session frees nothing.
//
// With To, the first waiter of the client of that name goes before the others, and
// each of the others counts as passed once. The Release is refused as NoSuccessor
// and changes nothing if the client has no waiter, or if a waiter in between may not
// be passed, or if the grant is broken or the session revoked: such a holder only frees.
type Release struct {
	Session SessionID
	Token   Token
	To      string
	Seen    []uint64
}

// SetCapacity sets the number of permits of Key, for as long as the table knows it: until
// a SetCapacity to 0, which leaves the capacity to the requests for permits again. In
// this single step waiters that fit are granted, in order, and waiters for more permits
// than Of are refused as WrongCapacity. Permits that are held stay. The pair (Session,
// Seq) identifies the SetCapacity: a second copy changes nothing and has the first
// copy's outcome, until the outcome is seen. Refused as TooManyCapacities if
// MaxCapacities keys have a set capacity.
//
// With Compare, the SetCapacity is refused as WrongCapacity if the set capacity is neither
// From nor Of.
type SetCapacity struct {
	Session SessionID
	Seq     uint64 // spent like the seq of an Acquire, and of the same numbers
	Key     string
	Of      uint32 // at most MaxHolders
	Compare bool
	From    uint32 // 0 without Compare; otherwise the set capacity, 0: none is set
	Seen    []uint64
}

// Ask asks the holder of the grant Token of Key to release, or with Token 0 all holders of
// Key, in the name of Session's client. Refused as NotHeld if there is nobody to ask:
// another holder is in Holder then. The holder of a grant whose delay runs is gone.
type Ask struct {
	Session SessionID
	Key     string
	Token   Token
}

// Break takes the grant Token of Key from the holder, for the client of Session.
// EventLost tells the holder. The key is free once the holder releases in answer, or
// the holder's session ends.
type Break struct {
	Session SessionID
	Key     string
	Token   Token
}

// EndDelay frees the key that the Delay of an expired session's grant keeps taken.
// The table refuses an EndDelay outside its term.
type EndDelay struct {
	Token Token
	Term  uint64
}

// Silence marks a session that the leader has not heard for most of the TTL. Each
// voter counts one TTL from the moment of its own Apply of the mark, under any
// leader. The table refuses a Silence outside its term.
type Silence struct {
	Session SessionID
	Term    uint64
}

// Hear removes the mark of Silence. The table refuses a Hear outside its term.
type Hear struct {
	Session SessionID
	Term    uint64
}

// Expire ends a session after a TTL unheard. The table refuses an Expire outside its
// term, so a deposed leader's verdict frees nothing.
type Expire struct {
	Session SessionID
	Term    uint64
}

// Close ends a session at its client's wish.
type Close struct{ Session SessionID }

// Forget ends the sessions that the process Boot of Node has opened with the directory Dir,
// and no other: a later process with that directory knows that this one has ended. From
// then on the table refuses to open sessions for Boot and for earlier processes of Node
// with Dir, within MaxEnded. The leader takes a Forget from a process that has proved to
// have the key in Dir, so a mere namesake ends nothing; the table compares. The outcome is Unfinished while sessions of the process have keys left: see
// EndSlice. So it is while sessions of the process are open: one Forget ends MaxSlice.
type Forget struct {
	Node string
	Boot uint64
	Dir  DirID
}

func (Found) command()       {}
func (LeaderStart) command() {}
func (Raise) command()       {}
func (Lift) command()        {}
func (Bound) command()       {}
func (Open) command()        {}
func (Close) command()       {}
func (Forget) command()      {}
func (Silence) command()     {}
func (Hear) command()        {}
func (Expire) command()      {}
func (Acquire) command()     {}
func (Upgrade) command()     {}
func (Downgrade) command()   {}
func (SetValue) command()    {}
func (Extend) command()      {}
func (Withdraw) command()    {}
func (Release) command()     {}
func (Ask) command()         {}
func (Break) command()       {}
func (EndDelay) command()    {}
func (SetCapacity) command() {}
