package stories

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/locks"
)

// denied checks that a member without the majority grants nothing to Acquire and
// TryAcquire, and answers within the caller's bound.
func (s *stage) denied(claim string, c client, key string, bound time.Duration) (errs []error) {
	s.t.Helper()
	for _, acquire := range []func(context.Context, string, ...locks.Option) (grant, error){c.TryAcquire, c.Acquire} {
		ctx, cancel := context.WithTimeout(s.ctx, bound)
		began := s.now()
		_, err := acquire(ctx, key)
		cancel()
		s.check(claim, err != nil, "granted")
		s.check("the answer is the end of the caller's context", errors.Is(err, context.DeadlineExceeded), "%v", err)
		s.near("the caller has its answer", s.now(), began+bound)
		errs = append(errs, err)
	}
	return errs
}

// deniedForLack is denied by a member that was cut off long ago and knows the
// reason. Soon after the cut a member still waits for its last known leader.
func (s *stage) deniedForLack(claim string, c client, key string) {
	s.t.Helper()
	for _, err := range s.denied(claim, c, key, time.Second) {
		s.check("the answer names the missing quorum", errors.Is(err, cluster.ErrNoQuorum), "%v", err)
	}
}

// The third of three servers is cut off, and must not grant alone. The lease is 10 s.
//
//	 2 s  A is granted the lock by servers 1 and 2; server 3 is cut off
//	 3 s  B asks server 3
//	 4 s  server 3 must not grant the lock: A is inside
//	40 s  still not; the majority says that A holds the lock
//	60 s  server 3 is back, and says so too
//
// Contrast: servers with a majority of the reachable servers only. Server 3
// reaches itself, and grants B the lock while A is inside.
func TestCutOffServerGrantsNothing(t *testing.T) {
	const lease = 10 * time.Second
	const nothing = "a server that is cut off grants nothing"
	story := func(led bool) timeline {
		return func(s *stage) {
			l1, l2, l3 := s.leader, s.others[0], s.others[1]
			if led {
				l1, l3 = l3, l1
			}
			a, b := s.named(l2, "A"), s.named(l3, "B")
			s.at(2 * time.Second)
			l := s.acquire(a, "k")
			s.Isolate(l3)

			s.at(3 * time.Second)
			s.denied(nothing, b, "k", time.Second)
			s.near("B has been denied the key twice", s.now(), 5*time.Second)
			s.live("A holds the lock", l)
			if s.contrast {
				return
			}

			s.at(40 * time.Second)
			s.deniedForLack(nothing, b, "k")
			s.live("A holds the lock", l)
			s.heldBy("the majority says so", s.named(l1, "C"), "k", "A", l)
			s.Heal()
			s.at(60 * time.Second)
			s.heldBy("the server says so once it is back", b, "k", "A", l)
			s.live("A holds the lock", l)
			s.ok("A releases", l.Release(s.ctx))
			next := s.acquire(b, "k")
			s.check("no grant was made in between", next.Token() == l.Token()+1, "token %d after %d", next.Token(), l.Token())
		}
	}
	for _, led := range []bool{false, true} {
		t.Run(fmt.Sprintf("server 3 led before: %v", led), func(t *testing.T) { play(t, 3, lease, story(led)) })
	}
	contrast(t, "servers that count the votes they reach", nothing, newIslands, story(false))
}
