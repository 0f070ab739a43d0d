package locks_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/locks"
)

// fairCluster starts three voters in memory and a thin member, each in this process. The
// first two nodes are voters that do not lead.
func fairCluster(b *testing.B) (nodes []*cluster.Node) {
	ctx := b.Context()
	var join []string
	var leader *cluster.Node
	for i := range 4 {
		cfg := cluster.Config{Name: fmt.Sprint("m", i), Join: join, TTL: 10 * time.Second}
		if cfg.InitialSize = 3; i == 3 {
			cfg.Voting.Thin, cfg.InitialSize = true, 0
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

// latencies runs cycles of one caller until stop is closed, for as many as there must be at
// least, and returns how long each Acquire took.
func latencies(b *testing.B, c *locks.Client, least int, stop <-chan struct{}) (took []time.Duration) {
	for {
		begun := time.Now()
		l, err := c.Acquire(b.Context(), "quiet")
		took = append(took, time.Since(begun))
		if err == nil {
			err = l.Release(b.Context())
		}
		if err != nil {
			b.Fatal(err)
		}
		select {
		case <-stop:
			if len(took) >= least {
				slices.Sort(took)
				return took
			}
		default:
		}
	}
}

// BenchmarkFlood has one member send 500,000 requests, 10,000 at a time, while one caller of
// another member acquires and releases a key of its own. flood/quiet is the p99 of the
// other's Acquire beside the flood, the p99 on the same cluster right before it being 1. Run it with
// -benchtime 1x. The processes share the machine: the ratio has the CPU of the flood in it.
func BenchmarkFlood(b *testing.B) {
	const requests, at = 500_000, 10_000
	nodes := fairCluster(b)
	quiet, noisy := client(b, nodes[0]), client(b, nodes[1])
	closed := make(chan struct{})
	close(closed)
	latencies(b, quiet, 500, closed) // warm
	for b.Loop() {
		before := latencies(b, quiet, 2000, closed)
		done := make(chan struct{})
		var left atomic.Int64
		left.Store(requests)
		var flood sync.WaitGroup
		for i := range at {
			flood.Go(func() {
				key := fmt.Sprint("noisy/", i)
				for left.Add(-2) >= 0 { // an acquire and a release
					l, err := noisy.Acquire(b.Context(), key)
					if err == nil {
						err = l.Release(b.Context())
					}
					if err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		go func() { flood.Wait(); close(done) }()
		beside := latencies(b, quiet, 200, done)
		p99 := func(took []time.Duration) time.Duration { return took[len(took)*99/100] }
		b.ReportMetric(float64(p99(beside))/float64(p99(before)), "flood/quiet")
		b.ReportMetric(float64(p99(before).Microseconds()), "µs/p99-quiet")
		b.ReportMetric(float64(p99(beside).Microseconds()), "µs/p99-flood")
		b.ReportMetric(float64(len(beside)), "cycles-beside")
	}
}

// BenchmarkEndOfAMillionKeys closes twenty clients of one member, which hold 1,000,000 keys
// together, while one caller of another member acquires and releases a key of its own.
// longest-ms is the longest Acquire until the last key is free, and before-ms the longest of as
// long a time before. Run it with -benchtime 1x.
func BenchmarkEndOfAMillionKeys(b *testing.B) {
	const clients, keys, set = 20, 50_000, 1000
	nodes := fairCluster(b)
	quiet := client(b, nodes[0])
	for b.Loop() {
		var owners []*locks.Client
		for i := range clients {
			c := locks.New(nodes[1], locks.Options{})
			owners = append(owners, c)
			for j := range keys / set {
				list := make([]string, set)
				for k := range list {
					list[k] = fmt.Sprintf("held/%02d/%02d/%04d", i, j, k)
				}
				if _, err := c.AcquireAll(b.Context(), list); err != nil {
					b.Fatal(err)
				}
			}
		}
		rest := make(chan struct{})
		time.AfterFunc(2*time.Second, func() { close(rest) })
		before := latencies(b, quiet, 1, rest)
		freed := make(chan struct{})
		begun := time.Now()
		var took time.Duration
		go func() {
			var ends sync.WaitGroup
			for _, c := range owners {
				ends.Go(func() { c.Close(context.Background()) })
			}
			ends.Wait()
			// The last key of each client is free once its slices are through.
			for i := range clients {
				l, err := quiet.Acquire(b.Context(), fmt.Sprintf("held/%02d/%02d/%04d", i, keys/set-1, set-1))
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
		beside := latencies(b, quiet, 1, freed)
		b.ReportMetric(float64(before[len(before)-1].Microseconds())/1000, "ms/longest-before")
		b.ReportMetric(float64(beside[len(beside)-1].Microseconds())/1000, "ms/longest")
		b.ReportMetric(float64(beside[len(beside)*99/100].Microseconds())/1000, "ms/p99")
		b.ReportMetric(took.Seconds(), "s/end")
	}
}
