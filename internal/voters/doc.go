// Package voters keeps the raft configuration of a cluster as wanted, for as long
// as this node leads in one term.
//
// The package decides:
//
//   - the next change of the configuration, one at a time (plan.go);
//   - how each server of the configuration is doing, and which members could
//     become voters, from the configuration and from gossip (view.go);
//   - when a member that leaves has been replaced (depart.go);
//   - the bound of session TTLs and the format of the table, as far as these
//     follow from the members that are there (agree.go).
//
// The package does not know how raft, gossip or the lock table work: a Reconciler
// sees them through the interfaces Raft, Term and Peers. It does not decide who
// leads, and takes no part in sessions.
//
// Package cluster makes one Reconciler for each term in which this node leads and
// calls Run on a goroutine of its own, which it joins. Depart and InConfig are
// called for other members, from any goroutine. The package starts no goroutine.
//
// Guarantees:
//
//   - No step leaves fewer living voters than a majority needs, as far as this
//     node sees.
//   - A dead voter stays in the configuration until its successor has caught up.
//   - No configuration is changed on the strength of an older one: each change
//     names the index of the configuration that it was planned on.
//   - Every member that asked to leave gets one answer.
package voters
