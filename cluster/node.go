package cluster

import (
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/port"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/wire"
)

// Node is this process's part in a cluster. Its methods may be called from any
// goroutine.
type Node struct {
	cfg  Config
	boot uint64 // new at each start
	addr string // as advertised
	log  *slog.Logger

	id       *identity
	port     *port.Port
	gossip   *gossip
	control  *control
	roles    *roles
	link     *link
	events   *eventQueue
	founding atomic.Pointer[wire.Founding] // nil: not in a cluster yet
	leader   atomic.Pointer[leader]        // nil: this node does not lead
	adopting sync.Mutex
	beside   atomic.Bool   // another cluster of this name was met
	joined   chan struct{} // closed when every Join address has been tried once

	ctx    context.Context // ends with the node; its cause says why
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup

	stopping  sync.Once
	stopErr   error
	mu        sync.Mutex
	conflicts map[string]bool // told already
	ready     bool
}

// Member is a node as the others see it.
type Member struct {
	Name   string
	Addr   string // host:port
	Boot   uint64 // new at each start of the member's process
	Voter  bool
	Leader bool
	Self   bool
}

var errForeign = errors.New("cluster: member of another cluster")

// Start starts this process's part in a cluster and returns at once: finding
// the others, founding or joining go on in the background, for as long as the
// node runs; see Ready. ctx bounds only the call. On error nothing is left
// running; bad input gives a *ConfigError.
//
// Stop the node when it is no longer needed.
func Start(ctx context.Context, cfg Config) (*Node, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	named := cfg.Name != ""
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	n := &Node{
		cfg:       cfg,
		boot:      uint64(time.Now().UnixNano()),
		joined:    make(chan struct{}),
		conflicts: make(map[string]bool),
	}
	n.ctx, n.cancel = context.WithCancelCause(context.Background())
	if cfg.Events != nil {
		n.events = &eventQueue{call: cfg.Events, wake: make(chan struct{}, 1)}
	}
	if n.id, err = openIdentity(cfg.Dir, cfg.Name, cfg.Cluster, named); err != nil {
		return nil, err
	}
	n.cfg.Name = n.id.get().Name
	n.log = cfg.Logger.With("member", n.cfg.Name)
	if err := n.start(); err != nil {
		n.cancel(ErrStopped)
		n.wg.Wait()
		return nil, errors.Join(err, n.id.close())
	}
	n.log.Info("started", "config", n.cfg.String(), "address", n.addr)
	return n, nil
}

// start binds the port and runs everything that runs. Stop ends the same list.
func (n *Node) start() error {
	rec := n.id.get()
	if rec.Generation == 0 {
		rec.Generation = n.boot
		if err := n.id.update(func(r *identityRecord) { r.Generation = n.boot }); err != nil {
			return err
		}
	}
	n.founding.Store(rec.Founding)
	var key []byte
	if len(n.cfg.Secret) > 0 {
		var err error
		if key, err = hkdf.Key(sha256.New, n.cfg.Secret, nil, "gossip/1"+n.cfg.Cluster, 32); err != nil {
			return err
		}
	}
	p, err := port.Open(port.Config{
		Network:   n.cfg.Network,
		Bind:      n.cfg.Bind,
		Cluster:   n.cfg.Cluster,
		Self:      port.Peer{Name: n.cfg.Name, Boot: n.boot},
		ClusterID: func() [16]byte { return n.clusterID() },
		Admit:     n.admit,
		TLS:       n.cfg.TLS,
		Logger:    n.log,
		Foreign:   n.foreign,
	})
	if err != nil {
		return &ConfigError{"Config.Bind", err.Error()}
	}
	n.port = p
	if n.addr, err = n.cfg.advertise(p.Addr()); err != nil {
		return errors.Join(err, p.Close())
	}
	n.control = newControl(n)
	n.roles = newRoles(n)
	n.link = newLink(n)
	meta := metadata{
		Version:    protocolVersion,
		Cluster:    n.clusterID(),
		Generation: rec.Generation,
		Founder:    n.founder(),
		Durable:    n.cfg.Dir != "",
		TTL:        uint64(n.cfg.TTL / time.Millisecond),
		Format:     machine.MaxFormat,
	}
	n.gossip = newGossip(n, meta)
	p.Handle(port.KindMember, n.serveMember)
	p.Handle(port.KindControl, n.serveControl)
	p.Handle(port.KindRaft, n.serveRaft)
	p.Serve()
	if err := n.gossip.start(key, newHCLogger(n.log)); err != nil {
		n.gossip.trans.Shutdown()
		n.control.stop()
		return errors.Join(err, p.Close())
	}
	if err := n.roles.resume(); err != nil {
		n.cancel(ErrStopped)
		n.gossip.stop()
		n.control.stop()
		return errors.Join(err, p.Close())
	}
	if n.events != nil {
		n.wg.Go(func() { n.events.run(n.ctx.Done()) })
	}
	n.wg.Go(func() { n.gossip.publishLoop(n.ctx) })
	n.wg.Go(func() { n.gossip.joinLoop(n.ctx) })
	n.wg.Go(func() { n.foundLoop(n.ctx) })
	n.wg.Go(func() { n.roles.run(n.ctx) })
	n.wg.Go(func() { n.link.run(n.ctx) })
	n.wg.Go(n.watchGranting)
	return nil
}

// Ready waits until the cluster grants locks and this member can ask for
// them. It fails when ctx ends, with an error that also is ErrNoQuorum if no
// leader could be reached, or when the node cannot be in the cluster at all.
func (n *Node) Ready(ctx context.Context) error {
	err := n.link.granting(ctx)
	var e *replica.Error
	if errors.As(err, &e) {
		return e.Err
	}
	return err
}

// watchGranting tells once that locks are granted.
func (n *Node) watchGranting() {
	if n.link.granting(n.ctx) == nil {
		n.mu.Lock()
		n.ready = true
		n.mu.Unlock()
		n.event(Event{Kind: Granting})
	}
}

// Addr is the host:port that other members reach this one at.
func (n *Node) Addr() string { return n.addr }

// Name is the member's name.
func (n *Node) Name() string { return n.cfg.Name }

// Members lists the members that this one takes to be alive, itself included,
// by name. It is gossip's view: a hint, some seconds old. Each says of itself
// whether it votes; on the leader that stands as in the raft configuration, of
// whose last change a member that was cut off may not know.
func (n *Node) Members() []Member {
	leader, addr, ok := n.link.leader()
	var voters []string
	leads := n.leader.Load()
	if leads != nil {
		voters = leads.raft.voters()
	}
	var out []Member
	members := n.gossip.alive()
	for i, s := range members {
		if i+1 < len(members) && members[i+1].name == s.name {
			continue // an earlier process of that name, not yet given up
		}
		m := s.member()
		if leads != nil {
			m.Voter = slices.Contains(voters, raftID(s.name, s.meta.Generation))
		}
		m.Leader = ok && s.name == leader && s.addr == addr
		m.Self = s.name == n.cfg.Name && s.boot == n.boot
		out = append(out, m)
	}
	return out
}

func (s sighting) member() Member {
	return Member{Name: s.name, Addr: s.addr, Boot: s.boot, Voter: s.meta.Voter}
}

// Leader is the member that leads, as far as this one knows: it answered this
// member last.
func (n *Node) Leader() (Member, bool) {
	members := n.Members()
	if i := slices.IndexFunc(members, func(m Member) bool { return m.Leader }); i >= 0 {
		return members[i], true
	}
	name, addr, ok := n.link.leader()
	return Member{Name: name, Addr: addr, Leader: ok}, ok
}

// Health is the state of a member at one moment.
type Health struct {
	Quorum   bool // a leader answered, confirmed by a majority of the voters
	Granting bool // and it grants locks
	Leader   string
	Members  int // alive
	Voter    bool
	Err      error // why Quorum is false
}

// healthWait is longer than most elections: one alone is no ill health.
const healthWait = 2 * time.Second

// Health asks the leader whether it still is one. It never fails: what is
// wrong stands in the answer. It blocks until the leader has answered, or ctx has
// ended, and for two seconds at most.
func (n *Node) Health(ctx context.Context) Health {
	ctx, cancel := context.WithTimeout(ctx, healthWait)
	defer cancel()
	// Any key does: reading it is what needs the quorum.
	_, err := n.link.Read(ctx, replica.Query{Key: "health"})
	h := Health{Quorum: err == nil, Err: err, Members: len(n.gossip.alive())}
	h.Leader, _, _ = n.link.leader()
	if r := n.roles.current(); r != nil {
		h.Voter = slices.Contains(r.voters(), r.id)
	}
	n.mu.Lock()
	h.Granting = h.Quorum && n.ready
	n.mu.Unlock()
	return h
}

// Replica is what package locks works on.
func (n *Node) Replica() replica.Replica { return n.link }

// event tells the user's function, if there is one.
func (n *Node) event(e Event) {
	n.log.Info(e.Kind.String(), "about", e.Member.Name, "detail", e.Detail)
	if n.events != nil {
		n.events.put(e)
	}
}

// stopCause is why calls fail after the node's end.
func (n *Node) stopCause() error { return context.Cause(n.ctx) }

func (n *Node) clusterID() machine.ClusterID {
	if f := n.founding.Load(); f != nil {
		return f.Cluster
	}
	return machine.ClusterID{}
}

func clusterText(id [16]byte) string { return hex.EncodeToString(id[:4]) }

// admit decides who may open which kind of stream.
func (n *Node) admit(h port.Hello) error {
	if h.Kind != port.KindRaft {
		return nil
	}
	// A raft without a configuration votes for anyone: nobody speaks to ours
	// before founding or invitation, nor to another generation of it.
	r := n.roles.current()
	if r == nil || r.id != raftID(n.cfg.Name, h.To.Boot) {
		return errNoRaft
	}
	return nil
}

var errNoRaft = errors.New("cluster: no such raft here")

func (n *Node) serveRaft(c *port.Conn) {
	if r := n.roles.current(); r != nil && r.id == raftID(n.cfg.Name, c.Hello.To.Boot) {
		r.stream.serve(c)
		return
	}
	c.Close()
}

// quorumText says what stands in the way of a quorum.
func (n *Node) quorumText() string {
	alive := len(n.gossip.alive())
	if n.founding.Load() == nil {
		switch {
		case len(n.cfg.Founders) > 0:
			return fmt.Sprintf("no cluster yet: %d of %d founders seen", len(n.foundersSeen()), len(n.cfg.Founders))
		case n.cfg.InitialSize > 0:
			return fmt.Sprintf("no cluster yet: %d of %d first members seen", alive, n.cfg.InitialSize)
		}
		return fmt.Sprintf("no cluster found at %q", n.cfg.Join)
	}
	return fmt.Sprintf("no leader answers, %d members seen alive", alive)
}

func (n *Node) foundersSeen() []string {
	var seen []string
	for _, s := range n.gossip.alive() {
		if slices.Contains(n.cfg.Founders, s.name) {
			seen = append(seen, s.name)
		}
	}
	return seen
}
