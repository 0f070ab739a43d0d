// Package mutants tests the tests: each mutant is a small bug, alone, and some test must
// fail because of it. A mutant that survives is a missing test, or a rule that nobody
// needs.
//
//	go test -tags mutants -timeout 180m ./internal/mutants
//
// runs all of them, -run TestMutants/name one, and -run '^TestEveryMutantApplies$' builds
// none. The lists are in files by subject: each mutant names the promise and the rule that
// it breaks, the file, the text to replace, which must occur exactly once, and the tests
// that must fail. The tree is not touched: a mutant is built with go test -overlay, and of
// the packages only those that the tests need. A mutant that does not build is an error, and
// so is a failure that is no test's own.
//
// Some mutants name suites as well, each of which must find the bug by itself, without
// knowing it. With -suites the suites named there look at all mutants of the packages that
// run in them, and the result says which of them found the bug and in how long.
//
// With WARDMOTE_RESULTS the outcome of each mutant is appended to that file as a line of
// JSON; internal/torture reads it.
package mutants
