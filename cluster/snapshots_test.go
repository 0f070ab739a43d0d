package cluster

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/hashicorp/raft"
)

// snapshotEachClass runs a test on both classes of snapshot store.
func snapshotEachClass(t *testing.T, run func(t *testing.T, m raftSnapshotStore)) {
	t.Run("memory", func(t *testing.T) { run(t, newMemorySnapshots()) })
	t.Run("file", func(t *testing.T) {
		m, err := openFileSnapshots(t.TempDir(), nil)
		storeMust(t, err)
		run(t, m)
	})
}

var snapshotVoters = raft.Configuration{Servers: []raft.Server{{ID: "n1#1", Address: "n1#1"}}}

func snapshotBegin(t testing.TB, m raftSnapshotStore, index, term uint64, data string) raftSnapshotSink {
	t.Helper()
	_, transport := raft.NewInmemTransport("n1#1")
	sink, err := m.Create(1, index, term, snapshotVoters.Clone(), index-1, transport)
	storeMust(t, err)
	_, err = sink.Write([]byte(data))
	storeMust(t, err)
	return sink
}

func snapshotMake(t testing.TB, m raftSnapshotStore, index, term uint64, data string) string {
	t.Helper()
	sink := snapshotBegin(t, m, index, term, data)
	storeMust(t, sink.Close())
	return sink.ID()
}

// snapshotList returns the indexes of the snapshots.
func snapshotList(t testing.TB, m raftSnapshotStore) (indexes []uint64) {
	t.Helper()
	metas, err := m.List()
	storeMust(t, err)
	for _, meta := range metas {
		indexes = append(indexes, meta.Index)
	}
	return indexes
}

func snapshotRead(t testing.TB, m raftSnapshotStore, id string) string {
	t.Helper()
	_, r, err := m.Open(id)
	storeMust(t, err)
	data, err := io.ReadAll(r)
	storeMust(t, err)
	storeMust(t, r.Close())
	return string(data)
}

func snapshotExpect(t *testing.T, m raftSnapshotStore, what string, want ...uint64) {
	t.Helper()
	got := snapshotList(t, m)
	if len(got) != len(want) {
		t.Fatalf("%s: snapshots %d, want %d", what, got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("%s: snapshots %d, want %d", what, got, want)
		}
	}
}

func TestSnapshotShowsWhenItIsClosed(t *testing.T) {
	snapshotEachClass(t, func(t *testing.T, m raftSnapshotStore) {
		snapshotExpect(t, m, "at first")
		old := snapshotMake(t, m, 10, 2, "old")
		sink := snapshotBegin(t, m, 20, 2, "half")
		snapshotExpect(t, m, "half written", 10)
		if _, _, err := m.Open(sink.ID()); err == nil {
			t.Error("half a snapshot can be opened")
		}
		if data := snapshotRead(t, m, old); data != "old" {
			t.Errorf("read %q", data)
		}
		_, err := sink.Write([]byte(" and half"))
		storeMust(t, err)
		storeMust(t, sink.Close())
		storeMust(t, sink.Close())
		storeMust(t, sink.Cancel())
		snapshotExpect(t, m, "closed", 20, 10)
		if data := snapshotRead(t, m, sink.ID()); data != "half and half" {
			t.Errorf("read %q", data)
		}
		meta, r, err := m.Open(sink.ID())
		storeMust(t, err)
		defer r.Close()
		if meta.ID != sink.ID() || meta.Version != 1 || meta.Index != 20 || meta.Term != 2 || meta.ConfigurationIndex != 19 ||
			meta.Size != 13 || len(meta.Configuration.Servers) != 1 || meta.Configuration.Servers[0] != snapshotVoters.Servers[0] {
			t.Errorf("meta %+v", meta)
		}
	})
}

func TestSnapshotCancelLeavesNothing(t *testing.T) {
	snapshotEachClass(t, func(t *testing.T, m raftSnapshotStore) {
		id := snapshotMake(t, m, 10, 2, "old")
		sink := snapshotBegin(t, m, 20, 2, "new")
		storeMust(t, sink.Cancel())
		storeMust(t, sink.Cancel())
		_ = sink.Close()
		snapshotExpect(t, m, "cancelled", 10)
		if _, _, err := m.Open(sink.ID()); err == nil {
			t.Error("a cancelled snapshot can be opened")
		}
		if data := snapshotRead(t, m, id); data != "old" {
			t.Errorf("read %q", data)
		}
	})
}

func TestSnapshotMemorySinkIsOverAfterItsEnd(t *testing.T) {
	m := newMemorySnapshots()
	sink := snapshotBegin(t, m, 20, 2, "new")
	storeMust(t, sink.Cancel())
	if err := sink.Close(); !errors.Is(err, errSnapshotCancelled) {
		t.Errorf("closed: %v", err)
	}
	if _, err := sink.Write([]byte("more")); !errors.Is(err, errSnapshotCancelled) {
		t.Errorf("written: %v", err)
	}
	sink = snapshotBegin(t, m, 30, 2, "new")
	storeMust(t, sink.Close())
	if _, err := sink.Write([]byte("more")); err == nil {
		t.Error("a published snapshot was changed")
	}
	if data := snapshotRead(t, m, sink.ID()); data != "new" {
		t.Errorf("read %q", data)
	}
	if _, err := m.Create(0, 1, 1, snapshotVoters, 1, nil); err == nil {
		t.Error("made one of an unknown version")
	}
}

func TestSnapshotTwoNewestStay(t *testing.T) {
	snapshotEachClass(t, func(t *testing.T, m raftSnapshotStore) {
		first := snapshotMake(t, m, 10, 2, "10")
		_, reader, err := m.Open(first)
		storeMust(t, err)
		defer reader.Close()
		snapshotMake(t, m, 30, 2, "30")
		snapshotMake(t, m, 20, 3, "20") // of a later term: newer
		snapshotExpect(t, m, "three", 20, 30)
		if _, _, err := m.Open(first); err == nil {
			t.Error("the oldest stays")
		}
		snapshotMake(t, m, 5, 1, "5")
		snapshotExpect(t, m, "an old one", 20, 30)
		if data, err := io.ReadAll(reader); string(data) != "10" || err != nil {
			t.Errorf("the reader opened before read %q, %v", data, err)
		}
	})
}

func TestSnapshotReadersAndMetasAreIndependent(t *testing.T) {
	snapshotEachClass(t, func(t *testing.T, m raftSnapshotStore) {
		const size = 3*snapshotChunk + 17
		data := make([]byte, size)
		for i := range data {
			data[i] = byte(i * 7 / 5)
		}
		sink := snapshotBegin(t, m, 10, 2, "")
		for rest := data; len(rest) > 0; {
			n := min(len(rest), 100_003)
			block := bytes.Clone(rest[:n])
			_, err := sink.Write(block)
			storeMust(t, err)
			clear(block) // the writer's to use again
			rest = rest[n:]
		}
		storeMust(t, sink.Close())
		metas, err := m.List()
		storeMust(t, err)
		if metas[0].Size != size {
			t.Errorf("size %d", metas[0].Size)
		}
		metas[0].Index = 99
		metas[0].Configuration.Servers[0].ID = "changed"
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if got := snapshotRead(t, m, sink.ID()); got != string(data) {
					t.Error("read something else")
				}
			})
		}
		wg.Wait()
		meta, r, err := m.Open(sink.ID())
		storeMust(t, err)
		storeMust(t, r.Close())
		if meta.Index != 10 || meta.Configuration.Servers[0].ID != "n1#1" {
			t.Errorf("meta %+v", meta)
		}
	})
}

func TestSnapshotFilesSurvive(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	m, err := openFileSnapshots(dir, nil)
	storeMust(t, err)
	id := snapshotMake(t, m, 10, 2, "kept")
	left := snapshotBegin(t, m, 20, 2, "half") // a crash
	m, err = openFileSnapshots(dir, nil)
	storeMust(t, err)
	snapshotExpect(t, m, "after a restart", 10)
	if data := snapshotRead(t, m, id); data != "kept" {
		t.Errorf("read %q", data)
	}
	path := filepath.Join(dir, "snapshots")
	if _, err := os.Stat(filepath.Join(path, left.ID()+".tmp")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("half a snapshot takes room for ever: %v", err)
	}
	for _, path := range []string{dir, path} {
		info, err := os.Stat(path)
		storeMust(t, err)
		if info.Mode().Perm() != 0o700 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
	}
	storeMust(t, os.WriteFile(filepath.Join(path, id, "state.bin"), []byte("kepd"), 0o600))
	if _, _, err := m.Open(id); err == nil {
		t.Error("a damaged snapshot was opened")
	}
}
