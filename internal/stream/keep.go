package stream

import (
	"sync"

	"github.com/wardmote/wardmote/internal/budget"
)

// keeps counts what this side remembers for the peer. Its mutex is not the stream's, which is
// held while thousands of delayed frames are encoded.
type keeps struct {
	mu    sync.Mutex
	bytes int
	over  bool // the stream has stopped: nothing is counted any more
}

// Keep has the budget count n bytes, and no more those counted before, that this side
// remembers for the peer until the stream stops. It reports false, and counts as before, if
// more bytes do not fit.
func (s *Stream) Keep(n int) bool {
	k := &s.keeps
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.over {
		return true
	}
	if !s.share.Count(budget.Kept, beyondLeast(k.bytes), beyondLeast(n)) {
		return false
	}
	k.bytes = n
	return true
}

// beyondLeast adds the part of a connection that the budget does not count.
func beyondLeast(n int) int { return budget.RequestsLeast + n }

// end gives everything back.
func (k *keeps) end(share *budget.Share) {
	k.mu.Lock()
	defer k.mu.Unlock()
	share.Count(budget.Kept, beyondLeast(k.bytes), beyondLeast(0))
	k.over = true
}
