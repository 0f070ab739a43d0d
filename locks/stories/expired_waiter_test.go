package stories

import (
	"slices"
	"sync"
	"testing"
	"time"
)

// A session expires in the middle of Acquire. The lease is 5 s.
//
//	 0 s  B waits behind the holder
//	 1 s  C waits behind B
//	 2 s  B's member is cut off
//	 7 s  at the latest B's session is lost, and its place in the queue is gone
//	10 s  C alone waits; B's member is connected again, and B's Acquire asks again in
//	      a new session
//	15 s  the holder releases, and C is granted the lock
//	25 s  C releases, and B is granted the lock
//
// No contrast: no lock fails in this story.
func TestWaiterWhoseSessionExpiresLosesItsPlace(t *testing.T) {
	const lease = 5 * time.Second
	play(t, 3, lease, func(s *stage) {
		holder := s.acquire(s.named(s.leader, "holder"), "k")
		b, c := s.named(s.others[0], "B"), s.member(s.others[1], "C")
		var wg sync.WaitGroup
		var order []string // written under the lock
		wg.Go(func() {
			again, err := b.Acquire(s.ctx, "k")
			s.ok("B is granted the key", err)
			if err != nil {
				return
			}
			order = append(order, "B")
			s.near("B is granted the key, having asked again,", s.now(), 25*time.Second)
			s.check("B's token is the larger", again.Token() > holder.Token(), "token %d", again.Token())
		})
		s.at(time.Second)
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
		status, err := c.Inspect(s.ctx, "k")
		s.check("C alone waits", err == nil && status.Queue == 1 && status.Waiters[0].Client == "C", "%+v, %v", status.Waiters, err)
		s.Heal()

		s.at(15 * time.Second)
		s.ok("the holder releases", holder.Release(s.ctx))
		wg.Wait()
		s.check("C is served before B", slices.Equal(order, []string{"C", "B"}), "order %v", order)
	})
}
