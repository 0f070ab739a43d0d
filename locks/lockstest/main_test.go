package lockstest_test

import (
	"os"
	"runtime"
	"testing"

	"github.com/wardmote/wardmote/internal/testrounds"
)

// TestMain runs the tests on one thread. A bubble's clock advances only while all of
// its goroutines are blocked, so a second thread saves no time and costs 1.4 times
// the CPU. With two threads the race detector crashes as well, see
// golang.org/issue/78156.
func TestMain(m *testing.M) {
	runtime.GOMAXPROCS(1)
	testrounds.CollectRarely()
	os.Exit(m.Run())
}
