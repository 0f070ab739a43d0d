package locks_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/testrounds"
	"github.com/wardmote/wardmote/locks"
	"github.com/wardmote/wardmote/locks/lockstest"
)

// permitCount counts the permits of the living contexts.
type permitCount struct {
	mu    sync.Mutex
	locks map[*locks.Lock]int
}

// add notes a lock of n permits, and returns how many permits are held.
func (p *permitCount) add(l *locks.Lock, n int) (sum int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.locks[l] = n
	for l, n := range p.locks {
		if l.Context().Err() != nil {
			delete(p.locks, l)
			continue
		}
		sum += n
	}
	return sum
}

// Members of a whole cluster share five permits, one to three at a time, while leaders
// are killed and an operator lowers and raises the capacity. Never are more than five
// held. The capacity outlives each leader, and in the end everybody gets through.
func TestPermitsOutliveLeaders(t *testing.T) {
	for range testrounds.Rounds(1, 10) {
		synctest.Test(t, func(t *testing.T) {
			const most, members = 5, 5
			c := lockstest.New(t, members, lockstest.TTL(3*time.Second))
			operator := func(of int) {
				t.Helper()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if err := c.Client(4).SetCapacity(ctx, "k", of); err != nil {
					t.Fatal(err)
				}
				if st, err := c.Client(4).Inspect(ctx, "k"); err != nil || st.Capacity != of || !st.CapacitySet {
					t.Errorf("set to %d: %+v, %v", of, st, err)
				}
			}
			operator(most)
			count := permitCount{locks: make(map[*locks.Lock]int)}
			var mu sync.Mutex
			granted := 0
			ctx, stop := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			for i := range 4 {
				client, r := c.Client(4), rand.New(rand.NewPCG(rand.Uint64(), uint64(i)))
				if i < 2 {
					client = c.Client(3)
				}
				wg.Go(func() {
					for ctx.Err() == nil {
						n := 1 + r.IntN(3)
						l, err := client.Acquire(ctx, "k", locks.Permits(n, 0))
						mu.Lock()
						if err == nil {
							granted++
						}
						mu.Unlock()
						if err != nil { // mostly beyond the capacity of the moment
							time.Sleep(50 * time.Millisecond)
							continue
						}
						if held := count.add(l, n); held > most {
							t.Errorf("%d permits of %d", held, most)
						}
						time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond)
						_ = l.Release(ctx)
					}
				})
			}
			for round := range 3 {
				time.Sleep(2 * time.Second)
				operator(1 + rand.IntN(2)) // too few for some
				if _, err := c.Client(4).Acquire(ctx, "k", locks.Permits(3, 0)); !errors.Is(err, locks.ErrCapacity) {
					t.Errorf("three permits of two at most: %v", err)
				}
				if leader := c.Leader(); leader < 3 && round < 2 {
					c.Kill(leader)
				}
				operator(2 + rand.IntN(most-1))
			}
			mu.Lock()
			before := granted
			mu.Unlock()
			operator(most)
			time.Sleep(5 * time.Second)
			mu.Lock()
			if granted == before {
				t.Errorf("%d granted, none since the last fault", granted)
			}
			mu.Unlock()
			stop()
			wg.Wait()
		})
	}
}
