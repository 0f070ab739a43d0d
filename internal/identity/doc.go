// Package identity keeps the few facts that a member must not forget: its name,
// the cluster it belongs to, the promises it made while founding, the
// generation under which it votes, the addresses of other members, and the
// highest token it has seen.
//
// A [Store] holds one [Record]. With a directory, the record is durable before
// Update returns, and a file lock keeps a second process out of the directory
// until Close. Without one, the record dies with the process, which is safe
// because the raft ID dies with it.
//
// The package does not interpret the record: founding, voting and gossip do. It
// owns no goroutine. Package cluster opens and closes the Store; internal/founding,
// internal/consensus and internal/gossip read and change their part of it.
package identity
