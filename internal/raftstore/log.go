package raftstore

import (
	"math"
	"time"

	"github.com/hashicorp/raft"
)

// maxSlice is the most entries that one transaction of a compaction deletes in a bolt file:
// the leader's next write waits for a single slice, not for the compaction. In segments a
// deletion is a few bytes, so the slices are larger.
const (
	maxSlice        = 1024
	maxSegmentSlice = 64 << 10
)

// FirstIndex returns the index of the oldest entry, or 0 if the log is empty.
func (s *Store) FirstIndex() (uint64, error) { return s.engine.FirstIndex() }

// LastIndex returns the index of the newest entry, or 0 if the log is empty.
func (s *Store) LastIndex() (uint64, error) { return s.engine.LastIndex() }

// GetLog fills log with the entry at index, or returns raft.ErrLogNotFound. The
// caller must not change Data and Extensions, because the cache shares them.
func (s *Store) GetLog(index uint64, log *raft.Log) error {
	if s.cache.get(index, log) {
		return nil
	}
	return s.engine.GetLog(index, log)
}

// StoreLog is StoreLogs of a single entry.
func (s *Store) StoreLog(log *raft.Log) error { return s.StoreLogs([]*raft.Log{log}) }

// StoreLogs writes all entries. If StoreLogs fails, the Store has failed.
func (s *Store) StoreLogs(logs []*raft.Log) error {
	if len(logs) == 0 {
		return s.Failed()
	}
	s.lockWriter()
	defer s.unlockWriter()

	// Overwritten entries leave the cache before the engine changes, and new
	// entries enter the cache afterwards, so that no reader finds an older
	// entry in the cache than in the engine.
	first, last := logs[0].Index, logs[0].Index
	for _, log := range logs {
		first, last = min(first, log.Index), max(last, log.Index)
	}
	s.cache.dropFrom(first)
	began := time.Now()
	if err := s.transact(func() error { return s.engine.StoreLogs(logs) }); err != nil {
		return err
	}
	s.appends.note(first, last, time.Since(began))
	s.cache.add(logs)
	s.weights.add(logs)
	return nil
}

// DeleteRange deletes the entries from min to max, both included.
//
// A compaction, which leaves later entries, deletes in slices from the oldest
// entry on, and other writes may pass between the slices. A compaction that
// stops halfway leaves a log without its oldest entries, which is sound.
//
// Every other deletion is a single transaction. A conflicting tail that is cut
// halfway would leave either a gap, over which raft cannot start, or entries
// that the leader never wrote. Deleting the whole log is such a deletion too,
// because the conflict may begin at the first entry.
func (s *Store) DeleteRange(min, max uint64) error {
	for more := min <= max; more; {
		var err error
		if more, err = s.deleteSlice(min, max); err != nil {
			return err
		}
	}
	return nil
}

// deleteSlice deletes as much of from to to as a single transaction may, and
// reports whether more is left.
func (s *Store) deleteSlice(from, to uint64) (more bool, err error) {
	s.lockWriter()
	defer s.unlockWriter()

	if err := s.Failed(); err != nil {
		return false, err
	}
	// Read for each slice, since other writes may have passed.
	first, err := s.engine.FirstIndex()
	if err != nil {
		return false, err
	}
	last, err := s.engine.LastIndex()
	if err != nil {
		return false, err
	}
	if first == 0 || to < first || last < from {
		return false, nil
	}
	if from <= first && to < last {
		from = first
		if end := first + s.slice - 1; end < to {
			to, more = end, true
		}
		s.cache.dropTo(to)
		s.weights.drop(0, to)
	} else {
		s.cache.dropFrom(from)
		s.weights.drop(from, math.MaxUint64)
	}
	return more, s.transact(func() error { return s.engine.DeleteRange(from, to) })
}
