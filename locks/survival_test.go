package locks_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/internal/simnet"
	"github.com/wardmote/wardmote/internal/testrounds"
	"github.com/wardmote/wardmote/locks"
	"github.com/wardmote/wardmote/transport"
)

// Processes end at random, one every 1 to 30 s, and start again 0 to 20 s later at
// their addresses, while partitions come and go. weather_test.go has the faults.
// Meanwhile no two holders' contexts overlap and tokens rise. Once the last fault is
// over and every process runs, the cluster grants again, without an operator.
//
//   - In memory, with a complete Join: every process that starts again has lost its
//     memory, and some have another name.
//   - With a Dir: every process comes back on its disk.
//   - In memory, without a complete Join: all processes are started again one by one
//     after the last fault.
func TestRandomKillsNeverEndACluster(t *testing.T) {
	for _, d := range []deployment{
		{name: "memory", members: 5, complete: true},
		{name: "memory", members: 9, complete: true},
		{name: "dir", members: 5, dir: true},
		{name: "dir", members: 9, dir: true},
		{name: "one by one", members: 5},
		{name: "one by one", members: 9},
	} {
		t.Run(fmt.Sprintf("%s/%d", d.name, d.members), func(t *testing.T) {
			if d.members > 5 && survivalRounds() == 1 {
				t.Skip("five members do for a plain run")
			}
			var took []time.Duration
			for range survivalRounds() {
				synctest.Test(t, func(t *testing.T) { took = append(took, d.survive(t, survivalSeed())) })
				if t.Failed() {
					return
				}
			}
			slices.Sort(took)
			t.Logf("all granted again after %v at the median of %d rounds, %v at most", took[len(took)/2], len(took), took[len(took)-1])
		})
	}
}

// survivalRounds returns how many bubbles each deployment gets. WARDMOTE_SURVIVAL
// overrides the number.
func survivalRounds() int {
	if n, err := strconv.Atoi(os.Getenv("WARDMOTE_SURVIVAL")); err == nil {
		return n
	}
	return testrounds.Rounds(1, 5)
}

// survivalFaults returns the duration of the faults.
func survivalFaults() time.Duration {
	if testrounds.Full() || os.Getenv("WARDMOTE_SURVIVAL") != "" {
		return 3 * time.Minute
	}
	return time.Minute
}

// survivalSeed returns the seed in WARDMOTE_SEED, or a random seed.
func survivalSeed() uint64 {
	if n, err := strconv.ParseUint(os.Getenv("WARDMOTE_SEED"), 10, 64); err == nil {
		return n
	}
	return rand.Uint64()
}

// deployment says how the processes of a town are configured.
type deployment struct {
	name     string
	members  int
	complete bool // Join lists every address
	dir      bool // every member has a Dir
}

// survivalPatience bounds the time from the last fault until every process has been
// granted a lock. The longest way is a succession whose first ballot fails: members
// wait 5 s for a leader (timing.SuccessionPatience), a ballot with retirements lasts
// 10 s at most (timing.Retirement), the pause after it 12 s, the second ballot 10 s
// again, and the successor is silent for a TTL, 10 s at most. The rest is for joining
// and for elections.
const survivalPatience = time.Minute

// A town is a deployment under faults: at each address runs one process at a time,
// with one client that acquires and releases.
type town struct {
	deployment
	weather
	t      *testing.T
	net    *simnet.Network
	r      *rand.Rand
	dir    string
	ledger *ledger

	wg     sync.WaitGroup // contenders, and the ends of killed nodes
	houses []*house
	cut    [2][]string // the groups of the last partition
	both   bool        // the partition is cut both ways

	mu     sync.Mutex
	events []string
}

// house is an address, with the process that runs there.
type house struct {
	host    string
	starts  int
	name    string // "": the default, which derives from the address
	process *process
	stopped chan struct{} // closed when the node of the ended process has stopped
	up      time.Time     // when the next process is to start
	thaw    time.Time     // when the frozen process is to go on; zero: not frozen
}

type process struct {
	node   *cluster.Node
	client *locks.Client
	by     string
	cancel context.CancelFunc
}

// survive plays one random schedule, and returns how long the first grant took
// after the last fault.
func (d deployment) survive(t *testing.T, seed uint64) (took time.Duration) {
	w := &town{
		deployment: d, t: t, net: simnet.New(seed), r: rand.New(rand.NewPCG(seed, 5)), dir: t.TempDir(),
		ledger: &ledger{t: t, held: make(map[*held]bool), tokens: make(map[string]fence.Token)},
	}
	w.weather = d.forecast(w.r)
	w.tell("%+v", w.weather)
	w.net.SetDefault(simnet.Link{Delay: time.Millisecond})
	for i := range d.members {
		w.houses = append(w.houses, &house{host: fmt.Sprintf("10.0.0.%d", i+1)})
	}
	defer w.end(seed)
	for _, h := range w.houses {
		w.open(h)
	}
	w.faults()
	if w.r.IntN(2) == 0 { // else the cluster is most likely granting
		w.massacre()
		time.Sleep(w.between(0, 10*time.Second))
	}
	w.net.Heal()
	stagger := w.r.IntN(2) == 0
	for _, h := range w.houses {
		if h.process == nil {
			w.open(h)
			if stagger {
				time.Sleep(w.between(0, 5*time.Second))
			}
		}
	}
	if !d.complete && !d.dir {
		w.restartOneByOne()
	}
	return w.grantsAgain()
}

// open starts a process at h. In memory, with a complete Join, one start in four
// takes a name that was never used before.
func (w *town) open(h *house) {
	if h.stopped != nil {
		<-h.stopped // a second process cannot open the Dir
	}
	h.starts++
	h.thaw = time.Time{}
	if h.starts > 1 && w.complete && w.r.IntN(4) == 0 {
		h.name = fmt.Sprintf("fresh-%s-%d", h.host, h.starts)
	}
	cfg := cluster.Config{
		Name: h.name, Bind: h.host + ":7000", InitialSize: w.first, TTL: w.ttl,
		Network: simnet.HostOf[transport.Endpoint](w.net, h.host), Logger: w.logger(),
	}
	cfg.Voting.Voters, cfg.Voting.Thin = w.voters, w.isThin(h)
	if cfg.Voting.Thin {
		cfg.InitialSize = 0
	}
	for _, other := range w.houses {
		cfg.Join = append(cfg.Join, other.host+":7000")
	}
	cfg.Recovery.JoinIsComplete = w.complete
	if w.deployment.dir {
		cfg.Dir = filepath.Join(w.dir, h.host)
	}
	by := fmt.Sprintf("%s.%d", h.host, h.starts)
	cfg.Events = func(_ context.Context, e cluster.Event) { w.tell("%s %v", by, e) }
	node, err := cluster.Start(context.Background(), cfg)
	if err != nil {
		w.t.Fatalf("start %s: %v", by, err)
	}
	w.tell("%s started as %s", by, node.Name())
	ctx, cancel := context.WithCancel(context.Background())
	h.process = &process{node: node, client: locks.New(node, locks.Options{}), by: by, cancel: cancel}
	c := &contender{
		t: w.t, ledger: w.ledger, name: by, client: h.process.client, ctx: ctx,
		r: rand.New(rand.NewPCG(w.r.Uint64(), 4)), ttl: w.ttl,
	}
	w.wg.Go(func() {
		for ctx.Err() == nil {
			h := c.acquire(at(fmt.Sprint("key-", c.r.IntN(3))))
			c.hold(h)
			if h == nil {
				time.Sleep(time.Millisecond) // the node may be stopping, and answers at once
			}
		}
	})
}

// kill ends the process at h as kill -9 does.
func (w *town) kill(h *house) {
	p := h.process
	w.tell("%s killed", p.by)
	w.net.Crash(h.host)
	w.ledger.mu.Lock()
	p.cancel()
	for o := range w.ledger.held {
		o.dead = o.dead || o.by == p.by
	}
	w.ledger.mu.Unlock()
	w.close(h)
}

// stop ends the process at h as its own SIGTERM handler does.
func (w *town) stop(h *house) {
	w.tell("%s told to stop", h.process.by)
	w.close(h)
}

// close stops the node at h, and plans the next process there.
func (w *town) close(h *house) {
	p := h.process
	h.process, h.stopped, h.up = nil, make(chan struct{}), time.Now().Add(w.between(0, 20*time.Second))
	stopped := h.stopped
	w.wg.Go(func() {
		defer close(stopped)
		// The endpoint of a crashed host is closed already.
		if err := p.node.Stop(); err != nil && !errors.Is(err, net.ErrClosed) {
			w.t.Errorf("stop %s: %v", p.by, err)
		}
		p.cancel()
		w.tell("%s stopped", p.by)
	})
}

// restartOneByOne kills each process and starts the next process at once.
func (w *town) restartOneByOne() {
	for _, h := range w.houses {
		w.kill(h)
		w.open(h)
		time.Sleep(w.between(time.Second, 10*time.Second))
	}
}

// grantsAgain waits until every process has been granted a lock since now.
func (w *town) grantsAgain() time.Duration {
	began := time.Now()
	w.tell("no more faults")
	for _, h := range w.houses {
		ctx, cancel := context.WithDeadline(context.Background(), began.Add(survivalPatience))
		l, err := h.process.client.Acquire(ctx, "after/"+h.host)
		for errors.Is(err, locks.ErrSessionLost) { // a session of before the last fault, found lost only now
			l, err = h.process.client.Acquire(ctx, "after/"+h.host)
		}
		if err != nil {
			w.t.Errorf("%s is not granted a lock %v after the last fault: %v", h.process.by, time.Since(began), err)
		} else {
			_ = l.Release(ctx)
		}
		cancel()
	}
	return time.Since(began)
}

// end stops everything.
func (w *town) end(seed uint64) {
	w.net.Heal()
	for _, h := range w.houses {
		p := h.process
		if p == nil {
			continue
		}
		p.cancel()
		w.wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			_ = p.client.Close(ctx)
			if err := p.node.Stop(); err != nil && !errors.Is(err, net.ErrClosed) {
				w.t.Errorf("stop %s: %v", p.by, err)
			}
		})
	}
	w.wg.Wait()
	time.Sleep(time.Minute) // the libraries' last goroutines end
	if w.t.Failed() {
		w.t.Logf("seed %d (the order of goroutines is not repeated); %d grants", seed, w.ledger.grants)
		for _, e := range w.events {
			w.t.Log(e)
		}
	}
}

func (w *town) tell(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, time.Now().Format("04:05.000 ")+fmt.Sprintf(format, args...))
}

// logger returns the logger of the nodes: WARDMOTE_TEST_LOG names a file.
func (w *town) logger() *slog.Logger {
	name := os.Getenv("WARDMOTE_TEST_LOG")
	if name == "" {
		return slog.New(slog.DiscardHandler)
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { f.Close() })
	return slog.New(slog.NewTextHandler(f, &slog.HandlerOptions{Level: slog.LevelDebug}))
}
