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
// latencies, the CPU time of the system's processes, the CPU time stolen by the host's
// hypervisor, the flushes of the disk and the bytes written. The disk counts flushes of
// all programs.
//
// # What is compared
//
// A cycle is an acquire and a release, each awaited; in the workloads named lazy, wardmote's
// releases are of the option Lazy, and its peers' are awaited; in the workload again/1 its
// key is of the option Sticky, and the peers ask each time. The table of equal guarantees has
// systems with locks that survive the loss of a minority, rising tokens, and expiry of a
// dead holder's locks. A durable system flushes its log to a majority's disks before the
// answer. Systems with weaker guarantees have a table of their own.
//
// Each peer has its usual client library, with one connection for each member: etcd's concurrency package, go-zookeeper's lock, SET NX with a deleting script
// on Redis.
package main
