// Package gossip finds the members of the cluster and keeps the list of them.
//
// The type is [Gossip]. Alive and All list the members as [member.Sighting]
// values; Update changes the description that this member spreads; Changed and
// Joined wake goroutines that wait for news.
//
//   - members.go is the list of sightings.
//   - joining.go decides the addresses to try, and when; addresses.go resolves
//     the names among them.
//   - delegate.go receives memberlist's callbacks and fills the list.
//   - transport.go carries memberlist's packets and streams over the port.
//
// # Decisions
//
// The package decides which processes count as alive, which sightings belong to
// this cluster, and which addresses are tried when. Nothing here grants, frees or
// confirms anything: a sighting is a hint, some seconds old. The package knows
// nothing of raft, founding, terms or locks. Package cluster makes the Gossip and
// passes accepted streams and packets to Accept and Packet; internal/founding,
// internal/voters and internal/link read the lists.
//
// This package alone imports memberlist. No type of memberlist leaves the package.
//
// # Guarantees
//
//   - A process is known by name and boot. Its gossip name is both together, new
//     at each start, because memberlist ignores a known name at a new address.
//   - Once this member is in a cluster, members of other clusters neither enter
//     the list nor are listed, and Watcher.Foreign is told of each attempt.
//     Members that are in no cluster yet are listed.
//   - A stream dialled to a known process reaches this process or fails, so a
//     recycled address is not taken for the earlier member.
//   - When a process dies, the port's connections to the process are dropped. The
//     dead stay on the list of All, up to 1024 processes together with the living;
//     above this number the longest dead are forgotten, the living never.
//   - The own sighting always carries the own present description, even before
//     memberlist has spread it.
//   - Joining never ends. A member that sees up to 8 living members, itself
//     included, tries the unseen addresses again after a pause shorter than
//     timing.Seek; an address is unseen if no living member is known there. The
//     pause is part of the argument that a cluster founded beside a living cluster
//     grants nothing: see "Why a founded cluster waits" in package founding, and
//     TestPausesWhileSeekingAreShorterThanSeek.
//
// Less formally: gossip tells where to ask, and the answers decide.
//
// # Goroutines
//
// Run starts two goroutines, for joining and for publishing, and returns when
// both have ended. Each round of joining tries its addresses in parallel and waits
// for all tries. memberlist runs goroutines of its own from Start until some time
// after Stop, and offers no way to join them. After Stop they dial nothing; the
// caller closes the port after Stop, so that they send nothing either. Callbacks
// of memberlist run under its lock, so Watcher's methods must not block and must
// not call Start, Leave or Stop.
package gossip
