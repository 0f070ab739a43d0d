package simnet

import (
	"container/heap"
	"time"
)

// at schedules f for time t; f runs with mu held. The caller holds mu.
func (n *Network) at(t time.Time, f func()) {
	n.number++
	heap.Push(&n.events, event{t, n.number, f})
	n.arm()
}

// arm sets the timer to the first event. The caller holds mu.
func (n *Network) arm() {
	if len(n.events) == 0 {
		return
	}
	first := n.events[0].at
	if !n.armed.IsZero() && !first.Before(n.armed) {
		return
	}
	n.armed = first
	if n.timer == nil {
		n.timer = time.AfterFunc(time.Until(first), n.run)
	} else {
		n.timer.Reset(time.Until(first))
	}
}

// run is the timer's function and does every event that is due. The timer may
// fire once more for a time that was replaced: then run finds nothing due, or
// does events early for another run. Neither does harm.
func (n *Network) run() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.armed = time.Time{}
	now := time.Now()
	for len(n.events) > 0 && !n.events[0].at.After(now) {
		heap.Pop(&n.events).(event).do()
	}
	n.arm()
}

type event struct {
	at     time.Time
	number uint64 // in order of sending
	do     func()
}

type eventHeap []event

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	if !h[i].at.Equal(h[j].at) {
		return h[i].at.Before(h[j].at)
	}
	return h[i].number < h[j].number
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *eventHeap) Push(x any)   { *h = append(*h, x.(event)) }
func (h *eventHeap) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = event{}
	*h = (*h)[:last]
	return e
}
