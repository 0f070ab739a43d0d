// Package member says who a member is: its name and boot, its raft IDs, and
// the description that a member spreads by gossip. Every package that handles
// members shares these values, so that no package needs another one only to
// name a member.
//
// The types are Self, this node's own name, boot, address, cluster and logger,
// handed down in place of the node itself; Process, one run of a member; and
// Sighting, a process together with its Metadata, as gossip last told it.
//
// The package holds values and pure functions. It has no goroutine, clock or
// I/O, and decides nothing.
package member
