package cluster

import (
	"flag"
	"os"
	"runtime"
	"testing"

	"github.com/wardmote/wardmote/internal/testrounds"
)

// TestMain runs the tests on one thread. The goroutines of a bubble wait for each
// other: a second thread costs 1.4 times the CPU time and gains nothing. Bubbles
// on two threads also crash the race detector, see golang/go#78156.
//
// Tests of members with a Dir mostly wait for the disk, and wait side by side.
func TestMain(m *testing.M) {
	runtime.GOMAXPROCS(1)
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		_ = f.Value.Set("4")
	}
	testrounds.CollectRarely()
	os.Exit(m.Run())
}
