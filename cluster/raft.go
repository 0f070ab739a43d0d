package cluster

import "github.com/hashicorp/raft"

// The names of hashicorp/raft that the rest of the package uses: only this
// file imports it.
type (
	raftLog           = raft.Log
	raftLogStore      = raft.LogStore
	raftStableStore   = raft.StableStore
	raftSnapshotStore = raft.SnapshotStore
	raftSnapshotSink  = raft.SnapshotSink
	raftSnapshotMeta  = raft.SnapshotMeta
	raftConfiguration = raft.Configuration
	raftTransport     = raft.Transport
	raftSnapVersion   = raft.SnapshotVersion
)
