package consensus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/budget"
	"github.com/wardmote/wardmote/internal/identity"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/wire"
)

// A tape is an FSM that keeps all entries.
type tape struct {
	mu       sync.Mutex
	state    tapeState
	restored int   // how many snapshots were restored
	parted   error // the answer of Parted
	bound    time.Duration
}

type tapeState struct {
	Config  uint64 // index of the last configuration
	Entries []string
}

func (f *tape) Apply(data []byte, _ time.Time) any {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state.Entries = append(f.state.Entries, string(data))
	if text, ok := strings.CutPrefix(string(data), "ttl "); ok {
		f.bound, _ = time.ParseDuration(text)
	}
	return len(f.state.Entries)
}

func (f *tape) Configured(index uint64) {
	f.mu.Lock()
	f.state.Config = index
	f.mu.Unlock()
}

func (f *tape) Snapshot() func(io.Writer) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	state := tapeState{f.state.Config, slices.Clone(f.state.Entries)}
	return func(w io.Writer) error { return json.NewEncoder(w).Encode(state) }
}

func (f *tape) Check(r io.Reader) error {
	var state tapeState
	return json.NewDecoder(r).Decode(&state)
}

func (f *tape) Restore(r io.Reader) error {
	var state tapeState
	if err := json.NewDecoder(r).Decode(&state); err != nil {
		return err
	}
	f.mu.Lock()
	f.state, f.restored = state, f.restored+1
	f.mu.Unlock()
	return nil
}

func (f *tape) Bound() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.bound
}

func (f *tape) Parted() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.parted
}

// prev returns the index of the last configuration.
func (f *tape) prev() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state.Config
}

func (f *tape) entries() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.state.Entries)
}

// A bench has some members and a network of pipes between them, in a bubble.
type bench struct {
	t   *testing.T
	mu  sync.Mutex
	all map[string]*chair
	cut map[[2]string]bool // from, to: no dial succeeds, open pipes are closed
	wg  sync.WaitGroup

	dead    map[string]bool           // killed: no dial leaves the member
	boots   uint64                    // the last boot given to a chair
	looks   int                       // looks at a process
	asked   map[string]int            // by the voter asked: questions about a leader's end
	askers  map[string]bool           // members that asked about a leader's end
	deaf    map[string]bool           // voters that answer no to every AskStand
	refused map[string]bool           // by member: dials are refused, streams carried
	budgets map[string]*budget.Budget // by member: charged with what arrives; none: without bounds

	pipes   map[net.Conn][2]string // dialling end: from, to
	dialled []*pipe                // all pipes of raft so far

	mangled     string                    // a member with a fault
	mangle      func(sends []byte) []byte // the bytes that leave it instead
	lostSends   map[string]bool           // from: bytes sent through pipes that this member dialled are lost
	lostAnswers map[string]bool           // from: bytes that come back are lost
}

// A chair is a member and its Seat.
type chair struct {
	b      *bench
	name   string
	seat   *Seat
	record *identity.Store
	boot   uint64
	cancel context.CancelFunc
	run    sync.WaitGroup

	mu      sync.Mutex
	meta    member.Metadata
	failed  error
	retired error
	leads   int  // calls of Lead that have not returned
	removed bool // the answer of AskRemoved
	asked   int  // calls of AskRemoved
}

// onBench runs f in a bubble. All members that f leaves running are stopped.
func onBench(t *testing.T, f func(b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{t: t, all: make(map[string]*chair), cut: make(map[[2]string]bool), asked: make(map[string]int), askers: make(map[string]bool), deaf: make(map[string]bool), dead: make(map[string]bool), pipes: make(map[net.Conn][2]string),
			lostSends: make(map[string]bool), lostAnswers: make(map[string]bool)}
		defer func() {
			for name := range b.all {
				b.stop(name)
			}
			b.wg.Wait()
			time.Sleep(time.Minute) // raft's own goroutines
		}()
		f(b)
	})
}

var errUnreachable = errors.New("unreachable")

// dial returns Config.Dial of a member.
func (b *bench) dial(from string) func(context.Context, string) (net.Conn, error) {
	return func(_ context.Context, id string) (net.Conn, error) {
		to, generation, err := member.ParseRaftID(id)
		if err != nil {
			return nil, err
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		c := b.all[to]
		if c == nil || b.dead[from] || b.cut[[2]string{from, to}] || !c.seat.Admits(generation) {
			return nil, errUnreachable
		}
		near, far := net.Pipe()
		b.pipes[near] = [2]string{from, to}
		if of := b.budgets[to]; of != nil {
			far = charged{far, of.Share(from, address)}
		}
		dialler := member.Process{Name: from}
		if f := b.all[from]; f != nil {
			dialler.Boot = f.boot
		}
		b.wg.Go(func() { c.seat.Accept(far, dialler, true, generation) })
		p := &pipe{Conn: near, b: b, from: from, to: to, old: make(chan struct{})}
		b.dialled = append(b.dialled, p)
		return p, nil
	}
}

// look returns Config.Look of a member.
func (b *bench) look(from string) func(context.Context, string, uint64) Evidence {
	return func(ctx context.Context, id string, boot uint64) Evidence {
		to, generation, _ := member.ParseRaftID(id)
		b.mu.Lock()
		c, cut, refused := b.all[to], b.cut[[2]string{from, to}], b.refused[to]
		b.looks++
		b.mu.Unlock()
		switch {
		case cut:
			<-ctx.Done()
			return Unproven
		case c == nil || refused || c.boot != boot || !c.seat.Admits(generation):
			return Ended
		}
		return Lives
	}
}

// askStand returns Config.AskStand of a member.
func (b *bench) askStand(from string) func(context.Context, wire.StandRequest) (wire.StandAnswer, bool, error) {
	return func(ctx context.Context, q wire.StandRequest) (wire.StandAnswer, bool, error) {
		to, _, _ := member.ParseRaftID(q.Voter)
		b.mu.Lock()
		if q.Boot != 0 {
			b.asked[to]++
			b.askers[from] = true
		}
		c, cut, deaf := b.all[to], b.cut[[2]string{from, to}], b.deaf[to]
		b.mu.Unlock()
		if c == nil || cut {
			return wire.StandAnswer{}, false, errUnreachable
		}
		r := c.seat.Current()
		if r == nil || deaf {
			return wire.StandAnswer{}, false, nil
		}
		a, yes := r.MayStand(ctx, q)
		return a, yes, nil
	}
}

// askFollows returns Config.AskFollows of a member.
func (b *bench) askFollows(from string) func(context.Context, wire.FollowsRequest) (wire.FollowsAnswer, error) {
	return func(ctx context.Context, q wire.FollowsRequest) (wire.FollowsAnswer, error) {
		to, _, _ := member.ParseRaftID(q.Voter)
		b.mu.Lock()
		c, cut := b.all[to], b.cut[[2]string{from, to}]
		b.mu.Unlock()
		if c == nil || cut {
			return wire.FollowsAnswer{}, errUnreachable
		}
		if r := c.seat.Current(); r != nil {
			if a, ok := r.Follows(q); ok {
				return a, nil
			}
		}
		return wire.FollowsAnswer{}, errUnreachable
	}
}

// pipe is the dialling end of a pipe. A test may have it lose bytes.
type pipe struct {
	net.Conn
	b    *bench
	from string
	to   string
	old  chan struct{}

	writes atomic.Int64
	last   atomic.Int64 // when the last write was, in nanoseconds
}

// address is that of all members.
var address = netip.MustParseAddr("10.0.0.1")

// charged is a connection with a share, as one of package port.
type charged struct {
	net.Conn
	share *budget.Share
}

func (c charged) Budget() *budget.Share { return c.share }

// Renew is as of a connection of package port.
func (p *pipe) Renew() <-chan struct{} { return p.old }

func (p *pipe) lost(by map[string]bool) bool {
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	return by[p.from]
}

func (p *pipe) Read(data []byte) (int, error) {
	for {
		n, err := p.Conn.Read(data)
		if mangle := p.b.mangles(p.to); err == nil && mangle != nil {
			n = copy(data, mangle(data[:n]))
		}
		if err != nil || !p.lost(p.b.lostAnswers) {
			return n, err
		}
	}
}

func (p *pipe) Write(data []byte) (int, error) {
	p.writes.Add(1)
	p.last.Store(time.Now().UnixNano())
	if p.lost(p.b.lostSends) {
		return len(data), nil
	}
	if mangle := p.b.mangles(p.from); mangle != nil {
		if _, err := p.Conn.Write(mangle(data)); err != nil {
			return 0, err
		}
		return len(data), nil
	}
	return p.Conn.Write(data)
}

// mangles returns how the bytes of a member are damaged, or nil.
func (b *bench) mangles(name string) func([]byte) []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mangled == "" || name != b.mangled {
		return nil
	}
	return b.mangle
}

// separate cuts a member off from the others, or joins it again.
func (b *bench) separate(name string, cut bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for other := range b.all {
		b.cut[[2]string{name, other}], b.cut[[2]string{other, name}] = cut, cut
	}
	for conn, ends := range b.pipes {
		if cut && (ends[0] == name || ends[1] == name) {
			conn.Close()
			delete(b.pipes, conn)
		}
	}
}

// lose changes lostSends or lostAnswers of a member.
func (b *bench) lose(by map[string]bool, name string, lost bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	by[name] = lost
}

// founding names n1, n2 and n3 as voters, each of generation 1.
var founding = &wire.Founding{Cluster: machine.ClusterID{1}, Voters: []string{"n1#1", "n2#1", "n3#1"}}

// record opens the memory of a member of generation 1 in the founded cluster, or
// finds it in dir.
func (b *bench) record(dir, name string) *identity.Store {
	b.t.Helper()
	record, err := identity.Open(dir, name, "test", true)
	if err == nil && record.Get().Generation == 0 {
		err = record.Update(func(r *identity.Record) { r.Generation, r.Founding = 1, founding })
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return record
}

// start starts a member. change may set Config.Dir, Engine and NewTable.
func (b *bench) start(name string, change ...func(*Config)) *chair {
	b.t.Helper()
	b.mu.Lock()
	b.boots++
	delete(b.dead, name)
	c := &chair{b: b, name: name, boot: b.boots}
	b.mu.Unlock()
	cfg := Config{
		Self:      member.Self{Name: name, Boot: c.boot, Log: slog.New(slog.DiscardHandler)},
		NewTable:  func() FSM { return &tape{} },
		LastToken: func(f FSM) uint64 { return uint64(len(f.(*tape).entries())) },
		Dial:      b.dial(name),
		Look:      b.look(name),
		AskStand:  b.askStand(name),

		AskFollows: b.askFollows(name),
		Lead: func(ctx context.Context, r *Raft) {
			c.set(func() { c.leads++ })
			<-ctx.Done()
			c.set(func() { c.leads-- })
		},
		Advertise: func(change func(*member.Metadata)) { c.set(func() { change(&c.meta) }) },
		AskRemoved: func(context.Context, string) (removed bool) {
			c.set(func() { c.asked++; removed = c.removed })
			return removed
		},
		Changed: func() {},
		Retired: func(err error) { c.set(func() { c.retired = err }) },
		Fail:    func(err error) { c.set(func() { c.failed = err }) },
	}
	for _, change := range change {
		change(&cfg)
	}
	if cfg.Record == nil {
		cfg.Record = b.record(cfg.Dir, name)
	}
	c.record, c.seat = cfg.Record, NewSeat(cfg)
	b.mu.Lock()
	b.all[name] = c
	b.mu.Unlock()
	if err := c.seat.Resume(); err != nil {
		b.t.Fatal(err)
	}
	var ctx context.Context
	ctx, c.cancel = context.WithCancel(context.Background())
	c.run.Go(func() { c.seat.Run(ctx) })
	return c
}

// found starts the three founding voters.
func (b *bench) found(change ...func(*Config)) {
	b.t.Helper()
	for _, name := range []string{"n1", "n2", "n3"} {
		b.start(name, change...)
	}
}

// stop stops a member and returns the result of Seat.Stop.
func (b *bench) stop(name string) error {
	b.mu.Lock()
	c := b.all[name]
	delete(b.all, name)
	b.mu.Unlock()
	c.cancel()
	c.run.Wait()
	return errors.Join(c.seat.Stop(), c.record.Close())
}

func (c *chair) set(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// looks returns copies of the fields that the Seat changes.
func (c *chair) looks() (meta member.Metadata, failed, retired error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.meta, c.failed, c.retired
}

// calls returns how many calls of Lead run, and how often the Seat has asked.
func (c *chair) calls() (leads, asked int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leads, c.asked
}

// tape returns the FSM of the running Raft.
func (c *chair) tape() *tape { return c.seat.Current().Table().(*tape) }

// raft returns the running Raft, and fails the test if the member is thin.
func (c *chair) raft() *Raft {
	c.b.t.Helper()
	r := c.seat.Current()
	if r == nil {
		c.b.t.Fatalf("%s is thin", c.name)
	}
	return r
}

// eventually waits until f returns true, a minute at most.
func (b *bench) eventually(claim string, f func() bool) {
	b.t.Helper()
	for began := time.Now(); !f(); time.Sleep(50 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			b.t.Fatalf("not within a minute: %s", claim)
		}
	}
}

// leader waits for a member that leads and can commit.
func (b *bench) leader() *chair {
	b.t.Helper()
	var leader *chair
	b.eventually("a member leads", func() bool {
		for _, c := range b.all {
			if r := c.seat.Current(); r != nil {
				if _, leads := r.Leadership(); leads && r.Barrier() == nil {
					leader = c
				}
			}
		}
		return leader != nil
	})
	return leader
}

// followers returns the members with a Raft, without the leader.
func (b *bench) followers() (out []*chair) {
	leader := b.leader()
	for _, name := range []string{"n1", "n2", "n3"} {
		if c := b.all[name]; c != nil && c != leader && c.seat.Current() != nil {
			out = append(out, c)
		}
	}
	return out
}

// commit commits an entry on the leader, or on a later leader.
func (b *bench) commit(entry string) {
	b.t.Helper()
	b.eventually(fmt.Sprintf("%q is committed", entry), func() bool {
		_, code := b.leader().raft().Commit([]byte(entry))
		return code == wire.CodeOK
	})
}

// agree waits until every Raft has applied the same entries.
func (b *bench) agree(want ...string) {
	b.t.Helper()
	for _, c := range b.all {
		if c.seat.Current() != nil {
			b.eventually(fmt.Sprintf("%s has applied %q", c.name, want), func() bool { return slices.Equal(c.tape().entries(), want) })
		}
	}
}
