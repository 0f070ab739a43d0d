package stories

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/wardmote/wardmote/locks"
)

// B, C and D compete for a lock all the time and are close to the cluster. A is
// five times as far away and comes a hundred times.
//
// Each time A is told its place in the queue, and no more rivals are served before
// A than stand before it.
//
// Contrast: a lock for the fastest of all waiters. A has no turn in
// two minutes.
func TestDistantClientIsNotStarved(t *testing.T) {
	const far = 5 * time.Millisecond // the others are a millisecond away
	const hold = 10 * time.Millisecond
	const visits = 100
	const served = "A has its turns"
	story := func(s *stage) {
		for i := range 3 { // the member of A is far from all others
			s.slow(i, 3, far)
			s.slow(3, i, far)
		}
		limit, cancel := context.WithTimeout(s.ctx, 2*time.Minute)
		defer cancel()
		var mu sync.Mutex
		var order []string
		note := func(name string) {
			mu.Lock()
			order = append(order, name)
			mu.Unlock()
		}
		ctx, stop := context.WithCancel(limit)
		var wg sync.WaitGroup
		for i, name := range []string{"B", "C", "D"} {
			c := s.named(i, name)
			wg.Go(func() {
				for ctx.Err() == nil {
					if err := do(ctx, c, "k", func() { note(name); time.Sleep(hold) }); ctx.Err() == nil {
						s.ok("B, C and D are served", err)
					}
				}
			})
		}
		time.Sleep(3 * far) // B, C and D compete when A comes

		place := -1  // A's place in the queue when it was told
		queued := -1 // the length of order at that moment
		a := s.client(3, locks.Options{Name: "A", Trace: &locks.Trace{Queued: func(_ context.Context, e locks.LockEvent) {
			mu.Lock()
			defer mu.Unlock()
			if queued < 0 {
				queued, place = len(order), e.Behind
			}
		}}})
		for range visits {
			mu.Lock()
			queued, place = -1, -1
			asked := len(order)
			mu.Unlock()
			l, err := a.Acquire(limit, "k")
			s.ok(served, err)
			if err != nil {
				break
			}
			mu.Lock()
			since, after := len(order)-asked, len(order)-queued
			// The answer with A's place travels for 5 ms. Meanwhile a turn may begin,
			// or two.
			ok := (queued < 0 || place >= 1 && place <= 3 && after <= place) && since <= 3+2
			mu.Unlock()
			s.check("A waits for the rivals before it and no others", ok,
				"A stood behind %d; %d were served before it since it was told, %d since it asked", place, after, since)
			note("A")
			time.Sleep(hold)
			s.ok("A releases", l.Release(s.ctx))
		}
		stop()
		wg.Wait()
		count := make(map[string]int)
		for _, name := range order {
			count[name]++
		}
		s.check(served, count["A"] == visits, "turns: %v", count)
		s.check("A has rivals", len(order) >= 3*visits, "turns: %v", count)
	}
	play(t, 4, 5*time.Second, story)
	contrast(t, "a lock that is raced for", served, func() service { return &race{distance: make(map[int]time.Duration)} }, story)
}
