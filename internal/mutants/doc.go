// Package mutants tests the tests: each mutant is a small bug, alone, and some test must
// fail because of the bug. A survivor shows a missing test, or a rule without a purpose.
//
//	go test -tags mutants -timeout 180m ./internal/mutants
//
// runs all of them, -run TestMutants/name a single mutant, and
// -run '^TestEveryMutantApplies$' builds none. The lists are in files by subject: each mutant
// names a promise and a rule, a file, a text to replace, found exactly once, and the tests to
// fail. The tree is not touched: go test -overlay builds a mutant, with no more packages than
// the tests need. A mutant without a successful build is an error, and so is a failure of no
// test's own.
//
// Some mutants name suites as well: each suite must find the bug by itself, without a hint.
// With -suites the named suites look at all mutants of their packages, and the results tell
// the finders and their times.
//
// With WARDMOTE_RESULTS the outcome of each mutant is appended to that file as a line of
// JSON; internal/torture reads it.
package mutants
