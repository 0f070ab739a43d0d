// Package term is one leader's term: everything that this node does while it
// leads. The package keeps the safety argument of the whole cluster: when a
// session may end, and when a beat may be acknowledged.
//
// The types are:
//
//   - Table, this voter's copy of the lock table. A Table outlives terms: every
//     voter applies the log to it, leader or not.
//   - Term, this node while it leads in one term. Establish makes a Term once raft
//     has won an election.
//   - Subscriber, the receiver of sessions' events: a member's stream, or this
//     node itself.
//   - Log, the replicated log as a Term needs it; internal/consensus implements it.
//
// Inside a Term, one part for each decision:
//
//   - keeper decides when a session is marked, when it ends, and when a delay ends.
//   - rounds decides whether this leader may still speak for the cluster.
//   - proposer decides which commands share a log entry.
//   - watches decides when a read or scan that waits is answered.
//   - answer.go decides what an answer leaves out to fit in one frame.
//
// ServeMember is the leader's end of a member's stream; internal/link has the
// other end and also uses a Term directly on the node that leads.
//
// The package does not know how the log is replicated, how voters are reached, how
// members are found, or which members vote. It must not import raft, gossip, the
// port or package cluster. It learns of a lost election only by Log.Leads and by
// Stop.
//
// Guarantees:
//
//   - A beat, read or scan is answered CodeOK only after a round that began later
//     than the question has confirmed the leader.
//   - No Expire is proposed for a session before a whole TTL since its last beat
//     was received, or since Start, or since this voter applied the session's mark.
//   - No beat is acknowledged while a Silence, Hear or Expire of its session is in
//     flight, or while the session is marked.
//   - Every done function is called exactly once, Stop included.
//   - Memory for commands and answers that wait is bounded, for each term and for
//     each member.
//
// A Term owns four goroutines: the proposer's, the rounds', the watches' and the
// ticker's. Start begins them and Stop joins them. ServeMember joins the
// goroutines of its stream before it returns. Subpackage termtest runs a real
// Term on a log in memory, for the tests of this package and of package locks.
package term
