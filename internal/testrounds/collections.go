package testrounds

import (
	"os"
	"runtime/debug"
)

// CollectRarely lets the heap grow to five times its live size before the next
// garbage collection, unless GOGC in the environment says otherwise. TestMain of
// packages with whole clusters calls CollectRarely: such tests keep a few MB alive
// and allocate GB, so a third of their CPU time is garbage collection by default.
func CollectRarely() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
}
