package cluster

import (
	"slices"
	"time"

	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/term"
	"github.com/wardmote/wardmote/internal/wire"
)

// guide is this node's knowledge of the leader, for members that look for the
// leader.
func (n *Node) guide() term.Guide {
	return term.Guide{
		Current: n.currentTerm,
		Hint:    n.hint,
		Changed: n.leaderNews.Wait,
		Heard: func() (at time.Time) {
			if r := n.seat.Current(); r != nil {
				at = r.Heard()
			}
			return at
		},
	}
}

// wakeLink has the link and the members that asked this node look again: another
// leader may be known.
func (n *Node) wakeLink() {
	n.leaderNews.Wake()
	n.link.Wake()
}

// hint names the leading member, as far as this node knows.
func (n *Node) hint() (h wire.Hint) {
	r := n.seat.Current()
	h.Votes, h.Voters = r != nil, n.voterAddrs()
	if t := n.currentTerm(); t != nil {
		h.Term, h.Leader, h.Addr = t.Number(), n.self.Name, n.self.Addr
		return h
	}
	if at, number, ok := n.guessLeader(); ok && at.Name != n.self.Name {
		h.Term, h.Leader, h.Addr = number, at.Name, at.Addr
		return h
	}
	if r == nil {
		h.Leader, h.Addr, _ = n.link.Leader()
		h.Term = n.link.Term()
	}
	return h
}

// guessLeader returns the leader of this node's own raft, and the term.
func (n *Node) guessLeader() (p member.Process, number uint64, ok bool) {
	r := n.seat.Current()
	if r == nil {
		return p, 0, false
	}
	id := r.LeaderID()
	number = r.Term()
	if id == "" || r.LeaderID() != id {
		return p, 0, false // the term may be the next leader's
	}
	p, err := n.locate(id)
	return p, number, err == nil
}

// voterAddrs lists the addresses of the voters that this node knows: of its raft,
// else as told by the leader, else of the founding.
func (n *Node) voterAddrs() []string {
	var ids []string
	if r := n.seat.Current(); r != nil {
		ids = r.Voters()
	}
	if len(ids) == 0 {
		if told := n.link.Voters(); len(told) > 0 {
			return told
		}
		if v := n.founding.Value(); v != nil {
			ids = v.Voters
		}
	}
	var out []string
	for _, id := range ids {
		if p, err := n.locate(id); err == nil {
			out = append(out, p.Addr)
		}
	}
	return out
}

// otherAddrs lists addresses at which members may be, known without gossip.
func (n *Node) otherAddrs() []string { return slices.Concat(n.record.Get().Peers, n.cfg.Join) }
