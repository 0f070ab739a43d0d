// Package founding brings this member into a cluster: into an existing cluster
// as soon as the member meets any of its members, or else into a new cluster,
// founded by this member together with other declared founders.
//
// The type is [Runner]. Run looks for a cluster or founds a new one; Step answers
// the founding messages of other members; Adopt enters a cluster whose founding
// is known. kernel.go holds the rules, as pure functions of promises and ballots.
// ballot.go runs a ballot, step.go answers a ballot.
//
// # Decisions
//
// The package decides the founding value: the cluster's ID, the raft IDs of the
// first voters, the first token and the first TTL bound. The value is chosen
// once and never changes. The package also decides when this member belongs to
// the cluster.
//
// The package knows nothing of raft, of gossip's protocol or of the lock table.
// Other members appear as two narrow interfaces, [Members] and [Asker]. Results
// leave through two functions, Config.Adopted and Config.Conflict. Package
// cluster makes the Runner, calls Run, and passes Prepare, Accept and Chosen
// messages to Step.
//
// # Guarantees
//
//   - The declared members choose at most one founding, under any loss, delay
//     and reordering of messages and any number of proposers, as long as no
//     member forgets a promise. kernel.go gives the argument.
//   - In-memory members do forget. A second founding is refused all the same
//     while a majority of the first founding's voters runs, because the quorum is
//     larger than the number of members outside the majority.
//   - A member with a Dir stores every promise before answering.
//   - A member founds only after trying the addresses of Join, and never while
//     some member of a cluster is known and answers.
//   - A member of a cluster never enters another cluster: [ErrForeign].
//   - Config.Adopted is called once in the life of a Runner, after the founding
//     is stored, and never for a founding that the record held from the start.
//
// Less formally: a founder must first ask most of the declared members for
// their promises, and must then repeat the newest accepted value among the
// answers.
//
// # Why a founded cluster waits
//
// Paxos covers the declared members as long as they remember. Suppose that
// declared members restart without memory, cut off from an old cluster that
// lives on without them. Together they found a new cluster beside the old
// cluster. The new cluster must meet the old cluster before granting anything,
// and then end. Two durations of package timing make the meeting happen, and
// neither can be changed alone:
//
//	LeastFounding = 2 * Seek
//
// Let L be the leader of the new cluster, and t the time at which L's table
// applied the founding. Then:
//
//  1. L grants nothing before t + max(TTL, LeastFounding). If L has met another
//     cluster of the same name by then, L ends instead of granting (cluster and
//     internal/term). Meeting means a connection in either direction: the
//     preamble tells both sides the two cluster IDs.
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
// The package starts goroutines only to ask the members of a founding group in
// parallel, and joins all of these before the ballot goes on. Run, Step and Adopt
// run on goroutines of the caller, and may run at the same time. Step and Adopt
// block while the record is stored, so a caller that reads a stream must call
// Step on another goroutine.
package founding
