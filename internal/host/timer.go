package host

import (
	"math"
	"time"
)

// Timer sends the time on C, as a time.Timer does, by the clock that made the Timer. After
// Stop and Reset the channel is empty.
type Timer struct {
	C <-chan time.Time

	real *time.Timer // of package time; nil if the clock is replaced

	clock *Clock
	ch    chan time.Time // size 1
	due   time.Time      // by clock
	wake  *time.Timer    // calls fire; nil before the timer was armed
}

// NewTimer returns a Timer that sends the time once, when d has passed. The caller calls
// Stop in the end.
func (c *Clock) NewTimer(d time.Duration) *Timer {
	if c == nil {
		t := time.NewTimer(d)
		return &Timer{C: t.C, real: t}
	}
	t := &Timer{clock: c, ch: make(chan time.Time, 1)}
	t.C = t.ch
	t.Reset(d)
	return t
}

// Reset makes the timer send the time once, when d has passed.
func (t *Timer) Reset(d time.Duration) {
	if t.real != nil {
		t.real.Reset(d)
		return
	}
	c := t.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	t.drain()
	t.due = c.now().Add(d)
	c.armed[t] = struct{}{}
	t.arm()
}

// Stop makes the timer send nothing more.
func (t *Timer) Stop() {
	if t.real != nil {
		t.real.Stop()
		return
	}
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	t.drain()
	delete(t.clock.armed, t)
	t.wake.Stop()
}

// drain empties the channel. The caller holds the clock's mu.
func (t *Timer) drain() {
	select {
	case <-t.ch:
	default:
	}
}

// arm sets wake to the moment at which the timer is due by the clock's present rate. While
// the clock stands there is no such moment. The caller holds the clock's mu.
func (t *Timer) arm() {
	c := t.clock
	if c.still != nil {
		if t.wake == nil {
			t.wake = time.AfterFunc(math.MaxInt64, t.fire)
		}
		t.wake.Stop()
		return
	}
	left := max(t.due.Sub(c.now()), 0)
	if c.rate != 1 {
		left = time.Duration(float64(left)/c.rate) + 1 // rather too late than never: fire looks at the clock
	}
	if t.wake == nil {
		t.wake = time.AfterFunc(left, t.fire)
		return
	}
	t.wake.Reset(left)
}

// rearm arms all timers anew, after a change of the clock. The caller holds mu.
func (c *Clock) rearm() {
	for t := range c.armed {
		t.arm()
	}
}

// fire sends the time if the timer is due.
func (t *Timer) fire() {
	c := t.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, armed := c.armed[t]; !armed || c.still != nil {
		return
	}
	now := c.now()
	if now.Before(t.due) { // the clock was set, or the product was rounded
		t.arm()
		return
	}
	select {
	case t.ch <- now:
	default:
	}
	delete(c.armed, t)
}
