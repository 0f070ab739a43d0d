package raftstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/raft"
)

// sampleSnapshots writes two snapshots into a new directory, and returns the
// newest's ID, file and bytes.
func sampleSnapshots(t testing.TB) (dir, id, path string, whole []byte) {
	t.Helper()
	dir = t.TempDir()
	m, err := OpenSnapshots(dir, nil)
	must(t, err)
	makeSnapshot(t, m, 10, 2, "the older snapshot")
	id = makeSnapshot(t, m, 20, 2, strings.Repeat("the newer snapshot ", 20))
	path = filepath.Join(dir, "snapshots", id+snapshotSuffix)
	whole, err = os.ReadFile(path)
	must(t, err)
	return dir, id, path, whole
}

// raft takes the index, the term and the voters from a snapshot's description: a
// flipped bit in them would give this voter another configuration.
func TestEachFlippedBitOfASnapshotIsFound(t *testing.T) {
	t.Parallel() // waits for the disk
	dir, _, path, whole := sampleSnapshots(t)
	refused := func(damage string, data []byte) {
		t.Helper()
		must(t, os.WriteFile(path, data, 0o600))
		if _, err := OpenSnapshots(dir, nil); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", damage, err)
		}
	}
	for at := range whole {
		data := bytes.Clone(whole)
		data[at] ^= 1 << (at % 8)
		refused(fmt.Sprintf("byte %d of %d", at, len(whole)), data)
	}
	for size := 0; size < len(whole); size += 7 {
		refused(fmt.Sprintf("cut to %d bytes", size), whole[:size])
	}
	refused("a byte more", append(bytes.Clone(whole), 0))
	refused("zeros", make([]byte, len(whole)))
	older, err := os.ReadFile(filepath.Join(dir, "snapshots", func() string {
		m := &fileSnapshots{dir: filepath.Join(dir, "snapshots")}
		names, err := m.names()
		must(t, err)
		return names[1].id() + snapshotSuffix
	}()))
	must(t, err)
	refused("the older one in its place", older)

	must(t, os.WriteFile(path, whole, 0o600))
	m, err := OpenSnapshots(dir, nil)
	must(t, err)
	expectSnapshots(t, m, "whole again", 20, 10)
}

// The older snapshot is a reserve. Damage to it stops nobody and fools nobody.
func TestADamagedOlderSnapshotIsPassedOver(t *testing.T) {
	dir, newest, _, _ := sampleSnapshots(t)
	store := &fileSnapshots{dir: filepath.Join(dir, "snapshots")}
	names, err := store.names()
	must(t, err)
	older := names[1].id()
	data, err := os.ReadFile(store.path(older))
	must(t, err)
	data[len(data)-20] ^= 1 // in the data
	must(t, os.WriteFile(store.path(older), data, 0o600))
	m, err := OpenSnapshots(dir, nil)
	must(t, err)
	if _, _, err := m.Open(older); !errors.Is(err, ErrDamaged) {
		t.Errorf("opened: %v", err)
	}
	if data := readSnapshot(t, m, newest); !strings.HasPrefix(data, "the newer") {
		t.Errorf("read %q", data)
	}
	must(t, os.WriteFile(store.path(older), data[:30], 0o600))
	expectSnapshots(t, m, "the older one cut", 20)
	// Other files are no snapshots.
	for _, name := range []string{"1-2-3", "x" + snapshotSuffix, "-1-2-3" + snapshotSuffix, "01-2-3" + snapshotSuffix} {
		must(t, os.WriteFile(filepath.Join(store.dir, name), nil, 0o600))
	}
	expectSnapshots(t, m, "with other files", 20)
	if _, _, err := m.Open("../../identity"); err == nil {
		t.Error("opened a file that is no snapshot")
	}
}

func TestASnapshotThatCannotBeWrittenLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	m, err := OpenSnapshots(dir, nil)
	must(t, err)
	sink := beginSnapshot(t, m, 20, 2, "new")
	must(t, sink.(*fileSink).file.Close()) // the disk fails
	if err := sink.Close(); err == nil {
		t.Error("closed")
	}
	if err := sink.Close(); err == nil {
		t.Error("closed the second time")
	}
	expectSnapshots(t, m, "failed")
	entries, err := os.ReadDir(filepath.Join(dir, "snapshots"))
	must(t, err)
	if len(entries) > 0 {
		t.Errorf("%v is left", entries)
	}
}

// The latest is the newest by its name too, although the oldest have been removed.
func TestSnapshotsOfOneMomentHaveTheirOwnNames(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) { // no time passes
		m, err := OpenSnapshots(dir, nil)
		must(t, err)
		seen := make(map[string]bool)
		for i := range 5 {
			id := makeSnapshot(t, m, 10, 2, "the same")
			seen[id] = true
			if metas, err := m.List(); err != nil || len(metas) == 0 || metas[0].ID != id {
				t.Errorf("snapshot %d, %s, is not the first of %v: %v", i, id, metas, err)
			}
		}
		if len(seen) != 5 {
			t.Errorf("five snapshots have the names %v", seen)
		}
	})
}

// FuzzSnapshotFile patches and cuts a snapshot's file: every change is found.
func FuzzSnapshotFile(f *testing.F) {
	_, _, _, whole := sampleSnapshots(f)
	f.Add(uint32(0), []byte{}, uint32(0))
	f.Add(uint32(12), []byte{0xff, 0xff}, uint32(0))
	f.Add(uint32(len(whole)-10), []byte{0xff}, uint32(3))
	f.Fuzz(func(t *testing.T, at uint32, patch []byte, cut uint32) {
		data := bytes.Clone(whole)
		copy(data[int(at)%len(data):], patch)
		data = data[:len(data)-int(cut)%len(data)]
		meta, err := checkBytes(data)
		switch {
		case bytes.Equal(data, whole):
			if err != nil || meta.Index != 20 {
				t.Errorf("unchanged: %+v, %v", meta, err)
			}
		case err == nil:
			t.Error("changed, and taken")
		}
	})
}

// checkBytes reads a file as fileSnapshots.Open does.
func checkBytes(data []byte) (*raft.SnapshotMeta, error) {
	r := bytes.NewReader(data)
	meta, begin, err := readSnapshotMeta(r, r.Size())
	if err != nil {
		return nil, err
	}
	return meta, checkSnapshot(r, begin+meta.Size)
}

// FuzzSnapshotDescription reads descriptions under a good checksum.
func FuzzSnapshotDescription(f *testing.F) {
	head, err := encodeSnapshotHead(&raft.SnapshotMeta{ID: "2-20-1", Index: 20, Term: 2, Configuration: oneVoter, ConfigurationIndex: 7})
	must(f, err)
	f.Add(head[snapshotPrefix : len(head)-sumLen])
	f.Add([]byte(`{"Configuration":{"Servers":[{},{},null]}}`))
	f.Add([]byte(`{"Index":-1}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		data := binary.BigEndian.AppendUint16([]byte(snapshotMagic), snapshotVersion)
		data = binary.BigEndian.AppendUint32(data, uint32(len(body)))
		data = append(data, body...)
		data = binary.BigEndian.AppendUint32(data, crc32.Checksum(data, castagnoli))
		data = append(data, snapshotSize(0)...)
		data = append(data, snapshotSum(crc32.Checksum(data, castagnoli))...)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		meta, err := checkBytes(data)
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20+100*uint64(len(data)) {
			t.Errorf("%d bytes took %d", len(data), n)
		}
		if err != nil {
			return
		}
		if _, err := encodeSnapshotHead(meta); err != nil {
			t.Error(err)
		}
	})
}
