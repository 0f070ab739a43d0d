package scale

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/internal/simnet"
	"github.com/wardmote/wardmote/internal/testrounds"
	"github.com/wardmote/wardmote/locks"
	"github.com/wardmote/wardmote/transport"
)

// TestMain runs the tests on one thread: the goroutines of a bubble wait for each other.
func TestMain(m *testing.M) {
	runtime.GOMAXPROCS(1)
	testrounds.CollectRarely()
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(14 << 30) // 900 members keep 5 GB alive while they join, and five times that is more than a host has
	}
	os.Exit(m.Run())
}

const (
	ttl       = 10 * time.Second // the default
	voters    = 3
	locksEach = 4 // held by each client
)

// A town is a cluster of three voters and many thin members on a simulated network, with a
// client on each member.
type town struct {
	t         *testing.T
	net       *simnet.Network
	residents []*resident // the voters first; nil: killed
	stops     sync.WaitGroup
}

// A resident is a member with its client.
type resident struct {
	name, host string
	node       *cluster.Node
	client     *locks.Client
	held       []*locks.Lock

	mu      sync.Mutex
	leaders []attachment
}

// An attachment is the news that the leader of a term serves a resident.
type attachment struct {
	at   time.Time
	term uint64
}

// inTown runs f in a bubble with a town of so many thin members, in which every client
// holds its locks.
func inTown(t *testing.T, thin int, f func(w *town)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &town{t: t, net: simnet.New(1)}
		w.net.SetDefault(simnet.Link{Delay: time.Millisecond})
		defer w.end()
		// A hundred at a time, each when most news of those before is over: each newcomer is dialled
		// by all, and each member makes a new list of all at each news. For hundreds at once
		// that takes more memory than a host has.
		const together = 100
		for i := range voters + thin {
			w.residents = append(w.residents, w.settle(i))
			if n := i + 1; n%together == 0 || n == voters+thin {
				for _, r := range w.residents[(n-1)/together*together:] {
					w.ready(r)
				}
				if n < voters+thin {
					time.Sleep(5 * time.Second)
				}
			}
		}
		var taken sync.WaitGroup
		for _, r := range w.residents {
			taken.Go(func() { r.hold(t) })
		}
		taken.Wait()
		if t.Failed() {
			return
		}
		f(w)
	})
}

// settle starts the member with a number, with a client.
func (w *town) settle(i int) *resident {
	w.t.Helper()
	r := &resident{name: fmt.Sprintf("m%04d", i), host: host(i)}
	cfg := cluster.Config{
		Name: r.name, Cluster: "town", Bind: r.host + ":7000", TTL: ttl,
		Network: simnet.HostOf[transport.Endpoint](w.net, r.host),
		Events: func(_ context.Context, e cluster.Event) {
			if e.Kind == cluster.LeaderChanged {
				r.mu.Lock()
				r.leaders = append(r.leaders, attachment{time.Now(), e.Term})
				r.mu.Unlock()
			}
		},
	}
	for v := range voters {
		if v != i {
			cfg.Join = append(cfg.Join, host(v)+":7000")
		}
	}
	cfg.Voting.Thin = i >= voters
	if i < voters && len(w.residents) < voters {
		cfg.InitialSize = voters
	}
	node, err := cluster.Start(context.Background(), cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	r.node, r.client = node, locks.New(node, locks.Options{})
	return r
}

// host returns the address of a member's host.
func host(i int) string { return fmt.Sprintf("10.%d.%d.1", i/250, i%250) }

func (w *town) ready(r *resident) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	if err := r.node.Ready(ctx); err != nil {
		w.t.Fatalf("%s is not ready: %v", r.name, err)
	}
}

// hold has the resident's client take its locks.
func (r *resident) hold(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for i := range locksEach {
		l, err := r.client.Acquire(ctx, fmt.Sprintf("%s/%d", r.name, i))
		if err != nil {
			t.Errorf("%s: %v", r.name, err)
			return
		}
		r.held = append(r.held, l)
	}
}

// living returns the residents that were not killed.
func (w *town) living() []*resident {
	return slices.DeleteFunc(slices.Clone(w.residents), func(r *resident) bool { return r == nil })
}

// leader returns the number of the voter that leads.
func (w *town) leader() int {
	w.t.Helper()
	for range 100 {
		for i, r := range w.residents[:voters] {
			if r == nil {
				continue
			}
			if m, ok := r.node.Leader(); ok && m.Self {
				return i
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	w.t.Fatal("nobody leads")
	return -1
}

// kill ends a resident as kill -9 does. Time does not pass.
func (w *town) kill(i int) {
	r := w.residents[i]
	w.residents[i] = nil
	w.net.Crash(r.host)
	w.stops.Go(r.stop)
}

func (r *resident) stop() {
	_ = r.node.Stop() // its endpoint may be closed already
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = r.client.Close(ctx) // the cluster has ended
}

// end ends all members at one moment.
func (w *town) end() {
	for i, r := range w.residents {
		if r != nil {
			w.kill(i)
		}
	}
	w.stops.Wait()
	time.Sleep(time.Minute) // the libraries' last goroutines end
}

// lost counts the locks of living residents, but for some, that have ended.
func (w *town) lost(but *resident) (n int) {
	for _, r := range w.living() {
		if r == but {
			continue
		}
		for _, l := range r.held {
			if err := l.Err(); err != nil {
				if n++; n <= 5 {
					w.t.Logf("%s: %v", r.name, err)
				}
			}
		}
	}
	return n
}
