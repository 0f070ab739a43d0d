package raftstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/wardmote/wardmote/internal/files"
)

// Reasons for which OpenDurable refuses a file.
var (
	ErrInUse    = errors.New("in use by another process")
	ErrDamaged  = errors.New("damaged")
	ErrOtherLog = errors.New("written with another kind of log")
)

// Options say how a durable Store is kept. A store keeps its kind of log for life.
type Options struct {
	// BoltLog keeps the log in the bolt file, beside the votes, and not in segments.
	BoltLog bool

	// Unflushed leaves flushing to the operating system: a write that returns nil outlives
	// the process, and is lost with the host until Flush or Close has returned nil. The
	// caller must not use the store again once its host has crashed.
	Unflushed bool

	// WasUnflushed tells that earlier processes may have left writes that no flush has
	// confirmed. OpenDurable then writes everything once more and flushes it, since the kernel forgets a
	// write that has failed, once it has told a process of it.
	WasUnflushed bool
}

// Limits of a durable Store's cache.
const (
	cacheEntries = 1024
	cacheBytes   = 4 << 20
)

// OpenDurable opens the Store in dir, and makes the directory and the files if
// they are missing; an empty bolt file is a new Store. OpenDurable waits up to a
// second for another process to close the store. Each byte is read, so that
// damage is an error here and not, later, a panic of bbolt or raft.
//
// The error matches ErrInUse if another process has the store open, ErrDamaged if
// a file is damaged or belongs to another program, ErrOtherLog if the store has the
// other kind of log, and none of these if the operating system refused. When
// OpenDurable fails, nothing stays open.
func OpenDurable(dir string, o Options) (*Store, error) {
	path := filepath.Join(dir, "raft.db")
	bolt, err := openBolt(path, o)
	if err != nil {
		return nil, unusable(path, err)
	}
	var engine Engine = bolt
	if o.BoltLog {
		err = bolt.holdsLog()
	} else {
		var segments *segmentEngine
		path = dir
		if segments, err = openSegments(bolt, dirDisk(filepath.Join(dir, logDir)), o, firstSegment, segmentLen); err == nil {
			engine = segments // and bolt
		}
	}
	var s *Store
	if err == nil {
		s, err = New(engine, cacheEntries, cacheBytes)
	}
	if err != nil {
		return nil, errors.Join(unusable(path, err), engine.Close())
	}
	s.unflushed = o.Unflushed
	return s, nil
}

// unusable tells why the file at path cannot be used as a store: because of err.
func unusable(path string, err error) error {
	var errno syscall.Errno
	reason := ErrDamaged
	switch {
	case errors.Is(err, ErrDamaged), errors.Is(err, ErrOtherLog), errors.As(err, &errno):
		return fmt.Errorf("cluster: store %s: %w", path, err)
	case errors.Is(err, bolterrors.ErrTimeout):
		reason = ErrInUse
	}
	return fmt.Errorf("cluster: store %s: %w: %w", path, reason, err)
}

// boltOptions are the options for every open. Every commit is synced, unless the
// Store is Unflushed. The list
// of free pages is not stored: bbolt would write the list with each commit, and
// finds the same pages by reading the file at the start.
func boltOptions() *bbolt.Options {
	return &bbolt.Options{
		Timeout:        time.Second,
		NoFreelistSync: true,
		FreelistType:   bbolt.FreelistMapType,
		OpenFile:       files.Open,
	}
}

// boltEngine keeps a store in a bolt file.
//
// raft-boltdb trusts every byte of the disk. Here each entry and value carries a
// checksum: a flipped bit in an entry would make this voter's lock table differ
// from the other voters' tables for good, and a flipped bit in the term would let
// this voter vote twice.
type boltEngine struct{ *raftboltdb.BoltStore }

// openBolt checks the file at path, opens the file, and reads every entry and
// value once, so that each checksum is compared.
func openBolt(path string, o Options) (_ *boltEngine, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	var indexes []uint64
	var keys [][]byte
	switch {
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return nil, err
	case err != nil || info.Size() == 0:
		if err := makeBolt(path); err != nil {
			return nil, err
		}
	default:
		if indexes, keys, err = checkFile(path, o.WasUnflushed); err != nil {
			return nil, err
		}
	}

	bolt, err := openToWrite(path, o)
	if err != nil {
		return nil, err
	}
	e := &boltEngine{bolt}
	defer func() {
		if err != nil {
			_ = e.Close()
		}
	}()
	var log raft.Log
	for _, index := range indexes {
		if err := e.GetLog(index, &log); err != nil {
			return nil, err
		}
	}
	for _, key := range keys {
		if _, err := e.Get(key); err != nil {
			return nil, err
		}
	}
	// A process that was killed between a commit and its flush has left a vote that is here
	// and not on the disk. From now on the vote counts as stored, and is not written again.
	// An unflushed store is flushed too: the kernel tells here of a write that failed since.
	if err := e.flush(); err != nil {
		return nil, err
	}
	return e, nil
}

// makeBolt makes an empty bolt file at path. bbolt makes a file by several writes, so the
// file gets its name when it is whole: what an end of the process or a full disk leaves
// unfinished is not damage.
func makeBolt(path string) error {
	unfinished := path + newSuffix
	if err := os.Remove(unfinished); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	db, err := bbolt.Open(unfinished, 0o600, boltOptions()) // and flushes it
	if err != nil {
		return err
	}
	if err := errors.Join(db.Close(), os.Rename(unfinished, path)); err != nil {
		return err
	}
	return files.SyncDir(filepath.Dir(path))
}

// openToWrite opens a file that checkFile has accepted. bbolt panics on most
// damage; checkFile should have found all damage, and this is the second net.
func openToWrite(path string, o Options) (bolt *raftboltdb.BoltStore, err error) {
	defer recoverPanic(&err)
	return raftboltdb.New(raftboltdb.Options{Path: path, BoltOptions: boltOptions(), NoSync: o.Unflushed})
}

// recoverPanic turns a panic of bbolt into an error. It must be deferred
// directly.
func recoverPanic(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("bbolt: %v", r)
	}
}

// flush makes every commit durable.
func (e *boltEngine) flush() error { return e.Sync() }

const sumLen = 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// logSum covers every part of an entry that raft sends to other voters, except
// the time.
func logSum(log *raft.Log, extensions []byte) uint32 {
	var head [25]byte
	binary.BigEndian.PutUint64(head[0:], log.Index)
	binary.BigEndian.PutUint64(head[8:], log.Term)
	head[16] = byte(log.Type)
	binary.BigEndian.PutUint64(head[17:], uint64(len(log.Data)))
	sum := crc32.Update(0, castagnoli, head[:])
	sum = crc32.Update(sum, castagnoli, log.Data)
	return crc32.Update(sum, castagnoli, extensions)
}

// valueSum covers the key too: a value under another value's key is damage.
func valueSum(key, value []byte) uint32 {
	return crc32.Update(crc32.Update(0, castagnoli, key), castagnoli, value)
}

// StoreLogs writes copies with a checksum behind the Extensions, the only part
// of an entry that raft leaves to its user.
func (e *boltEngine) StoreLogs(logs []*raft.Log) error {
	copies := make([]raft.Log, len(logs))
	sealed := make([]*raft.Log, len(logs))
	for i, log := range logs {
		copies[i] = *log
		extensions := make([]byte, 0, len(log.Extensions)+sumLen)
		extensions = append(extensions, log.Extensions...)
		copies[i].Extensions = binary.BigEndian.AppendUint32(extensions, logSum(log, log.Extensions))
		sealed[i] = &copies[i]
	}
	return e.BoltStore.StoreLogs(sealed)
}

func (e *boltEngine) GetLog(index uint64, log *raft.Log) (err error) {
	defer recoverPanic(&err)
	var read raft.Log
	switch err := e.BoltStore.GetLog(index, &read); {
	case err == raft.ErrLogNotFound:
		return err // raft compares this error by identity
	case err != nil:
		return fmt.Errorf("reading entry %d: %w", index, err)
	}
	end := len(read.Extensions) - sumLen
	if end < 0 || read.Index != index || logSum(&read, read.Extensions[:end]) != binary.BigEndian.Uint32(read.Extensions[end:]) {
		return fmt.Errorf("entry %d: %w", index, ErrDamaged)
	}
	if read.Extensions = read.Extensions[:end:end]; end == 0 {
		read.Extensions = nil
	}
	*log = read
	return nil
}

func (e *boltEngine) Set(key, value []byte) error {
	sealed := binary.BigEndian.AppendUint32(make([]byte, 0, sumLen+len(value)), valueSum(key, value))
	return e.BoltStore.Set(key, append(sealed, value...))
}

func (e *boltEngine) Get(key []byte) ([]byte, error) {
	sealed, err := e.BoltStore.Get(key)
	switch {
	case errors.Is(err, raftboltdb.ErrKeyNotFound):
		return nil, ErrNotFound
	case err != nil:
		return nil, fmt.Errorf("reading %q: %w", key, err)
	case len(sealed) < sumLen || valueSum(key, sealed[sumLen:]) != binary.BigEndian.Uint32(sealed):
		return nil, fmt.Errorf("value of %q: %w", key, ErrDamaged)
	}
	return sealed[sumLen:], nil
}
