// Package judge stands in front of raft. It encodes and decodes the messages between
// two rafts, and decides for each message of another member whether raft may see the
// message.
//
// Raft takes a message for the word of a voter that runs the same raft without
// error: a configuration that does not decode ends the process, after the
// configuration was stored; a term is believed however high; an entry below the
// commit index replaces the entry that everybody has applied. A message must
// therefore pass here first.
//
// # Decoding
//
// The encoding is written by hand. A frame is a length of four bytes, a checksum, the
// version, the kind and the fields. The checksum finds frames that a member with bad
// memory or a defect has damaged: a flipped bit in an entry would give two voters
// different tables. The length is bounded by MaxFrame, memory grows with the
// first bytes that arrive, a longer frame needs room of the caller's, and every length
// inside is compared with the bytes present. The encoding cannot express most forgeries: an entry has no index of its own, the
// sender's address is its ID, and no entry has extensions.
//
// # Judging
//
// [Judge] knows the sender by the handshake of the stream, and this voter's raft by
// [Raft]. The rules, with their reasons:
//
//   - Only a voter by role speaks to raft, under a raft ID of its own name. The port
//     has compared the cluster and this member's own raft ID before.
//   - A message of a term below the own term passes: raft answers with its own term,
//     so that a deposed leader steps down, and does nothing else.
//   - A term has one leader. While raft follows a leader, entries and snapshots of
//     the same term pass from this leader alone, even if the leader has left the
//     configuration: its removal has to be committed.
//   - The leader of a new term is a voter of the latest or of the committed
//     configuration here. For every other sender Judge returns a [Doubt]: this voter
//     was away while the configuration changed, or was invited a moment ago, or the
//     sender has no business here. A majority of voters tells which: see [Confirm].
//     Without this way back, a voter that was away while {A,B,C} became {D,E,C}
//     would stay away for ever.
//   - A voter of the latest configuration is voted for. Every other candidate is in
//     doubt: this voter was away while the configuration changed, or was added a moment
//     ago and has no entry yet, or the candidate has left. While anybody that can be asked
//     follows a leader, the candidate is not voted for; otherwise the configuration that the candidate
//     shows decides: see [Shown] and [Unled]. Raft itself votes for no candidate outside
//     its configuration, and without a configuration for anybody. Then two of three living
//     voters, one of which knew no other, would elect nobody for ever.
//   - A term that leaps is in doubt too. An election raises the term by one, so a
//     leap over [Leap] terms is damage, or the rest of the cluster has leapt and a
//     majority says so. An answer that leaps is in doubt until its server says the
//     same on another stream: a voter whose term has leapt hears no leader until the
//     others follow it there, and terms have room. A number above [MaxNumber] is refused: terms and indexes must
//     have room above them.
//   - An entry at or below the commit index has the term of the own entry, since a
//     leader's log has all committed entries. A leader loses nothing by the refusal
//     of another entry. The refusal disproves the sender, and so does an entry that is
//     malformed: its heartbeats in the term are refused for a while, so that the voters that
//     have the committed entries elect another leader. See Refusal.Entry. An entry that only a snapshot covers here is refused too: raft
//     appends such an entry behind a log that ends below the snapshot, and takes over
//     its configuration. Nothing but a message that the network delivers late has such
//     entries, since a voter names the snapshot's end as the end of its log.
//   - Entries behind the last entry of a snapshot that is in the table pass without the
//     comparison of the entry before: the entry is committed, so both logs have it, and
//     raft's log here may not. Raft would refuse the entries, and the leader, which has no
//     earlier entries, would send the snapshot for ever.
//   - The terms of entries do not fall, and do not exceed the message's term.
//   - A configuration decodes, byte for byte as raft encodes it, with at most
//     [MaxServers] servers, at least one voter, no ID twice, and the ID as address.
//   - A snapshot ends at the commit index or above, since a leader sends a snapshot
//     only to a voter that lacks entries. An older snapshot, which a slow stream
//     delivers late, would undo entries that were applied. The same snapshot may come
//     again: its answer may have been lost.
//   - A voter stands for election at once for the leader that it follows, or for its
//     own process, and only as a voter of its latest configuration.
//
// A message that passes cannot end the process. A false vote that elects a leader without
// the committed entries costs an election. Against a voter that lies with care
// no raft is safe: the rules are about strangers, damage and accidents.
//
// The package has no clock, goroutine or I/O but the bytes of a frame. Package
// consensus asks the questions behind a Doubt and carries the messages.
package judge
