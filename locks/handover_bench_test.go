package locks_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/wardmote/wardmote/locks"
)

// BenchmarkPlannedHandOver measures the gap of a planned move, from the return of a
// shard's work at one caller to the beginning of the next work at another one: three
// durable voters on loopback sockets, and 16 goroutines that acquire and release other
// keys meanwhile. An op is one move. 64 shards move back and forth between two callers,
// which take turns to be the only one with a weight.
//
// Beside the gaps stand, of the same run, the times of a bare write and sync of a page in
// a file of the same disk, and of a single entry: an Acquire of a free key by a client on
// the leader. A planned gap is one entry and a push; the gap of a caller that leaves is
// three entries, since nobody waits for its shards before it has left: they are assigned
// then, and acquired. An entry is one sync of the leader and then one
// of a follower, on one disk here.
func BenchmarkPlannedHandOver(b *testing.B) {
	for _, load := range []int{0, 16} {
		b.Run(fmt.Sprintf("load=%d", load), func(b *testing.B) {
			leader, follower := benchCluster(b, true)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			var busy sync.WaitGroup
			defer busy.Wait()
			defer cancel()
			for i := range load {
				c := []*locks.Client{leader, follower}[i%2]
				busy.Go(func() {
					for ctx.Err() == nil {
						if l, err := c.Acquire(ctx, fmt.Sprint("load", i)); err == nil {
							_ = l.Release(ctx)
						}
					}
				})
			}
			gaps := &gaps{ended: make(map[int]time.Time), moved: make(chan struct{}, 1)}
			const shards = 64
			run := func(c *locks.Client) (leave func()) {
				own, cancel := context.WithCancel(ctx)
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					_ = c.Spread(own, "g", shards, gaps.work, locks.MaxMoves(1))
				}()
				return func() { cancel(); <-ended }
			}
			callers := []*locks.Client{leader, follower}
			leaving := run(callers[0])
			gaps.await(b, shards)
			beside, stop := context.WithCancel(ctx)
			syncs, entries := timeSyncs(b, beside), timeEntries(beside, leader)
			b.ResetTimer()
			for i := 1; gaps.count() < b.N; i++ {
				joining := run(callers[i%2])
				gaps.await(b, shards/2) // one by one, for balance
				gaps.leaving(true)
				leaving()
				gaps.await(b, shards/2) // all at once
				gaps.leaving(false)
				leaving = joining
			}
			b.StopTimer()
			leaving()
			stop()
			report(b, "", gaps.all)
			report(b, "leave-", gaps.left)
			report(b, "sync-", syncs())
			report(b, "entry-", entries())
		})
	}
}

// report prints percentiles of times.
func report(b *testing.B, what string, all []time.Duration) {
	slices.Sort(all)
	for _, p := range []struct {
		name string
		of   int
	}{{"p50-ms", 500}, {"p99-ms", 990}, {"max-ms", 1000}} {
		if len(all) > 0 {
			at := min(len(all)*p.of/1000, len(all)-1)
			b.ReportMetric(float64(all[at].Microseconds())/1000, what+p.name)
		}
	}
}

// timeSyncs writes and syncs a page of a file, again and again until ctx ends. The
// result waits for the end and returns the times.
func timeSyncs(b *testing.B, ctx context.Context) func() []time.Duration {
	f, err := os.Create(filepath.Join(b.TempDir(), "page"))
	if err != nil {
		b.Fatal(err)
	}
	page := make([]byte, 4096)
	return timeEach(ctx, func() error {
		if _, err := f.WriteAt(page, 0); err != nil {
			return err
		}
		return f.Sync()
	}, func() { _ = f.Close() })
}

// timeEntries acquires a free key, again and again until ctx ends.
func timeEntries(ctx context.Context, c *locks.Client) func() []time.Duration {
	n := 0
	return timeEach(ctx, func() error {
		n++
		_, err := c.Acquire(ctx, fmt.Sprint("free-", n)) // held until the end
		return err
	}, func() {})
}

// timeEach measures f every 20 ms until ctx ends, and calls end then.
func timeEach(ctx context.Context, f func() error, end func()) func() []time.Duration {
	var all []time.Duration
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer end()
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			began := time.Now()
			if f() == nil {
				all = append(all, time.Since(began))
			}
		}
	}()
	return func() []time.Duration { <-done; return all }
}

// gaps collects the times between the works of each shard.
type gaps struct {
	mu     sync.Mutex
	ended  map[int]time.Time // by shard
	all    []time.Duration   // of moves between two callers that stay
	left   []time.Duration   // of moves from a caller that leaves
	leaves bool
	starts int
	moved  chan struct{} // size 1
}

func (g *gaps) work(ctx context.Context, shard int, l *locks.Lock) error {
	g.mu.Lock()
	if ended, ok := g.ended[shard]; ok {
		if g.leaves {
			g.left = append(g.left, time.Since(ended))
		} else {
			g.all = append(g.all, time.Since(ended))
		}
	}
	g.starts++
	g.mu.Unlock()
	select {
	case g.moved <- struct{}{}:
	default:
	}
	<-ctx.Done()
	g.mu.Lock()
	g.ended[shard] = time.Now()
	g.mu.Unlock()
	return nil
}

func (g *gaps) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.all) + len(g.left)
}

// leaving says whether the gaps from now on are of a caller that leaves.
func (g *gaps) leaving(now bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.leaves = now
}

// await waits until n works have begun since the last await.
func (g *gaps) await(b *testing.B, n int) {
	limit := time.After(time.Minute)
	for {
		g.mu.Lock()
		if g.starts >= n {
			g.starts -= n
			g.mu.Unlock()
			return
		}
		g.mu.Unlock()
		select {
		case <-g.moved:
		case <-limit:
			b.Fatalf("%d works have begun within a minute, not %d", g.starts, n)
		}
	}
}
