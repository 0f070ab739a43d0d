package stories

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/wardmote/wardmote/locks"
)

// Five clients try in the same instant. One is granted the key, and the others are
// told the token of that grant.
//
// No contrast: no lock fails in this story.
func TestOneOfFiveSimultaneousTriesIsGranted(t *testing.T) {
	play(t, 3, 5*time.Second, func(s *stage) {
		t := s.t
		var won []*locks.Lock
		var refused []error
		var mu sync.Mutex
		var wg sync.WaitGroup
		for i := range 5 {
			c := s.member(i%3, fmt.Sprint("client ", i))
			wg.Go(func() {
				l, err := c.TryAcquire(s.ctx, "k")
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					won = append(won, l)
				} else {
					refused = append(refused, err)
				}
			})
		}
		wg.Wait()
		s.near("all are answered", s.now(), 0)
		if len(won) != 1 || len(refused) != 4 {
			t.Fatalf("%d were granted the key; refused: %v", len(won), refused)
		}
		for _, err := range refused {
			var held *locks.HeldError
			if !errors.As(err, &held) || held.Token != won[0].Token() {
				t.Errorf("refused: %v, want held under token %d", err, won[0].Token())
			}
		}
		s.live("the winner", won[0])
	})
}
