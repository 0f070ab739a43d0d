package gossip

import (
	"context"
	"fmt"
	"net"
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
	// address. Dial returns when ctx ends.
	Dial(ctx context.Context, to member.Process) (net.Conn, error)

	// Send sends a packet, without blocking, and keeps no reference to b.
	Send(b []byte, addr string) error

	// Drop closes the connections with the processes of a name, except with the
	// process of the given boot.
	Drop(name string, except uint64)
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

// Config configures a Gossip. Every field but Join and Key is required.
type Config struct {
	Self member.Self
	Join []string // host:port; a name is resolved anew for each round of joining
	Key  []byte   // encrypts packets and streams; empty: plain
	Meta member.Metadata
	Port Port

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
	publish   wakeup.One             // the own description has changed
	list      *memberlist.Memberlist // set by Start
}

// New returns a Gossip that is silent until Start.
func New(cfg Config) *Gossip {
	g := &Gossip{
		cfg:       cfg,
		members:   newMembers(cfg.Self, cfg.Meta, cfg.Cluster),
		transport: newTransport(cfg.Port, cfg.Self.Addr),
		publish:   wakeup.NewOne(),
	}
	g.joiner = &joiner{cfg: cfg, members: g.members, addresses: newAddresses(cfg), tried: make(chan struct{})}
	g.joiner.join = func(addr string) error {
		_, err := g.list.Join([]string{addr})
		return err
	}
	return g
}

// Start begins to gossip, and lists this node; other members appear once Run
// joins them or they join this node. When Start fails, nothing is left running.
func (g *Gossip) Start() error {
	host, port, err := member.SplitAddr(g.cfg.Self.Addr)
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
	cfg.SecretKey = g.cfg.Key
	cfg.Delegate, cfg.Events, cfg.Alive = events, events, events
	cfg.Logger = logging.HashiCorp(g.cfg.Self.Log).StandardLogger(&hclog.StandardLoggerOptions{InferLevels: true})
	cfg.AdvertiseAddr, cfg.AdvertisePort, cfg.BindPort = host, port, port
	if g.list, err = memberlist.Create(cfg); err != nil {
		g.transport.close()
		return fmt.Errorf("cluster: gossip: %w", err)
	}
	return nil
}

// Run joins other members and spreads changes of the own description until ctx
// ends. Dials in progress are then given up, and later dials fail. Run starts
// after Start and returns when its goroutines have ended.
func (g *Gossip) Run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { g.runPublish(ctx) })
	wg.Go(func() { g.joiner.run(ctx) })
	<-ctx.Done()
	g.transport.stopDialling()
	wg.Wait()
}

// runPublish spreads each change of the own description.
func (g *Gossip) runPublish(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.publish:
			if err := g.list.UpdateNode(timing.GossipUpdate); err != nil {
				g.cfg.Self.Log.Debug("gossip update not confirmed", "error", err)
			}
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
	g.transport.close()
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
	}
}

// Alive lists the members taken for alive, this node included, by name and then
// by boot.
func (g *Gossip) Alive() []member.Sighting { return g.members.alive() }

// All lists the known members, the remembered dead included, by name and then
// by boot.
func (g *Gossip) All() []member.Sighting { return g.members.all() }

// Changed returns a channel that is closed at the next change of Alive or All.
func (g *Gossip) Changed() <-chan struct{} { return g.members.changed.Wait() }

// Joined returns a channel that is closed when the addresses of Join, or the
// first 16 of more, have been tried once.
func (g *Gossip) Joined() <-chan struct{} { return g.joiner.tried }

// Accept takes over a stream that another member has dialled. Accept blocks
// until memberlist is ready for the stream; after Stop the stream is closed.
func (g *Gossip) Accept(conn net.Conn) { g.transport.accept(conn) }

// Packet takes a packet received at the given time, and keeps b. Packet does not
// block: if too many packets wait, the packet is dropped.
func (g *Gossip) Packet(b []byte, from string, at time.Time) { g.transport.packet(b, from, at) }
