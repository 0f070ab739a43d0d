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
//   - No byte of a connection's own protocol is exchanged before the
//     handshake of Config.Auth and the preamble have succeeded on the sending side.
//   - If Config.Auth proves a name or a boot, the preamble and the answer say the
//     same, on both sides. [KindRaft] connects voters only, where roles are proved.
//   - If both sides know their cluster's ID, the IDs are equal. The names of
//     the two clusters are equal in any case, whichever side dialled.
//   - A connection dialled to a name reached that name, and a connection
//     dialled to a boot reached that boot. In [KindRaft] the number is a raft
//     generation, judged by the accepting side's Config.Admit.
//   - A handshake of more than 5 s is closed. An admitted connection stays until a
//     side closes it, the peer's host has been silent for some 25 s, or the
//     connection is too old: see [Conn.Renew]. A dialling side that sends nothing
//     for 10 s after its admission is cut, so each kind's dialler speaks first.
//   - Whichever bytes arrive, nothing panics, and less than 1 KiB is read and
//     held before a connection is admitted (TLS aside).
//   - A relayed connection is the two ends' own, TLS and preamble included: the
//     relaying member carries the bytes and reads none.
//   - The number of connections is bounded: in all, per address, per member
//     name, from processes that Config.Known does not know, and during the handshake. So one
//     that knows a secret, and makes up names, takes a quarter of the places. When a bound on
//     admitted connections is
//     reached, a connection that has sent nothing for a second since its admission,
//     or nothing for 10 s, gives way to a newcomer. A connection in use is never
//     closed for another one. Above each bound, members that live by Config.Living
//     or that prove their name have places of their own.
//   - Strangers get half of the threads at most: handshakes compute in turns, and
//     the addresses take turns in rotation.
//   - The bytes held for peers are bounded in all: [Conn.Budget].
//   - When [Port.Close] returns, every goroutine of the Port has ended,
//     including the handlers.
//
// Less formally: the owner of a Conn talks to the intended member, in its own
// cluster, and a stranger on the port costs little.
//
// # Caveats
//
// With auth.Plain the preamble is a label, not a proof: the label keeps mistakes
// apart, not attackers. Packets have no preamble and no encryption here; gossip
// brings its own. A [Conn] that nobody closes counts towards the bounds for as
// long as it lives. A flood from a member's own host shares that address's turns and
// places: a member dials then for longer, a second or a few at 2,000 complete TLS
// hellos a second, and silent connections delay it by milliseconds.
//
// # Goroutines
//
// [Port.Serve] starts two goroutines, for connections and for packets. Each
// accepted connection has a goroutine, which does the handshake and then runs
// the handler; a relayed connection has two more. [Port.Close] joins all of them. A dialled connection has none.
// The end of a connection's life is a timer, and Close waits for its function.
package port
