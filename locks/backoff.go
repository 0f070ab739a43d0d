package locks

import (
	"cmp"
	"context"
	"math/rand/v2"
	"time"
)

// backoff spaces attempts after failures. The zero value is ready for use, with
// minBackoff and maxBackoff.
type backoff struct {
	n           int
	least, most time.Duration // of the time that doubles
}

const (
	minBackoff = 20 * time.Millisecond
	maxBackoff = time.Second
)

// wait waits before the next attempt, for half to all of a time which doubles
// with each attempt, so that clients do not retry together after a common
// failure. If a context ends first, wait returns the cause of ctx, or ErrClosed
// for closing.
func (b *backoff) wait(ctx, closing context.Context) error {
	d := min(cmp.Or(b.least, minBackoff)<<min(b.n, 10), cmp.Or(b.most, maxBackoff))
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

// jitter returns a random duration between half of d and d.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2) }
