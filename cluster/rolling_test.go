package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"path/filepath"
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

// rollout is a deployment. Its processes are replaced in turn, the next as soon as
// the last is ready.
type rollout struct {
	t    *testing.T
	net  *simnet.Network
	dir  string // of all members; "": in memory
	size int

	mu      sync.Mutex
	members map[string]*instance // running
	starts  int

	lost   []string      // locks that ended although their process ran
	gap    time.Duration // the longest time that a running process waited for a free key
	voters int           // the least number of running voters, once all have come
	slow   time.Duration // the longest time until a new process was ready
}

// instance is a process of a member: it holds a lock, and takes another again and
// again.
type instance struct {
	name   string
	start  int // 1 is the first process of the test
	node   *cluster.Node
	client *locks.Client
	end    context.CancelFunc // the process is about to end
	work   sync.WaitGroup
}

func host(i int) string { return fmt.Sprintf("10.0.0.%d", i+1) }

// start starts a process of member i, and lets it work once it is ready.
func (r *rollout) start(i int) {
	cfg := cluster.Config{
		Name: fmt.Sprint("m", i), Bind: host(i) + ":7000", TTL: 5 * time.Second, InitialSize: min(3, r.size),
		Network: simnet.HostOf[transport.Endpoint](r.net, host(i)),
	}
	for j := range min(r.size, 5) {
		cfg.Join = append(cfg.Join, host(j)+":7000")
	}
	if i >= 3 {
		cfg.InitialSize = 0
	}
	if r.dir != "" {
		cfg.Dir = filepath.Join(r.dir, cfg.Name)
	}
	node, err := cluster.Start(context.Background(), cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	p := &instance{name: cfg.Name, node: node, client: locks.New(node, locks.Options{})}
	r.mu.Lock()
	r.starts++
	p.start = r.starts
	r.members[cfg.Name] = p
	r.mu.Unlock()
}

// ready waits until a member is ready, and starts its work.
func (r *rollout) ready(i int) {
	r.t.Helper()
	p := r.member(i)
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	if err := p.node.Ready(ctx); err != nil {
		r.t.Fatalf("%s is not ready: %v", p.name, err)
	}
	r.mu.Lock()
	r.slow = max(r.slow, time.Since(began))
	r.mu.Unlock()
	ctx, p.end = context.WithCancel(context.Background())
	p.work.Go(func() { r.hold(ctx, p) })
	p.work.Go(func() { r.probe(ctx, p) })
}

func (r *rollout) member(i int) *instance {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.members[fmt.Sprint("m", i)]
}

// hold holds a lock until the process is about to end.
func (r *rollout) hold(ctx context.Context, p *instance) {
	l, err := p.client.Acquire(ctx, "of "+p.name)
	if err != nil {
		if ctx.Err() == nil {
			r.lose(p, err)
		}
		return
	}
	select {
	case <-ctx.Done():
	case <-l.Context().Done():
		if ctx.Err() == nil {
			r.lose(p, context.Cause(l.Context()))
		}
	}
}

func (r *rollout) lose(p *instance, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lost = append(r.lost, fmt.Sprintf("%s: %v", p.name, err))
}

// probe takes and releases a free key again and again. The key is the process's own:
// a member's earlier process that was killed may have died with its key, which is
// taken until the TTL has passed.
func (r *rollout) probe(ctx context.Context, p *instance) {
	key := fmt.Sprintf("probe of %s %d", p.name, p.start)
	pause := 50 * time.Millisecond
	if r.dir != "" {
		pause = 200 * time.Millisecond // each entry costs the flushes of real files
	}
	for ctx.Err() == nil {
		began := time.Now()
		l, err := p.client.Acquire(ctx, key)
		if err == nil {
			err = l.Release(ctx)
		}
		if ctx.Err() != nil {
			return
		}
		r.mu.Lock()
		r.gap = max(r.gap, time.Since(began))
		r.mu.Unlock()
		if err != nil {
			r.lose(p, err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// stop ends a process by SIGTERM: the program only stops its node.
func (r *rollout) stop(i int) {
	p := r.take(i)
	if err := p.node.Stop(); err != nil {
		r.t.Errorf("stop %s: %v", p.name, err)
	}
	r.close(p)
}

// kill ends a process by kill -9.
func (r *rollout) kill(i int) {
	p := r.take(i)
	r.net.Crash(host(i))
	if err := p.node.Kill(); err != nil && !errors.Is(err, net.ErrClosed) {
		r.t.Errorf("kill %s: %v", p.name, err)
	}
	r.close(p)
}

// take takes a process out of the running processes: the end of its locks is no loss
// now.
func (r *rollout) take(i int) *instance {
	p := r.member(i)
	r.mu.Lock()
	delete(r.members, p.name)
	r.mu.Unlock()
	p.end()
	return p
}

func (r *rollout) close(p *instance) {
	p.work.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_ = p.client.Close(ctx)
}

// watch counts the running voters until stop.
func (r *rollout) watch(stop <-chan struct{}) {
	for {
		r.mu.Lock()
		members := slices.Collect(maps.Values(r.members))
		r.mu.Unlock()
		var voters, running []string
		leaders := 0
		for _, p := range members {
			running = append(running, p.node.RaftID())
			if ids, leads := p.node.RaftVoters(); leads {
				leaders, voters = leaders+1, ids
			}
		}
		if leaders == 1 { // not in the middle of an election
			n := 0
			for _, id := range voters {
				if slices.Contains(running, id) {
					n++
				}
			}
			r.mu.Lock()
			r.voters = min(r.voters, n)
			r.mu.Unlock()
		}
		select {
		case <-stop:
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Every process is replaced, each time the next one as soon as readiness says so.
func TestARollingRestartCostsNoLock(t *testing.T) {
	t.Parallel() // waits for the disk
	for _, size := range []int{3, 5, 9} {
		for _, durable := range []bool{false, true} {
			for _, kill := range []bool{false, true} {
				if !testrounds.Full() && size > 3 {
					continue
				}
				name := fmt.Sprintf("%d members, Dir %t, kill %t", size, durable, kill)
				t.Run(name, func(t *testing.T) {
					dir := ""
					if durable {
						dir = t.TempDir()
					}
					synctest.Test(t, func(t *testing.T) { rollAll(t, size, dir, kill) })
				})
			}
		}
	}
}

func rollAll(t *testing.T, size int, dir string, kill bool) {
	r := &rollout{t: t, net: simnet.New(1), dir: dir, size: size, members: make(map[string]*instance), voters: size}
	r.net.SetDefault(simnet.Link{Delay: time.Millisecond})
	for i := range size {
		r.start(i)
	}
	for i := range size {
		r.ready(i)
	}
	time.Sleep(5 * time.Second)
	r.mu.Lock()
	r.gap, r.slow, r.lost = 0, 0, nil
	r.mu.Unlock()
	stop := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() { r.watch(stop) })
	began := time.Now()
	for i := range size {
		if kill {
			r.kill(i)
		} else {
			r.stop(i)
		}
		r.start(i)
		r.ready(i)
	}
	took := time.Since(began)
	close(stop)
	watch.Wait()
	t.Logf("%v; least voters %d, longest gap %v, ready after %v at most, locks lost %d",
		took.Round(time.Millisecond), r.voters, r.gap.Round(time.Millisecond), r.slow.Round(time.Millisecond), len(r.lost))
	if len(r.lost) > 0 {
		t.Errorf("locks of running processes were lost: %q", r.lost)
	}
	if r.gap >= 2*time.Second {
		t.Errorf("a running process waited for %v", r.gap)
	}
	if r.voters < 2 {
		t.Errorf("%d voters were left", r.voters)
	}
	var ends sync.WaitGroup
	for i := range size {
		ends.Go(func() { r.stop(i) })
	}
	ends.Wait()
	time.Sleep(time.Minute) // the libraries' last goroutines end
}
