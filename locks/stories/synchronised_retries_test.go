package stories

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"
)

// Clients ask in the same instant, again and again: all are busy, and nobody
// advances. Each of three clients needs the lock twenty times, for 10 ms.
//
//	0.0 s  all ask for the lock in the same instant
//	0.6 s  all have had all their turns, or soon after
//
// Contrast: three servers and clients that collect their votes. Each client gets
// the vote of its own server alone, gives the vote back, and tries again, in step
// with the others.
func TestSynchronisedRetriesAllSucceed(t *testing.T) {
	const clients, rounds, turn = 3, 20, 10 * time.Millisecond
	const served = "all have had all their turns"
	story := func(s *stage) {
		ctx, cancel := context.WithTimeout(s.ctx, time.Minute)
		defer cancel()
		var wg sync.WaitGroup
		for i := range clients {
			c := s.named(i, strconv.Itoa(i))
			wg.Go(func() {
				for range rounds {
					if err := do(ctx, c, "k", func() { time.Sleep(turn) }); err != nil {
						s.ok(served, err)
						return
					}
				}
			})
		}
		wg.Wait()
		s.between(served, s.now(), clients*rounds*turn, 3*clients*rounds*turn)
	}
	play(t, 3, 5*time.Second, story)
	contrast(t, "voters that are raced for", served, newVotes, story)
}

// The same with two locks. Each client needs both, and they are named in opposite
// orders.
//
// Contrast: clients take the locks in sequence, and politely give back the first if
// the second is taken. Two clients in step never get both.
func TestSynchronisedClientsGetBothLocks(t *testing.T) {
	const rounds, turn = 20, 10 * time.Millisecond
	const served = "all have had both locks"
	story := func(clients int) timeline {
		return func(s *stage) {
			ctx, cancel := context.WithTimeout(s.ctx, time.Minute)
			defer cancel()
			var wg sync.WaitGroup
			for i := range clients {
				c := s.named(i, strconv.Itoa(i))
				forks := []string{"left", "right"}
				if i == 1 {
					slices.Reverse(forks)
				}
				wg.Go(func() {
					for range rounds {
						set, err := c.AcquireAll(ctx, forks)
						if err != nil {
							s.ok(served, err)
							return
						}
						time.Sleep(turn)
						s.ok("both are released", set.Release(s.ctx))
					}
				})
			}
			wg.Wait()
			n := time.Duration(clients)
			s.between(served, s.now(), n*rounds*turn, 3*n*rounds*turn)
		}
	}
	play(t, 3, 5*time.Second, story(3))
	contrast(t, "one lock after the other", served, newTable(0, time.Millisecond), story(2))
}
