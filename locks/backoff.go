package locks

import (
	"context"
	"math/rand/v2"
	"time"
)

// backoff spaces attempts after failures. Its zero value is ready.
type backoff struct{ n int }

const (
	minBackoff = 20 * time.Millisecond
	maxBackoff = time.Second
)

// wait waits for the next attempt: half to all of a time that doubles with each,
// so that those who failed together do not try again together. It returns why
// ctx ended or ErrClosed if one of the contexts ends first.
func (b *backoff) wait(ctx, closing context.Context) error {
	d := min(minBackoff<<min(b.n, 10), maxBackoff)
	b.n++
	timer := time.NewTimer(jitter(d))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-closing.Done():
		return ErrClosed
	case <-ctx.Done():
		return endOf(ctx)
	}
}

func (b *backoff) reset() { b.n = 0 }

// jitter returns half to all of d.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2) }
