// Package testrounds sets how many rounds the long tests run. A plain run of the
// tests is quick; with WARDMOTE_FULL set to anything, the tests run all their
// rounds, as CI does.
//
//	WARDMOTE_FULL=1 go test ./...
package testrounds

import "os"

// Rounds returns full if WARDMOTE_FULL is set, and quick otherwise.
func Rounds(quick, full int) int {
	if os.Getenv("WARDMOTE_FULL") != "" {
		return full
	}
	return quick
}
