package stories

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/testrounds"
	"github.com/wardmote/wardmote/locks"
)

// Clients on sixteen members increment a counter under one lock, each many times. No
// increment is lost.
//
// No contrast: no lock fails in this story. See collector_pause_test.go for a
// lost update.
func TestSixteenMembersLoseNoIncrement(t *testing.T) {
	const members = 16
	rounds := testrounds.Rounds(10, 100)
	play(t, members, 5*time.Second, func(s *stage) {
		t := s.t
		count := 0
		var wg sync.WaitGroup
		for i := range members {
			c := s.cluster.Client(i)
			wg.Go(func() {
				for range rounds {
					err := c.Do(s.ctx, "counter", func(context.Context, *locks.Lock) error {
						n := count
						time.Sleep(time.Microsecond)
						count = n + 1
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if count != members*rounds {
			t.Errorf("counted to %d, want %d", count, members*rounds)
		}
	})
}
