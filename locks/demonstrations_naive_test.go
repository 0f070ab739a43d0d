package locks_test

import (
	"context"
	"sync"
	"time"
)

// Locks as they are written first, and fail. The demonstrations show how, so that
// what they show of a cluster is not shown by a timeline that harms nobody.

// A naiveLock is an entry in a table: who has it, and until when, or for ever if
// ttl is 0. There is no queue: who is refused may ask again. There is no token,
// and whoever says so releases it.
type naiveLock struct {
	ttl time.Duration

	mu    sync.Mutex
	taken bool
	until time.Time
}

// try takes the lock for who, if it is free.
func (n *naiveLock) try(string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.taken && (n.ttl == 0 || time.Now().Before(n.until)) {
		return false
	}
	n.taken, n.until = true, time.Now().Add(n.ttl)
	return true
}

// acquire tries again and again, for so long.
func (n *naiveLock) acquire(who string, every, limit time.Duration) bool {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(every) {
		if n.try(who) {
			return true
		}
	}
	return false
}

// release frees the lock, whoever has it by now.
func (n *naiveLock) release() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.taken = false
}

// A racedLock wakes all who wait when it is freed, and goes to the first whose
// request then arrives.
type racedLock struct {
	mu    sync.Mutex
	taken bool
	freed chan struct{} // closed when the lock is
}

func newRacedLock() *racedLock { return &racedLock{freed: make(chan struct{})} }

// acquire races until ctx ends, from so far away.
func (r *racedLock) acquire(ctx context.Context, distance time.Duration) bool {
	for ctx.Err() == nil {
		time.Sleep(distance)
		r.mu.Lock()
		if !r.taken {
			r.taken = true
			r.mu.Unlock()
			return true
		}
		freed := r.freed
		r.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
		}
	}
	return false
}

func (r *racedLock) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.taken = false
	close(r.freed)
	r.freed = make(chan struct{})
}
