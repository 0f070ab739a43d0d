//go:build !linux

package locks

import "time"

var (
	processStart = time.Now()
	jumps        jumpCounter
)

// newSleepCounter returns the function that a client calls to learn how far the wall clock
// has run ahead of the monotonic clock since the process started: the time for which the
// host was suspended, unless somebody has set the clock. The argument is a reading of
// package time from just before the call.
func newSleepCounter() func(now time.Time) time.Duration {
	return func(now time.Time) time.Duration {
		return jumps.update(now.Round(0).Sub(processStart.Round(0)), now.Sub(processStart))
	}
}
