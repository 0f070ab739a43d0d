package machine

// Token numbers a grant. Every grant's token is larger than every token
// granted before it (I2). Zero means no token.
type Token uint64

// MaxToken bounds tokens to 53 bits, so that a token survives a JSON number, a
// Lua double and a signed SQL BIGINT.
const MaxToken Token = 1<<53 - 1

// SessionID names a session. The client that opens the session draws it at random.
type SessionID [16]byte

// ClusterID names a founded cluster. Its founder draws it at random.
type ClusterID [16]byte

// A Command is one step of the machine, and all that the log can carry. A
// command may be proposed many times: each is made so that a second copy
// changes nothing that the first did not.
//
// The commands are the struct types below, not pointers to them.
type Command interface{ command() }

// Found is the first command of a cluster. It sets the cluster's name, the
// floor of its tokens and the bound of its sessions' TTLs. A founded machine
// queues every Acquire and grants nothing until Lift, since survivors of an
// earlier cluster may still trust their locks. A founded machine refuses a
// second Found.
type Found struct {
	Cluster ClusterID
	Floor   Token  // the first token granted is at least this
	TTL     uint64 // milliseconds
}

// LeaderStart opens a leader's term. It is refused unless Term rises.
type LeaderStart struct{ Term uint64 }

// Lift ends the founding wait: the heads of all queues are granted, keys in
// ascending order. It is refused outside its term. A second Lift changes
// nothing.
type Lift struct{ Term uint64 }

// Bound sets the largest TTL that a session may ask for. Open sessions keep
// their TTLs. Before Lift the bound only rises, because the founding wait is as
// long as the bound. Bound is refused outside its term.
type Bound struct {
	Term uint64
	TTL  uint64 // milliseconds
}

// Raise raises the table's format, which never falls: see format.go. It is
// refused outside its term, and above MaxFormat.
type Raise struct {
	Term   uint64
	Format uint64
}

// Open opens a session. To open an open session again is not an error and
// changes nothing. A client never opens a closed or expired ID again, since it
// draws a new one.
type Open struct {
	Session SessionID
	Client  string
	Node    string
	TTL     uint64 // milliseconds; MinTTL up to the bound
	Meta    string // up to MaxMeta bytes for readers
}

// Acquire asks for a grant of Key, or of all Keys under one token. Its identity
// is (Session, Seq): a second copy gets the outcome of the first.
type Acquire struct {
	Session SessionID
	Seq     uint64   // 1, 2, 3 … in the session's order of requests
	Key     string   // either one key,
	Keys    []string // or one or more in ascending order without repeats, granted together
	Spec

	Try        bool   // refuse instead of queueing
	MaxWaiters uint32 // refuse if so many wait already; 0 means MaxWaiters

	// Under is the request's lineage: the grants that the caller keeps while it
	// waits, each by its first token. A waiter for one of these grants also waits
	// for this request. Tokens that were never granted are passed over.
	Under []Token

	// Seen lists seqs whose outcomes the client has and will not ask for again. The
	// table forgets those outcomes, but not that the seqs are spent. At most MaxSeen,
	// in any order; a seq whose request still waits is passed over.
	Seen []uint64
}

// Upgrade asks for the shared grant Token to become exclusive, under a new
// token. It goes before every waiter of the key. Its identity is (Session, Seq),
// like that of an Acquire. Afterwards Release and a further Upgrade may name the
// first token or the one before, and Withdraw the first Seq; SetValue and
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

// SetValue stores a value with the key of the exclusive grant Token, for the
// next holders to read. An empty value deletes the value. Token must be the
// grant's present token. The table forgets fading values when there are too
// many; it never forgets a lasting value, and refuses a new one when there are
// too many.
type SetValue struct {
	Session SessionID
	Token   Token
	Rev     uint64 // 1, 2, 3 … in the order in which the holder sets values: a late copy changes nothing
	Value   []byte
	Fade    bool // the value is a fading one
	Seen    []uint64
}

// Withdraw takes back the request (Session, Seq), whichever state it is in:
//
//   - a waiter leaves the queue;
//   - a grant is freed;
//   - an upgrade is undone if its outcome was not seen, and the outcome of the
//     Withdraw tells the grant's present token;
//   - a request that was not applied yet is refused when it arrives.
type Withdraw struct {
	Session SessionID
	Seq     uint64
	Seen    []uint64
}

// Release frees the grant Token of Session and grants its keys to their next
// waiters, in this one step. A token that Session does not hold frees nothing.
//
// With To, the first waiter of the client of that name goes before the others,
// and each of those counts as passed once. If no waiter has that client, or a
// waiter in between may not be passed, the Release is refused as NoSuccessor and
// changes nothing.
type Release struct {
	Session SessionID
	Token   Token
	To      string
	Seen    []uint64
}

// Ask tells the holders of Key that the client of Session would like them to
// release.
type Ask struct {
	Session SessionID
	Key     string
}

// Break takes the grant Token of Key from its holder, for the client of
// Session. EventLost tells the holder. The key is free once the holder releases
// in answer, or its session ends.
type Break struct {
	Session SessionID
	Key     string
	Token   Token
}

// EndDelay frees the keys that an expired session's grant Token kept taken for
// its Delay. It is refused outside its term.
type EndDelay struct {
	Token Token
	Term  uint64
}

// Silence marks a session that the leader has not heard for most of its TTL.
// From its own Apply of the mark each voter counts one TTL, whichever node
// leads. Silence is refused outside its term.
type Silence struct {
	Session SessionID
	Term    uint64
}

// Hear removes the mark of Silence. It is refused outside its term.
type Hear struct {
	Session SessionID
	Term    uint64
}

// Expire ends a session whose TTL has passed unheard. It is refused outside its
// term, so a deposed leader's verdict frees nothing.
type Expire struct {
	Session SessionID
	Term    uint64
}

// Close ends a session at its client's wish.
type Close struct{ Session SessionID }

func (Found) command()       {}
func (LeaderStart) command() {}
func (Raise) command()       {}
func (Lift) command()        {}
func (Bound) command()       {}
func (Open) command()        {}
func (Close) command()       {}
func (Silence) command()     {}
func (Hear) command()        {}
func (Expire) command()      {}
func (Acquire) command()     {}
func (Upgrade) command()     {}
func (Downgrade) command()   {}
func (SetValue) command()    {}
func (Withdraw) command()    {}
func (Release) command()     {}
func (Ask) command()         {}
func (Break) command()       {}
func (EndDelay) command()    {}
