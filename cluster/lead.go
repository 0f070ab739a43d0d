package cluster

import (
	"context"
	"time"

	"github.com/wardmote/wardmote/internal/consensus"
	"github.com/wardmote/wardmote/internal/founding"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/term"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/voters"
	"github.com/wardmote/wardmote/internal/wire"
)

// leadership is the term in which this node leads, with the reconciler of voters.
type leadership struct {
	raft   *consensus.Raft
	term   *term.Term
	voters *voters.Reconciler

	endVoters context.CancelFunc
	ended     chan struct{} // closed when voters.Run has returned
}

// lead follows the leadership of r until ctx ends: lead establishes a term each
// time raft elects this node, and ends the term when raft follows another leader
// or when the term doubts itself. The seat calls lead on a goroutine for each raft
// and joins the goroutine.
func (n *Node) lead(ctx context.Context, r *consensus.Raft) {
	var l *leadership
	defer func() {
		if l != nil {
			n.endLeadership(l)
		}
	}()
	news, unfollow := r.Followed()
	defer unfollow()
	n.awaitHome(ctx)
	for {
		number, elected := r.Leadership()
		if l != nil && (!elected || l.term.Number() != number || doubts(l.term)) {
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
			n.wakeLink()
		case <-doubt:
		case <-again:
		case <-ctx.Done():
			return
		}
	}
}

// establish makes this node the leader of a term, or returns nil after a failure:
// lead tries again.
func (n *Node) establish(r *consensus.Raft, number uint64) *leadership {
	l := &leadership{raft: r, ended: make(chan struct{})}
	t, err := term.Establish(term.Config{
		Log:     r,
		Table:   r.Table().(*term.Table),
		Term:    number,
		Logger:  n.self.Log,
		Ask:     n.confirmTerm,
		MayLift: n.mayLift(),
		Alone:   n.cfg.alone,
		// Called only after n.leading is set below: l.voters is not nil then.
		Depart:  func(name string, boot uint64, done func(wire.Code)) { l.voters.Depart(name, boot, done) },
		Deny:    n.denyCommand(),
		Refused: n.self.Refused,
		Meter:   n.self.Meter,
		Grid:    n.self.Grid,
	}, r.Barrier, n.founding.Value(), func() int { return n.ownFormat(r, machine.MaxFormat) })
	if err != nil {
		n.self.Log.Debug("term not established", "term", number, "error", err)
		return nil
	}
	l.term = t
	least, only := n.namedVoters()
	l.voters = voters.New(voters.Config{
		Self:     n.self,
		Want:     n.cfg.Voting.Voters,
		Least:    least,
		Only:     only,
		Durable:  n.cfg.Dir != "",
		Format:   machine.MaxFormat,
		Raft:     r,
		Term:     t,
		Peers:    n.peers,
		Members:  n.gossip.All,
		Gossiped: n.gossip.Changed,
		Proved:   n.proof.Changed,
		Ended:    n.proof.Ended,
		Suspect:  n.proof.Suspect,
		Missed:   n.voters.missedSince(),
		Locate:   n.locate,
	})
	ctx, cancel := context.WithCancel(context.Background())
	l.endVoters = cancel
	go func() {
		defer close(l.ended)
		l.voters.Run(ctx)
	}()
	n.self.Meter.Terms.Inc()
	n.leading.Store(l)
	n.elections.Add(1)
	if n.doors.closed() {
		cancel()
	}
	n.proof.Wake()
	n.gossip.Update(func(m *member.Metadata) { m.Leads = number })
	n.wakeLink()
	return l
}

// ownFormat returns the newest format that the servers are known to read when a term begins:
// a server counts by its own word alone, and the only process to have given its word yet is
// this one. So a leader that is alone raises the table at once, and with other servers the
// reconciler raises the table a moment later, when they are attached. Newest is the newest
// format of this program. Not taken: gossip's
// descriptions. Any member can say in gossip that a voter reads the next format, and a voter
// that does not read the table's format votes no more.
func (n *Node) ownFormat(r *consensus.Raft, newest int) int {
	own := member.Sighting{Process: member.Process{Name: n.self.Name, Boot: n.self.Boot}, Alive: true, Meta: n.gossip.Described()}
	return voters.Readable(r.Servers(), []member.Sighting{own}, newest)
}

// endLeadership ends the term and the reconciler, and joins their goroutines.
func (n *Node) endLeadership(l *leadership) {
	n.leading.CompareAndSwap(l, nil)
	n.gossip.Update(func(m *member.Metadata) { m.Leads = 0 })
	n.wakeLink()
	l.endVoters()
	l.voters.Stop()
	l.term.Stop()
	<-l.ended
}

// doubts reports whether the promises of a term are in doubt: see term.Doubt.
func doubts(t *term.Term) bool {
	select {
	case <-t.Doubt():
		return true
	default:
		return false
	}
}

// currentTerm returns the term of this node's leadership, or nil.
func (n *Node) currentTerm() *term.Term {
	if l := n.leading.Load(); l != nil {
		return l.term
	}
	return nil
}

// confirmTerm asks one voter whether its term is at most the given term, and calls
// answer once.
func (n *Node) confirmTerm(ctx context.Context, voter string, number uint64, answer func(yes bool)) {
	to, err := n.locate(voter)
	if err != nil {
		answer(false)
		return
	}
	n.confirmAt(ctx, to, wire.ConfirmRequest{Term: number, Voter: voter}, answer)
}

// confirmAt is confirmTerm of a voter at a place. A leader that is asked for more and more begins
// a round as soon as the one before has its majority, thousands in a second, and each would
// dial a voter that has ended. A stream that has broken is dialled again at once.
func (n *Node) confirmAt(ctx context.Context, to member.Process, req wire.ConfirmRequest, answer func(yes bool)) {
	if n.peers.Unreached(to) {
		answer(false)
		return
	}
	n.peers.Begin(ctx, to, wire.Confirm, wire.Marshal(&req), func(f wire.Frame, err error) {
		answer(err == nil && f.Code == wire.CodeOK)
	})
}

// mayLift returns the function that refuses to end the founding wait while a member of
// another cluster of this name is near and the meeting is not settled: the other cluster
// may be granting. The refusal lasts for a whole founding wait after the last sign of the
// other one, as if this cluster had been founded then. See settle. The function is called
// by one goroutine.
func (n *Node) mayLift() func() bool {
	var told member.Process
	return func() bool {
		told = n.tellHeld(told)
		return !n.meetings.holds(n.meetingWindow())
	}
}

// namedVoters returns the least number of voters, and the names of the members that
// may vote; nil: all.
//
// Founders in memory found anew when a quorum of their names is there, without any
// memory of an earlier founding. The quorum is so large that the founders outside a
// majority of the voters are too few. The argument counts names, and a majority of
// at least so many voters: a single voter of another name, cut off, could go on
// granting beside the founders' next cluster. With a Dir the founders remember, and
// without Founders all first members must be there to found. If Join is complete,
// every member at its addresses must retire first.
func (n *Node) namedVoters() (least int, only []string) {
	if n.cfg.Dir != "" || len(n.cfg.Founders) == 0 || n.cfg.Recovery.JoinIsComplete {
		return 1, nil
	}
	return founding.LeastVoters(len(n.cfg.Founders), n.cfg.Voting.Voters), n.cfg.Founders
}
