//go:build unix

package locks_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/internal/testrounds"
	"github.com/wardmote/wardmote/locks"
)

// starve runs two busy processes per core until the test ends, for a minute at most.
func starve(t *testing.T) {
	t.Helper()
	for range 2 * runtime.NumCPU() {
		busy := exec.Command(os.Args[0])
		busy.Env = append(os.Environ(), envBusy+"=1m")
		if err := busy.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = busy.Process.Kill()
			_ = busy.Wait()
		})
	}
}

// cpuTime returns the CPU time of this process.
func cpuTime(t testing.TB) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// 30 callers in one process divide 1,024 shards, on a machine without an idle core:
// no session is lost, and the process needs little CPU time. Real time, sockets and
// default TTL: a whole run only.
func TestManyShardsOnAStarvedMachine(t *testing.T) {
	for range testrounds.Rounds(0, 1) {
		const shards, callers = 1024, 30
		nodes := startNodes(t, 3)
		starve(t)
		stalls := testrounds.WatchStalls(nil)
		defer stalls.Stop()
		o := newOwnership(t)
		var lost atomic.Int32
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer running.Wait()
		defer cancel()
		began, before := time.Now(), cpuTime(t)
		var leave []context.CancelFunc
		for i := range callers {
			c := locks.New(nodes[i%len(nodes)], locks.Options{
				Name:  fmt.Sprint("caller-", i),
				Trace: &locks.Trace{SessionLost: func(context.Context, locks.Reason) { lost.Add(1) }},
			})
			t.Cleanup(func() { _ = c.Close(context.Background()) })
			own, cancel := context.WithCancel(ctx)
			leave = append(leave, cancel)
			running.Go(func() { _ = c.Spread(own, "g", shards, o.work(i)) })
		}
		// 1 grant per shard, and then each tenth caller leaves.
		o.await(shards, callers)
		started, startCPU := time.Since(began), cpuTime(t)-before
		for i := 0; i < callers; i += 10 {
			leave[i]()
		}
		moved := time.Now()
		o.await(shards, callers-3)
		again := time.Since(moved)
		select { // the maps and the sessions go on for half a TTL
		case <-time.After(5 * time.Second):
		case <-ctx.Done():
		}
		used, stood := cpuTime(t)-before, stalls.Since(began)
		o.mu.Lock()
		starts := o.starts
		o.mu.Unlock()
		t.Logf("%d shards, %d callers, %d busy processes: all owned after %v, again %v after 3 left; %d works began, %d sessions lost; CPU %v for the start, %v in all; longest standstill %v",
			shards, callers, 2*runtime.NumCPU(), started, again, starts, lost.Load(), startCPU, used, stood)
		if used > 2*time.Second {
			t.Errorf("%v of CPU time", used)
		}
		// The busy processes make standstills of their own, far below the TTL of 10 s.
		if n := lost.Load(); n > 0 && stood < 2*time.Second {
			t.Errorf("%d sessions were lost", n)
		}
	}
}

// startNodes starts members on loopback sockets, with the default TTL.
func startNodes(t *testing.T, n int) (nodes []*cluster.Node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var join []string
	for i := range n {
		node, err := cluster.Start(ctx, cluster.Config{Name: fmt.Sprint("m", i), Join: join, InitialSize: n})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { node.Stop() })
		nodes = append(nodes, node)
		join = []string{nodes[0].Addr()}
	}
	for _, node := range nodes {
		if err := node.Ready(ctx); err != nil {
			t.Fatal(err)
		}
	}
	return nodes
}
