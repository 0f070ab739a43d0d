package machine

// GroupStatus is the present state of a group, for readers.
type GroupStatus struct {
	Shards   uint32 // number of shards
	Next     uint32 // the number of shards after the Reshard; 0 unless the group is being resized
	Version  uint64 // the table's command count when the group last changed
	Settled  bool   // a first Assign was applied since the group had no callers
	Drain    uint64 // milliseconds
	Grace    uint64 // milliseconds
	MaxMoves uint32 // 0: the planner's default
	Orphans  uint32 // number of shards assigned to no caller
	Callers  []Caller
}

// Caller is a caller of a group, for readers. Callers stand in the order of their IDs,
// the order of their coming.
type Caller struct {
	ID       uint32 // unique in the group; a caller that comes back has its former ID
	Session  SessionID
	Seq      uint64 // of the Enlist
	Client   string
	Node     string
	Weight   uint32
	Succeeds string // the caller stands by for a caller of that client name, which is there
	Absent   uint64 // the version at which the caller left; 0: the caller is there. An absent caller has no session
	Next     bool   // of the next number of shards: waits for the Reshard
	Assigned uint32 // number of shards assigned to the caller
}
