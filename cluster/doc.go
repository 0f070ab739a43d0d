// Package cluster makes the processes of an application a cluster. The processes
// find each other by gossip, found an embedded Raft group among a few of themselves,
// and keep a replicated lock table there. There is no server to deploy. Package
// locks works on a [Node]. Most programs use no more of this package than [Config], and
// leave the start and the end of the node to Main or Run of package wardmote. Without
// those a program calls
//
//	node, err := cluster.Start(ctx, cluster.Config{Join: peers, InitialSize: 3})
//	...
//	defer node.Stop()
//
// A [Node] is this process's part in the cluster. A [Member] is a node as the
// others see the node. A few members are voters and hold the table; every other
// member is thin and keeps a connection to the leader. [Config] names a member and
// its ways to the others. An [Event] tells a change of the cluster, and [Health] its
// present state.
//
// # Guarantees
//
//   - The table changes only by entries stored by a majority of the voters. A
//     minority grants nothing.
//   - A beat is acknowledged only after a majority of the voters, asked after the
//     beat came, has said: no other leader was elected.
//   - A session ends only by a committed entry with the term of the proposing
//     leader: at least a TTL after the session's last acknowledged beat was sent,
//     and in a new leader's term at least a TTL after the new leader began.
//   - A newly founded cluster grants nothing for a TTL, and for at least a second:
//     survivors of an earlier cluster may still trust their locks. A successor waits
//     for the largest TTL ever told to its members.
//   - Gossip grants, frees and confirms nothing. Gossip tells which members live,
//     and where.
//   - Members of another cluster, by name or by founding, are refused on every
//     connection and in gossip, and an [Event] reports the meeting.
//   - Beyond loopback every stream proves both sides, unless Security.Insecure is
//     said: see below. A stranger's connection ends before a message of the stranger
//     is read.
//   - Bytes that break a rule of their protocol neither panic a node nor grant a
//     lock. Raft sees no message before the message was decoded,
//     bounded and judged, and only voters may send one. Well-formed lies of a voter
//     are believed, as by any Raft, and in plain text anybody in reach of the port
//     can claim to be a voter: see SECURITY.md.
//
// Less formally: claiming to be the leader convinces nobody, and no holder loses
// a lock because clocks differ. Only the rates of clocks matter, within the
// margin that package locks keeps.
//
// # Founding
//
// Some members must be declared to be the first: by name with Founders, or by
// number with InitialSize. They agree on one founding by Paxos. With InitialSize, all
// of the first members must be seen. With Founders a majority founds after a short
// wait for the others: a bare majority where its members have a Dir that was never
// lost, and in memory two of three, four of five, or so many as keep the forgetful
// from founding a second time. Every other member joins, and so does a declared
// member that meets a cluster. A member joins only a cluster whose leader answers.
//
// A founded cluster grants nothing for a TTL, and for at least a second. Members
// look for the addresses in their Join more often. Suppose that members restart
// without memory and found again, beside a cluster that lives on without them.
// The new cluster then meets the living cluster before granting anything, grants
// nothing, and its members change over to the living cluster once a leader of that
// cluster confirms it. No process ends.
//
// Founders with a Dir is the safest form: the members that may found are a fixed
// set, and none of them forgets its promises. In memory founders do forget, so their
// quorum is larger, and only founders vote. With InitialSize one case remains in
// which a second cluster can be founded beside a living one, and grant: as many
// members as were declared first start at once without a memory of the cluster, and
// either they are cut off from every member of the first cluster for longer than the
// founding wait, or no member of the first cluster has their addresses in its Join.
// Give all members the same Join.
//
// With Recovery.JoinIsComplete in memory, the first founding too needs a member's
// answer at every address of Join, and excludes that case. A name in Join is believed
// after three complete answers over a minute, so a cluster behind a service's name
// grants a minute and a TTL after its first start.
//
// # In memory, or on disk
//
// Without a Dir a voter's part of the log dies with its process, and so does its
// raft identity: the forgotten entries cannot mislead anyone. The process comes
// back as a new member and becomes a voter again within two seconds. A silent voter
// is replaced by another member after eight seconds. Of five members in memory all
// five vote, and two may go at a time; of three or four members three vote, and a
// single voter may go at a time. If a majority goes before the others have been
// replaced, the cluster is lost, and its survivors answer [ErrNoQuorum]. With a Dir
// all members may stop and come back, on other addresses too; a voter away for a
// minute loses its vote to another member, if there is another member.
//
// # Dead clusters and successors
//
// A cluster without the majority of its voters, for good, is ended by a successor:
// another cluster, founded by the living members. A partition looks the same from
// within, so somebody outside must say: nobody else lives in the old cluster. There
// are three such words: Recovery.JoinIsComplete, an operator's [Node.Recover], and,
// by explicit choice, Recovery.AssumeGone. Without a word, the ordinary founding
// begins anew once every member of the dead cluster has restarted, at once or in
// turn.
//
// The members change over in place. Their locks of the old cluster end first, with
// the reason locks.ClusterReplaced. The successor grants nothing for the largest TTL
// ever told to any member, and its tokens are above all tokens seen by any member.
// Clients go on with new sessions.
//
// A first founding after the loss of everything has no such memory: its tokens rise if no
// founder's clock is behind the clock of an earlier founder, or if Recovery.TokenFloor
// tells a token of the last cluster.
//
// If a leader of the old cluster answers after all, confirmed by a majority of its
// voters, the word was not true: the successor's members go back. A leader that the
// members do not know as a voter needs a second voter as witness. Two clusters of a
// name, neither the successor of the other, stay as they are once both have granted
// and while both have a leader: both tell the [Conflict], again and again, with both
// cluster IDs. A member in memory, with no answer from its own cluster, retires and
// follows the confirmed leader of the other.
//
// # Addresses
//
// A member listens on Bind and tells others Advertise. With a wildcard in Bind, as
// ":7000", the address is chosen: see Config.Advertise. Names in Join are looked up
// again and again, so a service's name may be there before its addresses. A member
// on a port of its own choice is named by its address unless Name is set, so the
// others recognize a restart at this address.
//
// # Security
//
// [Security] keeps strangers out, in one of two ways; each alone is enough.
//
// Under Secrets all members share a secret. Every stream is TLS 1.3, and each side
// shows a certificate below a CA that both derive from the secret, bound to cluster,
// name and boot. Nothing is kept on disk, and no clock matters. Each holder of a secret
// can be any member. [Node.SetSecrets] replaces a secret while members run.
//
// Under TLS members have certificates of the user's own. Security.Identity reads the
// member's name and its [Role] from the certificate, and a stream that says another
// name is refused. A member with RoleMember holds locks and cannot vote. Certificates
// reload without a restart; each stream is replaced before a certificate of either side
// expires, and once a day.
//
// Without both, members speak plain text, on loopback only. Every user of the host may
// then connect, and do all that a member may: on a host with users who do not trust
// each other, set Secrets on loopback too.
//
// # Health, readiness, logs
//
// [Node.Ready] is for readiness probes and for deployments that replace processes in
// turn: a new process is ready when the voters are complete, and from then on while
// the process reaches a leader. No liveness probe should depend on the cluster: a
// member without a leader works, waits and tells the reason, and a restart costs a
// member in memory its part of the log. [Node.Health] counts the voters, says
// whether the next process may be taken, and has the trouble (Reason) and the action
// (Next) in words.
//
// Without a quorum every blocked call has the same reason: in its error when its ctx
// ends, and in the Blocked function of locks.Trace before.
//
// The log has three levels for operators:
//
//   - Info is a healthy life: founding, members coming and going, elections, the end.
//   - Warn is trouble that may pass, such as a lost quorum. The line comes again, at
//     growing intervals, while the trouble lasts.
//   - Error is trouble that needs somebody: a conflict, a failed node.
//
// The last attribute of each line, "next", is the next action. Debug has the lines
// of raft and memberlist, limited by kind.
//
// # Stopping
//
// [Node.Stop] is the end of a process in a deployment. First all locks of the node
// end and their keys become free, then leadership passes on. In memory another
// member also takes the vote, since no later process can. With a Dir the member
// stays a voter and comes back. [Node.Leave] is for a member that does not come back
// although there is a Dir, and for a caller that wants to wait longer for a
// successor in the vote, or to know the outcome. When all members end at once,
// nobody waits for anybody. The lock clients may be closed before or after.
//
// # Caveats
//
// Voters should fail independently: see Voting.Zone. In a cluster of two members a
// single member votes; two voters would bear no loss either. All members must run
// on a network where each reaches each, on a port for both TCP and UDP. Words about
// dead members count in memory only, except for an operator's: the disks of absent
// voters are a quorum of their cluster, and may come back. docs/failures.md lists
// every fault with its effect, and the cases in which two clusters may grant.
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
