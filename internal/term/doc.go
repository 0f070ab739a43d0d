// Package term is the term of a leader: all work of this node while leading. The
// package keeps the safety argument of the whole cluster: when a
// session may end, and when a beat may be acknowledged.
//
// The types are:
//
//   - Table, this voter's copy of the lock table. A Table outlives terms: every
//     voter applies the log, leader or not.
//   - Term, this node while leading in a term. Establish makes a Term once raft
//     has won an election.
//   - Subscriber, the receiver of sessions' events: a member's stream, or this
//     node itself.
//   - Log, the replicated log as a Term needs the log; internal/consensus
//     implements Log.
//
// Each part of a Term makes one decision:
//
//   - keeper decides when a session is marked, when it ends, and when a delay ends.
//   - rounds decides whether this leader may still speak for the cluster.
//   - proposer decides which commands share a log entry.
//   - watches decides when a waiting read or scan is answered.
//   - planner decides which caller of a group each shard is assigned to, and when.
//   - authority.go decides who may act for a session.
//   - answer.go decides about the parts of an answer when the frame is full.
//
// ServeMember is the leader's end of a member's stream; internal/link has the
// other end and also uses a Term directly on the node that leads.
//
// The package does not know how the log is replicated, how voters are reached, how
// members are found, or how voters are chosen. The package must not import raft,
// gossip, the port or package cluster. A Term learns of a lost election only by
// Log.Leads and by Stop.
//
// Guarantees:
//
//   - A beat, read or scan is answered CodeOK only after a round has confirmed the
//     leader, and the round began later than the question came.
//   - No Expire is proposed for a session before a whole TTL since the last
//     beat was received, or since Start, or since this voter applied the session's mark.
//   - No beat is acknowledged while a Silence, Hear or Expire of the session is in
//     flight, or while the session is marked.
//   - A request for an open session is taken from the session's own process alone, over
//     a subscriber that has shown the session's key. Every other request for the session
//     changes nothing.
//   - Every done function is called exactly once, Stop included.
//   - Memory for waiting commands and answers is bounded, for each term and for
//     each member.
//
// A Term owns five goroutines: the proposer's, the rounds', the watches', the planner's
// and the ticker's. Start begins and Stop joins all five. ServeMember joins the
// goroutines of the stream before returning. Subpackage termtest runs a real
// Term on a log in memory, for the tests of this package and of package locks.
package term
