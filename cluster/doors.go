package cluster

import (
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/timing"
)

// doors orders two decisions of a leader: to end because no other member stays, and
// to confirm the cluster to a newcomer. A newcomer of a cluster without voters is
// stuck: it is in the cluster, founds no other, and nobody leads. So a leader that
// has decided to end confirms nothing any more, and a leader that has just confirmed
// waits for gossip's news of the newcomer before it decides that nobody stays.
type doors struct {
	mu       sync.Mutex
	shut     bool
	admitted time.Time // the last newcomer
}

// admit reports whether a newcomer may be told that this cluster has a leader.
func (d *doors) admit() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.shut {
		d.admitted = time.Now()
	}
	return !d.shut
}

// close shuts the doors for good, unless a newcomer was admitted a moment ago: then
// close returns the time to wait before the next call.
func (d *doors) close() (wait time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if wait = time.Until(d.admitted.Add(timing.NewcomerSeen)); wait > 0 && !d.shut {
		return wait
	}
	d.shut = true
	return 0
}

// closeNow shuts the doors for good.
func (d *doors) closeNow() {
	d.mu.Lock()
	d.shut = true
	d.mu.Unlock()
}

func (d *doors) closed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.shut
}

// shutDoors has this node, if it leads, take in nobody any more: neither as a member
// nor as a voter.
func (n *Node) shutDoors() {
	n.doors.closeNow()
	if l := n.leading.Load(); l != nil {
		l.endVoters()
	}
}
