package consensus

import (
	"sync/atomic"
	"time"

	"github.com/wardmote/wardmote/internal/timing"
)

// patience tells how much longer than usual a follower waits for its leader,
// because this host does not run its processes in time. A follower on such a host
// reads heartbeats late, and takes a healthy leader for silent.
//
// The measure is the lateness of this process's own timers: the second longest in
// a window, since a host that stalled once, for example because it slept, is in
// time again. A window counts for timing.CalmHost at least and for twice as long at
// most. The zero value is ready to use. A single goroutine calls note; any
// goroutine calls stretch.
type patience struct {
	began     time.Time // of the present window
	now, last stalls    // in the present window, and in the window before
	late      atomic.Int64
}

// stalls are the two longest stalls of a window.
type stalls struct{ worst, second time.Duration }

// mostPatience bounds the factor: a cluster on a host that stalls for ever must
// replace its leader all the same.
const mostPatience = 3

// note takes a timer that ran late by so much.
func (p *patience) note(late time.Duration, now time.Time) {
	switch since := now.Sub(p.began); {
	case since >= 2*timing.CalmHost:
		p.began, p.now, p.last = now, stalls{}, stalls{}
	case since >= timing.CalmHost:
		p.began, p.now, p.last = now, stalls{}, p.now
	}
	if late > p.now.worst {
		p.now = stalls{late, p.now.worst}
	} else {
		p.now.second = max(p.now.second, late)
	}
	p.late.Store(int64(max(p.now.second, p.last.second)))
}

// stretch returns the timeout times the patience: unchanged on a host in time, and
// up to three times as long once timers are late by half the timeout. A heartbeat
// waits for a late timer at both ends, on the way there and back, hence the four.
func (p *patience) stretch(timeout time.Duration) time.Duration {
	late := time.Duration(p.late.Load())
	if late < timeout/20 {
		return timeout
	}
	return min(timeout+4*late, mostPatience*timeout)
}
