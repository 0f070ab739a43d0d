package raftstore

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// maxSnapshots is the number of snapshots that are kept: the newest, and an older
// snapshot to fall back on.
const maxSnapshots = 2

// OpenSnapshots returns the snapshots kept in dir, and makes missing directories.
// The caller must have opened the Store in dir before, because OpenSnapshots
// deletes unfinished snapshots, which a crash left or another process writes. A
// nil logger logs nothing.
func OpenSnapshots(dir string, logger hclog.Logger) (raft.SnapshotStore, error) {
	if logger == nil {
		logger = hclog.NewNullLogger() // raft would log to stderr
	}
	// Raft would make this directory, under this name, for everybody to read.
	path := filepath.Join(dir, "snapshots")
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("cluster: making the snapshot directory: %w", err)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, fmt.Errorf("cluster: reading the snapshot directory: %w", err)
	}
	for _, entry := range entries {
		if entry.IsDir() && strings.HasSuffix(entry.Name(), ".tmp") {
			if err := os.RemoveAll(filepath.Join(path, entry.Name())); err != nil {
				return nil, fmt.Errorf("cluster: removing an unfinished snapshot: %w", err)
			}
		}
	}
	snapshots, err := raft.NewFileSnapshotStoreWithLogger(dir, maxSnapshots, logger)
	if err != nil {
		return nil, fmt.Errorf("cluster: opening the snapshots: %w", err)
	}
	return snapshots, nil
}
