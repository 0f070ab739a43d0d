package locks

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestRetriesAreSpacedApartAndNeverInStep(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		const retriers, attempts = 20, 12
		waits := make([][]time.Duration, retriers)
		for i := range waits {
			var retry backoff
			for range attempts {
				began := time.Now()
				if err := retry.wait(bg, bg); err != nil {
					t.Fatal(err)
				}
				waits[i] = append(waits[i], time.Since(began))
			}
		}
		for n := range attempts {
			most := min(minBackoff<<n, maxBackoff)
			seen := make(map[time.Duration]bool)
			for _, w := range waits {
				if w[n] < most/2 || w[n] > most {
					t.Errorf("attempt %d waits %v, want %v to %v", n, w[n], most/2, most)
				}
				seen[w[n]] = true
			}
			if len(seen) < retriers/2 {
				t.Errorf("attempt %d: %d of %d retriers wait for as long as another", n, retriers-len(seen), retriers)
			}
		}
		var retry backoff
		ctx, cancel := context.WithCancel(bg)
		cancel()
		for _, closing := range []bool{false, true} {
			began, mine, clients := time.Now(), ctx, bg
			if closing {
				mine, clients = bg, ctx
			}
			if err := retry.wait(mine, clients); err == nil || time.Since(began) != 0 {
				t.Errorf("what has ended was waited for: %v after %v", err, time.Since(began))
			} else if !closing && !errors.Is(err, context.Canceled) || closing && err != ErrClosed {
				t.Errorf("closing %v: %v", closing, err)
			}
		}
	})
}
