// Package member names a member: name and boot, raft IDs, and the description
// spread by gossip. Packages share these values and need not import each other
// to name a member.
//
// The types are Self, this node's own name, boot, address, cluster and logger,
// handed down in place of the node itself; Process, one run of a member; and
// Sighting, a process together with its latest Metadata from gossip.
//
// The package holds values and pure functions. It has no goroutine, clock or
// I/O, and decides nothing.
package member
