// Package link is a member's way to the leader, and the replica.Replica of the
// member's lock clients.
//
// The package decides:
//
//   - whom to ask for the leader (find.go, claims.go), and when to leave a leader for another
//     leader (link.go);
//   - when a request is repeated, and when its fate is unknown (call.go);
//   - the routing of sessions' events to this member, over every change of leader.
//
// The package does not know how a leader works, how voters are chosen, or how
// members find each other. No hint is trusted: a leader proves itself by answering
// Attach.
//
// The types are Link, the way of this node; upstream, the present connection,
// either this node's own term or remote (a stream to the leader); finder, which
// keeps the questions for the next leader; and Leader, the interface of this node's
// own term.
//
// Package cluster makes one Link for each node, runs and joins Run, and gives the
// Link to package locks as a replica.Replica.
//
// Guarantees:
//
//   - A request is repeated over changes of leader and lost answers until its
//     context ends. An error says Unknown if any attempt may have been applied.
//   - The leader's term does not fall in a cluster: after a leader of term n has served
//     this member, every leader of a term below n is refused, unless a majority of the
//     voters tells lower terms, or after a long search any voter does, or no voter has told of the
//     leader of term n before it was lost, and it had served for less than timing.DirectMost or some voter
//     was in reach in that time. So a term that nobody elected is forgotten. jury.go
//     has the rules.
//   - No request overtakes the key of its session, on any upstream.
//   - After each change of leader the events of all attached sessions come here
//     again. Calls of a session's sink do not overlap.
//   - A leader that gives signs of life is left only on the word of a majority of the voters, or for a
//     leader of a higher term that has answered, and not if the present leader confirms itself by a round. A leader without a sign of life is left after
//     timing.AnswerLimit, if requests wait for it.
//   - A member hears of an election from a voter, at the instant of the election,
//     whatever gossip does. No place that is silent delays the questions to others.
//   - Only a member whose stream proves the voter role is taken for a leader. No source
//     of claims, gossip least, displaces the claims of the others.
//   - An ageing stream is replaced by a second stream to the same leader, without a
//     loss or a change that anybody hears of.
//   - A member that alone is cut off from the leader reaches the leader through a
//     voter, and directly again as soon as that works.
//
// Run owns the upstream, and thereby the two goroutines of a remote upstream's
// stream, and one goroutine and one stream for each question under way. Run joins
// all of them. A timer of a remote upstream asks a silent leader for a sign of life.
package link
