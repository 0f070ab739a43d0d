//go:build unix

package locks_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/locks"
)

// fairCluster starts three voters and a thin member, each in this process, in memory or with
// a Dir. The first two nodes are voters that do not lead.
func fairCluster(b *testing.B, dirs bool) (nodes []*cluster.Node) {
	ctx := b.Context()
	var join []string
	var leader *cluster.Node
	for i := range 4 {
		cfg := cluster.Config{Name: fmt.Sprint("m", i), Join: join, TTL: 10 * time.Second}
		if cfg.InitialSize = 3; i == 3 {
			cfg.Voting.Thin, cfg.InitialSize = true, 0
		}
		if dirs {
			cfg.Dir = b.TempDir()
		}
		n, err := cluster.Start(ctx, cfg)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { n.Stop() })
		nodes, join = append(nodes, n), append(join, n.Addr())
	}
	for _, n := range nodes {
		if err := n.Ready(ctx); err != nil {
			b.Fatal(err)
		}
	}
	if l, ok := nodes[0].Leader(); ok {
		i := slices.IndexFunc(nodes, func(n *cluster.Node) bool { return n.Name() == l.Name })
		leader = nodes[i]
		nodes = append(slices.Delete(slices.Clone(nodes), i, i+1), leader)
	}
	return nodes
}

// client returns a client of a node.
func client(b *testing.B, n *cluster.Node) *locks.Client {
	c := locks.New(n, locks.Options{})
	b.Cleanup(func() { c.Close(context.Background()) })
	return c
}

// A wait is how long one Acquire took: on the clock, and in CPU time of this process, which
// hosts all members. On a host with other work the clock says little, and the CPU time hardly
// changes: it is the work that the process did before the Acquire was answered.
type wait struct{ clock, cpu time.Duration }

// waits runs cycles of one caller until stop is closed, for as many as there must be at
// least, and returns the wait of each Acquire.
func waits(b *testing.B, c *locks.Client, least int, stop <-chan struct{}) (took []wait) {
	for {
		begun, cpu := time.Now(), cpuTime(b)
		l, err := c.Acquire(b.Context(), "quiet")
		took = append(took, wait{time.Since(begun), cpuTime(b) - cpu})
		if err == nil {
			err = l.Release(b.Context())
		}
		if err != nil {
			b.Fatal(err)
		}
		select {
		case <-stop:
			if len(took) >= least {
				return took
			}
		default:
		}
	}
}

// quantile returns the wait below which a part of all waits is, by either measure.
func quantile(took []wait, part float64) (w wait) {
	i := min(len(took)-1, int(float64(len(took))*part))
	slices.SortFunc(took, func(a, b wait) int { return cmp.Compare(a.clock, b.clock) })
	w.clock = took[i].clock
	slices.SortFunc(took, func(a, b wait) int { return cmp.Compare(a.cpu, b.cpu) })
	w.cpu = took[i].cpu
	return w
}

func reportWait(b *testing.B, w wait, name string) {
	b.ReportMetric(float64(w.clock.Microseconds()), "µs/"+name)
	b.ReportMetric(float64(w.cpu.Microseconds()), "cpu-µs/"+name)
}

// BenchmarkFlood has one member send 500,000 requests, 10,000 at a time, while one caller of
// another member acquires and releases a key of its own. The member with the flood is a process
// of its own: in one process all callers would wait in one queue of goroutines. The flood comes
// in ten parts, and before each the other is alone for as many cycles as it had beside the last
// part. flood/quiet is the p99 of the other's Acquire beside the flood, the p99 alone being 1;
// cpu-flood/quiet is the same of the CPU time that the voters took meanwhile: see wait. Run it
// with -benchtime 1x.
func BenchmarkFlood(b *testing.B) {
	b.Run("memory", func(b *testing.B) { benchmarkFlood(b, false) })
	b.Run("dir", func(b *testing.B) { benchmarkFlood(b, true) })
}

func benchmarkFlood(b *testing.B, dirs bool) {
	const requests, parts = 500_000, 10
	nodes := fairCluster(b, dirs)
	quiet := client(b, nodes[0])
	flood := startNoisy(b, nodes[0].Addr())
	closed := make(chan struct{})
	close(closed)
	waits(b, quiet, 500, closed) // warm
	for b.Loop() {
		var before, beside []wait
		var flooding time.Duration
		for range parts {
			before = append(before, waits(b, quiet, max(200, len(beside)-len(before)), closed)...)
			begun := time.Now()
			beside = append(beside, waits(b, quiet, 1, flood(requests/parts))...)
			flooding += time.Since(begun)
		}
		alone, flooded := quantile(before, 0.99), quantile(beside, 0.99)
		b.ReportMetric(float64(flooded.clock)/float64(alone.clock), "flood/quiet")
		b.ReportMetric(float64(flooded.cpu)/float64(alone.cpu), "cpu-flood/quiet")
		reportWait(b, quantile(before, 0.5), "p50-quiet")
		reportWait(b, quantile(beside, 0.5), "p50-flood")
		reportWait(b, alone, "p99-quiet")
		reportWait(b, flooded, "p99-flood")
		b.ReportMetric(float64(len(beside)), "cycles-beside")
		b.ReportMetric(requests/flooding.Seconds(), "flood-requests/s")
	}
}

// BenchmarkEndOfAMillionKeys closes twenty clients of one member, which hold 1,000,000 keys
// together, while one caller of another member acquires and releases a key of its own.
// longest is the longest Acquire until the last key is free, and longest-before the longest of
// two seconds before, on the clock and in CPU time: see wait. The keys of a set are freed
// together, so the sets decide how long a slice is. Run it with -benchtime 1x.
func BenchmarkEndOfAMillionKeys(b *testing.B) {
	for _, set := range []int{250, 1000} {
		b.Run(fmt.Sprint("set=", set), func(b *testing.B) { endOfAMillionKeys(b, set) })
	}
}

func endOfAMillionKeys(b *testing.B, set int) {
	const clients, keys = 20, 50_000
	nodes := fairCluster(b, false)
	quiet := client(b, nodes[0])
	for b.Loop() {
		var owners []*locks.Client
		for i := range clients {
			c := locks.New(nodes[1], locks.Options{})
			owners = append(owners, c)
			for j := range keys / set {
				list := make([]string, set)
				for k := range list {
					list[k] = fmt.Sprintf("held/%02d/%03d/%04d", i, j, k)
				}
				if _, err := c.AcquireAll(b.Context(), list); err != nil {
					b.Fatal(err)
				}
			}
		}
		rest := make(chan struct{})
		time.AfterFunc(2*time.Second, func() { close(rest) })
		before := waits(b, quiet, 1, rest)
		freed := make(chan struct{})
		begun, cpu := time.Now(), cpuTime(b)
		var took time.Duration
		go func() {
			var ends sync.WaitGroup
			for _, c := range owners {
				ends.Go(func() { c.Close(context.Background()) })
			}
			ends.Wait()
			// The last key of each client is free once its slices are through.
			for i := range clients {
				l, err := quiet.Acquire(b.Context(), fmt.Sprintf("held/%02d/%03d/%04d", i, keys/set-1, set-1))
				if err == nil {
					err = l.Release(b.Context())
				}
				if err != nil {
					b.Error(err)
				}
			}
			took = time.Since(begun)
			close(freed)
		}()
		beside := waits(b, quiet, 1, freed)
		reportWait(b, quantile(before, 1), "longest-before")
		reportWait(b, quantile(beside, 0.5), "p50")
		reportWait(b, quantile(beside, 0.99), "p99")
		reportWait(b, quantile(beside, 1), "longest")
		b.ReportMetric(took.Seconds(), "s/end")
		b.ReportMetric((cpuTime(b) - cpu).Seconds(), "cpu-s/end")
	}
}

// BenchmarkAcquireAfterCancelledWaits is one Acquire of a free key right after 5,000 waits of
// the same client for the key were given up together, on the clock and in CPU time: see wait.
// Each wait was once withdrawn by a command of its own.
func BenchmarkAcquireAfterCancelledWaits(b *testing.B) {
	nodes := fairCluster(b, false)
	follower, holder := client(b, nodes[0]), client(b, nodes[2])
	var after []wait
	for i := 0; b.Loop(); i++ {
		b.StopTimer()
		key := fmt.Sprint("k", i)
		held, err := holder.Acquire(b.Context(), key)
		if err != nil {
			b.Fatal(err)
		}
		ctx, cancel := context.WithCancel(b.Context())
		var waits sync.WaitGroup
		for range 5_000 {
			waits.Go(func() { _, _ = follower.Acquire(ctx, key) })
		}
		for queue := 0; queue < 5_000; {
			st, err := holder.Inspect(b.Context(), key)
			if err != nil {
				b.Fatal(err)
			}
			queue = st.Queue
		}
		cancel()
		waits.Wait()
		if err := held.Release(b.Context()); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		begun, cpu := time.Now(), cpuTime(b)
		l, err := follower.Acquire(b.Context(), key)
		after = append(after, wait{time.Since(begun), cpuTime(b) - cpu})
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := l.Release(b.Context()); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	reportWait(b, quantile(after, 0.5), "median")
	reportWait(b, quantile(after, 1), "longest")
}
