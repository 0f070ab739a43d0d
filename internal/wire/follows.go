package wire

// FollowsRequest asks a voter which leader it follows. A voter that was away asks, to
// which another server speaks as the leader of a new term.
type FollowsRequest struct {
	Voter  string // the raft ID of the voter; another incarnation answers no
	Leader string // the raft ID of the server asked about
	Term   uint64
}

// FollowsAnswer tells whom a voter follows, and its committed configuration; a server that
// is asked about itself tells its latest configuration.
type FollowsAnswer struct {
	Term    uint64
	Leader  string // a raft ID, the voter's own if it leads; "" if none
	Index   uint64 // of the committed configuration in the log
	Servers []FollowsServer
}

// FollowsServer is a line of a configuration.
type FollowsServer struct {
	ID    string // a raft ID
	Voter bool
}
