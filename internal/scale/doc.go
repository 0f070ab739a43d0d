// Package scale measures clusters of up to a thousand members, in bubbles of
// testing/synctest on a simulated network: what a member and the leader send, compute and
// keep, and what becomes of all members when the leader is lost.
//
// The package has no code outside of its tests. The tests decide nothing: they hold
// counts of messages against the model of docs/scale.md, and print the other figures.
// Counts are exact, because a bubble has its own clock. CPU time is the whole process's,
// of all members together, and hardly depends on the load of the host.
//
// A plain run has a small cluster. With WARDMOTE_FULL=tenth the cluster has 100 thin
// members, with WARDMOTE_FULL=1 there are clusters of 100 and of 300, and the figures are
// printed as tables. WARDMOTE_FULL=scale adds a cluster of 600, which takes nine minutes of
// CPU time and 11 GB, since all members share one process, and each learns of each other;
// and one of 1,000, which has not been run to its end: docs/scale.md says why.
//
//	WARDMOTE_FULL=scale go test -count=1 -timeout 3h -v -run TestManyMembers/600 ./internal/scale
package scale
