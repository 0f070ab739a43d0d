package raftstore

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

// eachSnapshots runs a test on both classes of snapshot store.
func eachSnapshots(t *testing.T, run func(t *testing.T, m raft.SnapshotStore)) {
	t.Run("memory", func(t *testing.T) { run(t, NewMemorySnapshots()) })
	t.Run("file", func(t *testing.T) {
		m, err := OpenSnapshots(t.TempDir(), nil)
		must(t, err)
		run(t, m)
	})
}

var oneVoter = raft.Configuration{Servers: []raft.Server{{ID: "n1#1", Address: "n1#1"}}}

func beginSnapshot(t testing.TB, m raft.SnapshotStore, index, term uint64, data string) raft.SnapshotSink {
	t.Helper()
	_, transport := raft.NewInmemTransport("n1#1")
	sink, err := m.Create(1, index, term, oneVoter.Clone(), index-1, transport)
	must(t, err)
	_, err = sink.Write([]byte(data))
	must(t, err)
	return sink
}

func makeSnapshot(t testing.TB, m raft.SnapshotStore, index, term uint64, data string) string {
	t.Helper()
	sink := beginSnapshot(t, m, index, term, data)
	must(t, sink.Close())
	return sink.ID()
}

// listSnapshots returns the indexes of the snapshots.
func listSnapshots(t testing.TB, m raft.SnapshotStore) (indexes []uint64) {
	t.Helper()
	metas, err := m.List()
	must(t, err)
	for _, meta := range metas {
		indexes = append(indexes, meta.Index)
	}
	return indexes
}

func readSnapshot(t testing.TB, m raft.SnapshotStore, id string) string {
	t.Helper()
	_, r, err := m.Open(id)
	must(t, err)
	data, err := io.ReadAll(r)
	must(t, err)
	must(t, r.Close())
	return string(data)
}

func expectSnapshots(t *testing.T, m raft.SnapshotStore, when string, want ...uint64) {
	t.Helper()
	got := listSnapshots(t, m)
	if len(got) != len(want) {
		t.Fatalf("%s: snapshots %d, want %d", when, got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("%s: snapshots %d, want %d", when, got, want)
		}
	}
}

func TestASnapshotExistsOnceItsSinkIsClosed(t *testing.T) {
	eachSnapshots(t, func(t *testing.T, m raft.SnapshotStore) {
		expectSnapshots(t, m, "at first")
		old := makeSnapshot(t, m, 10, 2, "old")
		sink := beginSnapshot(t, m, 20, 2, "half")
		expectSnapshots(t, m, "half written", 10)
		if _, _, err := m.Open(sink.ID()); err == nil {
			t.Error("half a snapshot can be opened")
		}
		if data := readSnapshot(t, m, old); data != "old" {
			t.Errorf("read %q", data)
		}
		_, err := sink.Write([]byte(" and half"))
		must(t, err)
		must(t, sink.Close())
		must(t, sink.Close())
		must(t, sink.Cancel())
		expectSnapshots(t, m, "closed", 20, 10)
		if data := readSnapshot(t, m, sink.ID()); data != "half and half" {
			t.Errorf("read %q", data)
		}
		meta, r, err := m.Open(sink.ID())
		must(t, err)
		defer r.Close()
		if meta.ID != sink.ID() || meta.Version != 1 || meta.Index != 20 || meta.Term != 2 || meta.ConfigurationIndex != 19 ||
			meta.Size != 13 || len(meta.Configuration.Servers) != 1 || meta.Configuration.Servers[0] != oneVoter.Servers[0] {
			t.Errorf("meta %+v", meta)
		}
	})
}

func TestACancelledSnapshotLeavesNothing(t *testing.T) {
	eachSnapshots(t, func(t *testing.T, m raft.SnapshotStore) {
		id := makeSnapshot(t, m, 10, 2, "old")
		sink := beginSnapshot(t, m, 20, 2, "new")
		must(t, sink.Cancel())
		must(t, sink.Cancel())
		_ = sink.Close()
		expectSnapshots(t, m, "cancelled", 10)
		if _, _, err := m.Open(sink.ID()); err == nil {
			t.Error("a cancelled snapshot can be opened")
		}
		if data := readSnapshot(t, m, id); data != "old" {
			t.Errorf("read %q", data)
		}
	})
}

func TestAClosedOrCancelledSinkTakesNothingMore(t *testing.T) {
	m := NewMemorySnapshots()
	sink := beginSnapshot(t, m, 20, 2, "new")
	must(t, sink.Cancel())
	if err := sink.Close(); !errors.Is(err, errCancelled) {
		t.Errorf("closed: %v", err)
	}
	if _, err := sink.Write([]byte("more")); !errors.Is(err, errCancelled) {
		t.Errorf("written: %v", err)
	}
	sink = beginSnapshot(t, m, 30, 2, "new")
	must(t, sink.Close())
	if _, err := sink.Write([]byte("more")); err == nil {
		t.Error("a published snapshot was changed")
	}
	if data := readSnapshot(t, m, sink.ID()); data != "new" {
		t.Errorf("read %q", data)
	}
	if _, err := m.Create(0, 1, 1, oneVoter, 1, nil); err == nil {
		t.Error("made one of an unknown version")
	}
}

func TestTheTwoNewestSnapshotsStay(t *testing.T) {
	eachSnapshots(t, func(t *testing.T, m raft.SnapshotStore) {
		first := makeSnapshot(t, m, 10, 2, "10")
		_, reader, err := m.Open(first)
		must(t, err)
		defer reader.Close()
		makeSnapshot(t, m, 30, 2, "30")
		makeSnapshot(t, m, 20, 3, "20") // of a later term: newer
		expectSnapshots(t, m, "three", 20, 30)
		if _, _, err := m.Open(first); err == nil {
			t.Error("the oldest stays")
		}
		makeSnapshot(t, m, 5, 1, "5")
		expectSnapshots(t, m, "an old one", 20, 30)
		if data, err := io.ReadAll(reader); string(data) != "10" || err != nil {
			t.Errorf("the reader opened before read %q, %v", data, err)
		}
	})
}

func TestReadersAndDescriptionsOfSnapshotsAreIndependent(t *testing.T) {
	eachSnapshots(t, func(t *testing.T, m raft.SnapshotStore) {
		const size = 3*chunkSize + 17
		data := make([]byte, size)
		for i := range data {
			data[i] = byte(i * 7 / 5)
		}
		sink := beginSnapshot(t, m, 10, 2, "")
		for rest := data; len(rest) > 0; {
			n := min(len(rest), 100_003)
			block := bytes.Clone(rest[:n])
			_, err := sink.Write(block)
			must(t, err)
			clear(block) // the writer's to use again
			rest = rest[n:]
		}
		must(t, sink.Close())
		metas, err := m.List()
		must(t, err)
		if metas[0].Size != size {
			t.Errorf("size %d", metas[0].Size)
		}
		metas[0].Index = 99
		metas[0].Configuration.Servers[0].ID = "changed"
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if got := readSnapshot(t, m, sink.ID()); got != string(data) {
					t.Error("read something else")
				}
			})
		}
		wg.Wait()
		meta, r, err := m.Open(sink.ID())
		must(t, err)
		must(t, r.Close())
		if meta.Index != 10 || meta.Configuration.Servers[0].ID != "n1#1" {
			t.Errorf("meta %+v", meta)
		}
	})
}

func TestSnapshotFilesSurviveARestart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	m, err := OpenSnapshots(dir, nil)
	must(t, err)
	id := makeSnapshot(t, m, 10, 2, "kept")
	left := beginSnapshot(t, m, 20, 2, "half") // a crash
	m, err = OpenSnapshots(dir, nil)
	must(t, err)
	expectSnapshots(t, m, "after a restart", 10)
	if data := readSnapshot(t, m, id); data != "kept" {
		t.Errorf("read %q", data)
	}
	path := filepath.Join(dir, "snapshots")
	if _, err := os.Stat(filepath.Join(path, left.ID()+sinkSuffix)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("half a snapshot takes room for ever: %v", err)
	}
	for _, path := range []string{dir, path} {
		info, err := os.Stat(path)
		must(t, err)
		if info.Mode().Perm() != 0o700 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
	}
	if info, err := os.Stat(filepath.Join(path, id+snapshotSuffix)); err != nil || info.Mode() != 0o600 {
		t.Errorf("the snapshot is %v: %v", info, err)
	}
}

// A log whose beginning only a snapshot had is refused without the snapshot, and raft
// never meets the missing entries.
func TestALogWithoutItsBeginningIsRefused(t *testing.T) {
	dir := t.TempDir()
	store, err := OpenDurable(dir, Options{})
	must(t, err)
	defer store.Close()
	open := func() raft.SnapshotStore {
		t.Helper()
		m, err := OpenSnapshots(dir, nil)
		must(t, err)
		return m
	}
	must(t, CheckWhole(store, open())) // new
	for i := uint64(1); i <= 20; i++ {
		must(t, store.StoreLog(&raft.Log{Index: i, Term: 1, Type: raft.LogNoop}))
	}
	must(t, CheckWhole(store, open()))
	makeSnapshot(t, open(), 10, 1, "ten")
	must(t, store.DeleteRange(1, 10))
	must(t, CheckWhole(store, open()))
	must(t, os.RemoveAll(filepath.Join(dir, "snapshots")))
	if err := CheckWhole(store, open()); !errors.Is(err, ErrDamaged) {
		t.Errorf("without the snapshots: %v", err)
	}
	makeSnapshot(t, open(), 9, 1, "nine")
	if err := CheckWhole(store, open()); !errors.Is(err, ErrDamaged) {
		t.Errorf("with an older snapshot: %v", err)
	}
	must(t, store.DeleteRange(11, 20))
	must(t, CheckWhole(store, open())) // a snapshot alone
}

// A snapshot that cannot be given its name leaves no bytes behind: raft tries again and
// again.
func TestASnapshotThatCannotBePublishedLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	m, err := OpenSnapshots(dir, nil)
	must(t, err)
	sink := beginSnapshot(t, m, 5, 1, "data")
	must(t, os.MkdirAll(filepath.Join(dir, "snapshots", sink.ID()+snapshotSuffix, "in the way"), 0o700))
	if err := sink.Close(); err == nil {
		t.Error("published")
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "snapshots", "*"+sinkSuffix)); len(left) > 0 {
		t.Errorf("left %q", left)
	}
}
