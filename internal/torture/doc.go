// Command torture looks for broken promises for hours, and keeps what it finds:
//
//	go run ./internal/torture -hours 8 -dir torture-results
//
// It builds the test binaries of the suites once, at a recorded commit, and runs them with
// fresh seeds, one process on each core. The suites take turns by their weights: simulations
// of whole clusters and of the term, storms of real processes, fuzz targets, kills of
// processes that write to a store; and once for each commit the models with all their states,
// and the mutants.
//
// Every run is a line of JSON in the directory's runs.jsonl, with its seed, what it cost and
// what its suite counted; the lines are all that the command knows. So it goes on where it
// was after an interruption or a crash: a run without a line has not happened. A run that fails
// keeps its output in failures, and is run three times more with its seed, to see whether the
// failure repeats; the others go on meanwhile.
//
// At the end, and with -report alone, report.md and summary.json say what was run and found.
// With -publish the summary is copied to docs/verification/summary.json, and the figures to
// VERIFICATION.md. The exit status is 1 if any run has failed.
//
// The rota (rota.go), the reading of lines (history.go) and the report (summary.go,
// report.go) are pure. main.go and child.go start processes; each child is in a process
// group of its own, is ended with the group when its time is over or the command is
// interrupted, and is waited for.
package main
