// Package wakeup tells goroutines that something has changed, without saying
// what: the woken goroutine looks at the state itself. A wake-up is never lost,
// and any number of them may become one.
//
// The types are One, which wakes one goroutine, and All, which wakes every
// goroutine that waits. Neither blocks the caller, and neither starts a
// goroutine.
package wakeup

import "sync"

// One wakes a single goroutine. Make it with NewOne. The goroutine receives
// from the channel; a wake-up that comes while the goroutine is busy is kept
// until its next receive.
type One chan struct{}

// NewOne returns a One without a pending wake-up.
func NewOne() One { return make(One, 1) }

// Wake makes the next receive succeed. It does not block.
func (o One) Wake() {
	select {
	case o <- struct{}{}:
	default:
	}
}

// All wakes every goroutine that waits. The zero value is ready to use.
type All struct {
	mu sync.Mutex
	ch chan struct{}
}

// Wait returns a channel that the next Wake closes. A goroutine calls Wait
// first, then reads the state, then receives: a change between the reading and
// the receive is not missed.
func (a *All) Wait() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ch == nil {
		a.ch = make(chan struct{})
	}
	return a.ch
}

// Wake closes the channel that Wait has returned. It does not block.
func (a *All) Wake() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ch != nil {
		close(a.ch)
		a.ch = nil
	}
}
