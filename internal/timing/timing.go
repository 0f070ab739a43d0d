// Package timing is the one table of all timing constants below package locks.
// A duration that must stay above or below another one cannot be changed alone:
// timing_test.go checks every inequality that the rest of the house relies on,
// and ARCHITECTURE.md shows the same table.
//
// Durations that derive from the cluster's TTL are functions (ttl.go). A session's
// beats, marks and deadlines are computed where they are used, in locks and
// internal/term.
package timing

import "time"

// Raft (internal/consensus).
const (
	LeastElection   = 500 * time.Millisecond // the shortest election timeout, and the timeout after an attempt that failed
	MostElection    = time.Second            // the longest election timeout, without patience
	ColdElection    = 3 * time.Second        // raft's own timeout while no leader was ever heard: the voters ask each other earlier
	ColdLook        = 100 * time.Millisecond // first pause between such questions
	MostColdLook    = 300 * time.Millisecond // longest pause between such questions
	LeaderLease     = LeastElection          // a leader that reaches no majority for so long steps down
	Told            = time.Second            // a message that a follower has acknowledged is repeated no sooner
	ToldContact     = LeaderLease / 2        // the same only while the follower really answers
	Attend          = 100 * time.Millisecond // a voter looks how long its leader is silent, and how late its own timers are
	CalmHost        = 15 * time.Second       // late timers are remembered for so long at least, twice as long at most
	LeastStagger    = 50 * time.Millisecond  // a candidate waits so much longer than a better candidate, and longer on a slow disk
	LateAnswer      = 5 * time.Millisecond   // the last voters asked have so long to answer once a majority has agreed
	MostStagger     = 200 * time.Millisecond // the same on the slowest disk
	GoneAgain       = 2 * time.Millisecond   // first pause before a leader whose connections were reset is dialled again
	RaftIO          = 2 * time.Second        // one exchange of raft messages, and 256 KiB of a snapshot
	Follows         = 200 * time.Millisecond // a message of an unknown leader waits for the word of other voters
	MostFollows     = time.Second            // longest pause before other voters are asked about the same leader again
	Doubted         = 5 * time.Second        // a sender in doubt for so long is told to the operator
	Disproved       = 5 * time.Second        // a leader that sent an entry of no sound leader has its heartbeats refused for so long
	Enqueue         = 5 * time.Second        // an entry waits for room in raft's queue
	Barrier         = 5 * time.Second        // a new leader waits until it has applied all earlier entries
	ConfigChange    = 5 * time.Second        // one change of the raft configuration
	Transfer        = 2 * time.Second        // one attempt to hand over leadership
	TransferStuck   = 6 * LeastElection      // raft refuses entries for a transfer for so long: raft is restarted
	RaftStop        = 5 * time.Second        // raft waits for its own leader to stop
	SnapshotEvery   = 30 * time.Second       // raft looks whether a snapshot is due
	EstablishAgain  = 100 * time.Millisecond // pause after a term could not be established
	StoreStalled    = 3 * time.Second        // a write that takes so long ends leadership
	StoreHung       = 10 * time.Second       // a write that takes so long ends this member's voting
	VoterCheck      = time.Second            // a voter looks after its raft
	OrphanedVoter   = 10 * time.Second       // a voter without a leader asks whether it was removed
	DirLock         = time.Second            // a start waits so long for another process to give Dir back
	DirLockAgain    = 50 * time.Millisecond  // pause between two attempts to lock Dir
	StopWithoutDisk = StoreHung              // Stop gives up a raft whose store hangs
)

// Sessions (internal/term).
const (
	KeeperTick     = 100 * time.Millisecond // the keeper looks for sessions that are due
	ProcessStalled = 500 * time.Millisecond // a tick so late shows that this process did not run
	ConfirmRound   = time.Second            // one round that confirms the leader's term
	SweepBeyond    = 5 * time.Second        // ended sessions that no bound counts are forgotten so often at most
	BeatsTogether  = 10 * time.Millisecond  // from one round for beats alone to the next
	EndDelayAgain  = time.Second            // pause after the end of a delay could not be proposed
	PlanQuiet      = 200 * time.Millisecond // a group's first plan, and its balance, wait until no caller came for so long
	PlanMost       = 2 * time.Second        // the longest such wait
	PlanRest       = 10 * time.Millisecond  // from one plan of a group to the next, without orphans
	CrashSafeTTL   = time.Second            // below, a leader's crash may cost living holders their locks
	SilenceSafeTTL = 3 * time.Second        // the same for a leader that falls silent
	LeastFounding  = 2 * Seek               // a founded cluster grants nothing for so long, or for a TTL
	HealthPatience = 2 * time.Second        // Health waits for the leader
	FutureBoot     = 24 * time.Hour         // a process is forgotten although its boot is ahead of the leader's clock by so much
	ReadyPatience  = 2 * time.Minute        // a new member's Ready waits for the voters to be complete
	DepartPatience = 3 * time.Second        // one attempt to be replaced as a voter
	CloseSessions  = time.Second            // a node that ends waits until the sessions of its clients are closed
	StopLeaves     = 2 * time.Second        // Stop waits, in memory, until the member is replaced
	RunStops       = 8 * time.Second        // package wardmote closes the client and leaves the cluster; the node's end takes up to 2 s more
	RunWarns       = 5 * time.Second        // package wardmote tells of work that goes on after the end of its context
	RunCloses      = 5 * time.Second        // the client's part of RunStops
	NewcomerSeen   = 500 * time.Millisecond // gossip tells a leader that ends of a member it has confirmed the cluster to
	Goodbye        = 500 * time.Millisecond // a process that has ended tells the others
	GossipFarewell = time.Second            // gossip spreads that this member leaves
	RetireLook     = time.Second            // a retiring member asks whether its cluster can come back
	LineageAgain   = time.Second            // a member of another cluster of the name is asked again
	ConflictAgain  = 5 * time.Second        // a lasting conflict is told again, then after twice as long
	ConflictAtMost = time.Minute            // the longest pause between the tellings of a conflict
)

// Voters (internal/voters).
const (
	Reconcile      = time.Second            // the leader compares the voters with the wanted set, without news too
	ReconcileAgain = 100 * time.Millisecond // the same after a change has failed
	ProofAgain     = time.Second            // the second dial that proves the end of a process
	GoodbyeDoubt   = 3 * time.Second        // a process that has said goodbye answers nobody any more after so long
	StableMember   = 3 * time.Second        // a member alive for so long may become a voter that is not needed
	DeadInMemory   = 8 * time.Second        // a voter that raft misses for so long is replaced, without a Dir
	DeadDurable    = time.Minute            // the same with a Dir, once another member can vote
	VoterMissed    = 3 * time.Second        // a voter without an answer for so long counts as not reached
	FewerVoters    = time.Minute            // five voters become three when fewer than five members live for so long
	CatchUp        = time.Minute            // a new server must have caught up
	CandidateShy   = 30 * time.Second       // a candidate that failed is passed over
	ProgressAnswer = time.Second            // a voter is dialled and tells whether it leaves
)

// Streams and the way to the leader (internal/port, internal/stream,
// internal/link).
const (
	Handshake    = 5 * time.Second        // TLS and preamble of one connection
	RoundTrip    = 300 * time.Millisecond // an honest peer's answer during a handshake, to the other end of the world
	FirstByte    = 10 * time.Second       // an admitted connection without a byte is closed
	SilentPlace  = time.Second            // an admitted connection without a byte gives way to another one
	IdlePlace    = 10 * time.Second       // a connection without a byte for so long gives way to another one
	FrameWithin  = StreamWrite            // a frame that has begun must be complete
	FrameYields  = 500 * time.Millisecond // a frame that comes slowly gives way to a waiting one no sooner
	FrameLook    = 100 * time.Millisecond // a waiting frame looks after slow ones; a look twice as late shows that this process stood still
	StreamAge    = 24 * time.Hour         // a connection lives for at most so long: certificates expire and are revoked
	RenewWithin  = 10 * time.Second       // a connection at its end has so long to be replaced
	StaleSecret  = 30 * time.Second       // a connection under another secret than the newest is renewed
	Unread       = time.Second            // a peer that leaves bytes unread for so long loses its stream before one that reads
	StreamWrite  = 10 * time.Second       // one write; a slower peer loses the stream
	Dial         = 2 * time.Second        // one dial, and one question to another member
	DialNext     = 100 * time.Millisecond // from one dial of a raft ID to the dial of its next possible holder
	LeastBackoff = 20 * time.Millisecond  // first pause before another attempt
	MostHold     = 30 * time.Second       // a voter keeps a question for the leader at most for so long
	SignOfLife   = 100 * time.Millisecond // a leader heard so long after a question lives
	DirectAgain  = time.Second            // first pause before a relayed member dials its leader
	DirectMost   = time.Minute            // longest pause before a relayed member dials its leader
	JuryGone     = time.Hour              // voters of before that have not answered for so long are others now
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
	GossipTurn    = time.Second            // an accepted stream waits for its turn
	GossipNews    = 20 * time.Millisecond  // one of many changes of members is told in so long
	GossipVet     = 100 * time.Millisecond // a dial for the proof of a process takes its place for so long at least
	GossipStore   = 15 * time.Second       // one of many writes of the living members' addresses is done in so long
	PacketIdle    = 30 * time.Second       // a stream of packets without a packet for so long is closed
	PacketRest    = 500 * time.Millisecond // packets to a process that could not be dialled are dropped for so long
	GossipUpdate  = 10 * time.Millisecond  // changes of a member's own description go out together
	Resolved      = 5 * time.Second        // a name's addresses are believed
	Resolve       = 2 * time.Second        // one look-up of a name
	ListComplete  = time.Minute            // a name is answered three times over so long before its list counts as complete
	FoundingRetry = time.Second            // pause between ballots
	FoundingTurn  = 2 * time.Second        // the next member by name waits so much longer before it proposes

	FoundersPatience   = 5 * time.Second  // named founders wait so long for all of them before fewer found
	GhostPatience      = 5 * time.Second  // a founding waits so long for listed processes that do not answer
	GhostQuiet         = 15 * time.Second // such a wait begins anew after so long without such processes
	FoundingYield      = 3 * time.Second  // a member that promised a ballot on a word proposes none for so long
	SuccessionPatience = 5 * time.Second  // a cluster without a leader for so long may be ended
	Retirement         = 10 * time.Second // a ballot with retirements, and the end of a member's part in its cluster

	FloorAnswer = 1500 * time.Millisecond // a member waits so long for Recovery.TokenFloor before it refuses a ballot
	FloorAsk    = 5 * time.Second         // one call of Recovery.TokenFloor
	FloorFresh  = 10 * time.Second        // an answer of Recovery.TokenFloor counts for so long
	FloorAgain  = time.Second             // first pause after a call without an answer
	FloorAtMost = 15 * time.Second        // longest pause after a call without an answer
	FloorTold   = time.Minute             // trouble of Recovery.TokenFloor is logged once in so long
)

// Log lines (internal/logging, cluster, internal/port).
const (
	ChatterLeast = 10 * time.Second // first pause between equal lines of raft or memberlist
	ChatterMost  = 10 * time.Minute // longest pause between equal lines
	TellAgain    = 15 * time.Second // first pause before trouble that lasts is told again
	TellFounding = 2 * time.Second  // least pause between lines about the progress of a founding
	Unfounded    = time.Minute      // a member without a cluster for so long warns of it
)

// TCP keepalives (transport.TCP). A dead peer is found out after KeepaliveTotal,
// however idle the connection is.
const (
	KeepaliveIdle     = 10 * time.Second
	KeepaliveInterval = 5 * time.Second
	KeepaliveProbes   = 3
	KeepaliveTotal    = KeepaliveIdle + KeepaliveProbes*KeepaliveInterval
)

// Election returns the election timeout of a cluster with this bound of TTLs: a
// follower that hears nothing for so long, times its patience, stands. A TTL of
// zero stands for a bound that is not known yet.
//
// A tenth of the TTL, from LeastElection up to MostElection. Below LeastElection a
// pause of the garbage collector or of a throttled CPU deposes a healthy leader.
// Above MostElection nothing is gained: of the heartbeats, which come every Election/5,
// five in a row are lost already.
//
// The lease of a leader that hears nothing grows with the timeout, up to the timeout, by
// what its heartbeats answer in the place of a server (internal/consensus/heartbeat.go); raft's
// own lease stays LeaderLease. So a leader bears a silence of 400 ms at the least timeout, and
// of 725 ms at MostElection, less a round trip. A leader that writes to a silent follower, and so extends its lease by ToldContact, steps
// down later than its followers elect the next one when the timeout is the least. No promise
// depends on the order: entries need a majority, and beats a round of the voters. A lease in
// time only spares the members of the cut-off part a wait.
//
// With a TTL of 3 s a living holder survives a leader that falls silent. The
// holder beats every TTL/3, so the last acknowledged beat is at most 1 s old, and
// is trusted for TTL minus 130 ms: 1.87 s are left. A follower notices after
// Election, 500 ms, and at most 2*Attend, since the last heartbeats of two followers
// and their looks differ by Attend each; a vote and a new term take four writes and three
// exchanges; and even one attempt that fails costs no more than 2*LeastElection.
// Together 1.7 s, and attaching takes the rest.
func Election(ttl time.Duration) time.Duration {
	return min(max(ttl/10, LeastElection), MostElection)
}
