package locks

import (
	"time"

	"golang.org/x/sys/unix"
)

// slept returns how long the host has been suspended since it booted:
// CLOCK_BOOTTIME counts that time and CLOCK_MONOTONIC does not.
func slept() time.Duration {
	// If the thread is paused between readings of the two clocks, the
	// difference shows a sleep that did not happen; as the base of a window,
	// such a value would hide a true sleep. So CLOCK_BOOTTIME is read between
	// two readings of CLOCK_MONOTONIC.
	var sleep time.Duration
	for range 10 {
		before := clock(unix.CLOCK_MONOTONIC)
		boot := clock(unix.CLOCK_BOOTTIME)
		after := clock(unix.CLOCK_MONOTONIC)
		sleep = boot - after
		if after-before < 100*time.Microsecond {
			break
		}
	}
	return sleep
}

func clock(id int32) time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(id, &ts); err != nil {
		return 0 // both clocks exist since Linux 2.6.39
	}
	return time.Duration(ts.Nano())
}
