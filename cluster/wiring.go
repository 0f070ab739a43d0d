package cluster

import (
	"cmp"
	"context"
	"errors"
	"net"
	"time"

	"github.com/wardmote/wardmote/internal/consensus"
	"github.com/wardmote/wardmote/internal/founding"
	"github.com/wardmote/wardmote/internal/gossip"
	"github.com/wardmote/wardmote/internal/host"
	"github.com/wardmote/wardmote/internal/link"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/port"
	"github.com/wardmote/wardmote/internal/raftstore"
	"github.com/wardmote/wardmote/internal/term"
	"github.com/wardmote/wardmote/internal/wire"
)

// This file connects the rooms: each constructor below gives a room a few
// functions of the other rooms. Where two rooms need each other, each gets a
// function that looks the other up when called; no room runs before all exist.

func (n *Node) openPort() error {
	p, err := port.Open(port.Config{
		Network:    n.cfg.Network,
		Bind:       n.cfg.Bind,
		Cluster:    n.self.Cluster,
		Self:       port.Peer{Name: n.self.Name, Boot: n.self.Boot},
		ClusterID:  func() [16]byte { return n.founding.Cluster() },
		Admit:      n.admit,
		Advertised: func() string { return n.self.Addr },
		Auth:       n.method(),
		Age:        n.cfg.age,
		Logger:     n.self.Log,
		Foreign:    n.foreign,
		Refused:    n.self.Refused,
		Meter:      n.self.Meter,
		Living:     n.living,
		Known:      n.known,
	})
	if err != nil {
		return &ConfigError{"Config.Bind", err.Error()}
	}
	if n.self.Addr, err = n.cfg.advertise(n.ctx, p.Addr(), n.cfg.host()); err != nil {
		return errors.Join(err, p.Close())
	}
	n.port = p
	return nil
}

// servePort begins to accept connections, each for the room of its kind.
func (n *Node) servePort() {
	handle := func(k port.Kind, serve func(*port.Conn)) {
		n.port.Handle(k, func(c *port.Conn) {
			if c.Proved.Name != "" {
				n.gossip.Met(c.Remote.Name, c.Remote.Boot, c.Proved.Voter, c.RemoteAddr().String())
			} else {
				n.gossip.Called(c.Remote.Name, c.Remote.Boot)
			}
			serve(c)
		})
	}
	handle(port.KindGossip, func(c *port.Conn) { n.gossip.Accept(c, c.Remote.Name, c.Host()) })
	handle(port.KindPackets, func(c *port.Conn) { n.gossip.AcceptPackets(c) })
	n.port.HandlePackets(n.gossip.Packet)
	handle(port.KindMember, n.serveMember)
	handle(port.KindControl, n.serveControl)
	handle(port.KindRelay, n.relay)
	handle(port.KindRaft, func(c *port.Conn) {
		n.seat.Accept(c, member.Process{Name: c.Remote.Name, Boot: c.Remote.Boot}, c.Proved.Voter, c.Hello.To.Boot)
	})
	n.port.Serve()
}

// serveMember serves the stream of a member that takes this node for the leader.
func (n *Node) serveMember(c *port.Conn) {
	g := n.guide()
	var err error
	if g.Bound, err = c.Binding(); err != nil {
		_ = c.Close()
		return
	}
	g.From, g.Shared, g.Mere = c.From(), n.certs != nil && c.Proved.Name == "", !c.Proved.Voter
	term.ServeMember(c, c.Hello.From.Name, c.Hello.From.Boot, g)
}

var errNoRaft = errors.New("cluster: no such raft here")

// admit decides which connections this node accepts.
func (n *Node) admit(h port.Hello) error {
	if h.Kind == port.KindRaft && (!n.atHome() || !n.seat.Admits(h.To.Boot)) {
		return errNoRaft
	}
	if h.Kind == port.KindRelay {
		if _, ok := n.relayTo(h.To.Name); !ok {
			return errNoRelay
		}
	}
	return nil
}

// dial opens a connection to a process. Each handshake is told to the prover.
func (n *Node) dial(ctx context.Context, kind port.Kind, to member.Process) (net.Conn, error) {
	begun := time.Now()
	c, err := n.port.Dial(ctx, to.Addr, kind, port.Peer{Name: to.Name, Boot: to.Boot})
	n.noteHandshake(begun, to.Addr, c, err)
	if err != nil {
		return nil, err // not c, which would be an interface that is not nil
	}
	return c, nil
}

func (n *Node) newGossip() *gossip.Gossip {
	rec := n.record.Get()
	keys, ids := n.gossipKeys()
	meta := member.Metadata{
		Version:    member.ProtocolVersion,
		Generation: rec.Generation,
		Founder:    n.foundingConfig().Declared(),
		Durable:    n.cfg.Dir != "",
		Thin:       n.cfg.Voting.Thin,
		Zone:       n.cfg.Voting.Zone,
		TTL:        uint64(n.cfg.TTL / time.Millisecond),
		Format:     machine.MaxFormat,
		Release:    release(),
	}
	if rec.Founding != nil {
		meta.Cluster = rec.Founding.Cluster
	}
	meta.SetKeyIDs(ids)
	return gossip.New(gossip.Config{
		Self:      n.self,
		Join:      n.cfg.Join,
		Resolver:  n.cfg.Resolver,
		Keys:      func() [][]byte { return keys },
		InStreams: n.cfg.Security.TLS != nil && len(keys) == 0,
		Meta:      meta,
		Port:      gossipPort{n.port, n.dial},
		Updated:   func() { n.link.Describe() }, // the link is made later, before anything runs
		Cluster:   func() machine.ClusterID { return n.founding.Cluster() },
		Peers:     func() []string { return n.record.Get().Peers },
		Remember:  n.record.RememberPeers,
		Watcher:   gossipWatcher{event: n.memberEvent, namesake: n.namesake, foreign: n.foreignGossip},
	})
}

// gossipPort carries gossip over the node's port.
type gossipPort struct {
	*port.Port
	dial func(context.Context, port.Kind, member.Process) (net.Conn, error)
}

func (p gossipPort) Dial(ctx context.Context, to member.Process) (net.Conn, error) {
	return p.dial(ctx, port.KindGossip, to)
}

func (p gossipPort) DialPackets(ctx context.Context, to member.Process) (net.Conn, error) {
	return p.dial(ctx, port.KindPackets, to)
}

func (n *Node) foundingConfig() founding.Config {
	return founding.Config{
		Self:        n.self,
		Join:        n.cfg.Join,
		Founders:    n.cfg.Founders,
		InitialSize: n.cfg.InitialSize,
		Voters:      n.cfg.Voting.Voters,
		Thin:        n.cfg.Voting.Thin,
		TTL:         n.cfg.TTL,
		Record:      n.record,
		Adopted:     n.adopted,
		AssumeGone:  n.cfg.Recovery.AssumeGone,
		Conflict:    n.conflict,
	}
}

func (n *Node) newFounding() *founding.Runner {
	cfg := n.foundingConfig()
	cfg.Members, cfg.Joined = n.gossip, n.gossip.Joined()
	cfg.Ask, cfg.Tried = n.across, n.gossip.Tried
	cfg.Leave, cfg.Stayed, cfg.Retire = n.leaveCluster, n.stayed, n.retire
	cfg.Ended = func(name string, boot uint64) bool { return n.proof.Ended(name, boot) }
	cfg.Shown = n.gossip.Shown
	cfg.Leaderless = func() time.Duration { return n.link.Alone() } // the link is made later
	if n.cfg.Recovery.JoinIsComplete {
		cfg.Complete = n.gossip.CompleteList
	}
	if floor := n.cfg.Recovery.TokenFloor; floor != nil {
		cfg.TokenFloor = func(ctx context.Context) (uint64, error) {
			token, err := floor(ctx)
			return uint64(token), err
		}
	}
	return founding.New(cfg)
}

func (n *Node) newSeat() *consensus.Seat {
	return consensus.NewSeat(consensus.Config{
		Self:       n.self,
		Dir:        n.cfg.Dir,
		Record:     n.record,
		Engine:     n.cfg.engine,
		Store:      raftstore.Options{BoltLog: n.cfg.Voting.Log == LogBolt, Unflushed: n.cfg.Voting.Sync == SyncBoot},
		HostBoot:   n.cfg.hostBoot,
		Disk:       host.Of(n.cfg.Network).Disk,
		NewTable:   n.newTable,
		LastToken:  lastToken,
		Dial:       n.dialRaft,
		Look:       n.look,
		AskStand:   n.askStand,
		AskFollows: n.askFollows,
		Lead:       n.lead,
		Advertise:  n.gossip.Update,
		AskRemoved: n.askRemoved,
		Changed:    n.wakeLink,
		Committed:  n.committed,
		Retired: func(err error) {
			n.mute.Store(true) // the disk may hang, and raft with it
			n.event(Event{Kind: NodeFailed, Detail: err.Error()})
		},
		Fail: n.fail,
	})
}

func (n *Node) newTable() consensus.FSM {
	t := term.NewTable()
	t.Clock = n.self.Clock
	return t
}

// lastToken returns the highest token of a table.
func lastToken(fsm consensus.FSM) (token uint64) {
	fsm.(*term.Table).View(func(s *machine.State) { token = uint64(s.LastToken()) })
	return token
}

func (n *Node) newLink() *link.Link {
	return link.New(link.Config{
		Self:    n.self,
		Signer:  cmp.Or(n.cfg.signer, wire.NewKeySigner()),
		Dir:     n.dirKey,
		TTL:     n.cfg.TTL,
		Cluster: n.founding.Cluster,
		Leading: func() link.Leader {
			if t := n.currentTerm(); t != nil {
				return t
			}
			return nil // not t, which would be an interface that is not nil
		},
		Guess: n.guessLeader,
		Votes: func() bool {
			r := n.seat.Current()
			return r != nil && r.Votes()
		},
		VoterAddrs: n.voterAddrs,
		OtherAddrs: n.otherAddrs,
		Members:    n.gossip.Alive,
		Claimants:  n.gossip.Claimants,
		Gossiped:   n.gossip.Changed,
		Dial:       n.dialMember,
		Voters:     n.votersTold,
		Describe: func() []byte {
			meta := n.gossip.Described()
			return wire.Marshal(&meta)
		},
		Explain: n.noQuorumReason,
		Local:   n.local,
		Guests:  n.guests,
		AllEnd:  n.allOthersEnd,
		Proved:  n.proof.Changed,
		Done:    n.ctx.Done(),
		Cause:   func() error { return context.Cause(n.ctx) },
		LeaderChanged: func(leader member.Process, number uint64) {
			if n.leaderTerm.Swap(number) > number {
				n.voters.forget() // a false leader told of the voters
			}
			n.voters.changed.Wake()
			n.self.Meter.LeaderChanges.Inc()
			n.event(Event{Kind: LeaderChanged, Member: memberOf(leader), Term: number})
		},
		QuorumLost:     n.quorumLost,
		QuorumRegained: func() { n.event(Event{Kind: QuorumRegained}) },
	})
}
