// Package testrounds sets how many rounds the long tests run, and watches for a host
// that stands still meanwhile. A plain run of the tests is quick; with WARDMOTE_FULL
// set to anything, the tests run all their rounds.
//
//	WARDMOTE_FULL=1 go test ./...
//
// WARDMOTE_FULL=tenth is for CI: each long test runs a tenth of its rounds.
package testrounds

import "os"

// Full reports whether WARDMOTE_FULL is set.
func Full() bool { return os.Getenv("WARDMOTE_FULL") != "" }

// Rounds returns quick in a plain run, and full if WARDMOTE_FULL is set. A tenth of
// the rounds is full/10, and no less than quick.
func Rounds(quick, full int) int {
	switch {
	case !Full():
		return quick
	case os.Getenv("WARDMOTE_FULL") == "tenth":
		return max(quick, full/10)
	}
	return full
}

// Bound returns quick in a plain run, and full if WARDMOTE_FULL is set to anything: a
// bound of a model, of which a tenth is another model.
func Bound(quick, full int) int {
	if Full() {
		return full
	}
	return quick
}

// Whole returns some with WARDMOTE_FULL=tenth, and full with any other value: for
// rounds of which a tenth is too many for CI.
func Whole(some, full int) int {
	if os.Getenv("WARDMOTE_FULL") == "tenth" {
		return some
	}
	return full
}
