//go:build !race

// Under the race detector a sync.Pool drops a quarter of what it is given.

package locks_test

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/locks/lockstest"
)

// mostAllocs is the largest number of allocations in a cycle of Acquire and Release at 256
// callers: of the caller, of both ends of the member's stream, of the leader, and of all three
// voters, which apply each command. An allocation for each command on each voter adds six.
const mostAllocs = 45

// TestACycleTakesFewAllocations counts every allocation of a cluster of three members in memory,
// with callers on the leader and on a follower, and so the ones of gossip and of the network in
// this test too. BenchmarkAcquireRelease measures the same over loopback.
func TestACycleTakesFewAllocations(t *testing.T) {
	const callers, cycles = 256, 20
	synctest.Test(t, func(t *testing.T) {
		c := lockstest.New(t, 3, lockstest.TTL(3*time.Second))
		leader := c.Leader()
		for who, i := range map[string]int{"leader": leader, "follower": (leader + 1) % 3} {
			client := c.Client(i)
			run := func(cycles int) {
				var wg sync.WaitGroup
				for n := range callers {
					key := fmt.Sprint("k", n)
					wg.Go(func() {
						for range cycles {
							l, err := client.Acquire(t.Context(), key)
							if err == nil {
								err = l.Release(t.Context())
							}
							if err != nil {
								t.Error(err)
							}
						}
					})
				}
				wg.Wait()
			}
			run(2) // makes the records of the keys, and the memory that is used again
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			run(cycles)
			runtime.ReadMemStats(&after)
			n := float64(after.Mallocs-before.Mallocs) / (callers * cycles)
			t.Logf("%.1f allocations in a cycle on the %s", n, who)
			if n > mostAllocs {
				t.Errorf("%.1f allocations in a cycle on the %s, want at most %d", n, who, mostAllocs)
			}
		}
	})
}
