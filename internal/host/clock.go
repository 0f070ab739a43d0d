package host

import (
	"sync"
	"time"
)

// Clock is a host's clock. A nil *Clock is the clock of package time. A Clock made by
// NewClock runs at a rate of its own, and can stand still. The methods may be called from
// any goroutine.
type Clock struct {
	mu     sync.Mutex
	real   time.Time // the time of package time at the latest change of the rate
	local  time.Time // the reading at real
	rate   float64
	origin time.Duration // local less real, at the beginning
	offset time.Duration // of the wall clock
	stands time.Time     // the reading while the clock stands
	still  chan struct{} // not nil while the clock stands; closed by Thaw
	armed  map[*Timer]struct{}
}

// NewClock returns a clock of rate 1. Its readings of Now are ahead of package time by
// origin: readings of two clocks must never be compared, and with different origins a
// comparison shows.
func NewClock(origin time.Duration) *Clock {
	now := time.Now()
	return &Clock{real: now, local: now.Add(origin), rate: 1, origin: origin, armed: make(map[*Timer]struct{})}
}

// Now returns the time of a monotonic clock. Only differences of readings of one clock
// have a meaning. While the clock stands, Now returns the time of the freeze. Now does not
// block.
func (c *Clock) Now() time.Time {
	if c == nil {
		return time.Now()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now()
}

// Wall returns the time of the host's wall clock, which may be set wrong.
func (c *Clock) Wall() time.Time {
	if c == nil {
		return time.Now()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now().Add(c.offset - c.origin)
}

// now returns the reading. The caller holds mu.
func (c *Clock) now() time.Time {
	if c.still != nil {
		return c.stands
	}
	return c.running()
}

// running returns the reading, as if the clock did not stand. The caller holds mu.
func (c *Clock) running() time.Time {
	passed := time.Since(c.real)
	if c.rate != 1 { // else the product would be rounded
		passed = time.Duration(float64(passed) * c.rate)
	}
	return c.local.Add(passed)
}

// Set sets the rate from now on, and the offset of the wall clock. At rate 2 two seconds
// of this clock pass in a second of package time. The monotonic clock does not jump. The
// rate is above 0.
func (c *Clock) Set(rate float64, offset time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.local, c.real = c.running(), time.Now()
	c.rate, c.offset = rate, offset
	c.rearm()
}

// Freeze makes the clock stand, and all of its timers. Freeze does nothing while the clock
// stands.
func (c *Clock) Freeze() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.still == nil {
		c.stands = c.running()
		c.still = make(chan struct{})
		c.rearm()
	}
}

// Thaw makes the clock jump to the time that it would show without Freeze, since the
// clock of a host runs on while a process is stopped. Timers that are due by then fire.
// Thaw does nothing while the clock runs.
func (c *Clock) Thaw() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.still != nil {
		close(c.still)
		c.still = nil
		c.rearm()
	}
}

// Frozen reports whether the clock stands.
func (c *Clock) Frozen() bool {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.still != nil
}

// Enter is Await at the beginning of a call, and the result is Await at the call's end:
//
//	defer clock.Enter()()
func (c *Clock) Enter() (leave func()) {
	c.Await()
	return c.Await
}

// Await waits while the clock stands. The code of a stopped process would not run, so a
// call of the process into the library begins and ends with Await. The caller holds no
// mutex: in a bubble of testing/synctest a goroutine that waits for the mutex would keep
// the time of the bubble from passing.
func (c *Clock) Await() {
	if c == nil {
		return
	}
	for {
		c.mu.Lock()
		still := c.still
		c.mu.Unlock()
		if still == nil {
			return
		}
		<-still
	}
}
