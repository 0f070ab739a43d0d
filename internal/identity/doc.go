// Package identity is a member's memory: name, cluster, promises made while
// founding, generation of the vote, addresses of other members, and the highest
// token seen.
//
// A [Store] holds one [Record]. With a directory, the record is durable before
// Update returns, a changed bit in it is found at the next Open, and a file lock
// keeps a second process out of the directory until Close. Without a directory, the record dies with the process, and so
// does the raft ID: no promise outlives the memory of it.
//
// The package does not interpret the record: founding, voting and gossip do. The
// package owns no goroutine. Package cluster opens and closes the Store; internal/founding,
// internal/consensus and internal/gossip read and change their part of it.
package identity
