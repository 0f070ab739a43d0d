// Package termtest runs a real term.Term for tests, on a log in memory. The keeper,
// the rounds, the proposer, the watches and the answers are those of package term;
// termtest has only the world around them: the log, the other voters and the
// network. Package term's safety tests use it, and package locks' random tests.
//
// The types are:
//
//   - Cluster, a lock table on two voters' tables, with one leader. The test decides
//     when an entry is committed, how a round is answered, and when another leader
//     takes over.
//   - Member, a replica.Replica that reaches the leader over a network with Faults.
//     Hooks let a test see and refuse what a client sends.
//
// A Cluster checks after every entry that the table keeps its invariants, and at
// the end that both tables are equal: the leader's table applies the commands that
// the proposer decoded, and the other table decodes every entry.
//
// Time is package time, so a test runs inside a testing/synctest bubble. A Cluster
// has no goroutines besides the Term's; everything that comes later is a timer.
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
