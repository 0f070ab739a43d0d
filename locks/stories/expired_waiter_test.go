package stories

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/wardmote/wardmote/locks"
)

// A session expires in the middle of Acquire. The lease is 5 s.
//
//	 0 s  B waits behind the holder
//	 1 s  C waits behind B
//	 2 s  B's member is cut off
//	 7 s  at the latest B has a definite error, and its place in the queue is gone
//	10 s  C alone waits; B's member is connected again
//	15 s  the holder releases, and C is granted the lock
//	16 s  B asks again, in a new session
//	25 s  C releases, and B is granted the lock
//
// No contrast: no lock fails in this story.
func TestWaiterWhoseSessionExpiresLosesItsPlace(t *testing.T) {
	const lease = 5 * time.Second
	play(t, 3, lease, func(s *stage) {
		holder := s.acquire(s.named(s.leader, "holder"), "k")
		b, c := s.named(s.others[0], "B"), s.member(s.others[1], "C")
		var wg sync.WaitGroup
		gaveUp := make(chan time.Duration, 1)
		wg.Go(func() {
			_, err := b.Acquire(s.ctx, "k")
			gaveUp <- s.now()
			var lost *locks.SessionError
			ok := errors.As(err, &lost) && errors.Is(err, locks.ErrSessionLost) && !errors.Is(err, locks.ErrLost) &&
				lost.Key == "k" && lost.Reason == locks.QuorumUnreachable
			s.check("B is told that its session expired", ok, "%v", err)
		})
		s.at(time.Second)
		var order []string // written under the lock
		wg.Go(func() {
			l, err := c.Acquire(s.ctx, "k")
			s.ok("C is granted the key", err)
			if err != nil {
				return
			}
			order = append(order, "C")
			s.near("C, who came after B, is granted the key", s.now(), 15*time.Second)
			time.Sleep(10 * time.Second)
			s.ok("C releases", l.Release(s.ctx))
		})

		s.at(2 * time.Second)
		s.Isolate(s.others[0])
		s.at(10 * time.Second)
		s.between("B gives up", <-gaveUp, lease, 2*time.Second+lease)
		status, err := c.Inspect(s.ctx, "k")
		s.check("C alone waits", err == nil && status.Queue == 1 && status.Waiters[0].Client == "C", "%+v, %v", status.Waiters, err)
		s.Heal()

		s.at(15 * time.Second)
		s.ok("the holder releases", holder.Release(s.ctx))
		s.at(16 * time.Second)
		again := s.acquire(b, "k") // in a new session
		order = append(order, "B")
		s.near("B is granted the key, having asked again,", s.now(), 25*time.Second)
		wg.Wait()
		s.check("C is served before B", slices.Equal(order, []string{"C", "B"}) && again.Token() > holder.Token(), "order %v, token %d", order, again.Token())
	})
}
