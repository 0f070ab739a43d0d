// Package termtest runs a real term.Term for tests, on a log in memory. The keeper,
// the rounds, the proposer, the watches and the answers are the parts of package
// term; termtest adds only the world around: the log, the other voters and the
// network. The safety tests of package term and the random tests of package locks
// use termtest.
//
// The types are:
//
//   - Cluster, a lock table on the tables of two voters, with a leader. The test decides
//     when an entry is committed, how a round is answered, and when another leader
//     takes over.
//   - Member, a replica.Replica with a faulty network between client and leader.
//     Hooks let a test see and refuse the client's commands. A member may have a clock of
//     its own, and be frozen.
//   - LogFaults, random faults of the entries and of the answers to rounds.
//
// A Cluster checks the invariants of the table after every entry, and compares the
// two tables at the end: the leader's table applies the commands decoded by the
// proposer, and the other table decodes every entry.
//
// Time is package time, so a test runs inside a testing/synctest bubble. A Cluster
// has no goroutines besides the Term's; all delays are timers.
// The Cluster stops with the test, by testing.TB.Cleanup.
//
//	synctest.Test(t, func(t *testing.T) {
//		c := termtest.New(t, termtest.Config{})
//		a := c.Join("a")
//		a.SetFaults(termtest.Faults{Latency: 20 * time.Millisecond, LoseAnswer: 0.1})
//		o, err := a.Propose(ctx, machine.Open{…})
//		c.Lead() // another leader, on the other table
//	})
package termtest
