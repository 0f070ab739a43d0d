package raftstore

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"
)

func TestStoreFilesAreReadableByTheirOwnerOnly(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "data")
	s := openDurable(t, dir)
	must(t, s.StoreLogs(entries(1, 1, 1)))
	for path, want := range map[string]os.FileMode{dir: 0o700 | os.ModeDir, filepath.Join(dir, "raft.db"): 0o600} {
		info, err := os.Stat(path)
		must(t, err)
		if info.Mode() != want {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
	}
}

func TestAStoreInUseIsNotOpenedAgain(t *testing.T) {
	t.Parallel() // waits a second for the lock on the file
	dir := t.TempDir()
	must(t, openDurable(t, dir).StoreLogs(entries(1, 1, 1)))
	_, err := OpenDurable(dir, Options{})
	if !errors.Is(err, ErrInUse) || errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), dir) {
		t.Errorf("opened twice: %v", err)
	}
}

func TestARefusalOfTheSystemIsNeitherInUseNorDamaged(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	_, err := OpenDurable(file, Options{})
	if err == nil || errors.Is(err, ErrInUse) || errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), file) {
		t.Errorf("a file for a directory: %v", err)
	}
}

func TestTheFileOfAnotherProgramIsRefused(t *testing.T) {
	dir := t.TempDir()
	db, err := bbolt.Open(filepath.Join(dir, "raft.db"), 0o600, nil)
	must(t, err)
	must(t, db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucket([]byte("users"))
		return err
	}))
	must(t, db.Close())
	if _, err := OpenDurable(dir, Options{}); !errors.Is(err, ErrDamaged) {
		t.Errorf("opened: %v", err)
	}
}

// A crash between the two transactions that make a file leaves an empty file.
func TestAFileWithoutBucketsIsANewStore(t *testing.T) {
	dir := t.TempDir()
	db, err := bbolt.Open(filepath.Join(dir, "raft.db"), 0o600, nil)
	must(t, err)
	must(t, db.Close())
	must(t, openDurable(t, dir).StoreLogs(entries(1, 3, 1)))
}

// The process ends while bbolt makes the file. Nothing was stored in it.
func TestAnUnfinishedFileIsANewStore(t *testing.T) {
	whole := filepath.Join(t.TempDir(), "raft.db")
	db, err := bbolt.Open(whole, 0o600, nil)
	must(t, err)
	must(t, db.Close())
	data, err := os.ReadFile(whole)
	must(t, err)
	for _, size := range []int{0, 1, 100, 4096, len(data) - 1, len(data)} {
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, "raft.db"+newSuffix), data[:size], 0o600))
		s := openDurable(t, dir)
		must(t, s.StoreLogs(entries(1, 3, 1)))
		must(t, s.Close())
		if names := namesIn(t, dir); !slices.Equal(names, []string{"log", "raft.db"}) {
			t.Errorf("%d bytes: left are %q", size, names)
		}
	}
	// Under its own name a file with bytes was in use.
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "raft.db"), data[:4096], 0o600))
	if _, err := OpenDurable(dir, Options{}); !errors.Is(err, ErrDamaged) {
		t.Errorf("a part of a file: %v", err)
	}
}

// A new file gets its name when it is whole.
func TestANewFileIsNeverUnfinished(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "raft.db")
	must(t, os.WriteFile(path, nil, 0o600)) // as earlier processes leave it
	before, err := os.Stat(path)
	must(t, err)
	openDurable(t, dir)
	after, err := os.Stat(path)
	must(t, err)
	if os.SameFile(before, after) {
		t.Error("the file was made under its name")
	}
}

// A flush of the newest meta page may have failed in the process before. The page is
// written again, as it is, before bbolt writes the other one.
func TestTheMetaPagesAreWrittenAgain(t *testing.T) {
	for _, all := range []bool{false, true} {
		dir := t.TempDir()
		path := filepath.Join(dir, "raft.db")
		s := openDurable(t, dir)
		must(t, s.SetUint64([]byte("CurrentTerm"), 7))
		must(t, s.Close())
		data, err := os.ReadFile(path)
		must(t, err)
		old := time.Unix(1e9, 0)
		must(t, os.Chtimes(path, old, old))
		if _, _, err := checkFile(path, all); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		must(t, err)
		if info.ModTime().Equal(old) {
			t.Error("nothing was written")
		}
		if again, err := os.ReadFile(path); err != nil || !bytes.Equal(data, again) {
			t.Errorf("other bytes (%v)", err)
		}
	}
}

func namesIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
