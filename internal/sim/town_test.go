package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/internal/history"
	"github.com/wardmote/wardmote/internal/host"
	"github.com/wardmote/wardmote/internal/simnet"
	"github.com/wardmote/wardmote/locks"
	"github.com/wardmote/wardmote/transport"
)

// A town is a cluster in a bubble, with everything that a run needs: the network, the
// sites, the log, the record and the callers.
type town struct {
	t     testing.TB
	shape shape
	net   *simnet.Network
	rec   *history.Recorder
	log   *shadow
	grips *grips
	cover *coverage
	guard map[string]*guard

	began time.Time
	sites []*site
	stops sync.WaitGroup // the ends of processes
	calls sync.WaitGroup // callers
	calm  context.Context
	rest  context.CancelFunc // ends calm

	mu        sync.Mutex
	faults    int
	thaws     int
	questions int               // of holders after a thaw
	leads     lead              // the newest
	seen      []string          // the clusters that processes have entered, the newest last
	led       map[*process]bool // processes that may lead
	parted    map[pair]bool     // by partitions
	boots     map[uint64]*process

	working map[string]int // the works of Elect and Spread that run, by key
	elected map[uint64]string
	shards  int              // of the group, as told
	spreads map[*process]int // the number in the present call
	sights  map[sight]state
	epoch   int
	grants  int
	waits   map[*pending]int64  // calls that have not returned, by their Call
	broken  []history.Violation // found during the run
}

// A lead is a leader's term.
type lead struct {
	term uint64
	by   *process
	at   time.Time
}

// A site is an address with a clock. A process at a time runs there.
type site struct {
	i     int
	ip    string
	clock *host.Clock

	// Guarded by town.mu.
	starts int
	now    *process // nil: none
	gone   chan struct{}
	frozen bool
	troubles
}

// A process is one life of a member.
type process struct {
	site   *site
	name   string // unique: the member's name and the number of the start
	node   *cluster.Node
	disk   *host.Disk
	failed bool   // its store has failed: it votes no more
	member string // of this cluster; under town.mu
	ended  bool   // nobody sees anything of it any more; under town.mu
	ctx    context.Context
	cancel context.CancelFunc

	mu      sync.Mutex
	clients []*locks.Client
}

// network is a site's network, with its clock and the process's disk.
type network struct {
	view
	at host.Host
}

type view = simnet.Host[transport.Endpoint]

func (n network) Host() host.Host { return n.at }

// newTown lays out the sites. The bubble's clock, made unique, is the history's.
func newTown(t testing.TB, s shape) *town {
	w := &town{t: t, shape: s, began: time.Now(), net: simnet.New(s.seed), grips: newGrips(), guard: make(map[string]*guard), led: make(map[*process]bool), parted: make(map[pair]bool), boots: make(map[uint64]*process), working: make(map[string]int), elected: make(map[uint64]string), shards: shards, spreads: make(map[*process]int), sights: make(map[sight]state), waits: make(map[*pending]int64)}
	var mu sync.Mutex
	var last int64
	start := time.Now().Add(-time.Second)
	w.rec = history.NewRecorder(func() int64 {
		mu.Lock()
		defer mu.Unlock()
		last = max(last+1, int64(time.Since(start)))
		return last
	})
	w.log = newShadow(w)
	w.cover = newCoverage(w)
	w.calm, w.rest = context.WithCancel(context.Background())
	w.net.SetDefault(wholeLink)
	for i := range s.members {
		at := &site{i: i, ip: fmt.Sprintf("10.0.0.%d", i+1), clock: host.NewClock(time.Duration(i+1) * 1000 * time.Hour)}
		at.clock.Set(s.rate(i), s.offset(i))
		w.sites = append(w.sites, at)
	}
	return w
}

// start begins the next process of a site, which must have none.
func (w *town) start(s *site) *process {
	if s.gone != nil {
		<-s.gone // a Dir is opened by one process at a time
	}
	w.mu.Lock()
	s.starts++
	first := s.starts == 1
	name := fmt.Sprintf("member-%d/%d", s.i, s.starts)
	w.mu.Unlock()
	p := &process{site: s, name: name, disk: &host.Disk{Applied: w.log.applied, Log: w.shape.log}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	cfg := cluster.Config{
		Name: fmt.Sprint("member-", s.i), Bind: s.ip + ":7000", TTL: w.shape.ttl,
		Network: network{simnet.HostOf[transport.Endpoint](w.net, s.ip), host.Host{Clock: s.clock, Disk: p.disk}},
		Logger:  w.logger(name),
	}
	cfg.Voting.Voters = w.shape.voters
	cfg.Voting.Thin = s.i >= w.shape.members-w.shape.thin
	if !cfg.Voting.Thin && (first || w.shape.dir != noDir || w.shape.complete) && (w.shape.complete || w.shape.dir != noDir || s.i < w.shape.founders()) {
		cfg.InitialSize = w.shape.founders()
	}
	for _, other := range w.sites {
		if other != s || w.shape.complete {
			cfg.Join = append(cfg.Join, other.ip+":7000")
		}
	}
	cfg.Recovery.JoinIsComplete = w.shape.complete
	if w.shape.dir != noDir && !cfg.Voting.Thin {
		cfg.Dir = filepath.Join(w.shape.path, s.ip)
		if w.shape.dir == dirBoot {
			cfg.Voting.Sync = cluster.SyncBoot
		}
	}
	cfg.Security.Secrets = w.shape.currentSecrets()
	cfg.Events = func(_ context.Context, e cluster.Event) { w.event(p, e) }
	node, err := cluster.Start(context.Background(), cfg)
	if err != nil {
		w.breaks("start", "%s: %v", name, err)
		return nil
	}
	boot := node.Report().Own.Boot
	w.mu.Lock()
	p.node, w.boots[boot] = node, p
	s.now, s.gone = p, make(chan struct{})
	w.mu.Unlock()
	w.rec.Mark(history.Start, name, "")
	return p
}

// event notes who leads.
func (w *town) event(p *process, e cluster.Event) {
	w.rec.Mark("event", p.name, e.String())
	if e.Kind == cluster.ClusterFounded && w.enter(p, e.Detail) && w.shape.complete && time.Since(w.began) > time.Minute/2 {
		w.rec.Mark(history.Succeeded, p.name, "")
	}
	if e.Kind != cluster.LeaderChanged || e.Member.Name != fmt.Sprint("member-", p.site.i) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.led[p] = true
	if e.Term > w.leads.term {
		w.leads = lead{e.Term, p, time.Now()}
	}
}

// enter notes that p is in another cluster, whose ID begins the text, and reports whether p is
// the first one there.
func (w *town) enter(p *process, text string) (isNew bool) {
	id, _, _ := strings.Cut(text, ",")
	id, _, _ = strings.Cut(id, ";")
	w.mu.Lock()
	defer w.mu.Unlock()
	p.member = id
	if isNew = !slices.Contains(w.seen, id); isNew {
		w.seen = append(w.seen, id)
	}
	return isNew
}

// remembered reports whether a process of another site is in the newest cluster. With the last
// such process that has no Dir the tokens of the cluster are lost, and those of the next one
// rest on its founder's clock, which may be behind by hours here.
func (w *town) remembered(s *site) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.seen) == 0 {
		return true
	}
	return slices.ContainsFunc(w.sites, func(o *site) bool {
		return o != s && o.now != nil && o.now.member == w.seen[len(w.seen)-1]
	})
}

// client makes a client on p.
func (w *town) client(p *process, opts locks.Options) *locks.Client {
	c := locks.New(p.node, opts)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clients = append(p.clients, c)
	return c
}

// running returns the process of a site, or nil.
func (w *town) running(s *site) *process {
	w.mu.Lock()
	defer w.mu.Unlock()
	return s.now
}

// kill ends a process as kill -9 does: its callers see nothing from now on.
func (w *town) kill(s *site) {
	p := w.running(s)
	if p == nil {
		return
	}
	w.over(p, "killed")
	w.net.Crash(s.ip)
	s.clock.Thaw()
	p.disk.Heal()
	w.mu.Lock()
	gone := s.gone
	s.now, s.frozen, s.paused = nil, false, false // cuts stay, a pause does not
	w.mu.Unlock()
	w.stops.Go(func() {
		defer close(gone)
		// The endpoint of a crashed host is closed already.
		if err := p.node.Stop(); err != nil && !errors.Is(err, net.ErrClosed) {
			w.breaks("stop", "%s: %v", p.name, err)
		}
		w.closeClients(p)
	})
}

// over notes that the callers of p see nothing from now on.
func (w *town) over(p *process, how string) {
	w.mu.Lock()
	p.ended = true
	w.mu.Unlock()
	w.grips.dead(p)
	w.rec.Mark(history.Kill, p.name, how)
	w.rec.End(p.name)
	p.cancel()
}

// stop ends a process as its SIGTERM handler does: its clients close, and the node stops
// or leaves.
func (w *town) stop(s *site, leave bool) {
	p := w.running(s)
	if p == nil {
		return
	}
	w.rec.Mark(history.Fault, p.name, fmt.Sprintf("stops, leaves: %v", leave))
	p.cancel() // its callers return
	w.mu.Lock()
	gone := s.gone
	s.now = nil
	w.mu.Unlock()
	w.stops.Go(func() {
		defer close(gone)
		w.closeClients(p)
		end := p.node.Stop
		if leave {
			end = func() error {
				ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
				defer cancel()
				return p.node.Leave(ctx)
			}
		}
		if err := end(); err != nil && !leave && !errors.Is(err, net.ErrClosed) {
			w.breaks("stop", "%s: %v", p.name, err)
		}
		w.over(p, "stopped")
	})
}

func (w *town) closeClients(p *process) {
	p.mu.Lock()
	clients := p.clients
	p.mu.Unlock()
	for _, c := range clients {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		_ = c.Close(ctx)
		cancel()
	}
}

// breaks records a violation that the run itself found.
func (w *town) breaks(check, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.broken = append(w.broken, history.Violation{Check: check, At: w.rec.Now(), Text: fmt.Sprintf(format, args...)})
}

// logger returns the logger of a node: WARDMOTE_TEST_LOG names a file.
func (w *town) logger(name string) *slog.Logger {
	file := os.Getenv("WARDMOTE_TEST_LOG")
	if file == "" {
		return nil
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { f.Close() })
	return slog.New(slog.NewTextHandler(f, &slog.HandlerOptions{Level: slog.LevelDebug})).With("process", name)
}

// end stops everything that runs.
func (w *town) end() {
	w.heal()
	for _, s := range w.sites {
		w.stop(s, false)
	}
	w.stops.Wait()
}
