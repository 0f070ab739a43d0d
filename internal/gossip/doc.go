// Package gossip finds the members of the cluster and keeps the list of them.
//
// The type is [Gossip]. Alive and All list the members as [member.Sighting]
// values; Update changes the description that this member spreads; Changed and
// Joined wake goroutines that wait for news.
//
//   - members.go is the list of sightings.
//   - joining.go decides the addresses to try, and when; addresses.go keeps the
//     result of each look-up and each try, for Tried and CompleteList; lookup.go
//     resolves names.
//   - delegate.go receives memberlist's callbacks and fills the list; census.go
//     bounds their number, queue.go orders the dials, and vetting.go proves processes;
//     inquiry.go dials a process before its list entry has consequences.
//   - transport.go carries memberlist's packets and streams over the port; ring.go
//     seals them; shape.go checks them; guard.go bounds the streams; lanes.go carries
//     packets in streams.
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
//   - When a process dies, the port's connections to the process are dropped, once a
//     dial to that very process has failed: any member can call any other dead. The
//     dead stay on the list of All, up to 1024 processes together with the living;
//     above this number the longest dead are forgotten, those without a proof first, the living never.
//   - A process has one address for life, unless it answers a dial at another.
//   - With keys, every packet and message is sealed by the newest key, and opened by
//     each key. A packet that no key opens costs an attempt for each key and a
//     counter: no place in the queue, and no line. SetKeys changes the keys of a
//     running member. Without keys, InStreams puts packets under the port's TLS.
//   - memberlist sees no bytes but of the messages that members send, with true
//     lengths. A stream is read to at most maxMessage bytes, which hold the largest
//     list of members, and memory grows with the bytes that have come. At most 16
//     accepted streams are read at once, 4 for a name, and of a host as many as it leaves
//     free; memberlist alone would take 20 MiB from each of 128, and room for a million
//     members for a number.
//   - At most maxKnown processes are known, the living and the lately dead; at most
//     maxUnproven of the living are unproven: see "Ghosts". Names, addresses and
//     descriptions that no member has are refused.
//   - A packet that was recorded and comes again is old news: memberlist drops it by
//     its incarnation, or an earlier process haunts the list until it is probed.
//   - The own sighting always carries the own present description, even before
//     memberlist has spread it.
//   - CompleteList gives a list only after three complete answers for each name.
//     A partial answer, an error and a silent resolver give none.
//   - Joining never ends. A member that sees up to 8 living members, itself
//     included, tries the unseen addresses again after a pause shorter than
//     timing.Seek; an address is unseen if no living member is known there. The
//     pause is part of the argument that a cluster founded beside a living cluster
//     grants nothing: see "Why a founded cluster waits" in package founding, and
//     TestPausesWhileSeekingAreShorterThanSeek.
//
// Less formally: gossip tells where to ask, and the answers decide.
//
// # A member that lies
//
// Gossip carries words of any member about any other. A holder of a key can call the
// living dead for as long as it goes on, invent members, and describe others
// falsely. A reader of the lists must therefore ask a process over a stream before
// it acts on its entry. A lie about the incarnation (its greatest number) hides a
// process from the lists until it starts anew.
//
// # Ghosts
//
// A ghost is a process that exists in words alone. Any member can tell of thousands. The
// list of members would fill with ghosts, each ghost would be probed by every member, and
// members would send most of their packets to nobody. So memberlist takes up few processes
// on a word alone:
//
//   - A process is proven once a handshake has shown its name and boot: this member has
//     dialled the process, or the process has dialled this member with a certificate of
//     its name (under a secret, each process makes one itself). A dial proves in every
//     mode that a process of the name and boot answers at the address. An accepted stream
//     without a name in its certificate proves nothing: the words of a preamble cost a
//     stranger no more than the words of a packet.
//   - Up to maxUnproven living processes are taken up without a proof. A small cluster thus
//     needs no dials: each member is taken up on the first word. From half of the number
//     on, each further process is dialled, and leaves its place to the next one with the
//     answer.
//   - A process beyond is refused and dialled, 160 a second and 16 at a time. After the
//     answer the word that had been refused is given to memberlist. 300 members that
//     start at once list each other after four seconds, by dials alone; the streams of
//     their own joining prove most members sooner.
//   - Ghosts hold their places until memberlist has probed them, some minutes if all places
//     are taken, or for as long as the liar renews them. No honest member waits for such a
//     place: the member is listed at the first handshake in either direction. A flood of
//     ghosts delays the dial by the number of those that wait, at most maxUndialled, and a
//     new word takes the place of any of them. A process that has opened a stream to this
//     member is dialled before others, whatever its certificate proves.
//   - A ghost lives and dies by two packets, and memberlist remembers the dead for half a
//     minute at least. At most maxGhosts dead processes without a proof are remembered, and
//     maxDeadOfName proven ones of a name, so the dead leave room for the living.
//   - No dial is believed as a proof of death: a silent process only stays unproven.
//   - The owner of a name has boots for free, and so proves many processes of its own name.
//     At most maxOfName of them are taken up. Nobody else can fill the places of a name
//     that certificates prove. A holder of a secret, or of a certificate that members share,
//     can be any member, and then proves ghosts one by one by answering for them.
//
// # Goroutines
//
// Run starts four goroutines, for joining, for publishing, for dials before a word is
// believed and for dials to unproven processes, and returns when all have ended. Each round of joining tries its
// addresses in parallel and waits for all tries. With InStreams each process to which
// packets go has a goroutine for its stream and one that reads its end; Stop joins
// them. memberlist runs goroutines of its own from Start until some time
// after Stop, and offers no way to join them. After Stop they dial nothing; the
// caller closes the port after Stop, so that they send nothing either. Callbacks
// of memberlist run under its lock, so Watcher's methods must not block and must
// not call Start, Leave or Stop.
package gossip
