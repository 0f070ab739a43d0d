// Package cluster makes the processes of one application a cluster: they find
// each other by gossip, found an embedded Raft group among a few of themselves,
// and keep a replicated lock table in it. There is no server to deploy. Package
// locks works on a [Node]; most programs use no more of this package than
//
//	node, err := cluster.Start(ctx, cluster.Config{Join: peers, InitialSize: 3})
//	...
//	defer node.Stop()
//
// A [Node] is this process's part in the cluster. A [Member] is a node as the
// others see it. A few members are voters and hold the table; every other member
// is thin and keeps one connection to the leader. [Config] says who a member is
// and how it finds the others. An [Event] tells a change of the cluster, and
// [Health] its present state.
//
// # Guarantees
//
//   - The table changes only by entries that a majority of the voters has
//     stored. A minority grants nothing.
//   - A beat is acknowledged only after a majority of the voters has said, asked
//     after the beat came, that no other leader was elected.
//   - A session ends only by a committed entry that names the term of the leader
//     that proposed the entry: at least one TTL after the session's last
//     acknowledged beat was sent, and in a new leader's term at least one TTL
//     after that leader began.
//   - A newly founded cluster grants nothing for one TTL, and for at least a
//     second: survivors of an earlier cluster may still trust their locks.
//   - Gossip grants, frees and confirms nothing. Gossip tells which members live,
//     and where.
//   - Members of another cluster, by name or by founding, are refused on every
//     connection and in gossip, and an [Event] reports the meeting.
//   - Garbage on the port, and frames of any content on the streams of members,
//     neither crash a node nor grant a lock. Raft's own stream is the exception:
//     raft trusts its peers, so only voters of the cluster may reach it. Without
//     TLS anybody who reaches the port can claim to be one.
//
// Less formally: claiming to be the leader convinces nobody, and no holder loses
// a lock because clocks differ. Only the rates of clocks matter, within the
// margin that package locks keeps.
//
// # Founding
//
// Some members must be declared to be the first: by name with Founders, or by
// number with InitialSize. They agree on one founding by Paxos, for which all
// future voters and more than half of the declared members must be present.
// Every other member joins, and so does a declared member that meets a cluster.
//
// A founded cluster grants nothing for a TTL, and for at least a second. Members
// look for the addresses in their Join more often. Suppose that members restart
// without memory and found again, beside a cluster that lives on without them.
// The new cluster then meets the living cluster before granting anything, and its
// members fail with an error that names the reason. Started again with a Join
// that leads to the living cluster, they join.
//
// Founders with a Dir is the safest form: the members that may found are a fixed
// set, and none of them forgets its promises. With InitialSize, or in memory,
// one case remains in which a second cluster can be founded beside a living one,
// and grant: as many members as were declared first restart at once, without a
// Dir, and either they are cut off from every member of the first cluster for
// longer than the founding wait, or no member of the first cluster has their
// addresses in its Join. Give all members the same Join.
//
// # In memory, or on disk
//
// Without a Dir a voter's part of the log dies with its process, and so does its
// raft identity: the forgotten entries cannot mislead anyone. The process comes
// back as a new member and becomes a voter again within some seconds. One voter
// may go at a time. If a majority goes before the others have been replaced, the
// cluster is lost: its survivors answer [ErrNoQuorum], and all members must be
// stopped, so that all are down at one moment, and started again to found anew.
// With a Dir all members may stop and come back, on other addresses too.
//
// # Stopping
//
// [Node.Leave] is for a member that does not come back, as in a rolling
// deployment without volumes: the member hands over leadership, is replaced as a
// voter, and goes. [Node.Stop] goes at once. Close the lock clients first in
// both cases, so that their locks are free at once.
//
// # Caveats
//
// Voters should be three processes that fail independently. In a cluster of two
// members one votes; two voters would bear no loss either. All members must run
// on a network where each reaches each, on one TCP and UDP port. Recovery after
// the permanent loss of a majority with Dirs is not offered yet.
//
// To test a program that uses a cluster, see package locks/lockstest.
//
// # Inside
//
// This package holds the public types and the wiring. The work is done in rooms
// below internal/: gossip finds the members, founding agrees on a cluster,
// consensus runs raft while this member votes, term leads while raft elected
// this node, voters keeps the voters as configured, and link is this member's
// way to the leader, on which package locks works. ARCHITECTURE.md has the map.
package cluster
