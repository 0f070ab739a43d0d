package cluster

import (
	"os"
	"runtime"
	"testing"
)

// TestMain runs the tests on one thread. The goroutines of a bubble wait for each
// other: a second thread costs 1.4 times the CPU time and gains nothing. Bubbles
// on two threads also crash the race detector, see golang/go#78156.
func TestMain(m *testing.M) {
	runtime.GOMAXPROCS(1)
	os.Exit(m.Run())
}
