// Command bench compares wardmote with lock services, and with itself.
//
//	go run . -list                         the systems and workloads
//	go run .                               every workload, with the peers of this host
//	go run . -rounds 7 -only own/256       one workload
//	go run . -smoke                        wardmote alone, for a minute
//
// # Method
//
// Each system is one process of this program with three members and their callers, or
// with the callers alone if the servers are processes of their own (ZooKeeper, Redis).
// All systems are up at once. A workload runs on them in turns of about a second: A, B,
// C, A, B, C. Runs one after the other would differ by a factor of two on a shared
// machine; neighbouring turns see the same machine. A round is one turn of each system,
// and its ratio is wardmote's rate divided by the peer's. The report has the median
// of the ratios with the smallest and the largest, and never compares rates of two
// rounds.
//
// Each turn begins with a run-in that does not count. A sample has the cycles, the
// latencies, the CPU time of the system's processes, the time that the host's
// hypervisor took away, the flushes of the disk and the bytes written. Flushes are the
// disk's own count, so they include those of other programs on the same disk.
//
// # What is compared
//
// A cycle is an acquire and a release, each awaited. The table of equal guarantees has
// systems that keep a lock through the loss of a minority, tell tokens that rise, and
// expire a dead holder's locks. A durable system flushes its log to a majority's disks
// before it answers. Systems that guarantee less are in a table apart.
//
// Peers get the client library that their users have, with one connection for each
// member: etcd's concurrency package, go-zookeeper's lock, SET NX with a deleting script
// on Redis.
package main
