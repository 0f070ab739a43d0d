// Package gocronwardmote lets several schedulers of gocron (github.com/go-co-op/gocron/v2)
// run each job on one process at a time, by locks or by an election of wardmote.
//
//   - Locker is a gocron.Locker: each run of a job goes to the scheduler that locks the
//     job's name first. Runs of different jobs go to different processes.
//   - Elector is a gocron.Elector: the scheduler of one process runs all jobs, until the
//     process ends or loses its lock.
//
// Use Elector if a run that is due must not be missed for longer than a TTL, or if the clocks
// of the hosts differ by seconds. Use Locker to divide the work among the processes.
//
// # What the interfaces of gocron cannot say
//
// gocron asks once, before a run. A lock that is lost during the run cannot be reported
// through gocron's interfaces. Therefore both types have a method Task, which makes the
// function for gocron.NewTask: the context of that function ends with the lock or the
// term, and the function is given the lock, for its fencing token. A job without Task
// runs on after a loss, beside the next run on another process. Options.OnLost reports
// the loss of a lock in any case.
//
// # One run for each tick
//
// gocron's schedulers fire by the clocks of their hosts, and a job may end before a slower
// clock fires. Therefore Locker keeps the name of a job locked for at least Options.Keep
// after the lock was granted, and asks for half of that time. So a tick is run once as
// long as the clocks of the hosts differ by less than half of Keep.
//
// A tick may be missed: no process runs a job while no leader of the cluster can be
// reached, and none runs a job whose process was killed in the middle, until the TTL has
// passed. A run that was begun and cut short by a kill is not repeated before the next
// tick.
package gocronwardmote
