package raftstore

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/wardmote/wardmote/internal/meter"
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

// flusher is an Engine with writes that are not durable yet.
type flusher interface{ flush() error }

var errClosed = errors.New("closed")

// newFailure returns the result of the first write that failed, and of every
// later write. The first write may have reached the disk; the later writes
// changed nothing.
func newFailure(cause error) *error {
	return new(fmt.Errorf("cluster: the store refuses all writes: %w", cause))
}

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

	unflushed bool   // see Options
	settled   bool   // see Settle; guarded by writer
	slice     uint64 // see maxSlice

	before func() error // see Before; guarded by writer

	opened  time.Time    // the origin of began, on the monotonic clock
	began   atomic.Int64 // start of the running write, in ns since opened plus 1; 0: no write runs
	flush   flush
	writes  *meter.Latency // nil: nobody reads
	appends appends
	weights weights
	failure atomic.Pointer[error]

	vote    atomic.Pointer[vote]   // as stored; nil: none
	pending atomic.Pointer[uint64] // the term of a vote whose candidate is not known yet
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
		before: func() error { return nil },
		opened: time.Now(),
		slice:  maxSlice,
	}
	if _, ok := engine.(*segmentEngine); ok {
		s.slice = maxSegmentSlice
	}
	switch record, err := engine.Get(keyVote); {
	case errors.Is(err, ErrNotFound):
	case err != nil:
		return nil, fmt.Errorf("reading the last vote: %w", err)
	case len(record) < 8:
		return nil, fmt.Errorf("reading the last vote: %d bytes are too few", len(record))
	default:
		s.vote.Store(newVote(record))
	}
	if _, err := s.GetUint64(keyTerm); err != nil && !errors.Is(err, ErrNotFound) {
		return nil, fmt.Errorf("reading the current term: %w", err)
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

// Before sets a function that is called before each transaction, as a part of it: if the
// function waits, the write hangs, and if the function fails, so does the write, and
// nothing is written. Before waits for the running write.
func (s *Store) Before(f func() error) {
	s.lockWriter()
	defer s.unlockWriter()
	s.before = f
}

// Measure has each transaction observed by writes. It is called before the first.
func (s *Store) Measure(writes *meter.Latency) { s.writes = writes }

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
		return *failure
	}
	return nil
}

// Flushes reports whether each write waits for a disk. Settle does not change the answer.
func (s *Store) Flushes() bool {
	_, memory := s.engine.(*memoryEngine)
	return !memory && !s.unflushed
}

// Flush makes everything durable that was written without a flush.
func (s *Store) Flush() error {
	s.lockWriter()
	defer s.unlockWriter()
	return s.flushAll()
}

// Settle makes an unflushed Store durable, and from then on each write before the write
// returns.
func (s *Store) Settle() error {
	s.lockWriter()
	defer s.unlockWriter()
	if !s.unflushed {
		return nil
	}
	if err := s.flushAll(); err != nil {
		return err
	}
	s.settled = true
	return nil
}

// flushAll is Flush. The caller holds writer.
func (s *Store) flushAll() error {
	f, ok := s.engine.(flusher)
	if !ok {
		return s.Failed()
	}
	return s.transact(f.flush)
}

// Close waits for the running write, however long the write hangs, makes an unflushed
// Store durable, and closes the engine. Later writes fail. A second Close does nothing. If
// Close returns nil, every write of an unflushed Store is on the disk: so Close returns the
// error of an earlier write too.
func (s *Store) Close() error {
	s.lockWriter()
	defer s.unlockWriter()
	if s.closed {
		return nil
	}
	if !s.unflushed {
		return s.close()
	}
	err := s.Failed()
	if err == nil {
		err = s.flushAll()
	}
	return errors.Join(err, s.close())
}

func (s *Store) close() error {
	s.closed = true
	s.failure.CompareAndSwap(nil, newFailure(errClosed))
	s.cache.dropFrom(0)
	return s.engine.Close()
}

func (s *Store) lockWriter()   { s.writer <- struct{}{} }
func (s *Store) unlockWriter() { <-s.writer }

// transact runs a transaction. The caller holds writer. If the transaction
// fails, the Store has failed.
func (s *Store) transact(run func() error) error {
	if err := s.Failed(); err != nil {
		return err
	}
	began := time.Since(s.opened)
	s.began.Store(int64(began) + 1)
	err := s.before()
	if err == nil {
		err = run()
	}
	if f, ok := s.engine.(flusher); ok && err == nil && s.settled {
		err = f.flush()
	}
	s.began.Store(0)
	took := time.Since(s.opened) - began
	s.flush.note(took)
	s.writes.Observe(took)
	if err == nil {
		return nil
	}
	s.failure.Store(newFailure(err))
	s.cache.dropFrom(0) // only the engine knows now how much of the write is stored
	return s.Failed()
}
