// Package timing is the one table of all timing constants below package locks.
// A duration that must stay above or below another one cannot be changed alone:
// timing_test.go checks every inequality that the rest of the house relies on,
// and ARCHITECTURE.md shows the same table.
//
// The package has no code. Durations that derive from the TTL are computed
// where they are used: a session's beats, marks and deadlines in locks and
// internal/term.
package timing

import "time"

// Raft (internal/consensus). Raft's timeouts are not derived from the TTL: they
// bound how fast a new leader is found, and below half a second a pause of the
// garbage collector or of a throttled CPU deposes a healthy leader.
const (
	Election        = 500 * time.Millisecond // a follower that hears nothing for so long stands for election
	LeaderLease     = 250 * time.Millisecond // a leader that reaches no majority for so long steps down
	RaftIO          = 2 * time.Second        // one exchange of raft messages
	Enqueue         = 5 * time.Second        // an entry waits for room in raft's queue
	Barrier         = 5 * time.Second        // a new leader waits until it has applied all earlier entries
	ConfigChange    = 5 * time.Second        // one change of the raft configuration
	Transfer        = 2 * time.Second        // one attempt to hand over leadership
	TransferStuck   = 6 * Election           // raft refuses entries for a transfer for so long: raft is restarted
	RaftStop        = 5 * time.Second        // raft waits for its own leader to stop
	SnapshotEvery   = 30 * time.Second       // raft looks whether a snapshot is due
	EstablishAgain  = 100 * time.Millisecond // pause after a term could not be established
	StoreStalled    = 3 * time.Second        // a write that takes so long ends leadership
	StoreHung       = 10 * time.Second       // a write that takes so long ends this member's voting
	VoterCheck      = time.Second            // a voter looks after its raft
	OrphanedVoter   = 10 * time.Second       // a voter without a leader asks whether it was removed
	StopWithoutDisk = StoreHung              // Stop gives up a raft whose store hangs
)

// Sessions (internal/term).
const (
	KeeperTick      = 100 * time.Millisecond // the keeper looks for sessions that are due
	ProcessStalled  = 500 * time.Millisecond // a tick so late shows that this process did not run
	ConfirmRound    = time.Second            // one round that confirms the leader's term
	EndDelayAgain   = time.Second            // pause after the end of a delay could not be proposed
	LeastFounding   = 2 * Seek               // a founded cluster grants nothing for so long, or for a TTL
	QuorumPatience  = 5 * time.Second        // no leader for so long counts as a lost quorum
	HealthPatience  = 2 * time.Second        // Health waits for the leader
	DepartPatience  = 3 * time.Second        // one attempt to be replaced as a voter
	GossipFarewell  = time.Second            // gossip spreads that this member leaves
	EstablishedLook = time.Second            // a member checks that its leader still answers
)

// Voters (internal/voters).
const (
	Reconcile      = time.Second      // the leader compares the voters with the wanted set
	StableMember   = 3 * time.Second  // a member alive for so long may become a voter
	DeadInMemory   = 15 * time.Second // a voter silent for so long is replaced, without a Dir
	DeadDurable    = 5 * time.Minute  // the same, with a Dir
	CatchUp        = time.Minute      // a new server must have caught up
	CandidateShy   = 30 * time.Second // a candidate that failed is passed over
	ProgressAnswer = time.Second      // a server tells how far its raft has come
)

// Streams and the way to the leader (internal/port, internal/stream,
// internal/link).
const (
	Handshake    = 5 * time.Second        // TLS and preamble of one connection
	StreamWrite  = 10 * time.Second       // one write; a slower peer loses the stream
	Dial         = 2 * time.Second        // one dial, and one question to another member
	AnswerLimit  = 3 * time.Second        // a leader that answers nothing for so long is left
	LeastBackoff = 20 * time.Millisecond  // first pause before another attempt
	MostBackoff  = 500 * time.Millisecond // longest pause before another attempt
	LeastAccept  = time.Millisecond       // first pause after a failed accept
	MostAccept   = time.Second            // longest pause after a failed accept
)

// Finding members and founding (internal/gossip, internal/founding).
const (
	Seek          = 500 * time.Millisecond // addresses in Join without a living member are tried
	JoinAlone     = 250 * time.Millisecond // the same while this member sees nobody
	JoinUnfounded = time.Second            // the same while this member is in no cluster
	JoinSettled   = 15 * time.Second       // the same when every address has a living member
	GossipTCP     = 3 * time.Second        // memberlist's limit for one exchange over a stream
	GossipUpdate  = time.Second            // memberlist spreads changed metadata
	Resolved      = 5 * time.Second        // a name's addresses are believed
	Resolve       = 2 * time.Second        // one look-up of a name
	FoundingRetry = time.Second            // pause between ballots
	FoundingTurn  = 2 * time.Second        // the next member by name waits so much longer before it proposes
)

// TCP keepalives (transport.TCP). A dead peer is found out after KeepaliveTotal,
// however idle the connection is.
const (
	KeepaliveIdle     = 10 * time.Second
	KeepaliveInterval = 5 * time.Second
	KeepaliveProbes   = 3
	KeepaliveTotal    = KeepaliveIdle + KeepaliveProbes*KeepaliveInterval
)
