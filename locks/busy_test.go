package locks_test

import (
	"os"
	"time"
)

// envBusy makes this program a process that burns CPU time: see TestMain.
const envBusy = "WARDMOTE_TEST_BUSY"

// burn keeps a core busy for d, or until the parent process has ended.
func burn(d time.Duration) {
	parent := os.Getppid()
	for began := time.Now(); time.Since(began) < d && os.Getppid() == parent; {
		for range 1_000_000 {
			_ = began
		}
	}
}
