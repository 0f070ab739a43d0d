// Command bench compares wardmote with lock services, and with itself.
//
//	go run . -list                         the systems and workloads
//	go run .                               every workload, with the peers of this host
//	go run . -quick                        the aims about rates
//	go run . -rounds 7 -only own/256       one workload
//	go run . -smoke                        wardmote alone, for a minute
//
// # Method
//
// Each system is one process of this program with three members and their callers, or
// with the callers alone if the servers are processes of their own (ZooKeeper, Redis).
// In the setting "processes" each member of wardmote is a process with its callers, and
// each member of etcd is one without. In the setting "delay" each stream between members
// passes a proxy on loopback that adds 1 ms to each way, and Redis has the proxy before
// its server.
//
// All systems of a setting are up at once. A workload runs on them in turns of about a second: A, B,
// C, A, B, C. Runs one after the other would differ by a factor of two on a shared
// machine; neighbouring turns see the same machine. A round is one turn of each system,
// and its ratio is wardmote's rate divided by the peer's. The report has the median
// of the ratios with the smallest and the largest, and never compares rates of two
// rounds.
//
// Each turn begins with a run-in that does not count. A sample has the cycles, the
// latencies, the CPU time of the system's processes, the CPU time of all others, the CPU
// time stolen by the host's hypervisor, the flushes of the disk and the bytes written. The
// disk counts the flushes and bytes of all programs, and bytes that a system leaves to the
// kernel without a flush may count in a later turn.
//
// An event, such as the death of a leader, has figures of its own in place of cycles. The
// time to the next grant begins with the signal. From then on a caller at each living
// member begins an attempt every 20 ms, because an attempt that was under way to the dead
// leader may wait for a timeout of seconds.
//
// # What is compared
//
// A cycle is an acquire and a release, each awaited; in the workloads named lazy, wardmote's
// releases are of the option Lazy, and its peers' are awaited; in the workload again/1 its
// key is of the option Sticky, and the peers ask each time. The table of equal guarantees has
// systems with locks that survive the loss of a minority, rising tokens, and expiry of a
// dead holder's locks. A durable system flushes its log to a majority's disks before the
// answer. Systems with weaker guarantees have tables of their own.
//
// Each peer has its usual client library, with one connection for each member: etcd's
// concurrency package and the RWMutex of its recipes, go-zookeeper's lock, SET NX with a deleting script on Redis. The
// servers have their defaults, but ZooKeeper a tick of 500 ms in place of 2 s, and Redis
// neither snapshots nor a log.
//
// In an open loop requests arrive at random, all systems get the rate that is half of
// etcd's median rate in the closed loop, and the time of a request begins with its planned
// arrival: a standstill costs all requests planned for it.
package main
