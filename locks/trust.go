package locks

import (
	"sync"
	"time"
)

// This file decides for how long a holder may trust its locks, as a pure
// function of readings of two clocks. The session reads the clocks and obeys.

// An instant is one reading of the host's two clocks: the monotonic clock of
// package time, which stands still while the host sleeps, and the total time
// for which the host has slept. Only differences of instants have a meaning.
type instant struct {
	at    time.Time
	slept time.Duration
}

// since returns how much time passed from earlier to t, the host's sleep
// included.
func (t instant) since(earlier instant) time.Duration {
	return t.at.Sub(earlier.at) + t.sleptSince(earlier)
}

// sleptSince returns how long the host slept from earlier to t. A counter that
// fell back, or grew by mere noise, counts as no sleep.
func (t instant) sleptSince(earlier instant) time.Duration {
	d := t.slept - earlier.slept
	if d < sleepNoise {
		return 0
	}
	return d
}

// sleepNoise bounds the difference between two readings of a sleep counter
// without a sleep in between: the counter's two clocks are not read at one
// moment. No host sleeps and wakes in so short a time, and the margin covers
// it.
const sleepNoise = time.Millisecond

// margin is the part of a TTL in which a holder does not trust its locks: for
// clocks with different rates, and for late timers.
func margin(ttl time.Duration) time.Duration {
	return min(ttl/100+100*time.Millisecond, ttl/4)
}

// trust is the window of time in which a session may trust its grants. The
// window starts at sent, the time at which the last confirmed beat was sent,
// and ends a TTL less the margin later.
//
// Not from the time of the answer: a slow answer would stretch the window past
// the moment at which the leader, which counts from the beat's arrival, may
// expire the session.
type trust struct {
	sent instant
	ttl  time.Duration
}

// remaining returns how long the window stays open after now. At 0 or below the
// window is over.
func (t trust) remaining(now instant) time.Duration {
	return t.ttl - margin(t.ttl) - now.since(t.sent)
}

// lossReason returns the reason for the end of a window that is over: the time
// without which the window would still be open. late is how long after its due
// time the session's own goroutine ran.
func (t trust) lossReason(now instant, late time.Duration) Reason {
	left := t.remaining(now)
	if slept := now.sleptSince(t.sent); left+slept > 0 {
		return HostSlept
	}
	// A pause shorter than the beat interval makes the session miss no beat.
	if late >= t.ttl/beatsPerTTL && left+late > 0 {
		return ProcessPaused
	}
	return QuorumUnreachable
}

// A jumpCounter measures sleep on hosts without a clock for it. If the wall
// clock moved ahead of the monotonic clock, either it was set or the host
// slept. Both count as sleep. Steps back do not count, so that they cannot hide
// a sleep.
type jumpCounter struct {
	mu     sync.Mutex
	offset time.Duration // wall less monotonic time, at the last step that was not noise
	slept  time.Duration
}

// update compares the two clocks and returns the sleep so far. Growth that may
// be noise is not lost: it adds up until it exceeds sleepNoise.
func (j *jumpCounter) update(wall, mono time.Duration) time.Duration {
	j.mu.Lock()
	defer j.mu.Unlock()
	d := wall - mono - j.offset
	if d < -sleepNoise || d > sleepNoise {
		j.offset += d
		j.slept += max(0, d)
	}
	return j.slept
}
