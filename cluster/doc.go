// Package cluster makes the processes of one application a cluster: they find
// each other by gossip, found an embedded Raft group among a few of
// themselves, and keep a replicated lock table in it. There is no server to
// deploy. Package locks works on it; most programs use of this package no more than
//
//	node, err := cluster.Start(ctx, cluster.Config{Join: peers, InitialSize: 3})
//	...
//	defer node.Stop()
//
// A [Node] is this process's part in the cluster. A [Member] is a node as the
// others see it. A few members are voters, and hold the table; every other one is
// thin, and keeps one connection to the leader. [Config] says who a member is
// and how it finds the others, an [Event] tells what happened to the cluster,
// and [Health] how it is.
//
// # What it guarantees
//
//   - The table changes only by entries that a majority of the voters has
//     stored. A minority grants nothing.
//   - A beat is acknowledged only after a majority of the voters has said, asked
//     after the beat came, that no other leader was elected.
//   - A session ends only by a committed entry that names the term of the leader
//     that proposed it: at least one TTL after its last acknowledged beat was
//     sent, and in a new leader's term at least one TTL after that leader began.
//   - A newly founded cluster grants nothing for one TTL, and a second at least:
//     survivors of an earlier one may still trust their locks.
//   - Gossip grants, frees and confirms nothing. It tells who is there, and where.
//   - Members of another cluster, by name or by founding, are refused on every
//     connection and in gossip, and an [Event] says so.
//   - Whatever arrives on the port, a node neither panics nor grants by it.
//
// Less formally: nobody is believed to be the leader because they say so, and
// nobody loses a lock because a clock differs; only rates of clocks matter, and
// only within the margin that package locks keeps.
//
// # Founding
//
// Some members must be declared to be the first: by name with Founders, or by
// number with InitialSize. They agree on one founding by Paxos, for which all
// future voters and more than half of the declared members must be there. Every
// other member, and every declared one that meets a cluster, joins.
//
// A founded cluster grants nothing for a TTL, and a second at least. Members look
// for those that their Join names more often than that. So members that restart
// without memory and found again, beside a cluster that lives on without them,
// meet it before they have granted anything, and fail, saying so; started again
// with a Join that leads to it, they join.
//
// Founders with a Dir is the safest form: the members that may found are a
// fixed set, and none of them forgets what it promised. With InitialSize, or in
// memory, one case is left in which a second cluster could be founded beside a
// living one, and grant: as many members as were declared first restart at once,
// without a Dir, while they are cut off from every member of the first for
// longer than the founding wait, or none of those has their addresses in its Join.
// Give all members the same Join.
//
// # In memory, or on disk
//
// Without a Dir a voter's part of the log dies with its process, and its raft
// identity too, so that what it forgot cannot mislead anyone: it comes back as a
// new member, and is made a voter again within some seconds. One voter may go
// at a time; if a majority goes before the others have been replaced, the
// cluster is lost: its survivors answer [ErrNoQuorum], and must be restarted,
// to found anew. With a Dir all may stop and come back, on other addresses too.
//
// # Stopping
//
// [Node.Leave] is for a member that does not come back, as in a rolling
// deployment without volumes: it hands over leadership, is replaced as a voter,
// and goes. [Node.Stop] goes at once. Close the lock clients first in both cases, so that what
// they hold is free at once.
//
// # Caveats
//
// Voters should be three processes that fail independently. In a cluster of
// two members one votes; two voters would bear no loss either. All members
// must run on a network where each reaches each, on one TCP and UDP port.
// Recovery after the permanent loss of a majority with Dirs is not offered
// yet.
//
// To test a program that uses a cluster, see package locks/lockstest.
package cluster
