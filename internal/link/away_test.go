package link

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/wire"
)

// The terms of the next cluster begin low, and the sessions of the former one are
// told before Leave returns.
func TestNothingOfTheFormerClusterStays(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		a := s.host("a", 50)
		s.gossip("a", leads(50))
		s.attachedTo("a")
		var told []machine.Event
		s.attach(key(1), func(e machine.Event) { told = append(told, e) })
		s.k.setBound(wire.AttachAnswer{TTL: 60_000})
		s.k.Leave()
		if len(told) != 1 || told[0] != (machine.Event{Kind: machine.EventEnded, Session: sid(1), Reason: machine.Moved}) {
			t.Errorf("told %+v", told)
		}
		time.Sleep(time.Minute)
		if s.k.Reached() == nil || !s.k.Away() || s.k.Alone() < time.Minute {
			t.Errorf("reaches a leader of the cluster that was left, alone for %v", s.k.Alone())
		}
		s.set(func() { s.unreachable["a"] = true })
		a.crash()
		s.set(func() { s.cluster = machine.ClusterID{2} })
		s.k.Return()
		s.host("b", 1)
		s.gossip("b", leads(1))
		synctest.Wait()
		s.attachedTo("b")
		if s.k.Alone() != 0 || s.k.TTL() != ttl {
			t.Errorf("alone for %v, TTL %v", s.k.Alone(), s.k.TTL())
		}
		if _, _, bound := s.k.Seen(); bound != time.Minute {
			t.Errorf("the largest bound told was %v", bound)
		}
	})
}

// The same member may lead the next cluster in a term of the same number: another
// leader all the same.
func TestTheLeaderOfTheNextClusterIsTold(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.host("a", 5)
		s.gossip("a", leads(5))
		s.attachedTo("a")
		before := strings.Count(s.told(), "leads term 5")
		s.k.Leave()
		s.set(func() { s.cluster = machine.ClusterID{2} })
		s.k.Return()
		synctest.Wait()
		s.attachedTo("a")
		if got := strings.Count(s.told(), "leads term 5"); got != before+1 {
			t.Errorf("told of %d leaders, want %d", got, before+1)
		}
	})
}
