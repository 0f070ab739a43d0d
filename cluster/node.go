package cluster

import (
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/wire"
	"github.com/wardmote/wardmote/transport"
)

// Node is this process's part in a cluster. Its methods may be called from any
// goroutine.
type Node struct {
	cfg  Config
	boot uint64 // new at each start
	addr string // as advertised
	log  *slog.Logger

	id       *identity
	port     *transport.Port
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
	port, err := transport.Open(transport.Config{
		Network:   n.cfg.Network,
		Bind:      n.cfg.Bind,
		Cluster:   n.cfg.Cluster,
		Self:      transport.Peer{Name: n.cfg.Name, Boot: n.boot},
		ClusterID: func() [16]byte { return n.clusterID() },
		Admit:     n.admit,
		TLS:       n.cfg.TLS,
		Logger:    n.log,
		Foreign:   n.foreign,
	})
	if err != nil {
		return &ConfigError{"Config.Bind", err.Error()}
	}
	n.port = port
	if n.addr, err = n.cfg.advertise(port.Addr()); err != nil {
		return errors.Join(err, port.Close())
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
	}
	n.gossip = newGossip(n, meta)
	port.Handle(transport.KindMember, n.serveMember)
	port.Handle(transport.KindControl, n.serveControl)
	port.Handle(transport.KindRaft, n.serveRaft)
	port.Serve()
	if err := n.gossip.start(key, newHCLogger(n.log)); err != nil {
		n.gossip.trans.Shutdown()
		n.control.stop()
		return errors.Join(err, port.Close())
	}
	if err := n.roles.resume(); err != nil {
		n.cancel(ErrStopped)
		n.gossip.stop()
		n.control.stop()
		return errors.Join(err, port.Close())
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

// Stop ends the node's part in the cluster now: its clients' locks end with
// cause, and what it held is free once its sessions have expired; close the
// clients first to free it at once. With a Dir the member may come back; in
// memory, use Leave to be replaced first. Stop returns when everything
// that the node ran has ended; a second call waits for the first. The node's
// calls then fail with ErrStopped.
func (n *Node) Stop() error {
	n.stopping.Do(func() { n.stopErr = n.stop(ErrStopped) })
	return n.stopErr
}

func (n *Node) stop(cause error) error {
	if l := n.leader.Load(); l != nil && len(l.raft.voters()) > 1 {
		// Hand over, so that nobody waits for an election. If it fails the
		// others elect a leader by themselves.
		if err := l.raft.transfer(context.Background()); err != nil {
			n.log.Debug("leadership not handed over", "error", err)
		}
	}
	n.mu.Lock()
	n.cancel(cause)
	n.mu.Unlock()
	n.gossip.leave(time.Second)
	n.control.stop()
	n.wg.Wait()
	err := n.roles.stop()
	n.gossip.stop()
	err = errors.Join(err, n.port.Close(), n.id.close())
	n.log.Info("stopped")
	return err
}

// Leave takes the member out of the cluster for good: leadership is handed
// over, another member takes its place as a voter if there is one, and then the node
// stops as by Stop. Close the clients first. If ctx ends before the member
// is replaced, Leave stops the node all the same and returns the error; the
// others replace it in time.
func (n *Node) Leave(ctx context.Context) error {
	n.gossip.update(func(m *metadata) { m.Leaving = true })
	err := n.replaceMe(ctx)
	return errors.Join(err, n.Stop())
}

func (n *Node) replaceMe(ctx context.Context) error {
	for {
		r := n.roles.current()
		if r == nil {
			return nil
		}
		if voters := r.voters(); len(voters) == 1 && voters[0] == r.id && len(r.servers()) == 1 {
			alone := true
			for _, s := range n.gossip.alive() {
				alone = alone && (s.name == n.cfg.Name || s.meta.Leaving)
			}
			if alone {
				return nil // nobody is left to take over
			}
		}
		if l := n.leader.Load(); l != nil {
			if len(l.raft.voters()) == 1 {
				// The only voter, but not the only member: the successor must
				// be made a voter before there is anyone to hand over to.
				if !n.waitChange(ctx, reconcileEvery) {
					return context.Cause(ctx)
				}
				continue
			}
			if err := l.raft.transfer(ctx); err != nil {
				n.log.Debug("leadership not handed over", "error", err)
			}
			if !n.waitChange(ctx, reconcileEvery) {
				return context.Cause(ctx)
			}
			continue
		}
		// Not for long at a time: this member may come to lead meanwhile.
		try, cancel := context.WithTimeout(ctx, departPatience)
		err := n.link.depart(try)
		cancel()
		if err == nil || ctx.Err() != nil || n.ctx.Err() != nil {
			return err
		}
	}
}

const departPatience = 3 * time.Second

// waitChange waits for news, or a while; it reports false if ctx has ended.
func (n *Node) waitChange(ctx context.Context, while time.Duration) bool {
	t := time.NewTimer(while)
	defer t.Stop()
	select {
	case <-t.C:
	case <-n.link.changed.wait():
	case <-n.ctx.Done():
	case <-ctx.Done():
		return false
	}
	return true
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
// by name. It is gossip's view: a hint, some seconds old.
func (n *Node) Members() []Member {
	leader, addr, ok := n.link.leader()
	var out []Member
	members := n.gossip.alive()
	for i, s := range members {
		if i+1 < len(members) && members[i+1].name == s.name {
			continue // an earlier process of that name, not yet given up
		}
		m := s.member()
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

// Health asks the leader whether it still is one. It never fails: what is
// wrong stands in the answer.
func (n *Node) Health(ctx context.Context) Health {
	h := Health{Members: len(n.gossip.alive())}
	h.Leader, _, _ = n.link.leader()
	if r := n.roles.current(); r != nil {
		h.Voter = slices.Contains(r.voters(), r.id)
	}
	// Any key does: reading it is what needs the quorum.
	_, err := n.link.Read(ctx, replica.Query{Key: "health"})
	h.Quorum, h.Err = err == nil, err
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

// conflict tells, once for each member, that something is set up wrongly.
func (n *Node) conflict(m Member, detail string) {
	key := gossipName(m.Name, m.Boot) + detail
	n.mu.Lock()
	told := n.conflicts[key] || len(n.conflicts) >= maxConflicts
	if !told {
		n.conflicts[key] = true
	}
	n.mu.Unlock()
	if !told {
		n.log.Error("conflict", "with", m.Name, "address", m.Addr, "detail", detail)
		n.event(Event{Kind: Conflict, Member: m, Detail: detail})
	}
}

const maxConflicts = 256

// foreign is told of a connection from or to another cluster.
func (n *Node) foreign(h transport.Hello, addr string) {
	if h.Cluster == n.cfg.Cluster {
		n.beside.Store(true)
	}
	detail := fmt.Sprintf("connection with cluster %q, id %s", h.Cluster, clusterText(h.ClusterID))
	n.conflict(Member{Name: h.From.Name, Addr: addr, Boot: h.From.Boot}, detail)
}

// namesake looks into another member with our name: an earlier process of
// ours that gossip has not given up yet, or a second one by mistake. Of two
// that run, the one that is in the cluster stays, or else the older.
func (n *Node) namesake(s sighting) {
	n.mu.Lock()
	defer n.mu.Unlock()
	ready := n.ready
	if n.ctx.Err() != nil {
		return // Stop may wait already
	}
	n.wg.Go(func() {
		ctx, cancel := context.WithTimeout(n.ctx, dialTimeout)
		defer cancel()
		var who wire.WhoAnswer
		if n.control.askInto(ctx, s.at(), wire.Who, nil, &who) != nil || who.Name != n.cfg.Name || who.Boot == n.boot {
			return
		}
		m := Member{Name: s.name, Addr: s.addr, Boot: s.boot}
		n.conflict(m, "two running members of one name")
		if !ready && s.boot < n.boot {
			n.fail(&ConfigError{"Config.Name", fmt.Sprintf("%q is the name of a running member at %s", n.cfg.Name, s.addr)})
		}
	})
}

// fail stops a node that cannot take part. Its calls return err from now on. A
// later Stop waits for the end of this one.
func (n *Node) fail(err error) {
	if n.ctx.Err() != nil {
		return
	}
	n.log.Error("node failed", "error", err)
	n.event(Event{Kind: NodeFailed, Detail: err.Error()})
	n.cancel(err)
	go n.Stop()
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
func (n *Node) admit(h transport.Hello) error {
	if h.Kind != transport.KindRaft {
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

func (n *Node) serveRaft(c *transport.Conn) {
	if r := n.roles.current(); r != nil && r.id == raftID(n.cfg.Name, c.Hello.To.Boot) {
		r.stream.serve(c)
		return
	}
	c.Close()
}

// resolve finds where the holder of a raft ID is.
func (n *Node) resolve(id string) (place, error) {
	name, gen, err := splitRaftID(id)
	if err != nil {
		return place{}, err
	}
	if name == n.cfg.Name {
		return place{addr: n.addr, name: name}, nil
	}
	var best *sighting
	for _, s := range n.gossip.all() {
		if s.name != name {
			continue
		}
		exact := s.meta.Generation == gen
		if best == nil || exact && best.meta.Generation != gen ||
			exact == (best.meta.Generation == gen) && (s.alive && !best.alive || s.alive == best.alive && s.boot > best.boot) {
			best = &s
		}
	}
	if best == nil {
		return place{}, fmt.Errorf("cluster: nobody knows where member %q is", name)
	}
	return best.at(), nil
}

func (n *Node) memberOf(id string) Member {
	name, _, _ := splitRaftID(id)
	at, _ := n.resolve(id)
	return Member{Name: name, Addr: at.addr}
}

// dialRaft connects to the holder of a raft ID.
func (n *Node) dialRaft(ctx context.Context, id string) (net.Conn, error) {
	at, err := n.resolve(id)
	if err != nil {
		return nil, err
	}
	_, gen, _ := splitRaftID(id)
	return n.port.Dial(ctx, at.addr, transport.KindRaft, transport.Peer{Name: at.name, Boot: gen})
}

// hint tells who leads, as far as this node knows.
func (n *Node) hint() *wire.Hint {
	if l := n.leader.Load(); l != nil {
		return &wire.Hint{Term: l.term, Leader: n.cfg.Name, Addr: n.addr}
	}
	if r := n.roles.current(); r != nil {
		if id := r.leaderID(); id != "" && id != r.id {
			if at, err := n.resolve(id); err == nil {
				return &wire.Hint{Term: r.term(), Leader: at.name, Addr: at.addr}
			}
		}
	}
	name, addr, _ := n.link.leader()
	return &wire.Hint{Leader: name, Addr: addr}
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
