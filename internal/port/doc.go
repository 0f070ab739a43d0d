// Package port gives a member one port, for TCP and UDP alike, shared by all
// kinds of connections.
//
// A [Port] accepts and dials connections ([Conn]) of several kinds ([Kind]) on
// one address, and sends and receives packets. Each connection opens with a
// preamble, in which both sides name themselves ([Hello], [Peer]). A connection
// to the wrong cluster, to the wrong member or to a full port ends with a
// [RefusedError] that gives the reason ([Status]). Below a Port lies a
// transport.Network.
//
// The package decides which connections are admitted, by cluster, destination,
// kind and number. It knows neither the bytes that follow the preamble nor the
// roles of members: Config.Admit judges roles. The caller is package cluster,
// which opens the Port and hands connections to the packages above.
//
// # Guarantees
//
//   - No byte of a connection's own protocol is exchanged before TLS (if
//     configured) and the preamble have succeeded on the sending side.
//   - If both sides know their cluster's ID, the IDs are equal. The names of
//     the two clusters are equal in any case, whichever side dialled.
//   - A connection dialled to a name reached that name, and a connection
//     dialled to a boot reached that boot. In [KindRaft] the number is a raft
//     generation, judged by the accepting side's Config.Admit.
//   - A handshake of more than 5 s is closed. An admitted connection has no
//     deadline and stays until a side closes it or the peer's host has been
//     silent for some 25 s.
//   - Whichever bytes arrive, nothing panics, and less than 1 KiB is read and
//     held before a connection is admitted (TLS aside).
//   - The number of connections is bounded: in all, per address, per member
//     name and during the handshake. Reaching a bound closes no admitted
//     connection.
//   - When [Port.Close] returns, every goroutine of the Port has ended,
//     including the handlers.
//
// Less formally: the owner of a Conn talks to the intended member, in its own
// cluster, and a stranger on the port costs nothing.
//
// # Caveats
//
// Without TLS the preamble is a label, not a proof: the label keeps mistakes
// apart, not attackers. Packets have no preamble and no encryption here; gossip
// brings its own. A [Conn] that nobody closes counts towards the bounds for as
// long as it lives.
//
// # Goroutines
//
// [Port.Serve] starts two goroutines, for connections and for packets. Each
// accepted connection has a goroutine, which does the handshake and then runs
// the handler. [Port.Close] joins all of them. A dialled connection has none.
package port
