// Package processes tests whole clusters of real processes on the host's own
// network: kill -9, SIGSTOP, SIGTERM, lost and full disks, a starved CPU, and network
// namespaces where the tests run as root.
//
// The package has no code outside of its tests. The test binary starts itself
// again for each member. The member's program obeys commands on its standard input
// and ends when the input ends, so no process outlives the tests.
//
// Tests of times run alone, or with as much company as their limits bear; tests
// whose limits are wide run beside each other afterwards.
//
// A plain run has a short round of each test; with WARDMOTE_FULL set the tests run
// their full rounds and print the measured times.
package processes
