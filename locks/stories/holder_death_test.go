package stories

import (
	"context"
	"testing"
	"time"

	"github.com/wardmote/wardmote/locks"
)

// A holder dies. The lease is 3 s.
//
//	0.0 s  A is granted the lock
//	0.5 s  B tries, and is told that A holds the lock
//	1.0 s  A dies; its last beat was sent before
//	4.0 s  at the latest B is granted the lock
//
// Contrast: a lock without a TTL, which stays with the dead.
func TestKeyIsFreeWithinALeaseOfItsHoldersDeath(t *testing.T) {
	const lease = 3 * time.Second
	const free = "B is granted the key"
	story := func(s *stage) {
		l := s.acquire(s.named(s.others[0], "A"), "k")
		s.at(500 * time.Millisecond)
		b := s.named(s.others[1], "B")
		s.heldBy("B finds the key held", b, "k", "A", l)

		s.at(time.Second)
		s.Kill(s.others[0])
		ctx, cancel := context.WithTimeout(s.ctx, time.Minute)
		defer cancel()
		next, err := b.Acquire(ctx, "k")
		s.ok(free, err)
		if err != nil {
			return
		}
		// Not before the lease of the last beat, which was sent at 1 s or before.
		s.between(free, s.now(), 3*time.Second, 4*time.Second+soon)
		s.check("B has a larger token", next.Token() > l.Token(), "token %d after %d", next.Token(), l.Token())
		if next, ok := next.(*locks.Lock); ok {
			_, clean := next.Value()
			s.check("B is told that A did not release", !clean, "clean")
		}
	}
	play(t, 3, lease, story)
	contrast(t, "no TTL", free, newTable(0, 100*time.Millisecond), story)
}
