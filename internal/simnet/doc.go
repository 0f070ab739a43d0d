// Package simnet simulates a network in memory, with every fault that a test of
// a cluster needs: slow, lossy and cut links, frozen and crashed hosts.
//
// A [Network] has hosts with IP addresses. [HostOf] gives a program the view of
// one host, whose [Endpoint] carries streams and packets. A [Link] says how one
// direction between two hosts treats streams and packets.
//
// The package decides when bytes and packets arrive, and which are lost. It
// knows neither their meaning nor the interfaces of package transport, because
// transport.Memory is built on this package. The callers are transport.Memory,
// locks/lockstest and the tests of package cluster.
//
// # Guarantees
//
//   - A stream behaves like TCP: it delivers a prefix of the written bytes, or
//     all of them, in order. A loss only delays the bytes.
//   - A stream whose link is cut, in either direction, for
//     timing.KeepaliveTotal without a break is reset at both ends.
//   - A packet behaves like a UDP datagram: it arrives whole or never. Packets
//     with equal delay arrive in the order of sending.
//   - Losses and delays are drawn from the seed, separately for each link: the
//     losses of one link do not depend on the traffic of the others.
//   - A goroutine that waits in this package is durably blocked in the sense of
//     testing/synctest.
//
// Less formally: a cluster on a Network behaves as on real hosts, an hour takes
// moments, and a failure can be repeated by its seed.
//
// # Caveats
//
// The seed does not decide the order of goroutines that run at the same
// instant. One Network must not serve two synctest bubbles.
//
// # Goroutines
//
// The package starts none. Delayed events and deadlines run in timers, which
// hold the Network's mutex only for moments.
package simnet
