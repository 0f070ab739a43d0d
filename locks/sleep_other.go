//go:build !linux

package locks

import "time"

var (
	processStart = time.Now()
	jumps        jumpCounter
)

// slept returns how far the wall clock has run ahead of the monotonic clock
// since the process started: the time for which the host was suspended, unless
// somebody has set the clock.
func slept() time.Duration {
	now := time.Now()
	return jumps.update(now.Round(0).Sub(processStart.Round(0)), now.Sub(processStart))
}
