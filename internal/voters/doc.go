// Package voters keeps the raft configuration of a cluster as wanted, for as long
// as this node leads in one term.
//
// The package decides:
//
//   - the next change of the configuration (plan.go);
//   - the state of each server in the configuration, and the candidates for a
//     vote, from the configuration and from gossip (view.go);
//   - when a departing member has been replaced (depart.go);
//   - the bound of session TTLs and the format of the table, as far as both follow
//     from the members present (agree.go).
//
// The package does not know how raft, gossip or the lock table work: a Reconciler
// sees all three through the interfaces Raft, Term and Peers. Elections and
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
//   - A dead voter stays in the configuration until its successor has caught up,
//     unless the other voters are enough or a leaving voter would have to wait.
//   - A change applies only to the configuration it was planned on: each change
//     names the index of the configuration.
//   - Every Depart gets exactly one answer.
package voters
