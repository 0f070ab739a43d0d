package timing

import (
	"slices"
	"sync"
	"time"
)

// Latest keeps the latest durations of a kind, for people to read. Its methods may be called
// from any goroutine. The zero value has none.
type Latest struct {
	mu    sync.Mutex
	ring  []time.Duration
	count uint64
}

// maxLatest is the number of durations that a Latest keeps.
const maxLatest = 256

// Add adds a duration.
func (l *Latest) Add(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.ring) < maxLatest {
		l.ring = append(l.ring, d)
	} else {
		l.ring[l.count%maxLatest] = d
	}
	l.count++
}

// Quantiles describe durations.
type Quantiles struct {
	Count              uint64 // of all durations ever added
	P50, P90, P99, Max time.Duration
}

// Quantiles describes the latest durations: a quantile is the least of them that so many
// percent do not exceed.
func (l *Latest) Quantiles() Quantiles {
	l.mu.Lock()
	q, sorted := Quantiles{Count: l.count}, slices.Clone(l.ring)
	l.mu.Unlock()
	if len(sorted) == 0 {
		return q
	}
	slices.Sort(sorted)
	at := func(percent int) time.Duration { return sorted[(len(sorted)*percent+99)/100-1] }
	q.P50, q.P90, q.P99, q.Max = at(50), at(90), at(99), at(100)
	return q
}
