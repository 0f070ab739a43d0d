package stories

import (
	"context"
	"sync"
	"testing"
	"time"
)

// A holder crashes while three rivals wait. The lease is 10 s.
//
//	 0 s  A is granted the lock
//	 7 s  A crashes; B, C and D ask
//	17 s  at the latest B is granted the lock, then C and D, a second each
//
// Contrast: a lock without a TTL. B, C and D ask every minute for a day, in vain.
func TestCrashFreezesNobody(t *testing.T) {
	const lease = 10 * time.Second
	const served = "all rivals are served"
	story := func(s *stage) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), 24*time.Hour)
		defer cancel()
		a := s.acquire(s.named(s.others[0], "A"), "k")
		s.at(7 * time.Second)
		s.Kill(s.others[0])
		var wg sync.WaitGroup
		for i, name := range []string{"B", "C", "D"} {
			wg.Go(func() {
				l, err := s.named(s.others[1], name).Acquire(ctx, "k")
				s.check(served, err == nil, "%s: %v", name, err)
				if err != nil {
					return
				}
				// A's last beat was sent between 1 s and 7 s. Each rival before took a second.
				turn := time.Duration(i) * time.Second
				s.between(name+" is granted the key", s.now(), lease+turn, 7*time.Second+lease+turn+soon)
				s.check("tokens rise", l.Token() > a.Token(), "token %d after %d", l.Token(), a.Token())
				time.Sleep(time.Second)
				s.ok(name+" releases", l.Release(s.ctx))
			})
			time.Sleep(10 * time.Millisecond)
		}
		wg.Wait()
	}
	play(t, 3, lease, story)
	contrast(t, "no TTL", served, newTable(0, time.Minute), story)
}
