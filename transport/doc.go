// Package transport gives each member of a cluster one port, for TCP and UDP
// alike, and tests a network in memory.
//
// A [Port] accepts and dials connections ([Conn]) of several kinds ([Kind]) on
// one address, and sends and receives packets. Each connection opens with a
// preamble, in which both sides say who they are ([Hello], [Peer]); one that
// reached the wrong cluster, the wrong member or a full house ends with a
// [RefusedError] that says why ([Status]). Below a Port lies a [Network]: the
// host's own, [TCP], or a host of a [Memory], whose links tests can slow down,
// cut and heal ([Link]). Its [Endpoint] is all that a Port knows of it.
//
// # Guarantees
//
//   - No byte of a connection's own protocol is exchanged before TLS (if
//     configured) and the preamble have succeeded on the side that sends it.
//   - Two sides that both know their cluster's ID have the same one, and the
//     same cluster name, whichever side dialled.
//   - A connection dialled to a name reached that name, and one dialled to a
//     boot reached that boot; in [KindRaft] the accepting side's Config.Admit
//     judges the number.
//   - A handshake that takes longer than 5 s is closed. An admitted connection
//     has no deadline and stays until a side closes it or the peer's host has
//     been silent for some 25 s.
//   - Whatever bytes arrive, nothing panics, and less than 1 KiB is read and
//     held before a connection is admitted (TLS aside).
//   - The number of connections is bounded: in all, per address, per member
//     name and while shaking hands. Reaching a bound closes none that was
//     admitted.
//   - When [Port.Close] returns, every goroutine of the Port has ended, and so
//     have the handlers.
//
// Less formally: whoever holds a Conn talks to whom it meant to, in its own
// cluster, and a stranger on the port costs it nothing.
//
// # Caveats
//
// Without TLS the preamble is a label, not a proof: it keeps mistakes apart,
// not attackers. Packets have no preamble and no encryption here; gossip
// brings its own. Neither does the Port tell which members may speak which
// kind: Config.Admit does. A [Conn] that nobody closes counts towards the
// bounds for as long as it lives.
//
// # Testing
//
// Inside a testing/synctest bubble, give each member a host of one Memory:
//
//	m := transport.NewMemory(seed)
//	port, err := transport.Open(transport.Config{
//		Network: m.Host("10.0.0.1"), Bind: ":7000", Cluster: "test",
//		Self: transport.Peer{Name: "a", Boot: 1},
//	})
//	...
//	m.Isolate("10.0.0.1")
//	time.Sleep(time.Hour)
//	m.Heal()
//
// Two limits of the bubble show here. A goroutine that waits for a mutex stops
// the bubble's time, so two goroutines must not write to one TLS connection
// while its window is full. And what runs at one instant runs in any order:
// the seed decides which packets are lost, not who is scheduled first.
package transport
