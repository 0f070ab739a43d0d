// Package towns gives tests of real processes two things: processes that never outlive
// the test, and a network between the processes, with ways to cut.
//
// A [Parent] starts processes and ends them. A process reads commands from the standard
// input, line by line, writes answers to the standard output, and ends with the end of the
// input. On Linux the kernel also kills the process when the test ends in any way: a
// stopped process would not read the end of the input.
//
// A [Net] is a bridge with a network namespace for each member, on Linux and as root.
// The Net cuts ways between members, one direction at a time, loses a share of the packets,
// and narrows a member's way out. Close removes the namespaces; after the death of the test
// a waiting shell does.
//
// The package knows nothing of clusters and locks. Goroutines: a Parent has one, on a
// separate thread, from NewParent to Close, and two for each process.
package towns
