// Package testrounds sets the length of the long tests: quick in a plain run, full
// where the environment variable WARDMOTE_FULL is set, as CI does.
//
//	WARDMOTE_FULL=1 go test ./...
package testrounds

import "os"

// Of returns full if WARDMOTE_FULL is set to anything but the empty string, and
// quick otherwise.
func Of(quick, full int) int {
	if os.Getenv("WARDMOTE_FULL") != "" {
		return full
	}
	return quick
}
