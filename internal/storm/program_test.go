//go:build linux

package storm

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/internal/history"
	"github.com/wardmote/wardmote/internal/host"
	"github.com/wardmote/wardmote/internal/testrounds"
	"github.com/wardmote/wardmote/locks"
	"github.com/wardmote/wardmote/transport"
)

// program is a running member with its work.
type program struct {
	s       settings
	rec     *history.Recorder
	node    *cluster.Node
	clients []*client
	store   *storeClient
	at      host.Host

	quiet context.CancelFunc // ends the work
	work  sync.WaitGroup
	sick  sync.WaitGroup // what the commands disk and clock have started
	ended context.Context

	mu      sync.Mutex
	out     *json.Encoder
	held    map[string]*grant // by the command acquire
	running map[string]int    // the works of Elect and Spread, by key
}

// client is a client of the library, with its name in the records.
type client struct {
	*locks.Client
	name string
}

// network is the host's network, with the seam through which a member's disk and clock
// are replaced.
type network struct {
	transport.Network
	at host.Host
}

func (n network) Host() host.Host { return n.at }

// cutShort begins a line of the log of a member whose record is not whole.
const cutShort = "record cut short:"

// runMember is a member's program. SIGTERM ends the member gracefully, and so does the
// end of the input.
func runMember(s settings) error {
	file, err := os.OpenFile(s.Record, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	p := &program{
		s: s, rec: history.NewWriter(func() int64 { return monotonic(s.Shift) }, file),
		out: json.NewEncoder(os.Stdout), held: make(map[string]*grant), running: make(map[string]int), at: host.Host{Disk: new(host.Disk)},
	}
	p.at.Disk.Applied = func(index uint64, entry []byte, _ time.Time) {
		if index%16 == 0 {
			p.rec.Mark(applied, s.Process, fmt.Sprintf("%d %08x", index, crc32.ChecksumIEEE(entry)))
		}
	}
	if s.OwnClock {
		p.at.Clock = host.NewClock(time.Hour)
	}
	stalls := testrounds.WatchStalls(func(d time.Duration) { p.rec.Mark("stalled", s.Process, fmt.Sprint(int64(d))) })
	defer stalls.Stop()
	if p.store, err = dialStore(s.Store); err != nil {
		return err
	}
	defer p.store.Close()
	if p.node, err = cluster.Start(ctx, p.config()); err != nil {
		return err
	}
	var cancel context.CancelFunc
	p.ended, cancel = context.WithCancel(context.Background())
	for i, ttl := range []time.Duration{s.TTL, s.ShortTTL} {
		name := fmt.Sprint(s.Process, "/", i)
		p.clients = append(p.clients, &client{locks.New(p.node, locks.Options{Name: name, TTL: ttl, Trace: p.trace(name)}), name})
	}
	working, quiet := context.WithCancel(ctx)
	p.quiet = quiet
	p.startWork(working)
	lines := make(chan struct{})
	go func() {
		defer close(lines)
		p.listen(ctx, os.Stdin)
	}()
	select {
	case <-ctx.Done():
	case <-lines:
	case <-p.node.Done():
	}
	failure := p.node.Err()
	quiet()
	cancel()
	p.at.Disk.Heal()
	failure = errors.Join(failure, p.end())
	if err := p.rec.Err(); err != nil {
		fmt.Fprintln(os.Stderr, cutShort, err)
	}
	return failure
}

// end closes everything. No command can block it: a closed client fails all calls.
func (p *program) end() error {
	bounded, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var errs []error
	for _, c := range p.clients {
		if err := c.Close(bounded); err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, cluster.ErrNoQuorum) {
			errs = append(errs, err)
		}
	}
	p.work.Wait()
	p.sick.Wait()
	return errors.Join(append(errs, p.node.Stop())...)
}

func (p *program) config() cluster.Config {
	cfg := cluster.Config{
		Name: p.s.Name, Cluster: "storm", Bind: p.s.Bind, Dir: p.s.Dir, Join: p.s.Join, InitialSize: p.s.InitialSize, TTL: p.s.TTL,
		Security: cluster.Security{Secrets: p.s.Secrets, Insecure: len(p.s.Secrets) == 0},
		Recovery: cluster.Recovery{JoinIsComplete: p.s.JoinIsComplete},
		Voting:   cluster.Voting{Voters: p.s.Voters},
		Network:  network{transport.TCP(), p.at},
		Logger:   slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Events: func(_ context.Context, e cluster.Event) {
			switch e.Kind {
			case cluster.LeaderChanged:
				p.tell(report{News: "leader", Key: e.Member.Name, Term: e.Term})
			case cluster.NodeFailed:
				p.tell(report{News: "failed", Detail: e.String()})
			}
		},
	}
	if cfg.Dir != "" {
		cfg.Voting.Sync = p.s.Sync
	}
	return cfg
}

// listen obeys commands until the input ends.
func (p *program) listen(ctx context.Context, in io.Reader) {
	lines := bufio.NewScanner(in)
	var obeying sync.WaitGroup
	defer obeying.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for lines.Scan() {
		var c command
		if json.Unmarshal(lines.Bytes(), &c) == nil {
			obeying.Go(func() { p.obey(ctx, c) })
		}
	}
}

// worksOn counts the works that run.
func (p *program) worksOn(key string, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running[key] += n
}

func (p *program) tell(r report) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.out.Encode(r) // without a reader the program ends soon
}

// obey carries out a command and tells the result.
func (p *program) obey(ctx context.Context, c command) {
	ctx, cancel := context.WithTimeout(ctx, c.Wait)
	defer cancel()
	r := report{ID: c.ID, Key: c.Key}
	var err error
	switch c.Do {
	case "ready":
		err = p.node.Ready(ctx)
	case "voters": // by name, and the leader as Key
		h := p.node.Health(ctx)
		r.Key, err = h.Leader, h.Err
		for _, m := range p.node.Members() {
			if m.Voter {
				r.Detail += m.Name + " "
			}
		}
	case "acquire": // Key, and keep it, with a goroutine that asks Err again and again
		r.Token, err = p.hold(ctx, c.Key)
	case "release":
		err = p.letGo(ctx, c.Key)
	case "visit": // acquire Key as soon as possible, and release it
		err = p.visit(ctx, c.Key)
	case "works": // the keys of the works of Elect and Spread that run
		p.mu.Lock()
		for key, n := range p.running {
			if n > 0 {
				r.Detail += key + " "
			}
		}
		p.mu.Unlock()
	case "valid": // ask Err of the lock of Key
		if g := p.holds(c.Key); g == nil || !g.valid() {
			err = locks.ErrLost
		}
	case "renew": // the lock of Key, as long as Wait, and count the confirmed beats
		r.Token, err = p.renew(ctx, c.Key)
	case "left": // count the keys with holders or waiters
		for status, e := range p.clients[0].List(ctx, "") {
			if err = e; err == nil && !strings.HasPrefix(status.Key, "y") { // sticky keys stay with their client
				r.Token++
				r.Detail = status.Key
			}
		}
	case "write": // to the resource Key under the lock of Key
		err = p.lateWrite(c.Key)
	case "quiet": // end the work, and tell when its calls have returned
		p.quiet()
		p.work.Wait()
	case "secrets":
		err = p.node.SetSecrets(c.List...)
	case "disk":
		p.disk(c.Key)
	case "hit": // wait until a write of the store has taken N, or has failed if N is 0
		err = p.hit(ctx, time.Duration(c.N))
	case "clock": // the wall clock jumps by N; the rate is Key's
		if p.at.Clock != nil {
			p.at.Clock.Set(1, time.Duration(c.N))
		}
	default:
		err = fmt.Errorf("unknown command %q", c.Do)
	}
	if err != nil {
		r.Error = err.Error()
	}
	p.tell(r)
}

// hit waits until a write of the store has taken as long as slow, or has failed if slow is 0.
func (p *program) hit(ctx context.Context, slow time.Duration) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if r := p.node.Report().Raft; r != nil {
			if slow == 0 && r.Store.Failed != "" || slow > 0 && time.Duration(r.Store.Stalled) >= slow {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// disk makes the disk below the store hang, fail, slow or sound.
func (p *program) disk(how string) {
	switch how {
	case "hang":
		p.at.Disk.Hang()
	case "fail":
		p.at.Disk.Fail(syscall.EIO)
	case "heal":
		p.at.Disk.Heal()
	case "slow": // for two seconds; each write waits for up to 150 ms
		p.sick.Go(func() {
			defer p.at.Disk.Heal()
			tick := time.NewTicker(150 * time.Millisecond)
			defer tick.Stop()
			for range 14 {
				p.at.Disk.Hang()
				select {
				case <-p.ended.Done():
					return
				case <-tick.C:
				}
				p.at.Disk.Heal()
			}
		})
	}
}
