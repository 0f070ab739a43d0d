// Package transport is the network below a cluster: the host's own, or one in
// memory for tests.
//
// A [Network] listens on an address, and the [Endpoint] it returns carries
// streams and packets on one port number. [TCP] returns the host's own network,
// which is the default of cluster.Config. A [Memory] is a network in memory:
// each [Link] between its hosts can be slow, lossy or cut. To test a program
// on a whole cluster, use locks/lockstest, which brings a network of its own.
//
// The package moves bytes. Identities, encryption and limits on connections are
// the business of the layers above a Network.
//
// # Testing
//
// Inside a testing/synctest bubble, give each member a host of one Memory:
//
//	m := transport.NewMemory(seed)
//	a, err := cluster.Start(ctx, cluster.Config{
//		Network: m.Host("10.0.0.1"), Bind: "10.0.0.1:7000", InitialSize: 2,
//		Join: []string{"10.0.0.2:7000"},
//	})
//	...
//	m.Cut("10.0.0.1", "10.0.0.2")
//	time.Sleep(time.Hour) // takes moments
//	m.Heal()
//
// A bubble has two limits. A goroutine that waits for a mutex stops the bubble's
// time: two goroutines must not write to one TLS connection while its window is
// full. And goroutines that run at the same instant run in any order: the seed
// decides the losses and the delays, not the order of goroutines.
package transport
