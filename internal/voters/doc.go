// Package voters keeps the raft configuration of a cluster as wanted, for as long
// as this node leads in one term.
//
// The package decides:
//
//   - the next change of the configuration (plan.go);
//   - the state of each server in the configuration, and the candidates for a
//     vote, from raft's contacts, from gossip and from proof (view.go);
//   - the number of voters (size.go);
//   - the state of the voters as told to every member (tell.go);
//   - whether a voter leaves, by its own word, and when it has been replaced
//     (depart.go);
//   - the bound of session TTLs and the format of the table, as far as both follow
//     from the members present (agree.go).
//
// The package does not know how raft, gossip, proof or the lock table work: a
// Reconciler sees them through the interfaces Raft, Term and Peers, and through
// functions. Elections and
// sessions are no matter of this package.
//
// Package cluster makes a Reconciler for each term of this node's leadership, and
// runs and joins Run. Depart and InConfig are called for other members, from any
// goroutine. The package starts no goroutine.
//
// Guarantees:
//
//   - Steps come one at a time. No step leaves fewer living voters than a majority
//     needs, as far as this node sees.
//   - A voter that is only silent stays in the configuration until its successor
//     has answered an invitation, unless the other voters are enough, so many are
//     gone that fewer voters need a smaller majority, or a leaving voter would have
//     to wait.
//   - A newcomer that has not caught up becomes a voter only where that does not make
//     a majority larger.
//   - Leadership is handed over only if this node leaves.
//   - A change applies only to the configuration it was planned on: each change
//     names the index of the configuration.
//   - Every Depart gets exactly one answer.
package voters
