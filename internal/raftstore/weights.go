package raftstore

import (
	"math"
	"sync"

	"github.com/hashicorp/raft"
)

// weights knows the bytes of the log's newest entries, without gaps. Entries from before
// the Store was opened weigh nothing.
type weights struct {
	mu      sync.Mutex
	first   uint64 // the index of bytes[0]
	bytes   []int32
	written int64 // bytes of all entries ever added
	alarm   int64 // of written
	ring    func()
}

// add notes entries that were written, and rings once written has reached the alarm.
func (w *weights) add(logs []*raft.Log) {
	w.mu.Lock()
	for _, log := range logs {
		w.cutFrom(log.Index)
		if w.first+uint64(len(w.bytes)) != log.Index {
			w.first, w.bytes = log.Index, w.bytes[:0]
		}
		n := cost(log)
		w.bytes = append(w.bytes, int32(min(n, math.MaxInt32)))
		w.written += int64(n)
	}
	ring := w.ring
	if w.written < w.alarm {
		ring = nil
	} else {
		w.ring = nil
	}
	w.mu.Unlock()
	if ring != nil {
		ring()
	}
}

// cutFrom forgets the entries from index on.
func (w *weights) cutFrom(index uint64) {
	if index < w.first {
		w.bytes = w.bytes[:0]
	} else if n := index - w.first; n < uint64(len(w.bytes)) {
		w.bytes = w.bytes[:n]
	}
}

// cutTo forgets the entries up to and with index.
func (w *weights) cutTo(index uint64) {
	if index < w.first {
		return
	}
	n := min(index-w.first+1, uint64(len(w.bytes)))
	w.first, w.bytes = w.first+n, w.bytes[n:]
}

// drop forgets the entries from from to to, which are the oldest or the newest.
func (w *weights) drop(from, to uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if to == math.MaxUint64 {
		w.cutFrom(from)
	} else {
		w.cutTo(to)
	}
}

// Ring has f called once, on the goroutine of the writer, when so many more bytes of entries have been
// written. A later Ring replaces it.
func (s *Store) Ring(bytes int64, f func()) {
	w := &s.weights
	w.mu.Lock()
	defer w.mu.Unlock()
	w.alarm, w.ring = w.written+bytes, f
}

// Newest returns how many of the newest entries have so many bytes together, at most.
func (s *Store) Newest(bytes int64) (n int) {
	w := &s.weights
	w.mu.Lock()
	defer w.mu.Unlock()
	for n < len(w.bytes) {
		if bytes -= int64(w.bytes[len(w.bytes)-1-n]); bytes < 0 {
			return n
		}
		n++
	}
	return math.MaxInt
}
