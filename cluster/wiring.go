package cluster

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/wardmote/wardmote/internal/consensus"
	"github.com/wardmote/wardmote/internal/founding"
	"github.com/wardmote/wardmote/internal/gossip"
	"github.com/wardmote/wardmote/internal/link"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/port"
	"github.com/wardmote/wardmote/internal/term"
	"github.com/wardmote/wardmote/internal/wire"
)

// This file connects the rooms: each constructor below gives a room a few
// functions of the other rooms. Where two rooms need each other, each gets a
// function that looks the other up when called; no room runs before all exist.

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

// servePort begins to accept connections, each for the room of its kind.
func (n *Node) servePort() {
	n.port.Handle(port.KindGossip, func(c *port.Conn) { n.gossip.Accept(c) })
	n.port.HandlePackets(n.gossip.Packet)
	n.port.Handle(port.KindMember, func(c *port.Conn) { term.ServeMember(c, n.currentTerm, n.hint) })
	n.port.Handle(port.KindControl, n.serveControl)
	n.port.Handle(port.KindRaft, func(c *port.Conn) { n.seat.Accept(c, c.Hello.To.Boot) })
	n.port.Serve()
}

var errNoRaft = errors.New("cluster: no such raft here")

// admit decides which connections this node accepts.
func (n *Node) admit(h port.Hello) error {
	if h.Kind == port.KindRaft && !n.seat.Admits(h.To.Boot) {
		return errNoRaft
	}
	return nil
}

func dial(ctx context.Context, p *port.Port, kind port.Kind, to member.Process) (net.Conn, error) {
	c, err := p.Dial(ctx, to.Addr, kind, port.Peer{Name: to.Name, Boot: to.Boot})
	if err != nil {
		return nil, err // not c, which would be an interface that is not nil
	}
	return c, nil
}

func (n *Node) newGossip(key []byte) *gossip.Gossip {
	rec := n.record.Get()
	meta := member.Metadata{
		Version:    member.ProtocolVersion,
		Generation: rec.Generation,
		Founder:    n.foundingConfig().Declared(),
		Durable:    n.cfg.Dir != "",
		TTL:        uint64(n.cfg.TTL / time.Millisecond),
		Format:     machine.MaxFormat,
	}
	if rec.Founding != nil {
		meta.Cluster = rec.Founding.Cluster
	}
	return gossip.New(gossip.Config{
		Self:     n.self,
		Join:     n.cfg.Join,
		Key:      key,
		Meta:     meta,
		Port:     gossipPort{n.port},
		Cluster:  func() machine.ClusterID { return n.founding.Cluster() },
		Peers:    func() []string { return n.record.Get().Peers },
		Remember: n.record.RememberPeers,
		Watcher:  gossipWatcher{event: n.event, namesake: n.namesake, foreign: n.foreignGossip},
	})
}

// gossipPort carries gossip over the node's port.
type gossipPort struct{ *port.Port }

func (p gossipPort) Dial(ctx context.Context, to member.Process) (net.Conn, error) {
	return dial(ctx, p.Port, port.KindGossip, to)
}

// gossipWatcher turns gossip's news into events.
type gossipWatcher struct {
	event    func(Event)
	namesake func(member.Sighting)
	foreign  func(member.Process)
}

func (w gossipWatcher) Joined(s member.Sighting, earlier bool) { w.tell(MemberJoined, s, earlier) }
func (w gossipWatcher) Left(s member.Sighting, earlier bool)   { w.tell(MemberLeft, s, earlier) }
func (w gossipWatcher) Namesake(s member.Sighting)             { w.namesake(s) }
func (w gossipWatcher) Foreign(p member.Process)               { w.foreign(p) }

func (w gossipWatcher) tell(kind EventKind, s member.Sighting, earlier bool) {
	e := Event{Kind: kind, Member: memberOf(s.Process)}
	if earlier {
		e.Detail = "an earlier start of it" // not the present holder of the name
	}
	w.event(e)
}

func (n *Node) foundingConfig() founding.Config {
	return founding.Config{
		Self:        n.self,
		Join:        n.cfg.Join,
		Founders:    n.cfg.Founders,
		InitialSize: n.cfg.InitialSize,
		Voters:      n.cfg.Voters,
		TTL:         n.cfg.TTL,
		Record:      n.record,
		Adopted:     n.adopted,
		Conflict:    n.conflict,
	}
}

func (n *Node) newFounding() *founding.Runner {
	cfg := n.foundingConfig()
	cfg.Members, cfg.Joined = n.gossip, n.gossip.Joined()
	cfg.Ask = n.peers
	return founding.New(cfg)
}

// adopted is called once, when this member learns its cluster.
func (n *Node) adopted(v wire.Founding, votes bool) {
	n.gossip.Update(func(m *member.Metadata) { m.Cluster = v.Cluster })
	n.event(Event{Kind: ClusterFounded, Detail: clusterText(v.Cluster)})
	if votes {
		n.seat.Found(n.ctx)
	}
	n.link.Wake()
}

func (n *Node) newSeat() *consensus.Seat {
	return consensus.NewSeat(consensus.Config{
		Self:      n.self,
		Dir:       n.cfg.Dir,
		Record:    n.record,
		Engine:    n.cfg.engine,
		NewTable:  func() consensus.FSM { return term.NewTable() },
		LastToken: lastToken,
		Dial: func(ctx context.Context, raftID string) (net.Conn, error) {
			to, err := n.locate(raftID)
			if err != nil {
				return nil, err
			}
			_, to.Boot, _ = member.ParseRaftID(raftID) // raft streams name the generation
			return dial(ctx, n.port, port.KindRaft, to)
		},
		Lead:       n.lead,
		Advertise:  n.gossip.Update,
		AskRemoved: n.askRemoved,
		Changed:    func() { n.link.Wake() },
		Retired:    func(err error) { n.event(Event{Kind: NodeFailed, Detail: err.Error()}) },
		Fail:       n.fail,
	})
}

// lastToken returns the highest token of a table.
func lastToken(fsm consensus.FSM) (token uint64) {
	fsm.(*term.Table).View(func(s *machine.State) { token = uint64(s.LastToken()) })
	return token
}

func (n *Node) newLink() *link.Link {
	return link.New(link.Config{
		Self:    n.self,
		TTL:     n.cfg.TTL,
		Cluster: n.founding.Cluster,
		Leading: func() link.Leader {
			if t := n.currentTerm(); t != nil {
				return t
			}
			return nil // not t, which would be an interface that is not nil
		},
		Guess:    n.guessLeader,
		Members:  n.gossip.Alive,
		Gossiped: n.gossip.Changed,
		Dial: func(ctx context.Context, addr string) (net.Conn, string, error) {
			c, err := n.port.Dial(ctx, addr, port.KindMember, port.Peer{})
			if err != nil {
				return nil, "", err
			}
			return c, c.Remote.Name, nil
		},
		Explain: n.noQuorumReason,
		Done:    n.ctx.Done(),
		Cause:   func() error { return context.Cause(n.ctx) },
		LeaderChanged: func(leader member.Process, number uint64) {
			n.event(Event{Kind: LeaderChanged, Member: memberOf(leader), Term: number})
		},
		QuorumLost:     func(detail string) { n.event(Event{Kind: QuorumLost, Detail: detail}) },
		QuorumRegained: func() { n.event(Event{Kind: QuorumRegained}) },
	})
}

// guessLeader returns the leader of this node's own raft.
func (n *Node) guessLeader() (member.Process, bool) {
	r := n.seat.Current()
	if r == nil || r.LeaderID() == "" {
		return member.Process{}, false
	}
	p, err := n.locate(r.LeaderID())
	return p, err == nil
}

// locate finds the process behind a raft ID.
func (n *Node) locate(raftID string) (member.Process, error) {
	if name, _, err := member.ParseRaftID(raftID); err == nil && name == n.self.Name {
		return member.Process{Name: name, Addr: n.self.Addr}, nil
	}
	return member.Locate(n.gossip.All(), raftID)
}

// hint names the leading member, as far as this node knows.
func (n *Node) hint() wire.Hint {
	if t := n.currentTerm(); t != nil {
		return wire.Hint{Term: t.Number(), Leader: n.self.Name, Addr: n.self.Addr}
	}
	if r := n.seat.Current(); r != nil && r.LeaderID() != r.ID() {
		if at, ok := n.guessLeader(); ok {
			return wire.Hint{Term: r.Term(), Leader: at.Name, Addr: at.Addr}
		}
	}
	name, addr, _ := n.link.Leader()
	return wire.Hint{Leader: name, Addr: addr}
}
