package cluster

import (
	"context"

	"github.com/wardmote/wardmote/internal/founding"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/stream"
	"github.com/wardmote/wardmote/internal/wire"
)

// answerVouch answers for this cluster if this node leads it and a majority of the
// voters confirms so, in a round that begins now. A leader that ends, since nobody
// stays, answers for nothing any more: see doors. Any other node names the leader as
// far as known.
//
// The voters are listed before the round, which confirms that no other leader had changed
// them by then: the list takes a look at all members, and goes to the asking stream's account.
func (n *Node) answerVouch(q *stream.Request, waiting *roundQuestions) {
	var req wire.VouchRequest
	if wire.Unmarshal(q.Body, &req) != nil {
		q.Answer(wire.CodeBad, nil)
		return
	}
	v, t := n.founding.Value(), n.currentTerm()
	if v == nil || v.Cluster != req.Cluster || t == nil {
		var hint wire.Hint
		if v != nil && v.Cluster == req.Cluster {
			hint = n.hint()
		}
		q.Answer(wire.CodeNotLeader, wire.Marshal(&hint))
		return
	}
	if !waiting.begin(q) {
		return
	}
	voters := n.votersAt()
	t.Confirm(func(ok bool) {
		waiting.end()
		if !ok || !n.doors.admit() {
			q.Answer(wire.CodeNotLeader, wire.Marshal(&wire.Hint{}))
			return
		}
		q.Answer(wire.CodeOK, wire.Marshal(&wire.VouchAnswer{Founding: *v, Leader: n.self.Name, Term: t.Number(), Voters: voters}))
	})
}

// confirmed asks for a leader of the other cluster of a meeting. A successor that has
// granted is given up for its predecessor only on the word of witnesses: nothing else
// stands in the way of such a move. A move to a successor waits for the member's
// retirement, which a majority of the own cluster in reach refuses. All other
// members have granted nothing.
func (n *Node) confirmed(ctx context.Context, p member.Process, kin founding.Kinship, own, other wire.LineageOf) (wire.Founding, bool) {
	if kin == founding.Predecessor && own.Granted {
		return n.founding.Witnessed(ctx, p, other.Founding.Cluster, n.oldVoters())
	}
	return n.founding.Confirmed(ctx, p, other.Founding.Cluster)
}

// votersAt lists the voters of this node's raft with their addresses.
func (n *Node) votersAt() (out []wire.VoterAt) {
	r := n.seat.Current()
	if r == nil {
		return nil
	}
	for _, id := range r.Voters() {
		at, _ := n.locate(id) // a voter without a known address bears no witness
		out = append(out, wire.VoterAt{Raft: id, Addr: at.Addr})
	}
	return out
}
