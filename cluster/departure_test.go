package cluster

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/replica"
)

// A leader that refuses at once is asked a few times, with pauses.
func TestADepartureDoesNotSpin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries, began := 0, time.Now()
		answer := error(&replica.Error{Err: replica.ErrVersion})
		d := departure{
			ask:  func(context.Context) error { tries++; return answer },
			wait: func(_ context.Context, d time.Duration) { time.Sleep(d) },
		}
		over, err := false, error(nil)
		for !over && tries < 1000 {
			over, err = d.attempt(t.Context())
		}
		if took := time.Since(began); tries != maxRefusedDepartures || !errors.Is(err, replica.ErrVersion) || took < 2*time.Second || took > 10*time.Second {
			t.Errorf("%d tries over %v: %v", tries, took, err)
		}
		// Without a leader the member goes on asking, and not in a loop.
		tries, began, answer = 0, time.Now(), errors.New("no quorum")
		d.refused = 0
		for time.Since(began) < time.Minute {
			if over, err = d.attempt(t.Context()); over {
				t.Fatal(err)
			}
		}
		if tries > 100 || tries < 50 {
			t.Errorf("%d tries in a minute", tries)
		}
	})
}
