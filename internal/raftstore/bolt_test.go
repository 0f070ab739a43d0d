package raftstore

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
