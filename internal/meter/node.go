package meter

import "time"

// Node has the counts of a node, from its start to its end. All fields may be used by
// any goroutine.
type Node struct {
	// While this node leads.
	Rounds        Latency // rounds that confirmed the leader
	RoundsFailed  Counter
	Commits       Latency // entries of this leader, from the proposal until applied here
	CommitsFailed Counter // entries refused, or of unknown fate
	Commands      Counter // in the entries of Commits
	EntryBytes    Counter // of the entries of Commits

	// This node's raft.
	Elections     Counter // in which this node was a candidate
	Terms         Counter // in which this node led and served
	LeaderChanges Counter // another leader, or another term, serves this member
	QuorumLosses  Counter // this member lost its leader
	Writes        Latency // transactions of the store, with their flush

	// This node's port.
	SentBytes     Counter
	ReceivedBytes Counter
}

// Figures are the figures of a node that are read, and not counted. Reading them asks
// nobody and waits for nobody.
type Figures struct {
	Version string // of this module

	Quorum    bool          // a leader serves this member
	QuorumFor time.Duration // for which Quorum has been so
	Granting  bool          // the cluster has granted since this node is in it
	Members   int           // that live, as gossip sees them
	Conflicts int

	Told                                     bool          // a leader has told of the voters
	ToldFor                                  time.Duration // age of the leader's last word
	Wanted, Present, Reached, Working, Bears int           // voters

	Raft                          bool // this member has a raft: the next are its
	Votes, Leads                  bool
	Term, LastIndex, AppliedIndex uint64
	LeaderSilence                 time.Duration // since a follower heard from its leader
	Stalled                       time.Duration // of the running write of the store

	// The lock table: this member's copy, or the leader's last word.
	Table                                         bool // it is known
	TableAge                                      time.Duration
	Keys, Grants, Waits, Sessions, Groups, Shards int

	QueueCommands, QueueBytes int    // of this leader's proposer
	Noisiest                  string // the member with most of the commands there; "": none
	NoisiestCommands          int
	Attached                  int // members that this leader serves

	Connections map[string]int // accepted and dialled, by kind
	BudgetBytes int            // held for other members
	Refused     map[string]uint64
}
