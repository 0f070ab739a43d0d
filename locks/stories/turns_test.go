package stories

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/wardmote/wardmote/locks"
)

// Three clients ask for one lock at the same moment and wait in a queue. The lease
// is 5 s.
//
//	0 s  A is granted the lock and works for 3 s
//	3 s  B is granted the lock and works for 2 s
//	5 s  C is granted the lock and works for 4 s
//	9 s  the lock is free
//
// Contrast: a lock without a queue. A client that is refused does not ask again, so
// that B and C give up.
func TestThreeClientsAreServedInTurn(t *testing.T) {
	const lease = 5 * time.Second
	const served = "all three are served"
	turns := []struct {
		name     string
		work     time.Duration
		from, to time.Duration
	}{
		{"A", 3 * time.Second, 0, 3 * time.Second},
		{"B", 2 * time.Second, 3 * time.Second, 5 * time.Second},
		{"C", 4 * time.Second, 5 * time.Second, 9 * time.Second},
	}
	story := func(s *stage) {
		var wg sync.WaitGroup
		granted := make([]grant, len(turns))
		for i, turn := range turns {
			wg.Go(func() {
				l, err := s.named(i, turn.name).Acquire(s.ctx, "k")
				s.check(served, err == nil, "%s: %v", turn.name, err)
				if err != nil {
					return
				}
				granted[i] = l
				s.near(turn.name+" begins", s.now(), turn.from)
				if i > 0 {
					before := granted[i-1]
					s.check("the one before has ended, with a smaller token",
						before.Context().Err() != nil && errors.Is(before.Err(), locks.ErrReleased) && l.Token() > before.Token(),
						"%s has token %d while %s, who had %d, is told %v", turn.name, l.Token(), turns[i-1].name, before.Token(), before.Err())
				}
				time.Sleep(turn.work)
				s.live(turn.name+" holds the lock at the end of its work", l)
				s.near(turn.name+" ends", s.now(), turn.to)
				s.ok(turn.name+" releases", l.Release(s.ctx))
			})
			time.Sleep(10 * time.Millisecond) // the cluster hears A first, then B, then C
		}
		wg.Wait()
	}
	play(t, 3, lease, story)
	contrast(t, "no queue", served, newTable(lease, 0), story)
}
