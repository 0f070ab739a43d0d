package gossip

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/memberlist"

	"github.com/wardmote/wardmote/internal/logging"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wakeup"
)

// Port sends gossip's packets and dials gossip's streams. Accepted streams and
// received packets come the other way, by Gossip.Accept and Gossip.Packet.
type Port interface {
	// Addr returns the address as bound, host:port.
	Addr() string

	// Dial opens a stream to a process. An empty name stands for any member at the
	// address. Dial returns when ctx ends. A connection may have a method Claimed, which
	// reports that nothing proves the name of the other side.
	Dial(ctx context.Context, to member.Process) (net.Conn, error)

	// DialPackets opens a stream for packets, as Dial opens one of gossip. Only with
	// Config.InStreams.
	DialPackets(ctx context.Context, to member.Process) (net.Conn, error)

	// Send sends a packet, without blocking, and keeps no reference to b.
	Send(b []byte, addr string) error

	// Drop closes the connections with one process.
	Drop(name string, boot uint64)
}

// Watcher is told of changes among the members. Calls come on goroutines of
// memberlist, under its lock: a method must not block, and must not call Start,
// Leave or Stop.
type Watcher interface {
	// Joined is called when a process other than this node is first seen alive, or
	// again after its death. Earlier says that a later process of the name lives.
	Joined(s member.Sighting, earlier bool)

	// Left is called when a living process other than this node has died or left.
	// Earlier says that a later process of the name lives.
	Left(s member.Sighting, earlier bool)

	// Namesake is called after Joined if s has this node's name: an earlier process
	// of this member, not given up yet, or a second member of the name.
	Namesake(s member.Sighting)

	// Foreign is called each time that a member of another cluster with the same
	// name as this cluster gossips with this node.
	Foreign(p member.Process)
}

// Config configures a Gossip. Every field but Join, Resolver, Keys and
// InStreams is required.
type Config struct {
	Self member.Self
	Join []string // see CheckEntry; a name is resolved anew for each round of joining

	// Resolver, if set, is Lookup.User.
	Resolver func(ctx context.Context, host string) ([]string, error)

	// Keys returns the keys of 32 bytes that seal packets and streams, the newest
	// first; at most 8. Nil, or none: plain. Called once; later see SetKeys.
	Keys func() [][]byte

	// InStreams makes packets travel in streams, where the port proves the other
	// side and encrypts. Packets by UDP are then refused.
	InStreams bool

	Meta member.Metadata
	Port Port

	// Updated is called after each change of the own description, see Described. The
	// call must not block. May be nil.
	Updated func()

	// Cluster returns the ID of this member's cluster, zero while the member is in
	// none. The call must not block.
	Cluster func() machine.ClusterID

	// Peers returns the addresses of members known to an earlier process of this
	// member.
	Peers func() []string

	// Remember stores the addresses of the living members for Peers.
	Remember func(addrs []string) error

	Watcher Watcher
}

// Gossip is this node's part in gossip. Its methods may be called from any
// goroutine.
type Gossip struct {
	cfg       Config
	members   *members
	transport *portTransport
	joiner    *joiner
	inquiries *inquiries
	census    *census
	publish   wakeup.One             // the own description has changed
	list      *memberlist.Memberlist // set by Start
}

// New returns a Gossip that is silent until Start.
func New(cfg Config) *Gossip {
	g := &Gossip{
		cfg:       cfg,
		members:   newMembers(cfg.Self, cfg.Meta, cfg.Cluster),
		transport: newTransport(cfg),
		census:    newCensus(),
		publish:   wakeup.NewOne(),
	}
	g.members.proven = g.census.knows
	g.inquiries = newInquiries(func(ctx context.Context, to member.Process) (proved bool, err error) {
		conn, err := cfg.Port.Dial(ctx, to)
		if err != nil {
			return false, err
		}
		defer conn.Close()
		c, ok := conn.(interface{ Claimed() bool })
		return !ok || !c.Claimed(), nil
	})
	g.joiner = &joiner{cfg: cfg, members: g.members, addresses: newAddresses(cfg), tried: make(chan struct{}), proven: g.census.shows}
	g.joiner.join = func(addr string) error {
		dialled := g.transport.follow(addr)
		_, err := g.list.Join([]string{addr})
		switch failed := dialled(); {
		case err == nil:
			return nil
		case failed != nil:
			return failed // memberlist's error has its text alone
		}
		return errUnread{err}
	}
	return g
}

// Start begins to gossip, and lists this node; other members appear once Run
// joins them or they join this node. When Start fails, nothing is left running.
func (g *Gossip) Start() error {
	host, port, err := member.SplitAddr(g.cfg.Self.Addr)
	if err == nil && g.transport.bad != nil {
		err = fmt.Errorf("cluster: gossip keys: %w", g.transport.bad)
	}
	if err != nil {
		g.transport.close()
		return err
	}
	events := delegate{g}
	cfg := memberlist.DefaultLANConfig()
	cfg.Name = gossipName(g.cfg.Self.Process())
	cfg.Transport = g.transport
	cfg.Label = g.cfg.Self.Cluster
	cfg.TCPTimeout = timing.GossipTCP
	cfg.EnableCompression = false
	cfg.UDPBufferSize -= sealOverhead
	cfg.DisableTcpPings = g.cfg.InStreams // a ping in a stream proves as much
	cfg.Delegate, cfg.Events, cfg.Alive = events, events, events
	cfg.Logger = logging.HashiCorp(g.cfg.Self.Log).StandardLogger(&hclog.StandardLoggerOptions{InferLevels: true})
	cfg.AdvertiseAddr, cfg.AdvertisePort, cfg.BindPort = host, port, port
	if g.list, err = memberlist.Create(cfg); err != nil {
		g.transport.close()
		return fmt.Errorf("cluster: gossip: %w", err)
	}
	g.cfg.Self.Grid.Begin() // with memberlist's tickers, which have just begun and cannot be moved
	return nil
}

// Run joins other members and spreads changes of the own description until ctx
// ends. Dials in progress are then given up, and later dials fail. Run starts
// after Start and returns when its goroutines have ended.
func (g *Gossip) Run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { g.runPublish(ctx) })
	wg.Go(func() { g.joiner.run(ctx) })
	wg.Go(func() { g.inquiries.run(ctx) })
	wg.Go(func() { g.runVetting(ctx) })
	<-ctx.Done()
	g.transport.stopDialling()
	wg.Wait()
}

// runPublish spreads each change of the own description. memberlist has finished
// with a change only after several rounds of gossip, a second with few members. The
// next change does not wait for so long: it takes the place of the change before, in
// the next round. A member that begins to leave says so at once.
func (g *Gossip) runPublish(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.publish:
			_ = g.list.UpdateNode(timing.GossipUpdate) // the error says only that rounds remain
		}
	}
}

// Leave tells the other members, as well as possible, that this member goes. It
// blocks until a first packet has gone out, and for wait at most. Leave comes
// after Start and before Stop; this node is then listed as dead.
func (g *Gossip) Leave(wait time.Duration) {
	if err := g.list.Leave(wait); err != nil {
		g.cfg.Self.Log.Debug("gossip leave not confirmed", "error", err)
	}
}

// Stop ends gossip, and closes streams that wait in Accept. Stop may come before
// Start too. The lists remain readable.
func (g *Gossip) Stop() {
	g.transport.stop()
	g.members.stop()
	if g.list == nil {
		return
	}
	if err := g.list.Shutdown(); err != nil {
		g.cfg.Self.Log.Debug("gossip shutdown", "error", err)
	}
}

// Update changes the description that this member spreads. Alive and All show
// the change at once, other members some time later. Change runs under a lock
// and must not call the Gossip.
func (g *Gossip) Update(change func(*member.Metadata)) {
	if g.members.update(change) {
		g.publish.Wake()
		if g.cfg.Updated != nil {
			g.cfg.Updated()
		}
	}
}

// Described returns the description that this member spreads.
func (g *Gossip) Described() member.Metadata { return g.members.ownMeta() }

// Alive lists the members taken for alive, this node included, by name and then
// by boot.
func (g *Gossip) Alive() []member.Sighting { return g.members.alive() }

// Claimants lists the other living members that say of themselves that they vote or lead, in no
// order, and counts all living ones, of any cluster. Beside a thousand members it costs what a few do.
func (g *Gossip) Claimants() (claimants []member.Sighting, living int) { return g.members.claimants() }

// All lists the known members, the remembered dead included, by name and then
// by boot.
func (g *Gossip) All() []member.Sighting { return g.members.all() }

// Of lists the known processes of a member's name, the remembered dead included, by boot.
// It takes no longer in a large cluster than in a small one.
func (g *Gossip) Of(name string) []member.Sighting { return g.members.of(name) }

// Changed returns a channel that is closed at the next change of Alive or All. In a
// cluster of more than timing.FewMembers, changes that follow each other closely close the
// channel together, timing.News after the change before.
func (g *Gossip) Changed() <-chan struct{} { return g.members.changed.Wait() }

// Joined returns a channel that is closed when the addresses of Join, or the
// first 16 of more, have been tried once.
func (g *Gossip) Joined() <-chan struct{} { return g.joiner.tried }

// Tried says, one line each, what the names of Join resolve to and at which
// addresses this member has not joined anybody, with the answer of the last try:
// none, another cluster's, a refusal. The lines are as of the last round of joining.
func (g *Gossip) Tried() []string { return g.joiner.addresses.trouble() }

// CompleteList returns every address of Join, this member's own included. Ok is
// false, and why is the reason, unless all names of Join were answered completely
// three times over timing.ListComplete and the own address is in the list. Whether
// the list says the truth, its author knows alone.
func (g *Gossip) CompleteList() (addrs []string, ok bool, why string) {
	return g.joiner.addresses.complete()
}

// SetKeys changes the keys while gossip runs, the newest first. Packets and streams
// are sealed by the first key from now on, and opened by each of them. Members stay
// in touch if all learn a key before one of them puts it first, and none forgets a
// key that another still puts first. The change fails, and changes nothing, if a key
// is not of 32 bytes, if there are more than 8, or from no keys to keys or back: the
// other members would understand nothing any more.
func (g *Gossip) SetKeys(keys [][]byte) error {
	r := g.transport.ring
	if g.transport.bad != nil {
		return g.transport.bad
	}
	if r.plain() != (len(keys) == 0) {
		return errors.New("cluster: gossip cannot change between plain and sealed packets while it runs")
	}
	return r.install(keys)
}

// Accept takes over a stream that a member of the name has dialled from the host. Accept
// blocks until memberlist is ready for the stream. The stream is closed after Stop, and if
// too many streams are read already.
func (g *Gossip) Accept(conn net.Conn, name string, host netip.Addr) {
	g.transport.accept(conn, name, host)
}

// Packet takes a packet received at the given time, and keeps b. Packet does not
// block: if too many packets wait, the packet is dropped. A packet that no key opens
// is counted.
func (g *Gossip) Packet(b []byte, from string, at time.Time) { g.transport.datagram(b, from, at) }

// AcceptPackets takes the packets of a stream that another member has dialled by
// Port.DialPackets, until the stream ends or Stop is called. It closes the stream.
func (g *Gossip) AcceptPackets(conn net.Conn) {
	t := g.transport
	if t.lanes == nil {
		conn.Close()
		return
	}
	from := conn.RemoteAddr().String()
	err := receive(t.open, conn, func(b []byte) { t.packet(b, from, time.Now()) })
	g.cfg.Self.Log.Debug("packet stream ended", "from", from, "error", err)
}
