// Package mutants tests the tests: each mutant is a small bug in a copy of the
// tree, alone, and some test must fail because of it. A mutant that survives is a
// missing test, or a rule that nobody needs.
//
//	go test -tags mutants -timeout 60m ./internal/mutants
//
// runs all of them, -run TestMutants/name one. The list is in mutants_test.go:
// the promise that the mutant breaks, the file, the text to replace, which must
// occur exactly once, and the tests that must fail. A mutant that does not build
// is an error, and so is a test that passes without the mutant's tests being run.
package mutants
