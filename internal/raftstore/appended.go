package raftstore

import (
	"sync"
	"time"
)

// appends remembers how long the latest writes of entries took.
type appends struct {
	mu   sync.Mutex
	last [8]appended
	next int
}

// appended is one write of the entries from first to last.
type appended struct {
	first, last uint64
	took        time.Duration
}

func (a *appends) note(first, last uint64, took time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last[a.next] = appended{first, last, took}
	a.next = (a.next + 1) % len(a.last)
}

// AppendTime returns how long the latest write of the entry with this index took, the
// flush included, and 0 if several writes came after it.
func (s *Store) AppendTime(index uint64) time.Duration {
	a := &s.appends
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.last {
		w := a.last[(a.next+len(a.last)-1-i)%len(a.last)]
		if w.first <= index && index <= w.last {
			return w.took
		}
	}
	return 0
}
