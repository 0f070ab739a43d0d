package machine

// Limits. A command over a limit is refused and changes nothing.
const (
	MaxKey      = 512     // bytes of valid UTF-8 in a key; at least 1
	MaxKeys     = 1024    // keys of one Acquire
	MaxKeyBytes = 1 << 18 // bytes of all keys of one Acquire
	MaxLevels   = 4096    // slashes in all keys of one Acquire for several: trees look at each level
	MaxName     = 128     // bytes of valid UTF-8 in a client's or node's name
	MaxMeta     = 4 << 10 // bytes of a session's or a grant's meta
	MaxValue    = 64 << 10
	MaxRev      = 1<<63 - 1
	MaxWaiters  = 10_000  // waiters per key, unless the command asks for fewer
	MaxHolders  = 10_000  // shared holders, or permits, of a key; also the largest capacity
	MaxPassed   = 16      // times that one waiter is passed
	MaxUnder    = 256     // grants that a request lists as its lineage
	MaxHeld     = 50_000  // keys that a session holds or waits for
	MaxDetails  = 4 << 20 // bytes by which the remembered refusals of a session tell of other clients
	MaxUnseen   = 1 << 17 // remembered outcomes per session: of all its keys, and as many refusals at least
	MaxSeen     = 4096    // entries of a command's Seen list
	MaxCycle    = 64      // links of a cycle that an outcome lists
	MinTTL      = 300     // milliseconds
	MaxTTL      = 24 * 60 * 60 * 1000
	MaxDelay    = 24 * 60 * 60 * 1000 // milliseconds
	MaxCommands = 1024                // commands in one log entry
	MaxSlice    = 256                 // keys that one step of a session's end frees, and one grant more
	MaxAdmitted = 1024                // keys that one step grants to waiters, and one grant and the readers of one key more
	MaxPutOff   = 1 << 14             // visits to queues that are put off
	MaxEnded    = 1024                // nodes and directories with a process that Forget named
)

// Limits of groups.
const (
	MaxShards     = 16_384     // of a group
	MaxCallers    = 1000       // of a group, absent ones included
	MaxGroupName  = MaxKey - 6 // bytes, so that the name of the last shard's key is not too long
	MaxGroups     = 4096       // with callers, or being resized
	MaxIdleGroups = 1024       // without callers and without a held key, remembered for their numbers
	MaxBusyGroups = 4096       // without callers, remembered at all
	MaxAllShards  = 1 << 20    // of all groups with callers
	MaxEnlisted   = 256        // callers of one session, in all groups
	MaxWeight     = 1_000_000  // of a caller

	// Of one node, so that no member takes the room of the others.
	MaxNodeCallers = MaxCallers / 2   // of a group, absent ones included
	MaxNodeGroups  = MaxGroups / 2    // without a caller of another node
	MaxNodeShards  = MaxAllShards / 2 // of these groups
	MaxGrace       = MaxDelay         // milliseconds; also the largest Drain

	MaxNodeIdleGroups = MaxBusyGroups / 2 // without callers, of which the last was the node's
)

// Limits of the memory that idle keys take: see idle.go.
const (
	MaxPast       = 1 << 16  // idle keys without a value, remembered for their last tokens
	MaxFading     = 1 << 14  // idle keys with a fading value; with as many in use, another one is refused
	MaxFadingSize = 16 << 20 // bytes of the former, and of the latter; idle and in use together stay below twice the limits
	MaxValues     = 1 << 16  // lasting values, of keys in use and idle keys
	MaxValuesSize = 64 << 20 // bytes of lasting values
	MaxCapacities = 1 << 16  // set capacities, of keys in use and idle keys
)

// TreeShare divides MaxKeys, MaxKeyBytes and MaxLevels for an Acquire of several trees: a tree
// costs twice as much as a key, since it meets the keys above and below.
const TreeShare = 2

// MaxHeldBytes bounds the bytes of the keys, metas and lineages of a session's grants and
// waiters.
const MaxHeldBytes = 32 << 20

// Limits of what all sessions of one node have together: see nodeload.go.
const (
	MaxNodeSessions  = 1 << 14
	MaxNodeWaits     = 1 << 18
	MaxNodeHeld      = 1 << 21   // keys that they hold or wait for
	MaxNodeHeldBytes = 512 << 20 // bytes of these keys, of their metas and lineages
)

// MaxChanges bounds how far back Changes looks.
const MaxChanges = 1 << 16

// MaxGaps bounds the gaps among a session's spent seqs. A gap is a run of unspent
// seqs below a spent seq. A client that sends or marks as seen each used seq leaves
// a gap only while a request is under way.
const MaxGaps = 1 << 16

// MaxBlock bounds the tokens that a grant reserves at a time, and MaxReserved those of
// all grants of a second: see State.reserve.
const (
	MaxBlock    = 8192
	MaxReserved = 1 << 20
)

// MaxFreed bounds the grants that an Acquire frees, and MaxFreedKeys their keys.
const (
	MaxFreed     = 1024
	MaxFreedKeys = MaxKeys + MaxFreed
)

// MaxWithdrawn bounds the further requests of a Withdraw, and MaxWithdrawnKeys the keys of
// all requests of a Withdraw with further ones: Apply stays short.
const (
	MaxWithdrawn     = 1024
	MaxWithdrawnKeys = MaxKeys + MaxWithdrawn
)
