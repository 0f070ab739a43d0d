// Package stories plays the well-known timelines of distributed locks. There is
// nothing to import here: each story is a test in a file of its own, and the
// timeline is the comment on the test.
//
// A story runs on a whole cluster, in fake time, with the seconds of the original.
// Where a common lock fails the story, such a lock plays the same timeline as a
// contrast, and the test fails unless the contrast breaks the promise that
// wardmote keeps. The common cast is in stage_test.go, the locks that fail are in
// naive_test.go.
//
// A holder dies, sleeps or is late:
//
//   - holder_death_test.go: a key is free within a TTL of its holder's death
//   - crash_without_ttl_test.go: a lock without TTL stays taken after a crash
//   - zombie_test.go: a holder sleeps, wakes up, and releases its successor's lock
//   - collector_pause_test.go: a pause between read and write loses an update
//   - fence_test.go: a resource refuses token 1 once it has seen token 2
//   - late_release_test.go: a release arrives after the next grant
//   - slow_acquire_test.go: an answer takes so long that the lock is no longer valid
//   - long_job_test.go: a job outlasts the lease of its lock
//   - expired_waiter_test.go: a session expires in the middle of Acquire
//
// Clients compete:
//
//   - turns_test.go: three clients are served in turn
//   - lock_cycle_test.go: two clients wait for each other
//   - synchronised_retries_test.go: all are busy and nobody advances
//   - starvation_test.go: three close clients starve a distant one
//   - simultaneous_tries_test.go: five clients try in the same instant
//   - long_wait_test.go: a wait outlasts every call, or is given up behind a cut
//   - readers_and_writers_test.go: readers share a room, writers are alone
//   - counter_test.go: sixteen members increment one counter
//   - urgent_arrivals_test.go: two hundred urgent arrivals and the third in line
//
// Members of the cluster fail:
//
//   - cut_off_server_test.go: a server that is cut off is asked for a lock
//   - voter_death_test.go: one voter of three dies, then two
//   - leader_death_test.go: the leader dies right after a grant
//   - deposed_leader_test.go: a leader is cut off and deposed by a higher term
//   - flapping_link_test.go: a link is cut every other second
//
// Programs that use locks:
//
//   - takeover_test.go: a standby takes over from an elected leader that died
//   - candidates_test.go: ten candidates lead in turn
//   - invoices_test.go: two servers send the nightly invoices once
//   - last_item_test.go: two buyers ask for the last item
//   - agents_test.go: agents patch one repository
package stories
