package raftstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// Engine keeps the bytes of a Store. Its methods may be called from any
// goroutine; a Store runs a single write at a time.
type Engine interface {
	FirstIndex() (uint64, error)              // 0 if the log is empty
	LastIndex() (uint64, error)               // 0 if the log is empty
	GetLog(index uint64, log *raft.Log) error // raft.ErrLogNotFound itself, not wrapped, if there is no such entry
	StoreLogs(logs []*raft.Log) error         // a single transaction; gaps are allowed
	DeleteRange(min, max uint64) error        // a single transaction
	Get(key []byte) ([]byte, error)           // ErrNotFound if the key was never set
	Set(key, value []byte) error              // a single transaction
	Close() error
}

// ErrNotFound is the answer for a key that was never set. Raft compares the
// text.
var ErrNotFound = errors.New("not found")

var errClosed = errors.New("closed")

// failedError is the result of the first write that failed, and of every later
// write. The first write may have reached the disk; the later writes changed
// nothing.
type failedError struct{ cause error }

func (e *failedError) Error() string {
	return "cluster: the store refuses all writes: " + e.cause.Error()
}

func (e *failedError) Unwrap() error { return e.cause }

// Store is the log and the stable store of raft.
//
// After a write has failed, every later write fails too: an fsync that failed
// says nothing when repeated, so nothing may be acknowledged on top of the
// failed write. A write that hangs is never given up, since the write may still
// reach the disk: StalledFor shows the hang, and the caller that watches
// StalledFor ends raft.
//
// A Store is no raft.MonotonicLogStore on purpose: raft deletes the whole log
// of a monotonic store after every snapshot it installs. A late snapshot would
// then delete entries behind the snapshot that this voter has already
// acknowledged.
//
// All methods may be called at any time from any goroutine.
type Store struct {
	engine Engine
	cache  *cache

	// writer is the lock around a single transaction of the engine: sending
	// locks, receiving unlocks. Not a sync.Mutex, because senders to a channel
	// are served in turn, so a compaction lets the leader's write pass between
	// two slices.
	writer chan struct{}
	closed bool // guarded by writer

	opened  time.Time    // the origin of began, on the monotonic clock
	began   atomic.Int64 // start of the running write, in ns since opened plus 1; 0: no write runs
	failure atomic.Pointer[failedError]

	writes, batches atomic.Uint64
	slowest         atomic.Int64

	mu      sync.Mutex // never held during a call of the engine
	vote    vote       // as stored
	pending vote       // a vote whose term is known and whose candidate is not
	term    term       // as stored
}

// Stats counts since the Store was opened.
type Stats struct {
	Writes  uint64        // log entries and values written
	Batches uint64        // transactions, deletions included: each syncs the disk
	Slowest time.Duration // the longest transaction
}

var (
	_ raft.LogStore    = (*Store)(nil)
	_ raft.StableStore = (*Store)(nil)
)

// New returns a Store on an engine, with a cache of so many entries and bytes;
// 0 entries turn the cache off. The Store closes the engine. New fails if the
// engine cannot be read; closing the engine is then left to the caller.
func New(engine Engine, cacheEntries, cacheBytes int) (*Store, error) {
	s := &Store{
		engine: engine,
		cache:  newCache(cacheEntries, cacheBytes),
		writer: make(chan struct{}, 1),
		opened: time.Now(),
	}
	switch record, err := engine.Get(keyVote); {
	case errors.Is(err, ErrNotFound):
	case err != nil:
		return nil, fmt.Errorf("reading the last vote: %w", err)
	case len(record) < 8:
		return nil, fmt.Errorf("reading the last vote: %d bytes are too few", len(record))
	default:
		s.vote = vote{true, binary.BigEndian.Uint64(record), bytes.Clone(record[8:])}
	}
	switch number, err := s.getUint64(keyTerm); {
	case errors.Is(err, ErrNotFound):
	case err != nil:
		return nil, fmt.Errorf("reading the current term: %w", err)
	default:
		s.term = term{true, number}
	}
	return s, nil
}

// Empty reports whether raft has never used the Store: no entry, and no term.
func (s *Store) Empty() (bool, error) {
	last, err := s.LastIndex()
	if err != nil || last > 0 {
		return false, err
	}
	term, err := s.GetUint64(keyTerm)
	if errors.Is(err, ErrNotFound) {
		return true, nil
	}
	return term == 0, err
}

// StalledFor returns how long the running write has been running, or 0 if no
// write runs.
func (s *Store) StalledFor() time.Duration {
	began := s.began.Load()
	if began == 0 {
		return 0
	}
	return time.Since(s.opened) - time.Duration(began-1)
}

// Failed returns why the Store refuses all writes, or nil while the Store takes
// writes.
func (s *Store) Failed() error {
	if failure := s.failure.Load(); failure != nil {
		return failure
	}
	return nil
}

// Close waits for the running write, however long the write hangs, and closes
// the engine. Later writes fail. A second Close does nothing.
func (s *Store) Close() error {
	s.lockWriter()
	defer s.unlockWriter()
	if s.closed {
		return nil
	}
	s.closed = true
	s.failure.CompareAndSwap(nil, &failedError{errClosed})
	s.cache.dropFrom(0)
	return s.engine.Close()
}

// Stats returns the counts so far.
func (s *Store) Stats() Stats {
	return Stats{
		Writes:  s.writes.Load(),
		Batches: s.batches.Load(),
		Slowest: time.Duration(s.slowest.Load()),
	}
}

func (s *Store) lockWriter()   { s.writer <- struct{}{} }
func (s *Store) unlockWriter() { <-s.writer }

// transact runs a transaction of so many writes. The caller holds writer. If
// the transaction fails, the Store has failed.
func (s *Store) transact(writes int, run func() error) error {
	if err := s.Failed(); err != nil {
		return err
	}
	began := time.Since(s.opened)
	s.began.Store(int64(began) + 1)
	err := run()
	s.began.Store(0)

	s.batches.Add(1)
	// Only the holder of writer comes here, so no compare-and-swap is needed.
	s.slowest.Store(max(s.slowest.Load(), int64(time.Since(s.opened)-began)))
	if err != nil {
		failure := &failedError{err}
		s.failure.Store(failure)
		s.cache.dropFrom(0) // only the engine knows now how much of the write is stored
		return failure
	}
	s.writes.Add(uint64(writes))
	return nil
}
