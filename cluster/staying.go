package cluster

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// Gossip's word that a member ends can be forged by any member. A node that ends, and
// that gossip tells of no member that stays, would end without a successor and without
// freeing its keys. So such a node asks the others themselves, for
// timing.ConfirmRound at most: a member that says on its own stream that it does not
// end stays, for as long again. Where all do end, each answers so at once, or is gone.
// A member that answers otherwise, or not at all, is not asked again.

// staying has the processes that have said on their own streams that they stay.
type staying struct {
	mu    sync.Mutex
	until map[member.Process]time.Time
	vain  map[member.Process]bool // asked, and does not stay
}

// maxStaying bounds the processes asked at a time.
const maxStaying = 16

func (s *staying) insists(p member.Process) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Before(s.until[p])
}

// any reports whether a process insists.
func (s *staying) any() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, until := range s.until {
		if time.Now().Before(until) {
			return true
		}
	}
	return false
}

func (s *staying) note(p member.Process) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for o, until := range s.until {
		if !now.Before(until) {
			delete(s.until, o)
		}
	}
	if s.until == nil {
		s.until = make(map[member.Process]time.Time)
	}
	s.until[p] = now.Add(timing.ConfirmRound)
}

// gaveUp notes a process that does not stay, as far as it says.
func (s *staying) gaveUp(p member.Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.vain == nil {
		s.vain = make(map[member.Process]bool)
	}
	s.vain[p] = true
}

func (s *staying) inVain(p member.Process) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.vain[p]
}

// othersInsist asks the members that gossip tells to end, if no other is known to
// stay, and reports whether any stays.
func (n *Node) othersInsist(ctx context.Context) bool {
	if !n.othersStay() {
		n.askStaying(ctx, n.gossip.Alive())
	}
	return n.othersStay()
}

// askStaying asks processes whether they end, and notes those that do not.
func (n *Node) askStaying(ctx context.Context, list []member.Sighting) {
	ctx, cancel := context.WithTimeout(ctx, timing.ConfirmRound)
	defer cancel()
	var asking sync.WaitGroup
	var found atomic.Bool
	asked := 0
	for _, s := range list {
		if s.Name == n.self.Name || n.proof.Ended(s.Name, s.Boot) || n.staying.inVain(s.Process) {
			continue
		}
		if asked++; asked > maxStaying {
			break
		}
		asking.Go(func() {
			var who wire.WhoAnswer
			if n.peers.AskInto(ctx, s.Process, wire.Who, nil, &who) == nil && who.Name == s.Name && who.Boot == s.Boot && !who.Ending {
				n.staying.note(s.Process)
				found.Store(true)
				cancel() // one is enough
			} else if !found.Load() {
				n.staying.gaveUp(s.Process)
			}
		})
	}
	asking.Wait()
}
