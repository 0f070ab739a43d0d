package sim

import (
	"os"
	"runtime"
	"testing"

	"github.com/wardmote/wardmote/internal/testrounds"
)

// TestMain runs the bubbles on one thread: see CONTRIBUTING.md.
func TestMain(m *testing.M) {
	runtime.GOMAXPROCS(1)
	testrounds.CollectRarely()
	os.Exit(m.Run())
}
