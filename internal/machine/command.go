package machine

// Token numbers a grant. Every grant's token is larger than every token
// granted before it (I2). Zero means no token.
type Token uint64

// MaxToken bounds tokens to 53 bits, so that one survives a JSON number, a
// Lua double and a signed SQL BIGINT.
const MaxToken Token = 1<<53 - 1

// SessionID names a session. Its opener draws it at random.
type SessionID [16]byte

// ClusterID names a founded cluster. Its founder draws it at random.
type ClusterID [16]byte

// Limits. A command over one of them is refused and changes nothing.
const (
	MaxKey      = 512     // bytes of valid UTF-8 in a key; at least 1
	MaxName     = 128     // bytes of valid UTF-8 in a client's or node's name
	MaxMeta     = 4 << 10 // bytes of a session's or a grant's meta
	MaxWaiters  = 10_000  // waiters per key, unless the command asks for fewer
	MaxUnseen   = 1 << 20 // remembered outcomes per session
	MaxSeen     = 4096    // entries of a command's Seen list
	MinTTL      = 300     // milliseconds
	MaxTTL      = 24 * 60 * 60 * 1000
	MaxCommands = 1024 // commands in one log entry
)

// A Command is one step of the machine: what the log carries. Commands are
// proposed once or many times; each is written so that a second copy changes
// nothing that the first did not.
//
// The commands are the struct types below, not pointers to them.
type Command interface{ command() }

// Found is the first command of a cluster: it names the cluster, sets the floor
// of its tokens and the bound of its sessions' TTLs. A founded machine queues
// every Acquire and grants nothing until Lift: survivors of an earlier cluster
// may still trust their locks. Refused when the machine is founded already.
type Found struct {
	Cluster ClusterID
	Floor   Token  // the first token granted is at least this
	TTL     uint64 // milliseconds
}

// LeaderStart opens a leader's term. Refused unless Term rises.
type LeaderStart struct{ Term uint64 }

// Lift ends the founding wait: the heads of all queues are granted, keys in
// ascending order. Refused outside its term; nothing happens if lifted already.
type Lift struct{ Term uint64 }

// Bound sets the largest TTL that a session may ask for. Open sessions keep
// theirs. Before Lift it only rises: the founding wait is as long as the bound.
// Refused outside its term.
type Bound struct {
	Term uint64
	TTL  uint64 // milliseconds
}

// Open opens a session. Opening an open session again is not an error and
// changes nothing; a closed or expired ID is never opened again by its owner,
// since owners draw a new one.
type Open struct {
	Session SessionID
	Client  string
	Node    string
	TTL     uint64 // milliseconds; MinTTL up to the bound
	Meta    []byte
}

// Mode says how an Acquire shares the key.
type Mode uint8

// Exclusive is the one mode so far: one holder, everyone else waits.
const Exclusive Mode = 0

// Acquire asks for a grant of Key. It is known by (Session, Seq): a second copy
// gets the first one's outcome. Seen lists seqs whose outcome the client has
// and will not ask for again; the table forgets those outcomes, but not that
// the seqs were used.
type Acquire struct {
	Session    SessionID
	Seq        uint64 // 1, 2, 3 … in the session's order of asking
	Key        string
	Mode       Mode
	Try        bool   // refuse instead of queueing
	MaxWaiters uint32 // refuse if so many wait already; 0 means MaxWaiters
	Meta       []byte
	Seen       []uint64 // at most MaxSeen, in any order; one that still waits is passed over
}

// Withdraw takes back the Acquire (Session, Seq), whatever became of it: a
// waiter leaves the queue, a grant is freed, and one not applied yet is
// refused when it arrives.
type Withdraw struct {
	Session SessionID
	Seq     uint64
	Seen    []uint64
}

// Release frees the grant Token of Session and grants the key to its next
// waiter, in this one step. A token that Session does not hold frees nothing.
type Release struct {
	Session SessionID
	Token   Token
	Seen    []uint64
}

// Silence marks a session that its leader has not heard for most of its TTL.
// From its own Apply of the mark each voter counts one TTL, whoever leads.
// Refused outside its term.
type Silence struct {
	Session SessionID
	Term    uint64
}

// Hear removes the mark of Silence. Refused outside its term.
type Hear struct {
	Session SessionID
	Term    uint64
}

// Expire ends a session whose TTL has passed unheard. Refused outside its
// term: a deposed leader's verdict frees nothing.
type Expire struct {
	Session SessionID
	Term    uint64
}

// Close ends a session at its client's wish.
type Close struct{ Session SessionID }

func (Found) command()       {}
func (LeaderStart) command() {}
func (Lift) command()        {}
func (Bound) command()       {}
func (Open) command()        {}
func (Acquire) command()     {}
func (Withdraw) command()    {}
func (Release) command()     {}
func (Silence) command()     {}
func (Hear) command()        {}
func (Expire) command()      {}
func (Close) command()       {}
