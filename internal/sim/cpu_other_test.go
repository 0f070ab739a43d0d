//go:build !unix

package sim

import "time"

// cpuTime returns the time since the start: the CPU time is not known here.
func cpuTime() time.Duration { return time.Since(started) }

var started = time.Now()
