package meter

import (
	"sync/atomic"
	"time"
)

// Counter counts events. A Counter never falls. A nil Counter counts nothing.
type Counter struct{ n atomic.Uint64 }

// Inc counts one event.
func (c *Counter) Inc() { c.Add(1) }

// Add counts n events.
func (c *Counter) Add(n uint64) {
	if c != nil {
		c.n.Add(n)
	}
}

// Load returns the count.
func (c *Counter) Load() uint64 { return c.n.Load() }

// maxBounds is the largest number of bounds of a histogram.
const maxBounds = 16

// buckets is a histogram without its bounds. The last bucket has everything above the
// last bound.
type buckets struct {
	counts [maxBounds + 1]atomic.Uint64
	sum    atomic.Uint64 // nanoseconds
}

// observe counts d in the bucket of the first bound that is not below d. A negative d,
// as from a clock that was set back, counts as 0: a sum must not fall.
func (b *buckets) observe(d time.Duration, bounds *[maxBounds]time.Duration) {
	d = max(d, 0)
	i := 0
	for i < maxBounds && d > bounds[i] {
		i++
	}
	b.counts[i].Add(1)
	b.sum.Add(uint64(d))
}

// read returns the state of the histogram. Observations made meanwhile may be in the
// buckets and not yet in the sum.
func (b *buckets) read(bounds *[maxBounds]time.Duration) Histogram {
	h := Histogram{Bounds: bounds[:], Counts: make([]uint64, maxBounds+1)}
	h.Sum = time.Duration(b.sum.Load())
	for i := range b.counts {
		h.Counts[i] = b.counts[i].Load()
	}
	return h
}

// Histogram is the state of a Latency or a Span at a moment.
type Histogram struct {
	Bounds []time.Duration // ascending
	Counts []uint64        // by bucket, not summed up; one more than Bounds
	Sum    time.Duration
}

// Count returns the number of observations.
func (h Histogram) Count() (n uint64) {
	for _, c := range h.Counts {
		n += c
	}
	return n
}

// Latency is a histogram of the times that a disk or a network takes. A nil Latency
// observes nothing.
type Latency struct{ b buckets }

var latencyBounds = [maxBounds]time.Duration{
	100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
	10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second,
}

// Observe counts d.
func (l *Latency) Observe(d time.Duration) {
	if l != nil {
		l.b.observe(d, &latencyBounds)
	}
}

// Read returns the state of the histogram.
func (l *Latency) Read() Histogram { return l.b.read(&latencyBounds) }

// Span is a histogram of the times for which locks are waited for and held. A nil Span
// observes nothing.
type Span struct{ b buckets }

var spanBounds = [maxBounds]time.Duration{
	time.Millisecond, 5 * time.Millisecond, 25 * time.Millisecond, 100 * time.Millisecond,
	250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2500 * time.Millisecond,
	5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute,
	5 * time.Minute, 15 * time.Minute, time.Hour, 6 * time.Hour,
}

// Observe counts d.
func (s *Span) Observe(d time.Duration) {
	if s != nil {
		s.b.observe(d, &spanBounds)
	}
}

// Read returns the state of the histogram.
func (s *Span) Read() Histogram { return s.b.read(&spanBounds) }
