package locks_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/locks"
)

// BenchmarkRestart restarts three members with a Dir while 1,000,000 keys are held, all at
// once, until the last of them is ready. Run it with -benchtime 1x. start-s is the
// slowest Start, in which the member restores its newest snapshot; the log behind the snapshot
// is applied afterwards.
func BenchmarkRestart(b *testing.B) {
	const sets, size = 1000, 1000
	dir, ctx := b.TempDir(), b.Context()
	nodes := make([]*cluster.Node, 3)
	var addrs []string
	startOne := func(i int) {
		cfg := cluster.Config{Name: fmt.Sprint("m", i), Join: addrs, InitialSize: 3, TTL: 10 * time.Second}
		if cfg.Dir = filepath.Join(dir, cfg.Name); len(addrs) > i {
			cfg.Bind = addrs[i]
		}
		n, err := cluster.Start(ctx, cfg)
		if err != nil {
			b.Error(err)
			return
		}
		nodes[i] = n
	}
	ready := func() {
		if b.Failed() {
			b.FailNow()
		}
		for _, n := range nodes {
			if err := n.Ready(ctx); err != nil {
				b.Fatal(err)
			}
		}
	}
	// start starts the members at once, and returns how long the slowest Start took.
	start := func() (slowest time.Duration) {
		began := time.Now()
		var wg sync.WaitGroup
		for i := range nodes {
			wg.Go(func() { startOne(i) })
		}
		wg.Wait()
		slowest = time.Since(began)
		ready()
		return slowest
	}
	stop := func() {
		for _, n := range nodes {
			if err := n.Stop(); err != nil {
				b.Fatal(err)
			}
		}
	}
	for i := range nodes {
		startOne(i)
		addrs = append(addrs, nodes[i].Addr())
	}
	ready()
	var clients []*locks.Client // a client has 50,000 keys at most
	began := time.Now()
	for i := range sets {
		if i%40 == 0 {
			clients = append(clients, locks.New(nodes[i%3], locks.Options{}))
		}
		keys := make([]string, size)
		for k := range keys {
			keys[k] = fmt.Sprintf("key-%d-%d", i, k)
		}
		if _, err := clients[len(clients)-1].AcquireAll(ctx, keys); err != nil {
			b.Fatal(err)
		}
	}
	acquired := time.Since(began)
	var slowest time.Duration
	for b.Loop() {
		b.StopTimer()
		stop()
		b.StartTimer()
		slowest = max(slowest, start())
	}
	b.ReportMetric(slowest.Seconds(), "start-s")
	b.ReportMetric(float64(acquired.Nanoseconds())/(sets*size), "acquire-ns/key")
	stop()
	for _, c := range clients {
		_ = c.Close(context.Background())
	}
}
