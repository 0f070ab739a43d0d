package raftstore

import (
	"sync/atomic"
	"time"

	"github.com/wardmote/wardmote/internal/timing"
)

// flush estimates how long a write takes.
type flush struct {
	ns     atomic.Int64
	latest timing.Latest
}

// note takes a longer write at once, and forgets a longer write over some ten
// shorter ones. Only one goroutine may call note at a time.
func (f *flush) note(took time.Duration) {
	f.latest.Add(took)
	f.ns.Store(max(int64(took), (9*f.ns.Load()+int64(took))/10))
}

// FlushTime estimates how long one write takes, rather too long than too short.
func (s *Store) FlushTime() time.Duration { return time.Duration(s.flush.ns.Load()) }

// Writes describes how long the latest writes took.
func (s *Store) Writes() timing.Quantiles { return s.flush.latest.Quantiles() }
