package locks

import (
	"sync"
	"time"
)

// How long may a holder trust its locks? This file decides, as a function of
// readings of two clocks; the session asks it and obeys.

// An instant is one reading of the host's two clocks: the monotonic one that
// package time carries, which stands still while the host sleeps, and how long
// the host has slept in all. Only differences of instants mean anything.
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

// sleepNoise is what two readings of a sleep counter may differ by for no reason,
// since its two clocks are not read at one moment. No host sleeps and wakes in
// so short a time, and the margin covers it.
const sleepNoise = time.Millisecond

// margin is what a holder leaves of a TTL unused: for clocks that run at
// different rates, and for timers that fire late.
func margin(ttl time.Duration) time.Duration {
	return min(ttl/100+100*time.Millisecond, ttl/4)
}

// trust is a session's right to believe in its grants. The window is open from
// sent, when the last beat that was confirmed had been sent, until a TTL less
// the margin later.
//
// Not from the time of the answer: a slow answer would stretch the window past
// the moment at which the leader, which counts from the beat's arrival, may
// expire the session.
type trust struct {
	sent instant
	ttl  time.Duration
}

// left returns how long the window stays open from now; it is over at 0.
func (t trust) remaining(now instant) time.Duration {
	return t.ttl - margin(t.ttl) - now.since(t.sent)
}

// verdict names what ended a window that is over: what it would still be open
// without. late is how long after its due time the session's own goroutine ran.
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

// A jumpCounter measures sleep on hosts that have no clock for it: a wall clock
// that moved ahead of the monotonic one has either been set, or the host slept.
// Both count. Steps back count as nothing, so that they cannot hide a sleep.
type jumpCounter struct {
	mu     sync.Mutex
	offset time.Duration // wall less monotonic time, when last taken note of
	slept  time.Duration
}

// read takes note of the two clocks and returns the sleep so far. Growth that may
// be noise is not lost: it adds up until it is taken note of.
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
