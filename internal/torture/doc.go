// Command torture looks for broken promises for hours, and keeps the findings:
//
//	go run ./internal/torture -hours 8 -dir torture-results
//
// It builds the test binaries of the suites once, at a recorded commit, and runs them with
// fresh seeds, one process on each core. The suites take turns by their weights: simulations
// of whole clusters and of the term, storms of real processes, fuzz targets, kills of
// processes that write to a store; and once for each commit the models with all their states,
// and the mutants.
//
// Every run is a line of JSON in the directory's runs.jsonl, with the seed, the cost and the
// counts of the suite. The command remembers nothing else, so an interruption or a crash
// loses the runs under way and no more: a run without a line has not happened. A failed run
// leaves its output in failures and is repeated three times with the same seed; the others go
// on meanwhile.
//
// At the end, and with -report alone, the command writes report.md and summary.json.
// With -publish the summary is copied to docs/verification/summary.json, and the figures to
// VERIFICATION.md. The exit status is 1 if any run has failed.
//
// The rota (rota.go), the reading of lines (history.go) and the report (summary.go,
// report.go) are pure. main.go and child.go start processes; each child is in a process
// group of its own, is ended with the group when its time is over or the command is
// interrupted, and is waited for.
package main
