package locks_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/locks"
)

// BenchmarkRestart restarts three members with a Dir while 1,000,000 keys are held, until
// the last of them is ready. Run it with -benchtime 1x.
func BenchmarkRestart(b *testing.B) {
	const sets, size = 1000, 1000
	dir, ctx := b.TempDir(), b.Context()
	var nodes []*cluster.Node
	var addrs []string
	start := func() {
		nodes = nil
		for i := range 3 {
			cfg := cluster.Config{Name: fmt.Sprint("m", i), Join: addrs, InitialSize: 3, TTL: 10 * time.Second}
			if cfg.Dir = filepath.Join(dir, cfg.Name); len(addrs) > i {
				cfg.Bind = addrs[i]
			}
			n, err := cluster.Start(ctx, cfg)
			if err != nil {
				b.Fatal(err)
			}
			nodes = append(nodes, n)
			if len(addrs) == i {
				addrs = append(addrs, n.Addr())
			}
		}
		for _, n := range nodes {
			if err := n.Ready(ctx); err != nil {
				b.Fatal(err)
			}
		}
	}
	stop := func() {
		for _, n := range nodes {
			if err := n.Stop(); err != nil {
				b.Fatal(err)
			}
		}
	}
	start()
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
	for b.Loop() {
		b.StopTimer()
		stop()
		b.StartTimer()
		start()
	}
	b.ReportMetric(float64(acquired.Nanoseconds())/(sets*size), "acquire-ns/key")
	stop()
	for _, c := range clients {
		_ = c.Close(context.Background())
	}
}
