package cluster

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/go-hclog"
)

// snapshotsKept is how many snapshots a store keeps: the newest, and one to
// fall back on.
const snapshotsKept = 2

// openFileSnapshots returns the snapshots kept in dir, and makes what is
// missing of it. Call it when openBoltStore holds dir, for it deletes what a
// crash left of snapshots begun.
func openFileSnapshots(dir string, logger hclog.Logger) (raftSnapshotStore, error) {
	if logger == nil {
		logger = hclog.NewNullLogger() // raft would log to stderr
	}
	// The name is raft's, the mode is not: it would let everybody read.
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
	snapshots, err := newRaftFileSnapshots(dir, snapshotsKept, logger)
	if err != nil {
		return nil, fmt.Errorf("cluster: opening the snapshots: %w", err)
	}
	return snapshots, nil
}

// newMemorySnapshots returns an empty snapshot store in memory.
//
// Not raft's own, which publishes a snapshot before it is written and keeps it
// when it is cancelled: a restore could find half a state, and the last whole
// one gone.
func newMemorySnapshots() raftSnapshotStore { return &memorySnapshots{} }

// memorySnapshots keeps snapshots in memory. One is there as soon as its sink
// is closed, and never before.
type memorySnapshots struct {
	mu   sync.Mutex
	made int
	kept []*memorySnapshot // newest first, at most snapshotsKept
}

// memorySnapshot is a snapshot that is written, and does not change any more.
type memorySnapshot struct {
	meta   raftSnapshotMeta
	order  int // of its Create
	chunks [][]byte
}

// copyMeta returns a description that the caller may change.
func (s *memorySnapshot) copyMeta() *raftSnapshotMeta {
	meta := s.meta
	meta.Configuration = meta.Configuration.Clone()
	return &meta
}

// Create begins a snapshot. Nothing shows before its sink is closed.
func (m *memorySnapshots) Create(version raftSnapVersion, index, term uint64, configuration raftConfiguration,
	configurationIndex uint64, _ raftTransport) (raftSnapshotSink, error) {
	if version != 1 {
		return nil, fmt.Errorf("cluster: snapshots of version %d are not supported", version)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.made++
	return &memorySnapshotSink{into: m, snapshot: &memorySnapshot{
		order: m.made,
		meta: raftSnapshotMeta{
			Version:            version,
			ID:                 fmt.Sprintf("%d-%d-%d", term, index, m.made),
			Index:              index,
			Term:               term,
			Configuration:      configuration.Clone(),
			ConfigurationIndex: configurationIndex,
		},
	}}, nil
}

// List describes the snapshots, newest first.
func (m *memorySnapshots) List() ([]*raftSnapshotMeta, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	metas := make([]*raftSnapshotMeta, 0, len(m.kept))
	for _, s := range m.kept {
		metas = append(metas, s.copyMeta())
	}
	return metas, nil
}

// Open returns a reader of its own, good even after the snapshot has made
// place for newer ones.
func (m *memorySnapshots) Open(id string) (*raftSnapshotMeta, io.ReadCloser, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.kept {
		if s.meta.ID == id {
			readers := make([]io.Reader, 0, len(s.chunks))
			for _, chunk := range s.chunks {
				readers = append(readers, bytes.NewReader(chunk))
			}
			return s.copyMeta(), io.NopCloser(io.MultiReader(readers...)), nil
		}
	}
	return nil, nil, fmt.Errorf("cluster: no snapshot %q", id)
}

// publish adds s. One that is older than all that are kept goes at once, so
// that nobody restores it.
func (m *memorySnapshots) publish(s *memorySnapshot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kept = append(m.kept, s)
	slices.SortFunc(m.kept, func(a, b *memorySnapshot) int {
		return cmp.Or(
			cmp.Compare(b.meta.Term, a.meta.Term),
			cmp.Compare(b.meta.Index, a.meta.Index),
			cmp.Compare(b.order, a.order),
		)
	})
	if len(m.kept) > snapshotsKept {
		clear(m.kept[snapshotsKept:])
		m.kept = m.kept[:snapshotsKept]
	}
}

// snapshotChunk is how much of a snapshot lies in one piece. A single one would
// be copied, and be held twice, each time it grows.
const snapshotChunk = 256 << 10

var errSnapshotCancelled = errors.New("cluster: snapshot cancelled")

// memorySnapshotSink is where raft writes one snapshot. It is used by one
// goroutine at a time.
type memorySnapshotSink struct {
	into      *memorySnapshots
	snapshot  *memorySnapshot
	published bool
	cancelled bool
}

func (s *memorySnapshotSink) ID() string { return s.snapshot.meta.ID }

func (s *memorySnapshotSink) Write(p []byte) (int, error) {
	switch {
	case s.cancelled:
		return 0, errSnapshotCancelled
	case s.published:
		return 0, errors.New("cluster: snapshot already closed")
	}
	written := len(p)
	chunks := s.snapshot.chunks
	for len(p) > 0 {
		if len(chunks) == 0 || len(chunks[len(chunks)-1]) == snapshotChunk {
			chunks = append(chunks, nil)
		}
		last := &chunks[len(chunks)-1]
		n := min(len(p), snapshotChunk-len(*last))
		*last = append(*last, p[:n]...)
		p = p[n:]
	}
	s.snapshot.chunks = chunks
	s.snapshot.meta.Size += int64(written)
	return written, nil
}

// Close publishes the snapshot. A second Close does nothing; after Cancel it
// fails, and nothing is published.
func (s *memorySnapshotSink) Close() error {
	switch {
	case s.cancelled:
		return errSnapshotCancelled
	case s.published:
		return nil
	}
	s.published = true
	s.into.publish(s.snapshot)
	return nil
}

// Cancel discards the snapshot. After Close it does nothing.
func (s *memorySnapshotSink) Cancel() error {
	if !s.published {
		s.cancelled = true
		s.snapshot.chunks = nil
	}
	return nil
}
