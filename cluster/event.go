package cluster

import (
	"fmt"
	"sync"
)

// EventKind says what an Event tells.
type EventKind uint8

const (
	MemberJoined   EventKind = iota + 1 // Member, of that Boot, is alive
	MemberLeft                          // it left, or is taken for dead; if it was killed, maybe after its next start joined
	ClusterFounded                      // this member learned of the founding; nothing is granted for one TTL
	Granting                            // the founding wait is over: locks are granted
	LeaderChanged                       // Member leads, and serves
	VoterAdded                          // Member became a voter
	VoterRemoved                        // Member is a voter no more
	QuorumLost                          // this member reaches no leader
	QuorumRegained                      // it reaches one again
	Conflict                            // two members of one name, or two clusters, met; Detail says which
	NodeFailed                          // this member can take no part any more; Detail says why
)

var eventNames = [...]string{
	MemberJoined: "member joined", MemberLeft: "member left", ClusterFounded: "cluster founded",
	Granting: "granting", LeaderChanged: "leader changed", VoterAdded: "voter added",
	VoterRemoved: "voter removed", QuorumLost: "quorum lost", QuorumRegained: "quorum regained",
	Conflict: "conflict", NodeFailed: "node failed",
}

func (k EventKind) String() string {
	if int(k) < len(eventNames) && eventNames[k] != "" {
		return eventNames[k]
	}
	return fmt.Sprintf("EventKind(%d)", uint8(k))
}

// Event is something an operator or a program may want to know. It is told as
// this member saw it: members may see events in different orders, or not at all.
type Event struct {
	Kind   EventKind
	Member Member // whom it is about; zero if nobody in particular
	Term   uint64 // LeaderChanged
	Detail string
}

func (e Event) String() string {
	s := e.Kind.String()
	if e.Member.Name != "" {
		s += ": " + e.Member.Name
	}
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	return s
}

// An eventQueue calls a user's function in order, one at a time, from one
// goroutine, so that no lock of ours is held and no loop of ours waits. It is
// bounded: of a user who blocks it the oldest events are dropped.
type eventQueue struct {
	call func(Event)
	mu   sync.Mutex
	q    []Event
	wake chan struct{}
}

const maxEvents = 1024

func (q *eventQueue) put(e Event) {
	q.mu.Lock()
	if len(q.q) >= maxEvents {
		q.q = q.q[1:]
	}
	q.q = append(q.q, e)
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// run tells events until done is closed, and then those left.
func (q *eventQueue) run(done <-chan struct{}) {
	for {
		stop := false
		select {
		case <-q.wake:
		case <-done:
			stop = true
		}
		q.mu.Lock()
		events := q.q
		q.q = nil
		q.mu.Unlock()
		for _, e := range events {
			q.call(e)
		}
		if stop {
			return
		}
	}
}
