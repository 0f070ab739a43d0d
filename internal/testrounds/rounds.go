package testrounds

import "os"

// Of returns full if WARDMOTE_FULL is set, and quick otherwise.
func Of(quick, full int) int {
	if os.Getenv("WARDMOTE_FULL") != "" {
		return full
	}
	return quick
}
