// Package founding brings this member into a cluster: into an existing cluster
// as soon as a leader of it confirms it, or else into a new cluster, founded by
// this member together with others. The new cluster is a first one, or the
// successor of a cluster whose majority is lost.
//
// The type is [Runner]. Run looks for a cluster, founds one, or founds a
// successor; Step answers the founding messages of other members; Adopt and Change
// enter a cluster. The rules stand in three files, as pure functions where
// possible: adopt.go has the ways into a cluster, kernel.go a founding by declared
// members, succession.go a founding on somebody's word. ballot.go and word.go run
// the ballots, step.go answers them, survey.go is this member's view of the others.
//
// # Decisions
//
// The package decides the founding value: the cluster's ID, the raft IDs of the
// first voters, the first token, the first TTL bound and the clusters succeeded. The
// value is chosen once and never changes. The package also decides when this member
// belongs to the cluster, and when the member's cluster is given up.
//
// The package knows nothing of raft, of gossip's protocol or of the lock table.
// Other members appear as two narrow interfaces, [Members] and [Asker]. The end of
// a vote and of a membership is work for Config.Retire and Config.Leave. Results
// leave through Config.Adopted and Config.Conflict. Package cluster makes the
// Runner, calls Run, and passes the messages Prepare, Accept, Chosen and Retire to
// Step.
//
// # Guarantees
//
//   - The declared members choose at most one founding, under any loss, delay
//     and reordering of messages and any number of proposers, as long as no
//     member forgets a promise. kernel.go gives the argument.
//   - In-memory members do forget. With Founders, a second founding is refused all
//     the same while a majority of the first founding's voters runs, because the
//     quorum is larger than the number of founders outside the majority. Package
//     voters keeps the condition alive: only founders vote in such a cluster, and
//     never fewer than LeastVoters.
//   - A member with a Dir stores every promise before answering.
//   - With InitialSize all of the first members must be seen; with Founders a
//     quorum is enough. A thin member founds nothing.
//   - A member founds only after trying the addresses of Join, and without a word
//     never while a living member of a cluster answers, or is listed by gossip and
//     may answer yet: heard.go has the bound. Processes proved to have
//     ended do not count as living, even if gossip sees them. With a complete Join
//     in memory, the first founding too rests on the list.
//   - The first token of a founding is above the answer of every TokenFloor in the
//     quorum that chose the founding, and at most a day and half an hour ahead of what
//     each member of the quorum knows by its clock and its own memory.
//   - The word of one member founds nothing and stops no founding for ever, the word
//     of a lying proposer excepted: claims.go has the bounds and their limits. A
//     member gives up a cluster that serves only to a leader with witnesses:
//     witness.go.
//   - A founding is passed on by the voters that it names, to each other, and by
//     its confirmed leader. A founding whose cluster cannot answer is passed on by
//     nobody. So a restart of all members of a dead cluster, in any order, ends in
//     a new cluster.
//   - A cluster is succeeded only on a word: a complete list in Join, an operator,
//     or an accepted silence. All of the group take part, and every member of a
//     cluster among them retires first. succession.go gives the argument.
//   - A member of a cluster enters a related cluster. An unrelated cluster is entered
//     only on the word of its confirmed leader, and only if the own cluster has granted
//     nothing, or cannot answer and this member, in memory, has retired. Everything
//     else fails with [ErrForeign].
//   - Config.Adopted is called after the founding is stored, once for each cluster
//     entered, and never for a founding that the record held from the start.
//   - Differences between the configurations of founders are told on both sides, at
//     each ballot again, and taken back when they are gone.
//
// Less formally: a founder must first ask most of the declared members for
// their promises, and must then repeat the newest accepted value among the
// answers. A successor needs all possibly living members, and somebody who knows
// them all.
//
// # Limits
//
// A word that is not true breaks the guarantees: a list in Join that leaves a
// living member out, an address behind which two processes answer, a member
// named as gone that lives, a silence shorter than a partition.
//
// A successor's first token rests on the tokens that its members saw. After the loss
// of every member at once the next founding rests on the founders' clocks, on the
// Dirs that are left, and on Recovery.TokenFloor: floor.go has the rules. A resource
// tells only the tokens that were shown to it.
//
// # Why a founded cluster waits
//
// Paxos covers the declared members as long as they remember. Suppose that
// declared members restart without memory, cut off from an old cluster that
// lives on without them. Together they found a new cluster beside the old
// cluster. The new cluster must meet the old cluster before granting anything,
// and then yield. Two durations of package timing make the meeting happen, and
// neither can be changed alone:
//
//	LeastFounding = 2 * Seek
//
// Let L be the leader of the new cluster, and t the time at which L's table
// applied the founding. Then:
//
//  1. L grants nothing before t + max(TTL, LeastFounding). If L has met another
//     cluster of the same name by then, L grants nothing while that cluster is
//     near, and its members change over once a leader of that cluster confirms it
//     (cluster and internal/term). Meeting means a connection in either direction: the
//     preamble tells both sides the two cluster IDs. Gossip's word alone holds the grant
//     back for a bounded time, since any member can spread it: see cluster/lineage.go.
//  2. L accepts connections since before t, and so does each member of the old
//     cluster.
//  3. Let S be a living member of the old cluster. If S is named in L's Join, L
//     seeks S: every round of internal/gossip tries the addresses of Join at
//     which L knows no living member of L's own cluster. Likewise, if L is named
//     in S's Join, S seeks L, unless S took an earlier process at L's address for
//     alive when the last round before t began.
//  4. The pause between two rounds is shorter than Seek. Let d be the longest
//     duration of a round. Then two rounds begin less than Seek + d apart. So the
//     first round after t begins before t + Seek + d, and has met the other
//     side before t + Seek + 2d.
//  5. For d up to Seek/2, the meeting comes before t + 2*Seek = t + LeastFounding.
//
// The limits of the argument:
//
//   - A round with an address that does not answer lasts up to timing.GossipTCP.
//     The meeting then comes before t + Seek + 2*GossipTCP, and the wait covers
//     the meeting only with a TTL of at least Seek + 2*GossipTCP. The default TTL
//     is longer.
//   - If L knew S before t and S did not answer, L's first round may have to wait
//     for the end of a pause of up to 2*timing.JoinUnfounded that began before t.
//   - A round tries at most 15 unseen addresses, the first ones of Join.
//   - In a cluster of more than 8 members, only some of the members seek at a
//     time, so the old cluster's tries may come later than step 4 says. The tries
//     of a smaller new cluster are not affected.
//   - L and the old cluster can be cut off from each other for the whole wait, or
//     be named in no Join of each other. Then L grants. Founders with a Dir
//     exclude this case, because no founder forgets.
//
// # Goroutines
//
// The package starts goroutines only to ask several members in parallel, and joins
// all of these before the ballot goes on. Run, Step and Adopt
// run on goroutines of the caller, and may run at the same time. Step, Adopt and
// Change block while the record is stored and while a vote ends, so a caller that
// reads a stream must call Step on another goroutine.
package founding
