// Package link is a member's way to the leader, and the replica.Replica that this
// member's lock clients work on.
//
// The package decides:
//
//   - where the leader is, and when to leave a leader for another one (find.go,
//     link.go);
//   - when a request is repeated, and what an unanswered request means (call.go);
//   - which sessions' events come to this member, over every change of leader.
//
// The package does not know how a leader works, who votes, or how members find
// each other. It trusts no hint: a leader proves itself by answering Attach.
//
// The types are Link, the one way of a node; upstream, the present connection,
// which is either local (this node leads) or remote (a stream to the leader); and
// Leader, the interface of this node's own term.
//
// Package cluster makes one Link for each node, calls Run on a goroutine that it
// joins, and gives the Link to package locks as a replica.Replica.
//
// Guarantees:
//
//   - A request is repeated over changes of leader and lost answers until its
//     context ends. An error says Unknown if any attempt may have been applied.
//   - The leader's term never falls: a leader of an older term than one that has
//     served this member is refused.
//   - After each change of leader the events of all attached sessions come here
//     again. Calls of one session's sink come one at a time.
//   - A leader that answers nothing for timing.AnswerLimit is left.
//
// Run owns the upstream, and thereby the two goroutines of its stream: each
// upstream is closed and its stream joined before Run looks for the next one. The
// package starts no other goroutine.
package link
