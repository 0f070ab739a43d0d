package cluster

import (
	"context"
	"time"

	"github.com/wardmote/wardmote/internal/consensus"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/term"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/voters"
	"github.com/wardmote/wardmote/internal/wire"
)

// leadership is this node while it leads in one term.
type leadership struct {
	raft   *consensus.Raft
	term   *term.Term
	voters *voters.Reconciler

	endVoters context.CancelFunc
	ended     chan struct{} // closed when voters.Run has returned
}

// lead follows the leadership of r until ctx ends: it establishes a term each
// time raft elects this node, and ends the term when raft follows another leader
// or when the term doubts itself. The seat that runs r calls lead on a goroutine
// of its own and joins it.
func (n *Node) lead(ctx context.Context, r *consensus.Raft) {
	var l *leadership
	defer func() { n.endLeadership(l) }()
	news, unfollow := r.Followed()
	defer unfollow()
	for {
		number, elected := r.Leadership()
		if l != nil && (!elected || l.term.Number() != number || l.term.Doubts()) {
			n.endLeadership(l)
			l = nil
		}
		var again <-chan time.Time
		if l == nil && elected {
			if l = n.establish(r, number); l == nil {
				again = time.After(timing.EstablishAgain)
				if r.Stuck() {
					n.seat.Restart(r)
				}
			}
		}
		var doubt <-chan struct{}
		if l != nil {
			doubt = l.term.Doubt()
		}
		// The channel of leadership changes keeps one change and drops the
		// others, hence the fresh look at raft's state and term each time.
		select {
		case <-r.LeaderChanged():
		case <-news:
			n.link.Wake()
		case <-doubt:
		case <-again:
		case <-ctx.Done():
			return
		}
	}
}

// establish makes this node the leader of a term, or returns nil if that cannot
// be done now.
func (n *Node) establish(r *consensus.Raft, number uint64) *leadership {
	table := r.Table().(*term.Table)
	l := &leadership{raft: r, ended: make(chan struct{})}
	t, err := term.Establish(term.Config{
		Log:     r,
		Table:   table,
		Term:    number,
		Logger:  n.self.Log,
		Ask:     n.confirmTerm,
		MayLift: n.mayLift,
		Depart: func(name string, boot uint64, done func(wire.Code)) {
			l.voters.Depart(name, boot, done)
		},
	}, r.Barrier, n.founding.Value(), n.readableFormat(r))
	if err != nil {
		n.self.Log.Debug("term not established", "term", number, "error", err)
		return nil
	}
	l.term = t
	l.voters = voters.New(voters.Config{
		Self:    n.self,
		Want:    n.cfg.Voters,
		Durable: n.cfg.Dir != "",
		Raft:    r,
		Term:    t,
		Members: n.gossip.All,
		Ask:     n.peers,
		Changed: n.voterChanged,
	})
	t.Start()
	ctx, cancel := context.WithCancel(context.Background())
	l.endVoters = cancel
	go func() {
		defer close(l.ended)
		l.voters.Run(ctx)
	}()
	n.leading.Store(l)
	n.gossip.Update(func(m *member.Metadata) { m.Leads = number })
	n.link.Wake()
	n.self.Log.Info("leading", "term", number)
	return l
}

// endLeadership ends the term and joins everything that it ran.
func (n *Node) endLeadership(l *leadership) {
	if l == nil {
		return
	}
	n.leading.CompareAndSwap(l, nil)
	n.gossip.Update(func(m *member.Metadata) { m.Leads = 0 })
	n.link.Wake()
	l.endVoters()
	l.term.Stop()
	<-l.ended
}

// currentTerm is the term in which this node leads, or nil.
func (n *Node) currentTerm() *term.Term {
	if l := n.leading.Load(); l != nil {
		return l.term
	}
	return nil
}

// confirmTerm asks one voter whether its term is not above the given one. answer
// is called once.
func (n *Node) confirmTerm(ctx context.Context, voter string, number uint64, answer func(yes bool)) {
	to, err := n.locate(voter)
	if err != nil {
		answer(false)
		return
	}
	body := wire.Marshal(&wire.ConfirmRequest{Term: number, Voter: voter})
	n.peers.Begin(ctx, to, wire.Confirm, body, func(f wire.Frame, err error) {
		answer(err == nil && f.Code == wire.CodeOK)
	})
}

// mayLift refuses to end the founding wait of a cluster that met another cluster
// of its name: the other one lived first, since this one has granted nothing.
func (n *Node) mayLift() bool {
	if n.beside.Load() {
		n.fail(errBeside)
		return false
	}
	return true
}

// readableFormat is the newest format of log entries that every server of the
// raft configuration reads, servers that are still catching up included.
func (n *Node) readableFormat(r *consensus.Raft) int {
	return voters.Readable(r.Servers(), n.gossip.All())
}

func (n *Node) voterChanged(kind EventKind, raftID string) {
	name, _, _ := member.ParseRaftID(raftID)
	at, _ := n.locate(raftID)
	n.event(Event{Kind: kind, Member: Member{Name: name, Addr: at.Addr}})
}

// locate finds the process that holds a raft ID.
func (n *Node) locate(raftID string) (member.Process, error) {
	if name, _, err := member.ParseRaftID(raftID); err == nil && name == n.self.Name {
		return member.Process{Name: name, Addr: n.self.Addr}, nil
	}
	return member.Locate(n.gossip.All(), raftID)
}

// hint tells which member leads, as far as this node knows.
func (n *Node) hint() wire.Hint {
	if t := n.currentTerm(); t != nil {
		return wire.Hint{Term: t.Number(), Leader: n.self.Name, Addr: n.self.Addr}
	}
	if r := n.seat.Current(); r != nil {
		if id := r.LeaderID(); id != "" && id != r.ID() {
			if at, err := n.locate(id); err == nil {
				return wire.Hint{Term: r.Term(), Leader: at.Name, Addr: at.Addr}
			}
		}
	}
	name, addr, _ := n.link.Leader()
	return wire.Hint{Leader: name, Addr: addr}
}

// lastToken is the highest token that a table knows.
func lastToken(fsm consensus.FSM) (token uint64) {
	fsm.(*term.Table).View(func(s *machine.State) { token = uint64(s.LastToken()) })
	return token
}
