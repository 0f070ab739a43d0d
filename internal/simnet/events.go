package simnet

import (
	"slices"
	"time"
)

// event is a function that is due at a time.
type event struct {
	at time.Time
	do func()
}

// at schedules f for time t; f runs with mu held. The caller holds mu.
func (n *Network) at(t time.Time, f func()) {
	// Behind the events of the same time: see Network.events.
	i, _ := slices.BinarySearchFunc(n.events, t, func(e event, t time.Time) int {
		if e.at.After(t) {
			return 1
		}
		return -1
	})
	n.events = slices.Insert(n.events, i, event{t, f})
	if i == 0 {
		n.arm()
	}
}

// arm sets the timer to the first event, if there is any. The caller holds mu.
func (n *Network) arm() {
	switch {
	case len(n.events) == 0:
	case n.timer == nil:
		n.timer = time.AfterFunc(time.Until(n.events[0].at), n.run)
	default:
		n.timer.Reset(time.Until(n.events[0].at))
	}
}

// run is the timer's function and does every event that is due. The timer may
// fire once more for a time that was replaced: then run finds nothing due, or
// does events early for another run. Neither does harm.
func (n *Network) run() {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	for len(n.events) > 0 && !n.events[0].at.After(now) {
		do := n.events[0].do
		n.events[0] = event{}
		n.events = n.events[1:]
		do()
	}
	n.arm()
}
