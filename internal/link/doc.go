// Package link is a member's way to the leader, and the replica.Replica of the
// member's lock clients.
//
// The package decides:
//
//   - where the leader is, and when to leave a leader for another leader (find.go,
//     link.go);
//   - when a request is repeated, and when its fate is unknown (call.go);
//   - the routing of sessions' events to this member, over every change of leader.
//
// The package does not know how a leader works, how voters are chosen, or how
// members find each other. No hint is trusted: a leader proves itself by answering
// Attach.
//
// The types are Link, the way of this node; upstream, the present connection,
// either this node's own term or remote (a stream to the leader); and Leader,
// the interface of this node's own term.
//
// Package cluster makes one Link for each node, runs and joins Run, and gives the
// Link to package locks as a replica.Replica.
//
// Guarantees:
//
//   - A request is repeated over changes of leader and lost answers until its
//     context ends. An error says Unknown if any attempt may have been applied.
//   - The leader's term never falls: after a leader of term n has served this
//     member, every leader of a term below n is refused.
//   - After each change of leader the events of all attached sessions come here
//     again. Calls of a session's sink do not overlap.
//   - The Link leaves a leader without answers after timing.AnswerLimit.
//
// Run owns the upstream, and thereby the two goroutines of a remote upstream's
// stream. Run closes each upstream, and joins the stream, before the search for the
// next upstream. The package starts no other goroutine.
package link
