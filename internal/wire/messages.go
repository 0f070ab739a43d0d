package wire

import "github.com/wardmote/wardmote/internal/machine"

// Hint tells who leads, as far as the sender knows. It decides nothing: a
// leader proves itself by answering.
type Hint struct {
	Term   uint64
	Leader string // member name; "" if unknown
	Addr   string
}

// AttachRequest begins a member's stream to the leader.
type AttachRequest struct {
	Sessions []machine.SessionID // whose events this stream shall carry
	Term     uint64              // the highest term this member was served in
}

// MaxAttach bounds the sessions in one AttachRequest.
const MaxAttach = 16 << 10

// AttachAnswer is the leader's.
type AttachAnswer struct {
	Term uint64
	TTL  uint64 // the bound of sessions' TTLs, in milliseconds
}

// DepartRequest asks the leader to replace a voter that wants to go.
type DepartRequest struct {
	Name string
	Boot uint64
}

// Query is replica.Query.
type Query struct {
	Key     string
	Also    []string
	Waiters int
	Value   bool
	Session machine.SessionID
	Seq     uint64
	Version uint64
}

// Answer is replica.Answer.
type Answer struct {
	Status  machine.Status
	Also    []Owner
	Behind  uint32
	Waits   bool
	Version uint64
}

// Owner is replica.Owner.
type Owner struct {
	Session machine.SessionID
	Token   machine.Token
}

// ScanQuery is replica.Scan.
type ScanQuery struct {
	Prefix string
	From   string
	Limit  int
	Since  uint64
}

// Scanned is replica.Scanned.
type Scanned struct {
	Keys    []machine.Status
	More    bool
	Version uint64
	Lost    bool
}

// ConfirmRequest asks a voter whether its term is not above Term.
type ConfirmRequest struct {
	Term  uint64
	Voter string // the raft ID that is asked; another incarnation says no
}

// Ballot orders the attempts to found a cluster.
type Ballot struct {
	Round uint64
	Name  string
	Boot  uint64 // of the proposer, so that no two processes share a ballot
}

// Founding is what a cluster is founded with: the value that the founding
// members agree on.
type Founding struct {
	Cluster machine.ClusterID
	Voters  []string // raft IDs, ascending
	Floor   uint64   // first token
	TTL     uint64   // milliseconds
}

// PrepareRequest opens a ballot.
type PrepareRequest struct {
	Ballot Ballot
	Size   int // how many members the asker takes to be declared; all must agree
	Voters int // and how many voters
}

// PrepareAnswer is a founding member's promise, or its refusal (CodeNo) with
// the ballot it has promised already.
type PrepareAnswer struct {
	Promised Ballot
	Accepted Ballot    // the highest ballot accepted; zero if none
	Value    *Founding // what was accepted in it
	Raft     string    // the answerer's raft ID
	Durable  bool      // it has a Dir
	Token    uint64    // the highest token it remembers
	TTL      uint64    // milliseconds
	Members  int       // how many members it sees alive, itself included
}

// AcceptRequest asks to accept Value in Ballot.
type AcceptRequest struct {
	Ballot Ballot
	Value  Founding
}

// WhoAnswer says who a member is and what it knows of its cluster.
type WhoAnswer struct {
	Name     string
	Boot     uint64
	Founding *Founding // nil: not founded
	Hint     Hint
}

// InviteRequest asks a thin member to run raft, so that it can be added.
type InviteRequest struct {
	Term uint64
}

// InviteAnswer names the raft ID to add.
type InviteAnswer struct {
	Raft    string
	Durable bool
}

// ProgressAnswer says how far a member's raft has come.
type ProgressAnswer struct {
	Raft    string
	Term    uint64
	Last    uint64
	Applied uint64
}

// RemovedNotice tells a member that its raft ID left the configuration.
type RemovedNotice struct {
	Raft string
	Term uint64
}

// InConfigRequest asks the leader whether a raft ID is in its configuration.
type InConfigRequest struct {
	Raft string
}
