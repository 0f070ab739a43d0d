package locks_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/locks"
)

// benchCluster starts three members on loopback, in this process. It returns clients
// on the leader and on a follower.
func benchCluster(b *testing.B, durable bool, secrets ...[]byte) (onLeader, onFollower *locks.Client) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	dir := b.TempDir()
	var nodes []*cluster.Node
	var join []string
	for i := range 3 {
		cfg := cluster.Config{Name: fmt.Sprint("m", i), Join: join, InitialSize: 3, TTL: 2 * time.Second}
		cfg.Security.Secrets = secrets
		if durable {
			cfg.Dir = filepath.Join(dir, cfg.Name)
		}
		n, err := cluster.Start(ctx, cfg)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { n.Stop() })
		nodes = append(nodes, n)
		join = []string{nodes[0].Addr()}
	}
	for _, n := range nodes {
		if err := n.Ready(ctx); err != nil {
			b.Fatal(err)
		}
	}
	for _, n := range nodes {
		c := locks.New(n, locks.Options{})
		b.Cleanup(func() { c.Close(context.Background()) })
		if l, ok := n.Leader(); ok && l.Self {
			onLeader = c
		} else {
			onFollower = c
		}
	}
	if onLeader == nil {
		b.Fatal("no member leads")
	}
	return onLeader, onFollower
}

// BenchmarkAcquireRelease is a cycle on a key without rivals: two commits. p is the
// number of goroutines for each core.
func BenchmarkAcquireRelease(b *testing.B) {
	for _, durable := range []bool{false, true} {
		store := "memory"
		if durable {
			store = "durable"
		}
		b.Run(store, func(b *testing.B) {
			leader, follower := benchCluster(b, durable)
			for _, bb := range []struct {
				where  string
				client *locks.Client
			}{{"leader", leader}, {"follower", follower}} {
				for _, p := range []int{0, 32, 128} {
					b.Run(fmt.Sprintf("%s/p=%d", bb.where, p), func(b *testing.B) {
						cycle := func(key string) {
							l, err := bb.client.Acquire(b.Context(), key)
							if err == nil {
								err = l.Release(b.Context())
							}
							if err != nil {
								b.Error(err)
							}
						}
						if p == 0 { // a single goroutine
							for b.Loop() {
								cycle("k")
							}
							return
						}
						var n atomic.Int64
						b.SetParallelism(p)
						b.RunParallel(func(pb *testing.PB) {
							key := fmt.Sprint("k", n.Add(1))
							for pb.Next() {
								cycle(key)
							}
						})
					})
				}
			}
		})
	}
}

// BenchmarkLazy compares cycles of callers on a follower, each on a key of its own, with and
// without the option Lazy, in turns, so that noise of the host meets both. lazy/awaited is
// the throughput of Lazy, awaited releases being 1.
func BenchmarkLazy(b *testing.B) {
	for _, durable := range []bool{false, true} {
		store := "memory"
		if durable {
			store = "durable"
		}
		b.Run(store, func(b *testing.B) {
			_, c := benchCluster(b, durable)
			for _, callers := range []int{1, 16, 256} {
				b.Run(fmt.Sprint("callers=", callers), func(b *testing.B) {
					cycles := max(10, 100/callers)
					run := func(opts ...locks.Option) time.Duration {
						begun := time.Now()
						var wg sync.WaitGroup
						for i := range callers {
							wg.Go(func() {
								for range cycles {
									l, err := c.Acquire(b.Context(), fmt.Sprint("k", i), opts...)
									if err == nil {
										err = l.Release(b.Context())
									}
									if err != nil {
										b.Error(err)
									}
								}
							})
						}
						wg.Wait()
						return time.Since(begun)
					}
					var awaited, lazy time.Duration
					for b.Loop() {
						awaited += run()
						lazy += run(locks.Lazy())
					}
					b.ReportMetric(awaited.Seconds()/lazy.Seconds(), "lazy/awaited")
					b.ReportMetric(lazy.Seconds()*1e6/float64(b.N*cycles), "µs/lazy-cycle")
				})
			}
		})
	}
}

// BenchmarkStickyReacquire is a cycle of Acquire and Release on a key that the client keeps.
// In one of 512 cycles or so the cluster is asked for further tokens.
func BenchmarkStickyReacquire(b *testing.B) {
	for _, durable := range []bool{false, true} {
		store := "memory"
		if durable {
			store = "durable"
		}
		b.Run(store, func(b *testing.B) {
			_, c := benchCluster(b, durable)
			b.ReportAllocs()
			var acquires, releases, reads []time.Duration // the first of them all
			ctx, asks := b.Context(), 0
			for b.Loop() {
				begun := time.Now()
				l, err := c.Acquire(ctx, "k", locks.Sticky())
				took := time.Since(begun)
				if err == nil {
					err = l.Release(ctx)
				}
				whole := time.Since(begun)
				if err != nil {
					b.Fatal(err)
				}
				if took > 50*time.Microsecond {
					asks++
				}
				if len(acquires) < 1<<17 {
					acquires, releases = append(acquires, took), append(releases, whole-took)
					begun = time.Now()
					reads = append(reads, time.Since(begun))
				}
			}
			for _, times := range [][]time.Duration{acquires, releases, reads} {
				slices.Sort(times)
			}
			// Less the time that it takes to read the clock for the measurement.
			median := func(times []time.Duration) float64 { return float64(times[len(times)/2] - reads[len(reads)/2]) }
			b.ReportMetric(median(acquires), "median-ns/acquire")
			b.ReportMetric(median(releases), "median-ns/release")
			b.ReportMetric(float64(asks)/float64(b.N), "asks/op")
		})
	}
}

// BenchmarkSecret compares two clusters in memory, with and without a secret, on cycles
// that 32 goroutines of a follower run. The clusters take turns, so that noise of the
// host meets both. secret/plain is the throughput under the secret, plain text being 1.
func BenchmarkSecret(b *testing.B) {
	_, plain := benchCluster(b, false)
	_, secret := benchCluster(b, false, cluster.NewSecret())
	took := make(map[*locks.Client]time.Duration)
	run := func(c *locks.Client) {
		begun := time.Now()
		var wg sync.WaitGroup
		for i := range 32 {
			wg.Go(func() {
				for range 16 {
					l, err := c.Acquire(b.Context(), fmt.Sprint("k", i))
					if err == nil {
						err = l.Release(b.Context())
					}
					if err != nil {
						b.Error(err)
					}
				}
			})
		}
		wg.Wait()
		took[c] += time.Since(begun)
	}
	run(plain)
	run(secret)
	clear(took)
	for i := 0; b.Loop(); i++ {
		if i%2 == 0 {
			run(plain)
			run(secret)
		} else {
			run(secret)
			run(plain)
		}
	}
	b.ReportMetric(float64(took[plain])/float64(took[secret]), "secret/plain")
}

// BenchmarkHandoff passes a key on among 16 contenders on two members. Each turn is
// a single commit, which releases and grants.
func BenchmarkHandoff(b *testing.B) {
	leader, follower := benchCluster(b, false)
	var n atomic.Int64
	b.SetParallelism(8)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		client := leader
		if n.Add(1)%2 == 0 {
			client = follower
		}
		for pb.Next() {
			l, err := client.Acquire(b.Context(), "hot")
			if err == nil {
				err = l.Release(b.Context())
			}
			if err != nil {
				b.Error(err)
			}
		}
	})
}
