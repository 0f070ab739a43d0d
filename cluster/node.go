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
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/port"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/stream"
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
// The caller must Stop the node in the end.
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
	n.cfg.Name = n.record.Get().Name
	n.self = member.Self{
		Name:    n.cfg.Name,
		Boot:    uint64(time.Now().UnixNano()),
		Cluster: cfg.Cluster,
		Log:     cfg.Logger.With("member", n.cfg.Name),
	}
	if err := n.start(); err != nil {
		n.cancel(ErrStopped)
		n.tasks.Wait()
		return nil, errors.Join(err, n.record.Close())
	}
	n.self.Log.Info("started", "config", n.cfg.String(), "address", n.self.Addr)
	return n, nil
}

// start binds the port, connects the rooms to each other, and runs them. stop
// ends the same list.
func (n *Node) start() error {
	if err := n.ensureGeneration(); err != nil {
		return err
	}
	key, err := n.gossipKey()
	if err != nil {
		return err
	}
	if err := n.openPort(); err != nil {
		return err
	}
	n.peers = stream.NewPeers(func(ctx context.Context, to member.Process) (net.Conn, error) {
		return dial(ctx, n.port, port.KindControl, to)
	})
	n.gossip = n.newGossip(key)
	n.founding = n.newFounding()
	n.seat = n.newSeat()
	n.link = n.newLink()
	n.servePort()
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

// ensureGeneration gives a new member a first raft generation.
func (n *Node) ensureGeneration() error {
	if n.record.Get().Generation != 0 {
		return nil
	}
	return n.record.Update(func(r *identity.Record) { r.Generation = n.self.Boot })
}

// gossipKey derives the key of gossip from the Secret; nil without a Secret.
func (n *Node) gossipKey() ([]byte, error) {
	if len(n.cfg.Secret) == 0 {
		return nil, nil
	}
	return hkdf.Key(sha256.New, n.cfg.Secret, nil, "gossip/1"+n.self.Cluster, 32)
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

// Addr returns the host:port under which other members reach this member.
func (n *Node) Addr() string { return n.self.Addr }

// Name is the member's name.
func (n *Node) Name() string { return n.self.Name }

// event logs an event and queues the event for the user's function.
func (n *Node) event(e Event) {
	n.self.Log.Info(e.Kind.String(), "about", e.Member.Name, "detail", e.Detail)
	if n.events != nil {
		n.events.put(e)
	}
}
