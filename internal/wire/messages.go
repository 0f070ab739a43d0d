package wire

import "github.com/wardmote/wardmote/internal/machine"

// Hint names the leader, as far as the sender knows. A Hint proves nothing: the
// receiver asks the named leader, and only a leader answers.
type Hint struct {
	Term   uint64
	Leader string // the leader's member name; "" if unknown
	Addr   string
}

// AttachRequest is the first request on a member's stream to the leader.
type AttachRequest struct {
	Sessions []machine.SessionID // the leader sends the events of these sessions
	Term     uint64              // highest term of a leader that has served this member
}

// MaxAttach is the largest number of sessions in an AttachRequest.
const MaxAttach = 16 << 10

// AttachAnswer is the leader's answer to an AttachRequest.
type AttachAnswer struct {
	Term uint64
	TTL  uint64 // the largest TTL of a session, in milliseconds
}

// DepartRequest asks the leader to replace a voter that wants to leave.
type DepartRequest struct {
	Name string
	Boot uint64
}

// ConfirmRequest asks a voter to confirm that the voter's term is not above Term.
type ConfirmRequest struct {
	Term  uint64
	Voter string // the raft ID of the voter; another incarnation answers no
}

// Ballot orders the attempts to found a cluster.
type Ballot struct {
	Round uint64
	Name  string
	Boot  uint64 // the proposer's boot ID, so that no two processes share a ballot
}

// Founding is the value that the founding members of a cluster agree on.
type Founding struct {
	Cluster machine.ClusterID
	Voters  []string // raft IDs, ascending
	Floor   uint64   // the cluster's first token
	TTL     uint64   // milliseconds
}

// PrepareRequest opens a ballot.
type PrepareRequest struct {
	Ballot Ballot
	Size   int // the asker's number of founding members; all members must agree
	Voters int // the asker's number of voters; all members must agree
}

// PrepareAnswer is the promise of a founding member. With CodeNo it is a refusal,
// and Promised is the ballot that the member has promised before.
type PrepareAnswer struct {
	Promised Ballot
	Accepted Ballot    // the highest accepted ballot; zero if none
	Value    *Founding // the value accepted in ballot Accepted; nil if none
	Raft     string    // the member's raft ID
	Durable  bool      // the member has a Dir
	Token    uint64    // the highest token that the member remembers
	TTL      uint64    // milliseconds
	Members  int       // number of members that the member sees alive, itself included
}

// AcceptRequest asks a founding member to accept Value in Ballot.
type AcceptRequest struct {
	Ballot Ballot
	Value  Founding
}

// WhoAnswer identifies a member and gives its knowledge of its cluster.
type WhoAnswer struct {
	Name     string
	Boot     uint64
	Founding *Founding // nil if the cluster is not founded
	Hint     Hint
}

// InviteRequest asks a thin member to run raft, so that the leader can add the
// member to the raft configuration.
type InviteRequest struct {
	Term uint64
}

// InviteAnswer names the raft ID that the leader may add.
type InviteAnswer struct {
	Raft    string
	Durable bool
}

// ProgressAnswer reports the progress of a member's raft log.
type ProgressAnswer struct {
	Raft    string
	Term    uint64
	Last    uint64 // index of the last entry
	Applied uint64 // index of the last applied entry
}

// RemovedNotice tells a member that its raft ID is no longer in the raft
// configuration.
type RemovedNotice struct {
	Raft string
	Term uint64
}

// InConfigRequest asks the leader whether a raft ID is in the raft configuration.
type InConfigRequest struct {
	Raft string
}
