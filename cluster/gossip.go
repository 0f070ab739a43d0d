package cluster

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/memberlist"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/port"
	"github.com/wardmote/wardmote/internal/wire"
)

// gossip finds the members and keeps the list of them. It is a source of hints:
// nothing it says grants, frees or confirms anything. This file is the only one
// that imports memberlist.
//
// A member's gossip name is its name and boot, new at each start, since
// memberlist ignores a known name at a new address.
type gossip struct {
	n     *Node
	trans *gossipTransport
	list  *memberlist.Memberlist

	mu      sync.Mutex
	meta    metadata
	members map[string]*sighting // by gossip name; the dead too, for a while
	changed pulse

	publish chan struct{}         // size 1: meta has changed
	names   map[string]resolution // of Join; joinLoop's alone
}

type resolution struct {
	ips []string
	at  time.Time
}

// metadata is what a member tells of itself with its gossip; it is bounded to
// 512 bytes by memberlist.
type metadata struct {
	Version    uint8
	Cluster    machine.ClusterID // zero: not founded
	Generation uint64            // of its raft ID; 0 if it has no store
	Voter      bool              // raft configuration says so
	Founder    bool              // takes part in founding
	Durable    bool
	Leaving    bool
	Leads      uint64 // the term it leads and serves in, or 0
	TTL        uint64 // milliseconds
	Format     uint8  // the newest of log entries that it reads; 0 is the first
}

const (
	protocolVersion = 1
	maxDead         = 1024 // dead members remembered
)

// sighting is one incarnation of a member, as gossip last told of it.
type sighting struct {
	name  string
	boot  uint64
	addr  string
	meta  metadata
	alive bool
	since time.Time // of being alive, or dead
}

func gossipName(name string, boot uint64) string { return name + "." + strconv.FormatUint(boot, 36) }

func splitGossipName(s string) (name string, boot uint64, err error) {
	i := strings.LastIndexByte(s, '.')
	if i < 0 {
		return "", 0, fmt.Errorf("cluster: %q is no gossip name", s)
	}
	boot, err = strconv.ParseUint(s[i+1:], 36, 64)
	return s[:i], boot, err
}

func newGossip(n *Node, meta metadata) *gossip {
	return &gossip{
		n: n, meta: meta,
		trans:   newGossipTransport(n.ctx, n.port, n.addr),
		members: make(map[string]*sighting),
		publish: make(chan struct{}, 1),
		names:   make(map[string]resolution),
	}
}

// start begins to gossip, with nobody yet.
func (g *gossip) start(key []byte, logger hclog.Logger) error {
	cfg := memberlist.DefaultLANConfig()
	cfg.Name = gossipName(g.n.cfg.Name, g.n.boot)
	cfg.Transport = g.trans
	cfg.Label = g.n.cfg.Cluster
	cfg.TCPTimeout = 3 * time.Second
	cfg.EnableCompression = false
	cfg.SecretKey = key
	cfg.Delegate, cfg.Events, cfg.Alive = g, g, g
	cfg.Logger = logger.StandardLogger(&hclog.StandardLoggerOptions{InferLevels: true})
	host, port, err := splitHostPort(g.n.addr)
	if err != nil {
		return err
	}
	cfg.AdvertiseAddr, cfg.AdvertisePort, cfg.BindPort = host, port, port
	list, err := memberlist.Create(cfg)
	if err != nil {
		return fmt.Errorf("cluster: gossip: %w", err)
	}
	g.list = list
	return nil
}

// leave tells the others, as well as it can, that this member goes.
func (g *gossip) leave(wait time.Duration) {
	if err := g.list.Leave(wait); err != nil {
		g.n.log.Debug("gossip leave not confirmed", "error", err)
	}
}

func (g *gossip) stop() {
	if err := g.list.Shutdown(); err != nil {
		g.n.log.Debug("gossip shutdown", "error", err)
	}
	g.trans.Shutdown()
}

// update changes what this member tells of itself.
func (g *gossip) update(change func(*metadata)) {
	g.mu.Lock()
	before := g.meta
	change(&g.meta)
	same := before == g.meta
	g.mu.Unlock()
	if same {
		return
	}
	g.changed.fire()
	select {
	case g.publish <- struct{}{}:
	default:
	}
}

// publishLoop broadcasts changed metadata.
func (g *gossip) publishLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.publish:
			if err := g.list.UpdateNode(time.Second); err != nil {
				g.n.log.Debug("gossip update not confirmed", "error", err)
			}
		}
	}
}

// joinLoop looks for other members for as long as the node runs: often while it is alone
// or not in a cluster, rarely after, since memberlist forgets a member that a
// partition hid for half a minute.
func (g *gossip) joinLoop(ctx context.Context) {
	const often, rarely = 250 * time.Millisecond, 15 * time.Second
	for first := true; ; first = false {
		addrs := g.joinAddrs(ctx)
		unseen := g.unseen(addrs)
		if !first && g.n.founding.Load() != nil {
			// Those that nobody gossips of, and one more, lest two halves of
			// the members have lost sight of each other.
			rand.Shuffle(len(addrs), func(i, j int) { addrs[i], addrs[j] = addrs[j], addrs[i] })
			if rand.N(len(g.alive())+1) > seekers {
				unseen = nil // of many members some suffice
			}
			addrs = append(unseen[:min(len(unseen), maxTries-1)], addrs[:min(len(addrs), 1)]...)
		}
		addrs = addrs[:min(len(addrs), maxTries)]
		var tries sync.WaitGroup
		for _, addr := range addrs {
			tries.Go(func() {
				if _, err := g.list.Join([]string{addr}); err != nil {
					g.n.log.Debug("join", "error", err)
				}
			})
		}
		tries.Wait()
		if first {
			close(g.n.joined)
		}
		alive := g.alive()
		wait := rarely
		switch {
		case len(alive) <= 1 && len(addrs) > 0:
			wait = often
		case len(unseen) > 0:
			// Whoever starts there must meet this cluster before it could
			// found another: see leastFoundingWait.
			wait = seekEvery / 2
		case g.n.founding.Load() == nil:
			wait = time.Second
		}
		wait += rand.N(wait)
		changed := g.changed.wait()
		t := time.NewTimer(wait)
		for stay := true; stay; {
			select {
			case <-ctx.Done():
				t.Stop()
				return
			case <-t.C:
				stay = false
			case <-changed:
				// Nothing to do but to note who was there, for a next start.
				changed = g.changed.wait()
				g.remember()
			}
		}
	}
}

const (
	seekEvery = 500 * time.Millisecond
	seekers   = 8               // members that seek at a time, about
	maxTries  = 16              // addresses joined at a time
	resolved  = 5 * time.Second // for so long a name's addresses are believed
)

// unseen are those of the addresses at which no living member is known.
func (g *gossip) unseen(addrs []string) []string {
	alive := g.alive()
	return slices.DeleteFunc(slices.Clone(addrs), func(addr string) bool {
		return slices.ContainsFunc(alive, func(s sighting) bool { return s.addr == addr })
	})
}

func (g *gossip) remember() {
	var addrs []string
	for _, s := range g.alive() {
		if s.boot != g.n.boot || s.name != g.n.cfg.Name {
			addrs = append(addrs, s.addr)
		}
	}
	if len(addrs) == 0 || g.n.cfg.Dir == "" {
		return
	}
	if err := g.n.id.remember(addrs); err != nil {
		g.n.log.Warn("last known members not stored", "error", err)
	}
}

// joinAddrs resolves the configured addresses anew, and adds those that an
// earlier run knew.
func (g *gossip) joinAddrs(ctx context.Context) []string {
	var out []string
	add := func(addr string) {
		if addr != g.n.addr && addr != g.n.port.Addr() && !slices.Contains(out, addr) {
			out = append(out, addr)
		}
	}
	for _, addr := range g.n.cfg.Join {
		host, port, _ := net.SplitHostPort(addr)
		if net.ParseIP(host) != nil {
			add(addr)
			continue
		}
		known, ok := g.names[host]
		if !ok || time.Since(known.at) > resolved {
			ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
			ips, err := net.DefaultResolver.LookupHost(ctx, host)
			cancel()
			if err != nil {
				g.n.log.Debug("join address not resolved", "address", addr, "error", err)
			}
			known = resolution{ips, time.Now()}
			g.names[host] = known
		}
		for _, ip := range known.ips {
			add(net.JoinHostPort(ip, port))
		}
	}
	for _, addr := range g.n.id.get().Peers {
		add(addr)
	}
	return out
}

// alive lists the members taken to be alive, this one included, by name and
// then by boot.
func (g *gossip) alive() []sighting {
	return g.filter(func(s *sighting) bool { return s.alive })
}

func (g *gossip) all() []sighting { return g.filter(func(*sighting) bool { return true }) }

func (g *gossip) filter(want func(*sighting) bool) []sighting {
	g.mu.Lock()
	defer g.mu.Unlock()
	own := g.n.founding.Load()
	var out []sighting
	for _, s := range g.members {
		if own != nil && s.meta.Cluster != (machine.ClusterID{}) && s.meta.Cluster != own.Cluster {
			continue // met before we knew which cluster is ours
		}
		if want(s) {
			out = append(out, *s)
		}
	}
	slices.SortFunc(out, func(a, b sighting) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.boot, b.boot))
	})
	return out
}

// at is where the sighted process is.
func (s sighting) at() place { return place{s.addr, s.name, s.boot} }

// pulse wakes everyone who waits for a change.
type pulse struct {
	mu sync.Mutex
	ch chan struct{}
}

// wait returns a channel that the next fire closes.
func (p *pulse) wait() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ch == nil {
		p.ch = make(chan struct{})
	}
	return p.ch
}

func (p *pulse) fire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ch != nil {
		close(p.ch)
		p.ch = nil
	}
}

// Below are memberlist's callbacks. They run under its lock: they copy, and
// call nothing of it.

func (g *gossip) NodeMeta(int) []byte {
	g.mu.Lock()
	defer g.mu.Unlock()
	return wire.Marshal(&g.meta)
}

func (*gossip) NotifyMsg([]byte)                {}
func (*gossip) GetBroadcasts(int, int) [][]byte { return nil }
func (*gossip) LocalState(bool) []byte          { return nil }
func (*gossip) MergeRemoteState([]byte, bool)   {}

// NotifyAlive keeps members of another cluster of the same name out.
func (g *gossip) NotifyAlive(m *memberlist.Node) error {
	if m.Name == gossipName(g.n.cfg.Name, g.n.boot) {
		return nil // memberlist needs its own node
	}
	s, err := sight(m)
	if err != nil {
		return err
	}
	own := g.n.founding.Load()
	if own != nil && s.meta.Cluster != (machine.ClusterID{}) && s.meta.Cluster != own.Cluster {
		g.n.beside.Store(true)
		g.n.conflict(Member{Name: s.name, Addr: s.addr, Boot: s.boot}, "a member of another cluster of this name gossips with us")
		return fmt.Errorf("cluster: %s is of another cluster", m.Name)
	}
	return nil
}

func (g *gossip) NotifyJoin(m *memberlist.Node)   { g.note(m, true) }
func (g *gossip) NotifyUpdate(m *memberlist.Node) { g.note(m, true) }
func (g *gossip) NotifyLeave(m *memberlist.Node)  { g.note(m, false) }

func sight(m *memberlist.Node) (*sighting, error) {
	name, boot, err := splitGossipName(m.Name)
	if err != nil {
		return nil, err
	}
	s := &sighting{name: name, boot: boot, addr: net.JoinHostPort(m.Addr.String(), strconv.Itoa(int(m.Port)))}
	if len(m.Meta) > 0 {
		if err := wire.Unmarshal(m.Meta, &s.meta); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (g *gossip) note(m *memberlist.Node, alive bool) {
	s, err := sight(m)
	if err != nil {
		return
	}
	s.alive, s.since = alive, time.Now()
	g.mu.Lock()
	old := g.members[m.Name]
	news := old == nil || old.alive != alive
	if !news {
		s.since = old.since
	}
	g.members[m.Name] = s
	g.pruneLocked()
	g.mu.Unlock()
	self := s.name == g.n.cfg.Name && s.boot == g.n.boot
	if news && !self && (alive || old != nil) {
		kind := MemberJoined
		if !alive {
			kind = MemberLeft
		}
		e := Event{Kind: kind, Member: Member{Name: s.name, Addr: s.addr, Boot: s.boot}}
		if s.boot < g.newestBoot(s.name) {
			e.Detail = "an earlier start of it" // not who has that name now
		}
		g.n.event(e)
	}
	if alive && s.name == g.n.cfg.Name && !self && news {
		g.n.namesake(*s)
	}
	if !alive && !self {
		g.n.port.Drop(s.name, g.newestBoot(s.name))
	}
	g.changed.fire()
}

// newestBoot is the boot of the name's living incarnation, or one that no
// connection has.
func (g *gossip) newestBoot(name string) uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	var newest uint64
	for _, s := range g.members {
		if s.name == name && s.alive {
			newest = max(newest, s.boot)
		}
	}
	return newest
}

func (g *gossip) pruneLocked() {
	if len(g.members) <= maxDead {
		return
	}
	oldest := ""
	for key, s := range g.members {
		if !s.alive && (oldest == "" || s.since.Before(g.members[oldest].since)) {
			oldest = key
		}
	}
	delete(g.members, oldest)
}

// gossipTransport carries memberlist's packets and streams over the port.
type gossipTransport struct {
	ctx     context.Context // the node's
	port    *port.Port
	addr    string
	packets chan *memberlist.Packet
	streams chan net.Conn
	once    sync.Once
	closed  chan struct{}
}

var _ memberlist.NodeAwareTransport = (*gossipTransport)(nil)

const maxPackets = 1024 // waiting for memberlist; more are dropped, as UDP does

func newGossipTransport(ctx context.Context, p *port.Port, addr string) *gossipTransport {
	t := &gossipTransport{
		ctx: ctx, port: p, addr: addr,
		packets: make(chan *memberlist.Packet, maxPackets),
		streams: make(chan net.Conn),
		closed:  make(chan struct{}),
	}
	p.Handle(port.KindGossip, func(c *port.Conn) {
		select {
		case t.streams <- c:
		case <-t.closed:
			c.Close()
		}
	})
	p.HandlePackets(func(b []byte, from string, at time.Time) {
		addr, err := net.ResolveUDPAddr("udp", from)
		if err != nil {
			return
		}
		select {
		case t.packets <- &memberlist.Packet{Buf: slices.Clone(b), From: addr, Timestamp: at}:
		default:
		}
	})
	return t
}

func (t *gossipTransport) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	host, port, err := splitHostPort(t.addr)
	if err != nil {
		return nil, 0, err
	}
	ip := net.ParseIP(host)
	if ip == nil {
		return nil, 0, fmt.Errorf("cluster: %q is no IP address", host)
	}
	if v4 := ip.To4(); v4 != nil {
		ip = v4
	}
	return ip, port, nil
}

func (t *gossipTransport) WriteTo(b []byte, addr string) (time.Time, error) {
	return time.Now(), t.port.Send(b, addr)
}

func (t *gossipTransport) WriteToAddress(b []byte, addr memberlist.Address) (time.Time, error) {
	return t.WriteTo(b, addr.Addr)
}

func (t *gossipTransport) PacketCh() <-chan *memberlist.Packet { return t.packets }
func (t *gossipTransport) StreamCh() <-chan net.Conn           { return t.streams }

func (t *gossipTransport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	return t.DialAddressTimeout(memberlist.Address{Addr: addr}, timeout)
}

// DialAddressTimeout checks the member's name if memberlist knows it, so that
// a recycled address is not taken for a member that was there before.
func (t *gossipTransport) DialAddressTimeout(addr memberlist.Address, timeout time.Duration) (net.Conn, error) {
	var to port.Peer
	if addr.Name != "" {
		name, boot, err := splitGossipName(addr.Name)
		if err != nil {
			return nil, err
		}
		to = port.Peer{Name: name, Boot: boot}
	}
	ctx, cancel := context.WithTimeout(t.ctx, timeout)
	defer cancel()
	return t.port.Dial(ctx, addr.Addr, port.KindGossip, to)
}

func (t *gossipTransport) Shutdown() error {
	t.once.Do(func() { close(t.closed) })
	return nil
}

var _ slog.LogValuer = sighting{}

// LogValue names the member.
func (s sighting) LogValue() slog.Value { return slog.StringValue(s.name + " at " + s.addr) }
