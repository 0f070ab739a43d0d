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
	MaxKeys     = 1024    // keys of one Acquire
	MaxKeyBytes = 1 << 18 // bytes of all keys of one Acquire
	MaxName     = 128     // bytes of valid UTF-8 in a client's or node's name
	MaxMeta     = 4 << 10 // bytes of a session's or a grant's meta
	MaxValue    = 64 << 10
	MaxRev      = 1<<63 - 1
	MaxWaiters  = 10_000  // waiters per key, unless the command asks for fewer
	MaxHolders  = 10_000  // shared holders or permits per key
	MaxPassed   = 16      // times that a waiter is passed
	MaxUnder    = 256     // grants that a request is made under
	MaxUnseen   = 1 << 20 // remembered outcomes per session
	MaxSeen     = 4096    // entries of a command's Seen list
	MaxCycle    = 64      // links of a cycle that are told
	MinTTL      = 300     // milliseconds
	MaxTTL      = 24 * 60 * 60 * 1000
	MaxDelay    = 24 * 60 * 60 * 1000 // milliseconds
	MaxCommands = 1024                // commands in one log entry
)

// What the table remembers of keys that nobody holds or waits for.
const (
	MaxPast       = 1 << 16  // keys without a value: their last tokens; the longest free are forgotten first
	MaxFading     = 1 << 14  // keys with a value that may fade, and
	MaxFadingSize = 16 << 20 // bytes of those; the longest free are forgotten first
	MaxValues     = 1 << 16  // keys with a value that may not, held or free, and
	MaxValuesSize = 64 << 20 // bytes of those; one more is refused
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

// Raise makes the table do what a later format says. It never falls. The first
// format knows commands as they were before there was anything but exclusive
// locks: it refuses all others, and remembers nothing of a key that is free. So
// voters of two versions keep one table until the leader knows that every voter
// reads the later format, and says so in the log. Refused outside its term.
type Raise struct {
	Term   uint64
	Format uint64 // at most MaxFormat
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

// Mode says how an Acquire shares its keys. Modes travel in the log: never
// renumber.
type Mode uint8

const (
	Exclusive Mode = 0 // one holder, everyone else waits
	Shared    Mode = 1 // any number of shared holders, up to MaxHolders, and nobody else
	Permit    Mode = 2 // as many holders as the capacity that all of them name
)

// Acquire asks for a grant of Key, or of all Keys under one token. It is known
// by (Session, Seq): a second copy gets the first one's outcome. Seen lists seqs
// whose outcome the client has and will not ask for again; the table forgets
// those outcomes, but not that the seqs were used.
type Acquire struct {
	Session    SessionID
	Seq        uint64   // 1, 2, 3 … in the session's order of asking
	Key        string   // or
	Keys       []string // in ascending order, none twice, one at least: granted all at once
	Mode       Mode
	Of         uint32 // Permit: the capacity, 1 to MaxHolders
	Tree       bool   // conflict with every holder above and below the key, by path segment
	Try        bool   // refuse instead of queueing
	MaxWaiters uint32 // refuse if so many wait already; 0 means MaxWaiters
	Priority   int8   // pass waiters of lower priority, each at most MaxPassed times; one Key only
	Delay      uint64 // milliseconds for which the key stays taken after the session expired

	// With Conditional, the grant is refused if any was made after IfToken.
	Conditional bool
	IfToken     Token

	// Under lists the grants that the caller holds on to while it waits, each by
	// the token that it was granted under first: who waits for one of them waits
	// for this request too. What is not granted is passed over.
	Under []Token

	Meta []byte
	Seen []uint64 // at most MaxSeen, in any order; one that still waits is passed over
}

// Upgrade asks for the shared grant Token to become exclusive, under a new token.
// It goes before everyone who waits for the key. It is known by (Session, Seq),
// like an Acquire. Release and a further Upgrade may go on naming the first token,
// or the one before, and Withdraw the first Seq; SetValue and Downgrade may not.
type Upgrade struct {
	Session SessionID
	Seq     uint64
	Token   Token
	Under   []Token // besides Token
	Seen    []uint64
}

// Downgrade makes the exclusive grant Token a shared one. The token stays. It
// must be the present one: a late copy does not undo an upgrade.
type Downgrade struct {
	Session SessionID
	Token   Token
	Seen    []uint64
}

// SetValue leaves a value with the key of the exclusive grant Token, for the
// next holders to read; an empty one is none. The token must be the present one. A
// value that may fade is forgotten when there are too many of its kind, any other
// is refused if there are.
type SetValue struct {
	Session SessionID
	Token   Token
	Rev     uint64 // 1, 2, 3 … in the grant's order of setting: a late copy changes nothing
	Value   []byte
	Fade    bool
	Seen    []uint64
}

// Withdraw takes back the request (Session, Seq), whatever became of it: a
// waiter leaves the queue, a grant is freed, an upgrade whose outcome was not seen
// is undone (the outcome tells the token that the grant has now), and one not
// applied yet is refused when it arrives.
type Withdraw struct {
	Session SessionID
	Seq     uint64
	Seen    []uint64
}

// Release frees the grant Token of Session and grants its keys to their next
// waiters, in this one step. A token that Session does not hold frees nothing.
//
// With To, the first waiter of the client of that name goes before the others,
// each of which is passed once by that; if none waits, or one may not be passed,
// the release is refused as NoSuccessor and changes nothing.
type Release struct {
	Session SessionID
	Token   Token
	To      string
	Seen    []uint64
}

// Ask tells the holders of Key that somebody would like them to let go.
type Ask struct {
	Session SessionID // who asks
	Key     string
}

// Break takes the grant Token of Key away. Its holder is told by EventLost; the
// key is free once the holder released it in answer, or its session ended.
type Break struct {
	Session SessionID // who breaks
	Key     string
	Token   Token
}

// EndDelay frees the keys that an expired session's grant Token left taken for
// its Delay. Refused outside its term.
type EndDelay struct {
	Token Token
	Term  uint64
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
func (Upgrade) command()     {}
func (Downgrade) command()   {}
func (SetValue) command()    {}
func (Ask) command()         {}
func (Break) command()       {}
func (EndDelay) command()    {}
func (Raise) command()       {}
