package stories

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/wardmote/wardmote/locks"
)

// A release arrives after the next grant. The lease is 5 s.
//
//	 0 s  A is granted the lock
//	 1 s  A's link becomes slow, or A's process is stopped, and A releases
//	 5 s  A's lease has ended, and B is granted the lock
//	 9 s  A's release arrives
//	20 s  B still holds the lock
//
// Contrast: a lock that is released by name. A's release frees B's lock.
func TestLateReleaseFreesNoSuccessor(t *testing.T) {
	const lease = 5 * time.Second
	const survives = "B's lock survives A's late release"
	story := func(delay func(s *stage, a int)) timeline {
		return func(s *stage) {
			a := s.acquire(s.named(s.others[0], "A"), "k")
			s.at(time.Second)
			delay(s, s.others[0])
			bound, cancel := context.WithTimeout(s.ctx, 2*time.Second)
			defer cancel()
			err := a.Release(bound)
			s.check("A's release is not heard at once", errors.Is(err, context.DeadlineExceeded), "%v", err)
			s.check("A has released as far as A is concerned", errors.Is(a.Err(), locks.ErrReleased), "%v", a.Err())

			b := s.acquire(s.named(s.others[1], "B"), "k")
			s.near("B is granted the key", s.now(), lease)

			s.at(9*time.Second + soon) // the release has arrived, if it arrives at all
			s.heldBy(survives, s.named(s.leader, "C"), "k", "B", b)
			s.at(20 * time.Second)
			s.live(survives, b)
			s.heldBy("B holds the key long after", s.named(s.leader, "C"), "k", "B", b)
			s.check("A cannot release once more", a.Release(s.ctx) != nil, "no error")
			s.heldBy("B holds the key after that as well", s.named(s.leader, "D"), "k", "B", b)
			s.live("B holds the key after that as well", b)
		}
	}
	slowLink := func(s *stage, a int) {
		for i := range 3 {
			if i != a {
				s.slow(a, i, 8*time.Second)
			}
		}
	}
	stopped := func(s *stage, a int) {
		s.Pause(a)
		go func() { s.at(9 * time.Second); s.Resume(a) }()
	}
	t.Run("slow link", func(t *testing.T) { play(t, 3, lease, story(slowLink)) })
	t.Run("stopped process", func(t *testing.T) { play(t, 3, lease, story(stopped)) })
	contrast(t, "release by name", survives, newTable(lease, 500*time.Millisecond), story(stopped))
}
