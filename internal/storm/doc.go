// Package storm tests towns of real processes under random and directed faults, and judges
// the towns by the recordings of all processes.
//
// The package has no code outside of the tests, and the tests need Linux. The test binary starts
// itself again for each member. A member's program works in all ways of package
// locks, and writes a record before and after each call: internal/history has the
// records and the judges. All stamps are of CLOCK_MONOTONIC, common to the processes of a
// host. A killed process loses nothing written: the last calls stand open, with an unknown
// outcome.
//
// # Town and faults
//
// A seed draws a town (5 to 7 members, three voters, in memory or with a Dir, flushed or
// not, plain or under secrets, a TTL of 1 to 5 s) and a schedule of faults, which is
// printed: deaths, standstills, cuts in one direction and in both, rings of majorities,
// loss, disks that are full, lost, slow, hanging or failing, a tenth of a CPU, little memory,
// restarts of one, in turn and of all, new secrets, wall clocks that jump. The same seed
// draws the same schedule. Which member leads or holds when a step begins is up to the
// run, so a replay repeats the schedule and not the execution.
//
// Not every host can make every fault. Cuts need network namespaces, and so root and
// iproute2; loss needs nft, full disks a mount, failing flushes strace, starvation control
// groups. A fault that cannot be made is listed with its reason, and counts as none. A fault of
// a disk is made of a voter, and counts when it was seen to hit a write, by the member's report or by
// strace's; a run with such faults, and none of them seen, fails. The host's own wall clock is never
// set, since it is everybody's: a member's library reads a replaced clock, and some members live in
// a time namespace with another monotonic clock.
//
// A resource server in the driver, which no fault hits, keeps three copies of each
// resource: behind a fence, behind a question to Err, and behind nothing.
//
// # Verdicts
//
//   - The judges of internal/history find no violation in the merged recordings. Holders
//     are judged by stamps taken before a nil answer of Err, so that an overlap is real
//     whatever the scheduler did.
//   - The fenced copies lose no update. What the others lose is counted.
//   - A context that ends after the next grant is listed with the length of the overlap:
//     apart for processes that stood still, and never left out. Such a context has ended
//     within a second of SIGCONT, and within a second of the next grant otherwise.
//   - When the faults are over, every member is granted a key within some 40 s and 8 TTLs
//     (serveWithin). Then, while the work goes on, each key of the work is granted once more to a
//     member that waits in the queue, and somebody leads and every shard has an owner, within the
//     same bound. In a storm the work goes on for a while: no shard moves later than 3 TTLs and
//     timing.PlanMost after the latest cause. At the end every call returns, every process obeys
//     SIGTERM, and no key is held.
//   - Nobody passes a waiter, but 16 requests of a higher priority may. Judged are grants of one
//     key whose client said that the request waited before the other one was made. Of requests
//     under way at one time the record does not know the order of their entries, and says nothing;
//     nor of sets, trees and sticky keys, nor of shards, whose order is the plan's.
//   - A run with fewer than 50 operations a second under faults is void: its processes
//     had too little to do to break a promise. Its violations count all the same.
//
// A standstill noticed by the process itself, as on a busy host, excuses the times of this
// process, and nothing else.
//
// # Running
//
// A plain run has a moment of two faults. WARDMOTE_STORM=<duration> has schedules of a
// minute follow each other for so long, from the seed WARDMOTE_SEED (1) on, in
// WARDMOTE_TOWNS (1) towns at a time. Each finished schedule appends a line of JSON to the
// file WARDMOTE_RESULTS. A violation keeps the recordings, in the directory
// WARDMOTE_STORM_DIR or that of temporary files, and prints the command that replays the
// seed. The directed schedules and the set run with WARDMOTE_FULL, or in a storm.
package storm
