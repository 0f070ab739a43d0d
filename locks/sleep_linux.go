package locks

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// newSleepCounter returns the function that a client calls to learn how long the host has
// been suspended since it booted: CLOCK_BOOTTIME counts that time and CLOCK_MONOTONIC does
// not. The argument is a reading of package time from just before the call.
func newSleepCounter() func(now time.Time) time.Duration { return new(sleepCounter).read }

// sleepCounter remembers the latest exact reading. The kernel is asked for one clock instead
// of three as long as nothing has happened since, and for none within sleepRoom: an Acquire of
// a sticky key reads the clocks and does little else, and a busy client reads them 100,000
// times a second.
type sleepCounter struct{ last atomic.Pointer[sleepReading] }

// sleepReading is an exact reading: boot was read no later than at.
type sleepReading struct {
	at    time.Time     // of package time
	boot  time.Duration // CLOCK_BOOTTIME
	slept time.Duration

	awake atomic.Int64 // nanoseconds since at: until then the host has not slept
}

// sleepRoom is what CLOCK_MONOTONIC, which stands still during a sleep, at least moves
// between two instructions of a process if a sleep is between them: to go to sleep, a host
// stops all threads of all processes, then its devices, then its other processors, and wakes
// them one after the other. Each of these alone takes longer.
const sleepRoom = 50 * time.Microsecond

// read returns the sleep so far.
func (c *sleepCounter) read(now time.Time) time.Duration {
	if last := c.last.Load(); last != nil {
		passed := now.Sub(last.at)
		if passed-time.Duration(last.awake.Load()) < sleepRoom {
			return last.slept
		}
		if last.stillTrue(now, clock(unix.CLOCK_BOOTTIME)) {
			last.awake.Store(int64(passed))
			return last.slept
		}
	}
	slept, boot, exact := readSleep()
	if exact {
		r := &sleepReading{at: time.Now(), boot: boot, slept: slept}
		r.awake.Store(int64(-sleepRoom)) // the host may have slept between boot and at
		c.last.Store(r)
	}
	return slept
}

// stillTrue reports whether the host has not slept between r and now. boot was read after
// now, and r.at after r.boot, so a pause of the thread between two readings looks like a
// sleep, never a sleep like a pause: then the caller makes an exact reading.
func (r *sleepReading) stillTrue(now time.Time, boot time.Duration) bool {
	return boot-r.boot-now.Sub(r.at) < sleepNoise/2
}

// readSleep reads the two clocks. boot is CLOCK_BOOTTIME. exact is false if the thread was
// paused each time.
func readSleep() (slept, boot time.Duration, exact bool) {
	// If the thread is paused between readings of the two clocks, the
	// difference shows a sleep that did not happen; as the base of a window,
	// such a value would hide a true sleep. So CLOCK_BOOTTIME is read between
	// two readings of CLOCK_MONOTONIC.
	for range 10 {
		before := clock(unix.CLOCK_MONOTONIC)
		boot = clock(unix.CLOCK_BOOTTIME)
		after := clock(unix.CLOCK_MONOTONIC)
		slept = boot - after
		if after-before < 100*time.Microsecond {
			return slept, boot, true
		}
	}
	return slept, boot, false
}

func clock(id int32) time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(id, &ts); err != nil {
		return 0 // both clocks exist since Linux 2.6.39
	}
	return time.Duration(ts.Nano())
}
