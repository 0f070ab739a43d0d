package link

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/stream"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// The best guess comes first: raft's leader, then the newest leader by gossip, then
// voters, then the rest. This member itself is not asked.
func TestTheBestGuessIsAskedFirst(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.know("thin")
		s.know("voter", votes)
		s.know("older", leads(3), votes)
		s.know("newer", leads(4))
		s.know("me", leads(9))
		for _, name := range []string{"thin", "voter", "older", "newer", "raft"} {
			s.host(name, 0)
		}
		s.set(func() { s.guess = "raft" })
		s.k.Wake()
		synctest.Wait()
		if got, want := s.dialled(), "raft newer older voter thin"; got != want {
			t.Errorf("dialled %q, want %q", got, want)
		}
	})
}

func TestASearchIsBounded(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		for i := range 30 {
			s.know(fmt.Sprint("n", i))
			s.host(fmt.Sprint("n", i), 0).hint = fmt.Sprint("hint", i)
		}
		s.k.Wake()
		synctest.Wait()
		addrs := strings.Fields(s.dialled())
		hints := 0
		for _, a := range addrs {
			if strings.HasPrefix(a, "hint") {
				hints++
			}
		}
		if len(addrs) != maxTried+maxHops || hints != maxHops {
			t.Errorf("dialled %v", addrs)
		}
	})
}

// chain adds members h0, h1 and so on. Each hints at the next, and the last leads.
func (s *stage) chain(length int) {
	for i := range length {
		h := s.host(fmt.Sprint("h", i), 0)
		h.hint = fmt.Sprint("h", i+1)
		if i == length-1 {
			h.hint, h.term = "", 5
		}
	}
	s.gossip("h0")
}

func TestHintsAreFollowed(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.chain(1 + maxHops)
		s.attachedTo(fmt.Sprint("h", maxHops))
		if got, want := s.told(), "h3 at h3 leads term 5"; got != want {
			t.Errorf("told %q, want %q", got, want)
		}
	})
}

func TestHintsAreFollowedThreeTimesAtMost(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.chain(2 + maxHops)
		time.Sleep(time.Minute)
		s.attachedTo("")
		if got := s.dialled(); strings.Contains(got, fmt.Sprint("h", maxHops+1)) {
			t.Errorf("dialled %q", got)
		}
	})
}

func TestHintsInACircleEndTheSearch(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.host("a", 0).hint = "b"
		s.host("b", 0).hint = "a"
		s.know("a")
		s.k.Wake()
		synctest.Wait()
		if got := s.dialled(); got != "a b" {
			t.Errorf("dialled %q", got)
		}
	})
}

// Without a leader the Link looks again after a pause, and at once when gossip
// changes or Wake is called.
func TestANewLeaderIsFoundAtOnce(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.host("a", 5)
		time.Sleep(10 * time.Second)
		s.gossip("a", leads(5))
		s.attachedTo("a")
	})
	onStage(t, func(t *testing.T, s *stage) {
		time.Sleep(10 * time.Second)
		s.lead(newOwnTerm(5))
		s.attachedTo("me")
	})
	onStage(t, func(t *testing.T, s *stage) {
		a := s.host("a", 0)
		s.gossip("a")
		time.Sleep(10 * time.Second)
		a.serve(5)
		time.Sleep(timing.MostBackoff)
		s.attachedTo("a")
	})
}

// A member in no cluster asks nobody.
func TestNobodyIsAskedBeforeTheFounding(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.set(func() { s.cluster = machine.ClusterID{} })
		s.host("a", 5)
		s.gossip("a", leads(5))
		time.Sleep(time.Minute)
		s.attachedTo("")
		if got := s.dialled() + s.told(); got != "" {
			t.Errorf("dialled or told %q", got)
		}
		s.set(func() { s.cluster = machine.ClusterID{1} })
		s.k.Wake()
		s.attachedTo("a")
	})
}

// After term 5 has served this member, a leader of term 4 is deposed. The Attach
// tells the term, so that the deposed leader refuses. This node's own term 4 is
// refused too.
func TestALeaderOfAnOlderTermIsRefused(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		a := s.host("a", 5)
		s.gossip("a", leads(5))
		s.attachedTo("a")
		a.resign()
		old := s.host("old", 4)
		s.gossip("old", leads(4))
		s.lead(newOwnTerm(4))
		time.Sleep(10 * time.Second)
		s.attachedTo("")
		old.mu.Lock()
		for _, req := range old.attaches {
			if req.Term != 5 {
				t.Errorf("the old leader was told of term %d", req.Term)
			}
		}
		if len(old.attaches) == 0 {
			t.Error("the old leader was not asked")
		}
		old.term = 6
		old.mu.Unlock()
		s.k.Wake()
		s.attachedTo("old")
	})
}

// Only a readable CodeOK to Attach makes a leader.
func TestAStrangeAnswerToAttachMakesNoLeader(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		strange := s.host("strange", 5)
		s.gossip("strange", leads(5))
		s.attachedTo("strange")
		strange.crash()
		s.set(func() { delete(s.hosts, "strange") })
		synctest.Wait()
		for _, answer := range []func(*stream.Request){
			with(wire.CodeBad),
			with(wire.CodeNotLeader),
			func(q *stream.Request) { q.Answer(wire.CodeOK, []byte("garbage")) },
			silence,
		} {
			near := &host{name: "near"}
			near.answer = answer
			_, hint := s.connectTo(near)
			if hint != (wire.Hint{}) {
				t.Errorf("hint %+v", hint)
			}
		}
	})
}

// connectTo has the Link connect to h, and fails the test if h is taken for a
// leader.
func (s *stage) connectTo(h *host) (upstream, wire.Hint) {
	s.t.Helper()
	k := New(s.k.cfg)
	k.cfg.Dial = pipeTo(h)
	up, hint := k.connectRemote(s.t.Context(), h.name)
	if up != nil {
		s.t.Error("taken for a leader")
		up.Quit(s.k.subscriber)
	}
	h.crash()
	return up, hint
}
