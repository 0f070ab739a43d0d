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
//   - proposer decides which commands share a log entry: lane.go in which order, pace.go how
//     many of a member.
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
// # The order of stopping
//
// Stop comes while entries are in flight, beats wait and rounds run, and the next leader
// may be established as soon as Stop has returned. An entry in flight may end a session or
// revoke it, and from then on no beat of the session may be acknowledged. The keeper learns
// this from the watch on the table. So the order is:
//
//  1. No subscriber joins any more, and events are told to nobody: the next leader tells
//     them.
//  2. The keeper acknowledges no beat any more, and says so of every beat that waits or
//     comes. From here on the entries in flight cannot contradict an answer, whatever their
//     verdict.
//  3. The context of the Term ends. A round under way confirms nothing, also if a majority
//     has answered, and the next round does not begin. So no read is answered either.
//  4. The proposer answers every command that is in no entry; the entry in flight is
//     answered by its verdict. Every wait for the end of a session ends: whoever waits asks
//     the next leader, since a wait must not be answered from memory alone.
//  5. The goroutines are joined. The proposer's may wait for a disk.
//  6. Only then is the table watched no more: until the last answer is given, the parts of
//     the Term see each entry before they see the entry's outcome.
//
// Not taken: to stop watching the table first, so that a stopping Term is left alone by
// raft. An order to end a session was applied behind such a Term's back; the order's
// outcome let the beats that waited for the order go on, and a round that ended at that
// moment acknowledged them.
//
// # What waits for the table
//
// The table's lock is held while an entry is applied, for milliseconds. A beat of a routed
// session takes Term.mu and the keeper's mu, and no holder of these waits for the table; the
// answer's summary is read from Table.latest. The first beat of a session on a new stream
// routes the session's events and looks at the table. So do reads, which a stream handles
// in turn with its beats.
//
// A Term owns five goroutines: the proposer's, the rounds', the watches', the planner's
// and the ticker's. Start begins and Stop joins all five. ServeMember joins the
// goroutines of the stream before returning. Subpackage termtest runs a real
// Term on a log in memory, for the tests of this package and of package locks.
package term
