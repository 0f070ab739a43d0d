package locks_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/locks"
)

// benchCluster starts three members on loopback, in this process. It returns clients
// on the leader and on a follower.
func benchCluster(b *testing.B, durable bool) (onLeader, onFollower *locks.Client) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	dir := b.TempDir()
	var nodes []*cluster.Node
	var join []string
	for i := range 3 {
		cfg := cluster.Config{Name: fmt.Sprint("m", i), Join: join, InitialSize: 3, TTL: 2 * time.Second}
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
