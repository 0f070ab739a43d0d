package main

import "time"

// manyProcesses is a system with a process for each member, which has the callers of the
// member.
type manyProcesses interface {
	// turn runs a job's workload in all processes, for a time.
	turn(j job, d time.Duration) (result, time.Duration)
}
