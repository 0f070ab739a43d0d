package cluster

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wardmote/wardmote/internal/auth"
	"github.com/wardmote/wardmote/internal/consensus"
	"github.com/wardmote/wardmote/internal/founding"
	"github.com/wardmote/wardmote/internal/gossip"
	"github.com/wardmote/wardmote/internal/host"
	"github.com/wardmote/wardmote/internal/identity"
	"github.com/wardmote/wardmote/internal/link"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/meter"
	"github.com/wardmote/wardmote/internal/port"
	"github.com/wardmote/wardmote/internal/proof"
	"github.com/wardmote/wardmote/internal/refused"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/stream"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wakeup"
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
	dirKey   *wire.DirKey       // of the record; nil: no later process can free the sessions of this one
	keyring  *auth.Keyring      // nil without secrets
	certs    *auth.Certificates // nil without TLS
	rekeying sync.Mutex         // one SetSecrets at a time
	port     *port.Port
	peers    *stream.Peers // to members of this cluster
	across   *stream.Peers // to members of any cluster of this name
	gossip   *gossip.Gossip
	proof    *proof.Prover
	founding *founding.Runner
	seat     *consensus.Seat
	link     *link.Link
	events   *hookQueue[Event]
	commits  *hookQueue[Commit]
	leading  atomic.Pointer[leadership]
	voters   voterNews
	history  eventHistory

	elections atomic.Uint64 // won by this process

	leaderNews wakeup.All // another leader may be known to this node

	slow      slowRequests // of other members
	conflicts conflictLog
	news      memberNews // of gossip
	meetings  *meetings
	homes     homes
	granted   grantedIn // the cluster has granted since this node is in it

	retiring  chan struct{}             // has a value while retire or resume runs; not a mutex, because retire waits for others
	moving    atomic.Bool               // between two clusters
	home      chan struct{}             // closed when this member's raft may take part: see comeHome
	entered   wakeup.All                // another cluster was entered
	enteredAt atomic.Pointer[time.Time] // the last time, by self.Clock
	retired   seenToken                 // of the tables given up
	resumed   machine.ClusterID         // the cluster of the record at the start; zero: none
	started   time.Time                 // by self.Clock

	leaderTerm atomic.Uint64             // of the leader that serves this member, or served it last
	ready      atomic.Bool               // Ready has returned nil
	readySince atomic.Pointer[time.Time] // when the first Ready could have asked for locks

	ctx     context.Context // ends with the node; its cause says why
	cancel  context.CancelCauseFunc
	tasksMu sync.Mutex // orders spawn and stop
	tasks   sync.WaitGroup

	guests *replica.Guests // the sessions of this process
	mute   atomic.Bool     // a raft of this process may run on after the node: no goodbye
	ending ending

	staying staying
	doors   doors
}

// Start starts this process's part in a cluster and returns at once, or after two
// seconds if the advertised address depends on names that do not resolve: finding
// the others, founding or joining go on in the background, for as long as the node
// runs; see Ready. ctx bounds only the call; its values are those of the contexts that
// the functions of the Config are called with. On error nothing is left running;
// bad input gives a *ConfigError.
//
// The caller must Stop the node in the end.
func Start(ctx context.Context, cfg Config) (*Node, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	named := cfg.Name != ""
	cfg, err := cfg.withDefaults()
	if err == nil {
		err = cfg.setName(ctx, cfg.host())
	}
	if err != nil {
		return nil, err
	}
	at := host.Of(cfg.Network)
	n := &Node{
		cfg: cfg, guests: replica.NewGuests(), ending: newEnding(), meetings: newMeetings(),
		home: make(chan struct{}), retiring: make(chan struct{}, 1), started: at.Clock.Now(),
	}
	n.granted.own = func() machine.ClusterID { return n.founding.Cluster() }
	n.ctx, n.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	n.events, n.commits = newHookQueue(cfg.Events), newHookQueue(running(n, cfg.Commits))
	if n.record, err = identity.Open(cfg.Dir, cfg.Name, cfg.Cluster, named); err != nil {
		return nil, badDir(cfg.Dir, err)
	}
	n.record.Over(at.Disk)
	n.cfg.Name = n.record.Get().Name
	if v := n.record.Get().Founding; v != nil {
		n.resumed = v.Cluster
	}
	n.self = member.Self{
		Name: n.cfg.Name,
		// Above the last process's, also after the clock was set back.
		Boot:    max(uint64(max(at.Clock.Wall().UnixNano(), 0)), n.record.Get().Boot+1),
		Cluster: cfg.Cluster,
		Log:     cfg.Logger.With("member", n.cfg.Name),
		Clock:   at.Clock,
		Meter:   new(meter.Node),
		Grid:    new(timing.Grid),
	}
	n.self.Refused = refused.New(n.self.Log)
	n.tellNarrowed()
	if err := n.start(); err != nil {
		n.cancel(ErrStopped)
		n.tasks.Wait()
		return nil, errors.Join(err, n.record.Close())
	}
	n.self.Log.Info("started", "address", n.self.Addr, "config", n.cfg.String(), "next", "wait for Ready")
	n.tellShortTTL()
	return n, nil
}

// start binds the port, connects the rooms to each other, and runs them. shutDown
// ends the same list.
func (n *Node) start() error {
	if err := n.ensureGeneration(); err != nil {
		return err
	}
	if err := n.secure(); err != nil {
		return err
	}
	if err := n.openPort(); err != nil {
		return err
	}
	if err := n.beginLife(); err != nil {
		return errors.Join(err, n.port.Close())
	}
	n.peers = stream.NewPeers(func(ctx context.Context, to member.Process) (net.Conn, error) {
		return n.dial(ctx, port.KindControl, to)
	})
	n.across = stream.NewPeers(func(ctx context.Context, to member.Process) (net.Conn, error) {
		c, err := n.port.DialAcross(ctx, to.Addr, port.KindControl, port.Peer{Name: to.Name, Boot: to.Boot})
		if err != nil {
			return nil, err // not c, which would be an interface that is not nil
		}
		return c, nil
	})
	n.peers.Mere, n.across.Mere = n.mere, n.mere
	n.gossip = n.newGossip()
	n.proof = n.newProof()
	n.founding = n.newFounding()
	n.seat = n.newSeat()
	n.link = n.newLink()
	n.servePort()
	if err := n.gossip.Start(); err != nil {
		n.peers.Stop()
		n.across.Stop()
		return errors.Join(err, n.port.Close())
	}
	if err := n.seat.Resume(); err != nil {
		n.cancel(ErrStopped)
		n.gossip.Stop()
		n.peers.Stop()
		n.across.Stop()
		return errors.Join(n.storeError(err), n.port.Close())
	}
	n.tasks.Go(func() { n.events.run(n.ctx) })
	n.tasks.Go(func() { n.commits.run(n.ctx) })
	n.tasks.Go(func() { n.gossip.Run(n.ctx) })
	n.tasks.Go(func() { n.proof.Run(n.ctx) })
	n.tasks.Go(func() { n.founding.Run(n.ctx) })
	n.tasks.Go(func() { n.seat.Run(n.ctx) })
	n.tasks.Go(func() { n.link.Run(n.ctx) })
	n.tasks.Go(n.watchFounding)
	n.tasks.Go(n.watchGranting)
	n.tasks.Go(n.runMeetings)
	n.tasks.Go(n.freePast)
	n.tasks.Go(n.watchSilence)
	n.tasks.Go(n.keepConfirmed)
	n.tasks.Go(n.comeHome)
	return nil
}

// ensureGeneration gives a new member a first raft generation.
func (n *Node) ensureGeneration() error {
	if n.record.Get().Generation != 0 {
		return nil
	}
	return n.record.Update(func(r *identity.Record) { r.Generation = n.self.Boot })
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
