// Package proof tells which processes of members have ended for certain.
//
// Gossip only believes: a killed process counts as alive for seconds, and a
// process behind a partition counts as dead. A voter whose process has ended for
// certain is replaced at once; a silent voter is waited for. The
// package knows three proofs of the end of a process name@boot:
//
//   - A newer boot of the name has shown itself in a handshake, and the older
//     process does not answer at its address any more. A name belongs to one
//     process at a time: see "One name" below.
//   - Another process answers at the address. This counts only if this Prover
//     found the older process there before, the answerer claims this very address
//     and started later, and two dials a second apart find the same answerer.
//   - The process has said goodbye, over a stream with a preamble that names
//     name@boot. A goodbye is the last message of a process: its raft and the
//     contexts of its locks have ended before. Under a shared secret the preamble can be
//     forged by a holder: so the process is dialled some seconds later, and if it answers,
//     the goodbye is taken back. A voter that answers raft is not replaced meanwhile: see
//     package voters.
//
// A boot never lives again, so a verdict is for ever, a forged goodbye apart. A verdict says nothing of the
// member's store: with a Dir, a newer boot carries on with the same store.
//
// # One name
//
// For a newer boot of the same name a single dial is enough; another name needs
// two. Two processes of a name run only by mistake, and the newer process fails as
// soon as gossip shows the older process there, see Node.namesake in package
// cluster. The dial to the older process's address covers the time until then: as long as the older process answers, nothing is proved. If the dial is
// refused, nothing listens at the address any more. If the dial is answered by the
// newer process, the older process has lost the address. A dial without any answer
// is repeated once: a lost host answers nothing, and a single lost packet is not
// proof.
//
// A gossiped boot alone proves nothing: only a handshake shows that a process has
// this name and boot, by a certificate where there is TLS. A handshake under a certificate
// that has neither a name nor the voter role shows none: see noteHandshake in package cluster.
//
// # Shared addresses
//
// Behind a load balancer or a virtual IP address several processes answer at one
// address in turn. Seldom does such a process claim the address as its own; if so, the
// earlier process answers again sooner or later. From then on the address is
// shared: the Prover reports the address once and believes nothing found there.
//
// # What remains
//
// An address passes to another member while the former holder lives on, cut off
// from everybody here, for example a pod deleted by force behind a partition. A
// living majority then replaces a living voter. The cluster loses nothing: the
// change needs the majority.
//
// # In this package
//
//   - kernel.go: the rules, pure.
//   - prover.go: the dials, and the goroutine of Run.
//
// Package cluster makes one Prover for each node, runs and joins Run, and tells
// the Prover about every handshake of the node. Packages voters and founding ask.
package proof
