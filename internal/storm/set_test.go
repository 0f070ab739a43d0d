//go:build linux

package storm

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/testrounds"
)

// The setting in which others lose updates: five processes change a set under a lock with
// a TTL of 2 s, and a process stands still every five seconds. With the fence no update is
// lost. Without it some are, and are counted: with a question to Err just before the
// write, and with none.
func TestASetUnderALockLosesNoUpdateBehindTheFence(t *testing.T) {
	if !testrounds.Full() && os.Getenv(stormEnv) == "" {
		t.Skip("takes a minute: make full")
	}
	t.Parallel()
	length := time.Duration(testrounds.Whole(20, 60)) * time.Second
	seed := uint64(time.Now().UnixNano() % 1e9)
	r := newRand(seed, 1)
	k := kind{Members: 5, TTL: 2 * time.Second, Work: "set", Pace: 60 * time.Millisecond}
	var steps []step
	for at := 5 * time.Second; at < length; at += 5 * time.Second {
		steps = append(steps, step{At: at, Fault: "stop holder", Who: r.IntN(1000), For: between(r, 2500*time.Millisecond, 4*time.Second)})
	}
	got := play(t, k, seed, steps, fmt.Sprintf("%s=%v go test -count=1 -v -run TestASetUnderALock ./internal/storm", stormEnv, length))
	if got.Fenced.Lost > 0 || got.Fenced.Writes < 100 {
		t.Errorf("with the fence: %+v", got.Fenced)
	}
	share := func(c counts) string {
		return fmt.Sprintf("%d of %d (%.2f %%)", c.Lost, c.Writes, 100*float64(c.Lost)/float64(max(c.Writes, 1)))
	}
	t.Logf("lost updates: with the fence %s, with a question to Err before the write %s, with neither %s", share(got.Fenced), share(got.Checked), share(got.Plain))
}
