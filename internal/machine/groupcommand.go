package machine

// The commands about groups: see group.go.

// Enlist makes Session a caller of Group, and creates the group unless the table
// knows it. The pair (Session, Seq) identifies the caller: a second copy changes
// nothing. The answer to a copy is OK while the caller is in the group, and Withdrawn
// afterwards, also if the first copy was refused: a client without the first answer
// asks again under a new seq. After OK an EventPart tells the caller its part.
//
// A caller of the client's name that is absent comes back: the caller takes its place
// and its assignment. Otherwise, with Succeeds, the assignment of an absent caller of
// that name passes to the caller.
//
// The Enlist is refused as WrongShards, with the group's number in Limit, if the group
// has another number of shards. While the group is resized, the number is the next
// one, and the caller waits without a part for the Reshard.
type Enlist struct {
	Session SessionID
	Seq     uint64 // spent like the seq of an Acquire, and of the same numbers
	Group   string // at most MaxGroupName bytes; the key of shard i is Group/i
	Shards  uint32 // 1 to MaxShards

	Weight   uint32 // the caller's share among the weights of all; 0 stands by; at most MaxWeight
	Succeeds string // the caller stands by while a caller of that client name is there

	// Of the group: the values of the caller that enlisted last count.
	Drain    uint64 // milliseconds, at most MaxGrace; the table passes them on in each Part
	Grace    uint64 // milliseconds, at most MaxGrace, for which a caller that left keeps its assignment
	MaxMoves uint32 // balance moves at a time; 0 is the planner's default

	Seen []uint64
}

// Delist takes the caller (Session, Seq) out of its group. Its shards are orphans from
// then on, unless Grace or a successor keeps them together. A Delist that overtakes
// the Enlist has the Enlist refused as Withdrawn.
type Delist struct {
	Session SessionID
	Seq     uint64 // of the Enlist
	Seen    []uint64
}

// Decline makes a shard of the caller (Session, Seq) an orphan again: the caller
// could not prepare for it. Version is the Version of the caller's latest Part; the
// Decline is refused as WrongVersion if the caller has another part by now, so a late
// copy changes nothing.
type Decline struct {
	Session SessionID
	Seq     uint64 // of the Enlist
	Shard   uint32
	Version uint64
	Seen    []uint64
}

// Resize begins to change the number of a group's shards from From to To. All shards
// become unassigned, and the parts of all callers go out empty with the mark Resized.
// Until the Reshard, only callers with To shards can enlist, and these wait. A second
// Resize to the same number is OK.
//
// The pair (Session, Seq) identifies the Resize: a second copy changes nothing, and is
// refused as Withdrawn. From another number than the group's is refused as WrongShards,
// with the group's number in Limit, which is 0 for a group that the table does not know;
// and another To while the group is resized as Resizing.
//
// Not taken: a Resize that creates an unknown group. A wrong name would succeed, and the
// first caller of a right one names its number anyway.
type Resize struct {
	Session SessionID
	Seq     uint64 // spent like the seq of an Acquire, and of the same numbers
	Group   string
	From    uint32
	To      uint32
	Seen    []uint64
}

// Move assigns a shard to the caller of an ID: see Caller.
type Move struct {
	Shard  uint32
	Caller uint32
}

// Assign assigns shards to callers. Assignment is an intent: the callers acquire and
// release the keys of the shards by ordinary commands. Version is the version of the
// group from which the moves were computed: the table refuses an Assign of another
// version as WrongVersion, and an Assign outside its term. Each move is to a present
// caller.
type Assign struct {
	Term    uint64
	Group   string
	Version uint64
	Moves   []Move // 1 to MaxShards, of ascending shards
}

// Dismiss ends the Grace of an absent caller: its shards are orphans from then on.
// Since names the absence: see Caller. The table refuses a Dismiss outside its term.
type Dismiss struct {
	Term   uint64
	Group  string
	Caller uint32
	Since  uint64
}

// Reshard completes a Resize. The table refuses a Reshard as Held while a caller of
// the old number is in the group or a key of the old shards is held, as WrongVersion
// if the group has changed since Version, and outside its term.
type Reshard struct {
	Term    uint64
	Group   string
	Version uint64
}

func (Enlist) command()  {}
func (Delist) command()  {}
func (Decline) command() {}
func (Resize) command()  {}
func (Assign) command()  {}
func (Dismiss) command() {}
func (Reshard) command() {}
