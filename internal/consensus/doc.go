// Package consensus runs this member's raft, and is the only caller of
// raft.NewRaft.
//
// A [Raft] is a single life of raft under a single raft ID: it orders log
// entries, applies the committed entries to an [FSM], and changes the
// configuration for the leader. A [Seat] is this member's place among the
// voters: it starts a Raft at founding, at an invitation and at a restart, and
// ends the Raft when its ID leaves the configuration, when the disk fails and
// when the node stops. A member without a Raft is thin.
//
// Guarantees:
//
//   - A raft ID votes only on the store under which it voted before. When the
//     store is lost, removed, or no longer to be trusted, the member takes a new
//     generation, and with it a new ID. While a disk hangs, the new
//     generation cannot be recorded, and the promise holds until the process ends.
//   - Raft speaks to nobody before founding or invitation, since a raft without
//     a configuration votes for any candidate. No stream reaches another
//     generation than the stream names.
//   - Raft sees a message of another member only if package judge lets the message
//     pass. Damage, strangers and old leaders end no process and change no log. A
//     leader that this voter does not know is followed once a majority of voters says
//     that it leads: see Raft.inquire.
//   - A leader that lacks committed entries, elected by a false vote, does not lead for
//     long: see disproved.
//   - A leader's entries reach its followers' disks while its own disk writes them, and count
//     as committed when a majority has written them, the leader included: see ahead.
//   - Raft hears of a snapshot when the snapshot has arrived whole and can be
//     restored: see spool.
//   - A leader whose disk does not answer sends no heartbeats, so that the
//     others elect another leader.
//   - A voter stands for election at once when its leader's process has ended, and
//     never deposes a leader that answers a dial: see Raft.stand.
//   - An FSM that has parted from the other voters' is never saved in a snapshot,
//     and its Raft ends.
//
// The package does not know the meaning of an entry, how members find each other,
// who should vote, or how a leader serves: it imports neither internal/machine
// nor internal/term. Package cluster makes the Seat, connects streams, and
// passes in the function that leads. internal/term and internal/voters use a Raft
// through interfaces of their own.
//
// Goroutines: the caller of Seat.Run owns the goroutine that starts and stops
// Rafts. Each Raft has a goroutine for Config.Lead, one for its timeouts and one
// that stands for election, one for each stream that arrives and for each dialled
// stream that may grow old, and one for each inquiry about a leader, all of which the
// stop of the Raft joins, and the goroutines of hashicorp/raft. Two kinds are not joined: the end of
// a Raft that retires, because nobody can end a write that hangs, and a leadership
// transfer that raft leaves unanswered.
package consensus
