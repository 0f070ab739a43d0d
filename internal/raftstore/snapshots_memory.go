package raftstore

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/hashicorp/raft"
)

// NewMemorySnapshots returns an empty snapshot store in memory.
//
// Not raft.InmemSnapshotStore, which publishes a snapshot before the snapshot is
// written and keeps a cancelled snapshot: a restore could find half a state, and
// the last whole snapshot gone.
func NewMemorySnapshots() raft.SnapshotStore { return &memorySnapshots{} }

// memorySnapshots keeps snapshots in memory. A snapshot exists from the moment
// its sink is closed, and never before.
type memorySnapshots struct {
	mu   sync.Mutex
	made int
	kept []*memorySnapshot // newest first, at most maxSnapshots
}

// memorySnapshot is a snapshot. Once published, a snapshot does not change.
type memorySnapshot struct {
	meta   raft.SnapshotMeta
	chunks [][]byte
}

// copyMeta returns a description that the caller may change.
func (s *memorySnapshot) copyMeta() *raft.SnapshotMeta {
	meta := s.meta
	meta.Configuration = meta.Configuration.Clone()
	return &meta
}

// Create begins a snapshot. Open and List know the snapshot once its sink is
// closed.
func (m *memorySnapshots) Create(version raft.SnapshotVersion, index, term uint64, configuration raft.Configuration,
	configurationIndex uint64, _ raft.Transport) (raft.SnapshotSink, error) {
	if version != 1 {
		return nil, fmt.Errorf("cluster: snapshots of version %d are not supported", version)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.made++
	return &sink{store: m, snapshot: &memorySnapshot{
		meta: raft.SnapshotMeta{
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
func (m *memorySnapshots) List() ([]*raft.SnapshotMeta, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	metas := make([]*raft.SnapshotMeta, 0, len(m.kept))
	for _, s := range m.kept {
		metas = append(metas, s.copyMeta())
	}
	return metas, nil
}

// Open returns a reader of a snapshot. The reader stays good after newer
// snapshots have replaced the snapshot.
func (m *memorySnapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
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

// publish adds s and removes the oldest snapshot over the limit. That may be s
// itself, so that nobody restores from an old snapshot that ended late.
func (m *memorySnapshots) publish(s *memorySnapshot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kept = slices.Insert(m.kept, 0, s)
	slices.SortStableFunc(m.kept, func(a, b *memorySnapshot) int {
		return cmp.Or(cmp.Compare(b.meta.Term, a.meta.Term), cmp.Compare(b.meta.Index, a.meta.Index))
	})
	m.kept = slices.Delete(m.kept, min(maxSnapshots, len(m.kept)), len(m.kept))
}

// chunkSize is the length of a piece of a snapshot. A single piece would be
// copied, and be in memory twice, whenever the snapshot grows.
const chunkSize = 256 << 10

var (
	errCancelled = errors.New("cluster: snapshot cancelled")
	errPublished = errors.New("cluster: snapshot already closed")
)

// sink receives a snapshot from raft. It is used by a single goroutine at a
// time.
type sink struct {
	store    *memorySnapshots
	snapshot *memorySnapshot
	ended    error // errCancelled or errPublished; nil: the sink takes bytes
}

func (s *sink) ID() string { return s.snapshot.meta.ID }

func (s *sink) Write(p []byte) (int, error) {
	if s.ended != nil {
		return 0, s.ended
	}
	written := len(p)
	chunks := s.snapshot.chunks
	for len(p) > 0 {
		if len(chunks) == 0 || len(chunks[len(chunks)-1]) == chunkSize {
			chunks = append(chunks, nil)
		}
		last := &chunks[len(chunks)-1]
		n := min(len(p), chunkSize-len(*last))
		*last = append(*last, p[:n]...)
		p = p[n:]
	}
	s.snapshot.chunks = chunks
	s.snapshot.meta.Size += int64(written)
	return written, nil
}

// Close publishes the snapshot. A second Close does nothing. Close after Cancel
// fails and publishes nothing.
func (s *sink) Close() error {
	switch s.ended {
	case nil:
		s.ended = errPublished
		s.store.publish(s.snapshot)
	case errCancelled:
		return errCancelled
	}
	return nil
}

// Cancel discards the snapshot. Cancel after Close does nothing.
func (s *sink) Cancel() error {
	if s.ended == nil {
		s.ended = errCancelled
		s.snapshot.chunks = nil
	}
	return nil
}
