package gossip

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/simnet"
	"github.com/wardmote/wardmote/internal/timing"
)

// town is a set of nodes on an in-memory network, in fake time.
type town struct {
	t     *testing.T
	net   *simnet.Network
	nodes map[string]*node // running, by host
	boot  uint64

	mu    sync.Mutex
	homes map[string]member.Process // running, by address
}

// at returns the process that answers at an address.
func (w *town) at(addr string) member.Process {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.homes[addr]
}

func (w *town) settle(addr string, p member.Process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.homes[addr] = p
}

// node is a Gossip, with a port and a Watcher.
type node struct {
	*Gossip
	self  member.Self
	port  *endpointPort
	diary diary
	stop  context.CancelFunc
	done  chan struct{} // closed when Run has returned

	mu      sync.Mutex
	cluster machine.ClusterID
	stored  []string
}

func inTown(t *testing.T, f func(w *town)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &town{t: t, net: simnet.New(1), nodes: make(map[string]*node), homes: make(map[string]member.Process)}
		w.net.SetDefault(simnet.Link{Delay: time.Millisecond})
		f(w)
		w.net.Heal()
		for host := range w.nodes {
			w.halt(host, false)
		}
		time.Sleep(time.Minute) // memberlist's goroutines end
	})
}

func address(host string) string { return host + ":7000" }

// start runs a member on a host. The Join of every member is the hosts 10.0.0.1
// and 10.0.0.2.
func (w *town) start(host, name string, change ...func(*Config)) *node {
	w.t.Helper()
	w.boot++
	n := &node{done: make(chan struct{})}
	endpoint, err := simnet.HostOf[*simnet.Endpoint](w.net, host).Listen(address(host))
	if err != nil {
		w.t.Fatal(err)
	}
	n.port = &endpointPort{Endpoint: endpoint, dials: make(map[byte]int), at: w.at}
	n.self = member.Self{Name: name, Boot: w.boot, Addr: address(host), Cluster: "test", Log: slog.New(slog.DiscardHandler)}
	if os.Getenv("WARDMOTE_TEST_LOG") != "" {
		n.self.Log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	cfg := Config{
		Self: n.self, Join: []string{address("10.0.0.1"), address("10.0.0.2")}, Port: n.port,
		Cluster: func() machine.ClusterID {
			n.mu.Lock()
			defer n.mu.Unlock()
			return n.cluster
		},
		Peers: func() []string { return nil },
		Remember: func(addrs []string) error {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.stored = addrs
			return nil
		},
		Watcher: &n.diary,
	}
	for _, c := range change {
		c(&cfg)
	}
	w.settle(cfg.Self.Addr, cfg.Self.Process())
	n.Gossip = New(cfg)
	n.port.met = func(p member.Process) { n.Met(p.Name, p.Boot, true, p.Addr) }
	n.port.serve(n.Gossip)
	if err := n.Start(); err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	n.stop = cancel
	go func() {
		defer close(n.done)
		n.Run(ctx)
	}()
	w.nodes[host] = n
	return n
}

// halt stops the node on a host, with a farewell or without.
func (w *town) halt(host string, farewell bool) {
	n := w.nodes[host]
	delete(w.nodes, host)
	w.settle(n.self.Addr, member.Process{})
	if !farewell {
		w.net.Crash(host)
	}
	n.stop()
	<-n.done
	if farewell {
		n.Leave(timing.GossipFarewell)
	}
	n.Stop()
	n.port.close()
}

// enter puts a node into a cluster.
func (n *node) enter(id machine.ClusterID) {
	n.mu.Lock()
	n.cluster = id
	n.mu.Unlock()
	n.Update(func(m *member.Metadata) { m.Cluster = id })
}

// sees returns the names of the living members.
func (n *node) sees() string {
	var names []string
	for _, s := range n.Alive() {
		names = append(names, s.Name)
	}
	return strings.Join(names, " ")
}

// diary is a Watcher that notes every call.
type diary struct {
	mu   sync.Mutex
	told []string
}

// events returns the calls so far.
func (d *diary) events() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.told)
}

func (d *diary) note(event string, p member.Process, earlier bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	text := fmt.Sprintf("%s %s %d", event, p.Name, p.Boot)
	if earlier {
		text += " earlier"
	}
	d.told = append(d.told, text)
}

func (d *diary) Joined(s member.Sighting, earlier bool) { d.note("joined", s.Process, earlier) }
func (d *diary) Left(s member.Sighting, earlier bool)   { d.note("left", s.Process, earlier) }
func (d *diary) Namesake(s member.Sighting)             { d.note("namesake", s.Process, false) }
func (d *diary) Foreign(p member.Process)               { d.note("foreign", p, false) }

// endpointPort is a Port without preambles: the first byte of a stream is its kind.
type endpointPort struct {
	*simnet.Endpoint
	loops sync.WaitGroup
	at    func(addr string) member.Process // may be nil
	met   func(member.Process)             // as package cluster tells of handshakes; may be nil

	mu      sync.Mutex
	dropped []string
	dials   map[byte]int // by kind
	sent    int          // packets by UDP
	keeps   bool         // received packets are kept
	kept    [][]byte
}

// record keeps all packets received from now on.
func (p *endpointPort) record() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keeps = true
}

// recorded returns the kept packets, and keeps no more.
func (p *endpointPort) recorded() [][]byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keeps = false
	return p.kept
}

// serve passes streams and packets to g until the endpoint is closed.
func (p *endpointPort) serve(g *Gossip) {
	p.loops.Go(func() {
		for {
			conn, err := p.Accept()
			if err != nil {
				return
			}
			p.loops.Go(func() {
				kind := make([]byte, 1)
				if _, err := io.ReadFull(conn, kind); err != nil {
					conn.Close()
				} else if kind[0] == 'p' {
					g.AcceptPackets(conn)
				} else {
					if host, _, err := net.SplitHostPort(conn.RemoteAddr().String()); err == nil && p.at != nil {
						if caller := p.at(address(host)); caller.Name != "" {
							g.Called(caller.Name, caller.Boot)
						}
					}
					from, _ := netip.ParseAddrPort(conn.RemoteAddr().String())
					g.Accept(conn, from.String(), from.Addr())
				}
			})
		}
	})
	p.loops.Go(func() {
		for {
			b := make([]byte, 64<<10)
			n, from, err := p.ReadFrom(b)
			if err != nil {
				return
			}
			p.mu.Lock()
			if p.keeps {
				p.kept = append(p.kept, slices.Clone(b[:n]))
			}
			p.mu.Unlock()
			g.Packet(b[:n], from, time.Now())
		}
	})
}

func (p *endpointPort) close() {
	p.Close() // fails after a crash
	p.loops.Wait()
}

func (p *endpointPort) Dial(ctx context.Context, to member.Process) (net.Conn, error) {
	return p.dial(ctx, to, 'g')
}

func (p *endpointPort) DialPackets(ctx context.Context, to member.Process) (net.Conn, error) {
	return p.dial(ctx, to, 'p')
}

// dial opens a stream, whose first byte is the kind.
func (p *endpointPort) dial(ctx context.Context, to member.Process, kind byte) (net.Conn, error) {
	conn, err := p.Endpoint.Dial(ctx, to.Addr)
	if at := p.at; err == nil && at != nil && to.Name != "" && (at(to.Addr).Name != to.Name || at(to.Addr).Boot != to.Boot) {
		conn.Close()
		err = errors.New("another process answers")
	}
	if err == nil {
		_, err = conn.Write([]byte{kind})
	}
	if err != nil {
		return nil, err
	}
	if p.met != nil {
		p.met(p.at(to.Addr))
	}
	p.mu.Lock()
	p.dials[kind]++
	p.mu.Unlock()
	return conn, nil
}

func (p *endpointPort) Send(b []byte, addr string) error {
	p.mu.Lock()
	p.sent++
	p.mu.Unlock()
	return p.WriteTo(b, addr)
}

func (p *endpointPort) Drop(name string, boot uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropped = append(p.dropped, fmt.Sprintf("%s %d", name, boot))
}

// drops returns the processes whose connections were dropped, in order. Drop runs in
// goroutines of the inquiries.
func (p *endpointPort) drops() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.dropped)
}

// keyed gives a node keys.
func keyed(keys ...[]byte) func(*Config) {
	return func(c *Config) { c.Keys = func() [][]byte { return keys } }
}

func TestMembersJoinAndLeave(t *testing.T) {
	inTown(t, func(w *town) {
		a, b := w.start("10.0.0.1", "a"), w.start("10.0.0.2", "b")
		time.Sleep(time.Second)
		c := w.start("10.0.0.3", "c")
		<-c.Joined()
		time.Sleep(3 * time.Second)
		for _, n := range []*node{a, b, c} {
			if n.sees() != "a b c" {
				t.Errorf("%s sees %q", n.self.Name, n.sees())
			}
		}
		a.mu.Lock()
		if slices.Sort(a.stored); !slices.Equal(a.stored, []string{address("10.0.0.2"), address("10.0.0.3")}) {
			t.Errorf("a remembered %v", a.stored)
		}
		a.mu.Unlock()
		changed := a.Changed()
		w.halt("10.0.0.3", true)
		<-changed
		time.Sleep(3 * time.Second)
		if a.sees() != "a b" || b.sees() != "a b" || len(a.All()) != 3 {
			t.Errorf("after a farewell a sees %q, b %q, and a lists %v", a.sees(), b.sees(), a.All())
		}
		w.halt("10.0.0.2", false)
		time.Sleep(time.Minute)
		if a.sees() != "a" {
			t.Errorf("after a crash a sees %q", a.sees())
		}
		want := []string{"joined b 2", "joined c 3", "left c 3", "left b 2"}
		if got := a.diary.events(); !slices.Equal(got, want) {
			t.Errorf("a was told %q, want %q", got, want)
		}
		if want := []string{"c 3", "b 2"}; !slices.Equal(a.port.drops(), want) {
			t.Errorf("a dropped connections of %q, want %q", a.port.drops(), want)
		}
	})
}

func TestChangedDescriptionsSpread(t *testing.T) {
	inTown(t, func(w *town) {
		a, b := w.start("10.0.0.1", "a"), w.start("10.0.0.2", "b", func(c *Config) { c.Meta.Generation = 7 })
		time.Sleep(3 * time.Second)
		if list := a.Alive(); len(list) != 2 || list[1].Meta.Generation != 7 {
			t.Fatalf("a sees %+v", list)
		}
		since := a.Alive()[1].Since
		b.Update(func(m *member.Metadata) { m.Leads, m.Voter = 5, true })
		if own := b.Alive()[1].Meta; own.Leads != 5 {
			t.Errorf("b lists itself as %+v", own)
		}
		time.Sleep(3 * time.Second)
		if s := a.Alive()[1]; s.Meta.Leads != 5 || !s.Meta.Voter || s.Meta.Generation != 7 || !s.Since.Equal(since) {
			t.Errorf("a sees %+v", s)
		}
	})
}

func TestMembersBehindAPartitionFindEachOtherAgain(t *testing.T) {
	inTown(t, func(w *town) {
		a, b := w.start("10.0.0.1", "a"), w.start("10.0.0.2", "b")
		a.enter(machine.ClusterID{1})
		b.enter(machine.ClusterID{1})
		time.Sleep(3 * time.Second)
		w.net.Partition([]string{"10.0.0.1"}, []string{"10.0.0.2"})
		time.Sleep(10 * time.Minute)
		if a.sees() != "a" || b.sees() != "b" {
			t.Fatalf("in the partition a sees %q, b %q", a.sees(), b.sees())
		}
		w.net.Heal()
		time.Sleep(10 * time.Second)
		if a.sees() != "a b" || b.sees() != "a b" {
			t.Errorf("after the partition a sees %q, b %q", a.sees(), b.sees())
		}
	})
}

func TestANamesakeIsTold(t *testing.T) {
	inTown(t, func(w *town) {
		a := w.start("10.0.0.1", "a")
		twin := w.start("10.0.0.2", "a")
		time.Sleep(3 * time.Second)
		if got, want := a.diary.events(), []string{"joined a 2", "namesake a 2"}; !slices.Equal(got, want) {
			t.Errorf("the older was told %q, want %q", got, want)
		}
		if got, want := twin.diary.events(), []string{"joined a 1 earlier", "namesake a 1"}; !slices.Equal(got, want) {
			t.Errorf("the newer was told %q, want %q", got, want)
		}
	})
}

func TestTheEndOfAnEarlierProcessIsToldAsSuch(t *testing.T) {
	inTown(t, func(w *town) {
		a := w.start("10.0.0.1", "a")
		w.start("10.0.0.2", "b")
		time.Sleep(3 * time.Second)
		w.halt("10.0.0.2", false)
		w.start("10.0.0.2", "b")
		time.Sleep(time.Minute)
		want := []string{"joined b 2", "joined b 3", "left b 2 earlier"}
		if got := a.diary.events(); !slices.Equal(got, want) {
			t.Errorf("told %q, want %q", got, want)
		}
		if want := []string{"b 2"}; !slices.Equal(a.port.drops(), want) {
			t.Errorf("dropped connections of %q, want %q", a.port.drops(), want)
		}
	})
}

func TestMembersOfAnotherClusterAreRefusedAndTold(t *testing.T) {
	inTown(t, func(w *town) {
		a, b := w.start("10.0.0.1", "a"), w.start("10.0.0.2", "b", func(c *Config) { c.Join = nil })
		a.enter(machine.ClusterID{1})
		b.enter(machine.ClusterID{2})
		c := w.start("10.0.0.3", "c", func(c *Config) { c.Join = c.Join[:1] })
		c.enter(machine.ClusterID{1})
		time.Sleep(time.Minute)
		for n, want := range map[*node]string{a: "a c", b: "b", c: "a c"} {
			if n.sees() != want {
				t.Errorf("%s sees %q, want %q", n.self.Name, n.sees(), want)
			}
		}
		for n, want := range map[*node]string{a: "foreign b 2", b: "foreign a 1"} {
			if !slices.Contains(n.diary.events(), want) {
				t.Errorf("%s was told %q, not %q", n.self.Name, n.diary.events(), want)
			}
		}
	})
}

func TestAMemberMetBeforeItsClusterIsKnownIsLeftOut(t *testing.T) {
	inTown(t, func(w *town) {
		a, b := w.start("10.0.0.1", "a"), w.start("10.0.0.2", "b")
		b.enter(machine.ClusterID{2})
		time.Sleep(3 * time.Second)
		if a.sees() != "a b" {
			t.Fatalf("a sees %q", a.sees())
		}
		a.enter(machine.ClusterID{1})
		if a.sees() != "a" || len(a.All()) != 1 {
			t.Errorf("in a cluster a sees %q and lists %v", a.sees(), a.All())
		}
	})
}

func TestMembersWithOtherKeysOrOfOtherClusterNamesStayOut(t *testing.T) {
	key := func(b byte) func(*Config) { return keyed(slices.Repeat([]byte{b}, 32)) }
	inTown(t, func(w *town) {
		a, b := w.start("10.0.0.1", "a", key(1)), w.start("10.0.0.2", "b", key(1))
		w.start("10.0.0.3", "plain")
		w.start("10.0.0.4", "other", key(2))
		w.start("10.0.0.5", "stranger", key(1), func(c *Config) { c.Self.Cluster = "elsewhere" })
		time.Sleep(20 * time.Second)
		if a.sees() != "a b" || b.sees() != "a b" {
			t.Errorf("a sees %q, b %q", a.sees(), b.sees())
		}
	})
}

func TestStopEndsWhileMembersCannotBeReached(t *testing.T) {
	inTown(t, func(w *town) {
		w.net.Cut("10.0.0.1", "10.0.0.2")
		n := w.start("10.0.0.1", "a")
		time.Sleep(time.Second)
		begin := time.Now()
		n.stop()
		<-n.done
		if took := time.Since(begin); took > 0 {
			t.Errorf("Run went on for %v in a dial", took)
		}
	})
}

func TestAFailedStartLeavesNothingBehind(t *testing.T) {
	inTown(t, func(w *town) {
		for _, spoil := range []func(*Config){
			func(c *Config) { c.Self.Addr = "nowhere" },
			func(c *Config) { c.Self.Addr = "host:7000" },
			keyed([]byte("short")),
		} {
			endpoint, err := simnet.HostOf[*simnet.Endpoint](w.net, "10.0.0.1").Listen(address("10.0.0.1"))
			if err != nil {
				t.Fatal(err)
			}
			port := &endpointPort{Endpoint: endpoint, dials: make(map[byte]int)}
			cfg := Config{
				Self: member.Self{Name: "a", Boot: 1, Addr: address("10.0.0.1"), Cluster: "test", Log: slog.New(slog.DiscardHandler)},
				Port: port, Cluster: func() machine.ClusterID { return machine.ClusterID{} }, Watcher: &diary{},
			}
			spoil(&cfg)
			g := New(cfg)
			if err := g.Start(); err == nil {
				t.Errorf("started at %q with a short key or a bad address", cfg.Self.Addr)
			}
			here, there := net.Pipe()
			g.Accept(here, "m", netip.Addr{})
			if _, err := there.Read(make([]byte, 1)); err == nil {
				t.Error("a stream was taken after the failure")
			}
			g.Stop()
			port.close()
		}
	})
}

// A dial of memberlist to a known member names the member to the port.
func TestDialsNameTheProcess(t *testing.T) {
	var dialled []member.Process
	tr := newTransport(Config{Port: recorder{dial: func(to member.Process) { dialled = append(dialled, to) }}, Self: self})
	tr.DialTimeout("10.0.0.1:7000", time.Second)
	tr.DialAddressTimeout(addressOf("10.0.0.1:7000", gossipName(member.Process{Name: "a", Boot: 5})), time.Second)
	if _, err := tr.DialAddressTimeout(addressOf("10.0.0.1:7000", "no gossip name"), time.Second); err == nil {
		t.Error("dialled a member without a sound name")
	}
	want := []member.Process{{Addr: "10.0.0.1:7000"}, {Name: "a", Boot: 5, Addr: "10.0.0.1:7000"}}
	if !slices.Equal(dialled, want) {
		t.Errorf("dialled %v, want %v", dialled, want)
	}
	tr.close()
	if _, err := tr.DialTimeout("10.0.0.1:7000", time.Second); err == nil {
		t.Error("dialled after close")
	}
}

// recorder is a Port that only notes dials.
type recorder struct {
	Port
	dial func(member.Process)
}

func (r recorder) Dial(ctx context.Context, to member.Process) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r.dial(to)
	return nil, nil
}

func addressOf(addr, name string) memberlist.Address {
	return memberlist.Address{Addr: addr, Name: name}
}
