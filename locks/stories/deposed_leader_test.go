package stories

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/locks"
	"github.com/wardmote/wardmote/locks/lockstest"
)

// leaders notes the leader of each term, as the members tell it.
type leaders struct {
	mu    sync.Mutex
	terms map[uint64]string
	bad   []string
}

func (x *leaders) option() lockstest.Option {
	x.terms = make(map[uint64]string)
	return lockstest.Config(func(_ int, cfg *cluster.Config) {
		cfg.Events = func(_ context.Context, e cluster.Event) {
			if e.Kind != cluster.LeaderChanged || e.Member.Name == "" {
				return
			}
			x.mu.Lock()
			defer x.mu.Unlock()
			if before, ok := x.terms[e.Term]; ok && before != e.Member.Name {
				x.bad = append(x.bad, fmt.Sprintf("term %d has leaders %s and %s", e.Term, before, e.Member.Name))
			}
			x.terms[e.Term] = e.Member.Name
		}
	})
}

// told returns the number of terms that had a leader, and the last of them. The
// test fails if a term had two leaders.
func (x *leaders) told(s *stage) (n int, last uint64, by string) {
	s.t.Helper()
	x.mu.Lock()
	defer x.mu.Unlock()
	s.check("a term has one leader", len(x.bad) == 0, "%q", x.bad)
	for term, leader := range x.terms {
		if term > last {
			last, by = term, leader
		}
	}
	return len(x.terms), last, by
}

// The leader is cut off, and deposed by a leader of a higher term. The lease is
// 5 s.
//
//	 0 s  A, a client of the leader, is granted the lock
//	 2 s  the leader is cut off, and may believe in its leadership for a while:
//	      it grants nothing, free keys included
//	 7 s  at the latest A has lost its lock
//	 9 s  at the latest B is granted the lock by the new leader
//	20 s  the old leader reports the lack of a quorum and is connected again
//	40 s  the old leader follows the new one, and says that B holds the lock
//
// Contrast: servers with a majority of the reachable servers only. The old leader
// grants a free key.
func TestCutOffLeaderIsDeposedAndGrantsNothing(t *testing.T) {
	const lease = 5 * time.Second
	const nothing = "a leader that is cut off grants nothing"
	var led leaders
	story := func(s *stage) {
		old := s.leader
		var term uint64
		if s.cluster != nil {
			var by string
			if _, term, by = led.told(s); by != s.cluster.Node(old).Name() {
				s.t.Fatalf("%s leads in term %d, not %s", by, term, s.cluster.Node(old).Name())
			}
		}
		a, b := s.named(old, "A"), s.named(s.others[0], "B")
		l := s.acquire(a, "k")

		s.at(2 * time.Second)
		s.Isolate(old)
		var wg sync.WaitGroup
		wg.Go(func() {
			s.at(2*time.Second + 10*time.Millisecond)
			s.denied(nothing, a, "free", time.Second)
		})
		if s.contrast {
			wg.Wait()
			return
		}
		wg.Go(func() {
			<-l.Context().Done()
			s.between("A loses its lock", s.now(), lease, 2*time.Second+lease)
			s.lost("A loses its lock", l, locks.QuorumUnreachable)
		})
		next := s.acquire(b, "k")
		// A's lease runs anew from the new leader's start.
		s.between("B is granted the key", s.now(), 2*time.Second+lease, 2*time.Second+lease+2*time.Second+soon)
		s.check("A has lost the key before", l.Context().Err() != nil && next.Token() > l.Token(),
			"B has token %d; A, who has %d, is told %v", next.Token(), l.Token(), l.Err())
		wg.Wait()
		free := s.acquire(b, "free")
		deposed, higher, by := led.told(s)
		s.check("the new leader has a higher term", higher > term && by != s.cluster.Node(old).Name() && deposed >= 2, "%s leads in term %d, after %d", by, higher, term)

		s.at(20 * time.Second)
		s.deniedForLack(nothing, a, "k")
		s.Heal()
		s.at(40 * time.Second)
		now := s.cluster.Leader()
		lead, ok := s.cluster.Node(old).Leader()
		s.check("the old leader follows", ok && lead.Name == s.cluster.Node(now).Name(), "it follows %q, %v; %d leads", lead.Name, ok, now)
		s.heldBy("the old leader says what the others say", a, "k", "B", next)
		s.heldBy("the old leader says what the others say", a, "free", "B", free)
		s.live("B holds the lock", next)
		_, last, _ := led.told(s)
		s.check("terms rise", last >= higher, "term %d after %d", last, higher)
	}
	play(t, 3, lease, story, led.option())
	contrast(t, "servers that count the votes they reach", nothing, newIslands, story)
}
