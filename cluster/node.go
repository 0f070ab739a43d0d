package cluster

import (
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wardmote/wardmote/internal/consensus"
	"github.com/wardmote/wardmote/internal/founding"
	"github.com/wardmote/wardmote/internal/gossip"
	"github.com/wardmote/wardmote/internal/identity"
	"github.com/wardmote/wardmote/internal/link"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/port"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/stream"
	"github.com/wardmote/wardmote/internal/term"
	"github.com/wardmote/wardmote/internal/wire"
)

func init() {
	replica.Of = func(node any) replica.Replica { return node.(*Node).link }
}

// Node is this process's part in a cluster. Its methods may be called from any
// goroutine.
type Node struct {
	cfg  Config
	self member.Self

	record   *identity.Store
	port     *port.Port
	peers    *stream.Peers
	gossip   *gossip.Gossip
	founding *founding.Runner
	seat     *consensus.Seat
	link     *link.Link
	events   *eventQueue // nil: nobody listens
	leading  atomic.Pointer[leadership]

	conflicts conflictLog
	beside    atomic.Bool // another cluster of this name was met
	granted   atomic.Bool // the cluster has granted since this node is in it

	ctx     context.Context // ends with the node; its cause says why
	cancel  context.CancelCauseFunc
	tasksMu sync.Mutex // orders spawn and stop
	tasks   sync.WaitGroup

	stopping sync.Once
	stopErr  error
}

// Start starts this process's part in a cluster and returns at once: finding the
// others, founding or joining go on in the background, for as long as the node
// runs; see Ready. ctx bounds only the call. On error nothing is left running;
// bad input gives a *ConfigError.
//
// Stop the node when it is no longer needed.
func Start(ctx context.Context, cfg Config) (*Node, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	named := cfg.Name != ""
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	n := &Node{cfg: cfg}
	n.ctx, n.cancel = context.WithCancelCause(context.Background())
	if cfg.Events != nil {
		n.events = newEventQueue(cfg.Events)
	}
	if n.record, err = identity.Open(cfg.Dir, cfg.Name, cfg.Cluster, named); err != nil {
		return nil, &ConfigError{"Config.Dir", cfg.Dir + ": " + err.Error()}
	}
	name := n.record.Get().Name
	n.self = member.Self{
		Name:    name,
		Boot:    uint64(time.Now().UnixNano()),
		Cluster: cfg.Cluster,
		Log:     cfg.Logger.With("member", name),
	}
	if err := n.start(); err != nil {
		n.cancel(ErrStopped)
		n.tasks.Wait()
		return nil, errors.Join(err, n.record.Close())
	}
	n.self.Log.Info("started", "config", n.cfg.String(), "address", n.self.Addr)
	return n, nil
}

// start binds the port, wires the rooms to each other, and runs them. stop ends
// the same list.
func (n *Node) start() error {
	if err := n.ensureGeneration(); err != nil {
		return err
	}
	if err := n.openPort(); err != nil {
		return err
	}
	n.peers = stream.NewPeers(func(ctx context.Context, to member.Process) (net.Conn, error) {
		return n.port.Dial(ctx, to.Addr, port.KindControl, port.Peer{Name: to.Name, Boot: to.Boot})
	})
	n.founding = n.newFounding()
	key, err := n.gossipKey()
	if err != nil {
		return errors.Join(err, n.port.Close())
	}
	n.gossip = n.newGossip(key)
	n.link = n.newLink()
	n.seat = n.newSeat()
	n.port.Handle(port.KindMember, func(c *port.Conn) { term.ServeMember(c, n.currentTerm, n.hint) })
	n.port.Handle(port.KindControl, n.serveControl)
	n.port.Handle(port.KindRaft, n.serveRaft)
	n.port.Serve()
	if err := n.gossip.Start(); err != nil {
		n.peers.Stop()
		return errors.Join(err, n.port.Close())
	}
	if err := n.seat.Resume(); err != nil {
		n.cancel(ErrStopped)
		n.gossip.Stop()
		n.peers.Stop()
		return errors.Join(err, n.port.Close())
	}
	if n.events != nil {
		n.tasks.Go(func() { n.events.run(n.ctx.Done()) })
	}
	n.tasks.Go(func() { n.gossip.Run(n.ctx) })
	n.tasks.Go(func() { n.founding.Run(n.ctx) })
	n.tasks.Go(func() { n.seat.Run(n.ctx) })
	n.tasks.Go(func() { n.link.Run(n.ctx) })
	n.tasks.Go(n.watchGranting)
	return nil
}

// ensureGeneration gives a new member its first raft generation.
func (n *Node) ensureGeneration() error {
	if n.record.Get().Generation != 0 {
		return nil
	}
	return n.record.Update(func(r *identity.Record) { r.Generation = n.self.Boot })
}

func (n *Node) openPort() error {
	p, err := port.Open(port.Config{
		Network:   n.cfg.Network,
		Bind:      n.cfg.Bind,
		Cluster:   n.self.Cluster,
		Self:      port.Peer{Name: n.self.Name, Boot: n.self.Boot},
		ClusterID: func() [16]byte { return n.founding.Cluster() },
		Admit:     n.admit,
		TLS:       n.cfg.TLS,
		Logger:    n.self.Log,
		Foreign:   n.foreign,
	})
	if err != nil {
		return &ConfigError{"Config.Bind", err.Error()}
	}
	if n.self.Addr, err = n.cfg.advertise(p.Addr()); err != nil {
		return errors.Join(err, p.Close())
	}
	n.port = p
	return nil
}

// gossipKey derives the key of gossip packets from the Secret; nil without one.
func (n *Node) gossipKey() ([]byte, error) {
	if len(n.cfg.Secret) == 0 {
		return nil, nil
	}
	return hkdf.Key(sha256.New, n.cfg.Secret, nil, "gossip/1"+n.self.Cluster, 32)
}

func (n *Node) newFounding() *founding.Runner {
	return founding.New(founding.Config{
		Self:        n.self,
		Join:        n.cfg.Join,
		Founders:    n.cfg.Founders,
		InitialSize: n.cfg.InitialSize,
		Voters:      n.cfg.Voters,
		TTL:         n.cfg.TTL,
		Record:      n.record,
		Members:     n, // gossip, which starts after the founding exists
		Ask:         n.peers,
		Adopted:     n.adopted,
		Conflict:    n.conflict,
	})
}

// adopted is told once, when this member learns which cluster it belongs to.
func (n *Node) adopted(v wire.Founding, votes bool) {
	n.gossip.Update(func(m *member.Metadata) { m.Cluster = v.Cluster })
	n.event(Event{Kind: ClusterFounded, Detail: clusterText(v.Cluster)})
	if votes {
		n.seat.Found()
	}
	n.link.Wake()
}

func (n *Node) newGossip(key []byte) *gossip.Gossip {
	return gossip.New(gossip.Config{
		Self: n.self,
		Join: n.cfg.Join,
		Key:  key,
		Meta: member.Metadata{
			Version:    member.ProtocolVersion,
			Cluster:    n.founding.Cluster(),
			Generation: n.record.Get().Generation,
			Founder:    n.founding.Declared(),
			Durable:    n.cfg.Dir != "",
			TTL:        uint64(n.cfg.TTL / time.Millisecond),
			Format:     machine.MaxFormat,
		},
		Port:     n.port,
		Cluster:  n.founding.Cluster,
		Peers:    func() []string { return n.record.Get().Peers },
		Remember: n.record.RememberPeers,
		Watcher:  (*gossipWatcher)(n),
	})
}

// gossipWatcher turns gossip's news into events.
type gossipWatcher Node

func (w *gossipWatcher) Joined(s member.Sighting) { w.tell(MemberJoined, s) }
func (w *gossipWatcher) Left(s member.Sighting)   { w.tell(MemberLeft, s) }

func (w *gossipWatcher) Namesake(s member.Sighting) { (*Node)(w).namesake(s) }

func (w *gossipWatcher) Foreign(p member.Process) {
	w.beside.Store(true)
	(*Node)(w).conflict(p, "a member of another cluster of this name gossips with us")
}

func (n *Node) newLink() *link.Link {
	return link.New(link.Config{})
}

func (n *Node) newSeat() *consensus.Seat {
	return consensus.NewSeat(consensus.SeatConfig{})
}

// watchGranting tells once that locks are granted.
func (n *Node) watchGranting() {
	if n.link.Granting(n.ctx) == nil {
		n.granted.Store(true)
		n.event(Event{Kind: Granting})
	}
}

// spawn runs f on a goroutine that stop joins, unless the node has stopped.
func (n *Node) spawn(f func()) {
	n.tasksMu.Lock()
	defer n.tasksMu.Unlock()
	if n.ctx.Err() == nil {
		n.tasks.Go(f)
	}
}

// Addr is the host:port at which other members reach this one.
func (n *Node) Addr() string { return n.self.Addr }

// Name is the member's name.
func (n *Node) Name() string { return n.self.Name }

// event logs an event, and tells it to the user's function if there is one.
func (n *Node) event(e Event) {
	n.self.Log.Info(e.Kind.String(), "about", e.Member.Name, "detail", e.Detail)
	if n.events != nil {
		n.events.put(e)
	}
}

var errNoRaft = errors.New("cluster: no such raft here")

// admit decides which connections this node accepts. A raft without a
// configuration votes for anyone: so nobody speaks to raft before founding or
// invitation, nor to another generation of it.
func (n *Node) admit(h port.Hello) error {
	if h.Kind == port.KindRaft && n.raftOf(h.To.Boot) == nil {
		return errNoRaft
	}
	return nil
}

// raftOf returns this member's running raft, if it is of that generation.
func (n *Node) raftOf(generation uint64) *consensus.Raft {
	if r := n.seat.Current(); r != nil && r.ID() == member.RaftID(n.self.Name, generation) {
		return r
	}
	return nil
}

func (n *Node) serveRaft(c *port.Conn) {
	if r := n.raftOf(c.Hello.To.Boot); r != nil {
		r.Serve(c)
		return
	}
	c.Close()
}

// dialRaft connects to the holder of a raft ID.
func (n *Node) dialRaft(ctx context.Context, raftID string) (net.Conn, error) {
	to, err := n.locate(raftID)
	if err != nil {
		return nil, err
	}
	_, generation, _ := member.ParseRaftID(raftID)
	return n.port.Dial(ctx, to.Addr, port.KindRaft, port.Peer{Name: to.Name, Boot: generation})
}
