package stories

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wardmote/wardmote/locks"
)

// Each of two clients holds a lock and needs the lock of the other.
//
//	0 s  A holds lock 1, B holds lock 2
//	1 s  A waits for lock 2
//	2 s  B asks for lock 1 and would close the cycle: B is refused at once
//	3 s  B releases lock 2; A gets it, ends its work, and releases both
//	3 s  B gets lock 1
//
// Contrast: a lock without knowledge of its waiters. Both wait until they give up.
func TestTwoLockCycleIsRefused(t *testing.T) {
	const through = "A, who waited first, gets both locks"
	story := func(s *stage) {
		a, b := s.named(0, "A"), s.named(1, "B")
		one, two := s.acquire(a, "1"), s.acquire(b, "2")
		held := func(l grant) context.Context {
			ctx, cancel := context.WithTimeout(l.Context(), time.Minute)
			s.t.Cleanup(cancel)
			return ctx
		}

		s.at(time.Second)
		var wg sync.WaitGroup
		defer wg.Wait()
		var freed atomic.Int64
		wg.Go(func() {
			both, err := a.Acquire(held(one), "2")
			s.ok(through, err)
			if err != nil {
				return
			}
			s.near("A gets both when B releases", s.now(), time.Duration(freed.Load()))
			for _, l := range []grant{both, one} {
				s.ok("A releases", l.Release(s.ctx))
			}
		})

		s.at(2 * time.Second)
		_, err := b.Acquire(held(two), "1")
		s.near("B is told at once", s.now(), 2*time.Second)
		var cycle *locks.DeadlockError
		want := []locks.Wait{{Client: "B", Key: "1", Token: two.Token()}, {Client: "A", Key: "2", Token: one.Token()}}
		ok := errors.As(err, &cycle) && errors.Is(err, locks.ErrDeadlock) && cycle.Key == "1" && len(cycle.Cycle) == len(want)
		s.check("B is told of the cycle", ok, "%v", err)
		if !ok {
			return
		}
		for i, w := range cycle.Cycle {
			s.check("the error lists the cycle", w.Client == want[i].Client && w.Key == want[i].Key, "link %d is %+v, want %+v", i, w, want[i])
		}
		s.live("B keeps lock 2", two)

		s.at(3 * time.Second)
		freed.Store(int64(s.now()))
		s.ok("B releases", two.Release(s.ctx))
		wg.Wait()
		again := s.acquire(b, "1")
		s.near("B gets lock 1", s.now(), 3*time.Second)
		s.live("B holds lock 1", again)
	}
	play(t, 3, 5*time.Second, story)
	contrast(t, "no knowledge of waiters", through, newTable(0, time.Second), story)
}
