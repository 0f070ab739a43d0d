package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/internal/simnet"
	"github.com/wardmote/wardmote/locks"
	"github.com/wardmote/wardmote/transport"
)

// A Client made before its cluster died goes on in the successor, in the same
// process: its locks end with a reason first, and later calls open a new session.
func TestAClientOutlivesItsCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := simnet.New(1)
		net.SetDefault(simnet.Link{Delay: time.Millisecond})
		addr := func(i int) string { return fmt.Sprintf("10.0.0.%d:7000", i) }
		start := func(i, size int) *cluster.Node {
			n, err := cluster.Start(context.Background(), cluster.Config{
				Name: fmt.Sprint("n", i), Cluster: "test", Bind: addr(i), InitialSize: size, TTL: 10 * time.Second,
				Join: []string{addr(1), addr(2), addr(3)}, Network: simnet.HostOf[transport.Endpoint](net, fmt.Sprintf("10.0.0.%d", i)),
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { n.Stop(); time.Sleep(time.Minute) })
			return n
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		nodes := map[int]*cluster.Node{1: start(1, 3), 2: start(2, 3), 3: start(3, 3), 4: start(4, 0)}
		clients := make(map[int]*locks.Client)
		held := make(map[int]*locks.Lock)
		for _, i := range []int{1, 4} {
			c := locks.New(nodes[i], locks.Options{})
			defer c.Close(context.Background())
			var err error
			if held[i], err = c.Acquire(ctx, fmt.Sprint("k", i)); err != nil {
				t.Fatal(err)
			}
			clients[i] = c
		}
		net.Crash("10.0.0.2")
		net.Crash("10.0.0.3")
		nodes[2].Stop()
		nodes[3].Stop()
		time.Sleep(time.Second)
		cluster.SucceedForTest(t, 9, nodes[1])
		lost := func(i int) {
			t.Helper()
			var e *locks.LostError
			if err := context.Cause(held[i].Context()); !errors.As(err, &e) || e.Reason != locks.ClusterReplaced {
				t.Errorf("n%d: the lock ended with %v", i, err)
			}
		}
		lost(1) // before anything else happens
		for i, c := range clients {
			next, err := c.Acquire(ctx, fmt.Sprint("k", 5-i))
			if errors.Is(err, locks.ErrSessionLost) { // the wait began in the old cluster
				next, err = c.Acquire(ctx, fmt.Sprint("k", 5-i))
			}
			if err != nil {
				t.Fatalf("n%d: %v", i, err)
			}
			if next.Token() <= max(held[1].Token(), held[4].Token()) {
				t.Errorf("n%d: token %d after %d and %d", i, next.Token(), held[1].Token(), held[4].Token())
			}
			lost(i)
			if held[i].Err() == nil {
				t.Errorf("n%d: holds in two clusters", i)
			}
		}
	})
}
