package wire

import "github.com/wardmote/wardmote/internal/machine"

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

	// Predecessors are the clusters that this cluster succeeds: none for a first
	// founding. No cluster of the list grants again.
	Predecessors []machine.ClusterID
}

// Word says on whose word a founding rests: the source of the claim that nobody
// outside the founding group lives in a cluster.
type Word uint8

// Words travel on the wire: never renumber.
const (
	WordNone     Word = 0 // nobody's: declared members found, by their majorities
	WordComplete Word = 1 // the list in Join is complete, and every address of the list answers
	WordSilence  Word = 2 // the members outside the group were silent for long enough
	WordOperator Word = 3 // an operator named the members that are gone
)

// GroupMember is one process of a founding group.
type GroupMember struct {
	Name string
	Boot uint64
	Addr string // as the member advertises it
}

// PrepareRequest opens a ballot. With a Word, all of Group must promise.
type PrepareRequest struct {
	Ballot   Ballot
	Size     int      // the asker's InitialSize; all founders must agree
	Founders []string // the asker's Founders; all founders must agree
	Voters   int      // the asker's number of voters, 0 for automatic; all must agree
	TTL      uint64   // the asker's TTL in milliseconds; a difference is told
	Complete bool     // the asker's Join is complete; all founders must agree
	Floor    uint64   // the first token would be so high at least
	Word     Word
	Group    []GroupMember // empty without a Word
}

// PrepareAnswer is the promise of a founding member. With CodeNo it is a refusal,
// and Promised is the ballot that the member has promised before.
type PrepareAnswer struct {
	Promised Ballot
	Accepted Ballot    // the highest accepted ballot; zero if none
	Value    *Founding // the value accepted in ballot Accepted; nil if none
	Decided  *Founding // the founding of the member's cluster; nil if the member is in none
	Raft     string    // the raft ID under which the member would vote
	Durable  bool      // the member has a Dir
	Thin     bool      // the member never votes
	Token    uint64    // the highest token that the member remembers
	TTL      uint64    // milliseconds
	Members  int       // number of founders that the member sees alive, itself included
	Differs  string    // a difference between the configurations, told with promises and refusals
	Refused  string    // why the member refuses for a reason other than a higher ballot
	Claimed  bool      // the member refuses because a member of another cluster answers it
}

// AcceptRequest asks a founding member to accept Value in Ballot.
type AcceptRequest struct {
	Ballot Ballot
	Value  Founding
	Word   Word
	Group  []GroupMember // empty without a Word
}

// AcceptAnswer is the body of a refusal; an acceptance has no body.
type AcceptAnswer struct {
	Refused string
}

// WhoAnswer identifies a member and gives its knowledge of its cluster.
type WhoAnswer struct {
	Name     string
	Boot     uint64
	Addr     string    // as the member advertises it
	Founding *Founding // nil if the member is in no cluster
	Accepted *Founding // the value that the member has accepted last; nil if none
	Hint     Hint
	Ending   bool // the process ends, or leaves its cluster
}

// VouchRequest asks the leader of a cluster to confirm the cluster.
type VouchRequest struct {
	Cluster machine.ClusterID
}

// VouchAnswer is given by the leader of the cluster alone, after a majority of
// its voters confirmed the leader in a round that began after the request.
type VouchAnswer struct {
	Founding Founding
	Leader   string // the leader's member name
	Term     uint64
	Voters   []VoterAt // of the leader's configuration
}

// VoterAt is a voter with its address, as far as the teller knows.
type VoterAt struct {
	Raft string
	Addr string
}

// AttestRequest asks a voter whether it follows the leader of a term of a cluster,
// or leads in that term itself.
type AttestRequest struct {
	Cluster machine.ClusterID
	Voter   string // the raft ID of the voter; another incarnation answers no
	Leader  string // a member name
	Term    uint64
}

// RetireRequest asks a member of a cluster without a majority never to vote in
// that cluster again.
type RetireRequest struct {
	Cluster machine.ClusterID
	Word    Word // of the ballot
}

// RetireAnswer is the answer of a retired member, or, with CodeNo, a refusal.
type RetireAnswer struct {
	Raft     string // the raft ID under which the member would vote in a successor
	Token    uint64 // the highest token that the member saw
	TokenAge uint64 // milliseconds since the member saw Token
	TTL      uint64 // the largest bound of a TTL that the member was told, in milliseconds
	Voter    bool   // the member voted in the cluster until now
	LogTerm  uint64 // of the last entry in the member's log
	LogIndex uint64 // of the last entry in the member's log
	Refused  string // why the member refuses
}
