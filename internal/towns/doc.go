// Package towns gives tests of real processes two things: processes that never outlive
// the test, and a network between them that can be cut.
//
// A [Parent] starts processes and ends them. A process reads commands from its standard
// input, line by line, writes answers to its standard output, and ends when its input
// ends. On Linux the kernel also kills the process when the test ends in any way, a
// stopped process too, which would not read the end of its input.
//
// A [Net] is a bridge with a network namespace for each member, on Linux and as root.
// It cuts ways between members, one direction at a time, loses a share of the packets,
// and narrows a member's way out. The namespaces are removed by Close, and if the test is
// killed, by a shell that waits for the end of its input.
//
// The package knows nothing of clusters and locks. Its goroutines: a Parent has one, on a
// thread of its own, from NewParent to Close, and two for each process.
package towns
