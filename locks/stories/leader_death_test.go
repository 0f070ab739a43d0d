package stories

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wardmote/wardmote/locks"
)

// The leader dies right after a grant, and the next leader must know of the grant.
//
//	 1 s  A asks; the leader dies within the next six milliseconds: before it hears,
//	      before it commits, before it answers, or after
//	 4 s  at the latest A is granted the lock; B waits behind A
//	30 s  and longer A holds the same lock
//	34 s  at the latest A releases, and B is granted the lock
//
// Contrast: a primary whose backup learns of a grant 3 ms later. The backup does
// not know of A, and grants B the lock as well.
func TestLeaderDeathAfterAGrantMakesNoSecond(t *testing.T) {
	const waits = "B waits for A's release"
	story := func(d time.Duration) timeline {
		return func(s *stage) {
			a, b := s.named(s.others[0], "A"), s.named(s.others[1], "B")
			for _, c := range []client{a, b} { // both have sessions
				s.ok("a key is released", s.acquire(c, "other").Release(s.ctx))
			}
			s.at(time.Second)
			var wg sync.WaitGroup
			wg.Go(func() { s.at(time.Second + d); s.Kill(s.leader) })
			l := s.acquire(a, "k")
			wg.Wait()
			s.between("A is granted the key", s.now(), time.Second, 4*time.Second)

			var freed atomic.Int64
			wg.Go(func() {
				next, err := b.Acquire(s.ctx, "k")
				s.ok("B is granted the key", err)
				if err != nil {
					return
				}
				at := time.Duration(freed.Load())
				s.check(waits, at > 0, "B has token %d while A holds token %d", next.Token(), l.Token())
				s.check("A has released", errors.Is(l.Err(), locks.ErrReleased), "%v", l.Err())
				s.near("B is granted the key", s.now(), at)
				s.check("tokens rise", next.Token() > l.Token(), "token %d after %d", next.Token(), l.Token())
			})
			for range 30 {
				time.Sleep(time.Second)
				s.live("A holds the lock", l)
			}
			if c, ok := a.(member); ok {
				status, err := c.Inspect(s.ctx, "k")
				ok := err == nil && status.Holding == 1 && status.Holders[0].Token == l.Token() && status.Queue == 1
				s.check("the cluster knows one grant", ok, "%+v, %v", status, err)
			}
			freed.Store(int64(s.now()))
			s.ok("A releases", l.Release(s.ctx))
			wg.Wait()
		}
	}
	for d := time.Duration(0); d <= 6*time.Millisecond; d += time.Millisecond {
		t.Run("after "+d.String(), func(t *testing.T) { play(t, 3, 5*time.Second, story(d)) })
	}
	contrast(t, "a backup that learns later", waits, newLagging(3*time.Millisecond), story(time.Millisecond))
}
