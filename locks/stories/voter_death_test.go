package stories

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/locks"
)

// A voter of three dies, and the others go on. The lease is 5 s.
//
//	0.0 s  A is granted the lock
//	0.5 s  a voter dies: a follower, or the leader
//	2.0 s  B asks
//	3.0 s  A releases, and B is granted the lock
//
// No contrast: no lock fails in this story. See two voters below.
func TestOneDeadVoterStopsNothing(t *testing.T) {
	for _, leads := range []bool{false, true} {
		t.Run(fmt.Sprintf("the voter leads: %v", leads), func(t *testing.T) {
			play(t, 3, 5*time.Second, func(s *stage) {
				dies, on, other := s.others[0], s.leader, s.others[1]
				if leads {
					dies, on = on, dies
				}
				a := s.acquire(s.named(on, "A"), "k")
				s.at(500 * time.Millisecond)
				s.Kill(dies)
				var wg sync.WaitGroup
				wg.Go(func() {
					s.at(3 * time.Second)
					s.live("A holds the lock at the end of its work", a)
					s.ok("A releases", a.Release(s.ctx))
				})
				s.at(2 * time.Second)
				b := s.acquire(s.named(other, "B"), "k")
				s.near("B is granted the key", s.now(), 3*time.Second)
				s.check("tokens rise", b.Token() > a.Token(), "token %d after %d", b.Token(), a.Token())
				wg.Wait()
				s.at(time.Minute)
				s.live("B holds the lock", b)
			})
		})
	}
}

// Two voters of three die, and the last one grants nothing. The lease is 5 s.
//
//	 0 s  A, a client of the last voter, is granted a lock
//	 2 s  the two others die; the last voter refuses every key
//	 7 s  at the latest A has lost its lock
//	60 s  the last voter still refuses, and reports the lack of a quorum
//
// Contrast: servers with a majority of the reachable servers only. The last server
// grants alone.
func TestTwoDeadVotersOfThreeStopAllGrants(t *testing.T) {
	const lease = 5 * time.Second
	const nothing = "the last voter grants nothing"
	story := func(s *stage) {
		last := s.others[0]
		c := s.named(last, "A")
		l := s.acquire(c, "k")
		s.at(2 * time.Second)
		s.Kill(s.leader)
		s.Kill(s.others[1])
		lostAt := make(chan time.Duration, 1)
		context.AfterFunc(l.Context(), func() { lostAt <- s.now() })
		s.denied(nothing, c, "other", time.Second)
		s.live("A holds the lock while its lease runs", l)
		if s.contrast {
			return
		}
		// Trust ends a lease, less its margin, after the last beat confirmed.
		s.between("A loses its lock", <-lostAt, lease, 2*time.Second+lease)
		s.lost("A loses its lock", l, locks.QuorumUnreachable)
		s.at(time.Minute)
		s.deniedForLack(nothing, c, "k")
		ask, cancel := context.WithTimeout(s.ctx, time.Second)
		defer cancel()
		h := s.cluster.Node(last).Health(ask)
		s.check("the last voter's health says so", !h.Quorum && errors.Is(h.Err, cluster.ErrNoQuorum), "%+v", h)
	}
	play(t, 3, lease, story)
	contrast(t, "servers that count the votes they reach", nothing, newIslands, story)
}

// Two voters of three are cut off and come back. The lease is 5 s.
//
//	 0 s  A, a client of the leader, is granted the lock
//	 2 s  both followers are cut off
//	20 s  A has lost its lock, and the leader refuses; the followers come back
//	32 s  at the latest A is granted the lock again
//
// No contrast: no lock fails in this story.
func TestVotersThatComeBackGrantAgain(t *testing.T) {
	const lease = 5 * time.Second
	play(t, 3, lease, func(s *stage) {
		c := s.named(s.leader, "A")
		l := s.acquire(c, "k")
		s.at(2 * time.Second)
		s.Isolate(s.others...)
		s.at(20 * time.Second)
		s.lost("A has lost its lock", l, locks.QuorumUnreachable)
		s.deniedForLack("a leader without followers grants nothing", c, "k")
		s.Heal()
		again := s.acquire(c, "k")
		s.between("A is granted the key again", s.now(), 20*time.Second, 22*time.Second+2*lease)
		s.check("tokens rise", again.Token() > l.Token(), "token %d after %d", again.Token(), l.Token())
	})
}
