package cluster

import (
	"context"

	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/port"
	"github.com/wardmote/wardmote/internal/stream"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// serveControl answers the questions of any member until the connection ends. To
// add a control message: declare type and body in internal/wire, add the answer
// here, and ask through stream.Peers.
func (n *Node) serveControl(c *port.Conn) {
	slow := n.newSlowly(c)
	waiting := &roundQuestions{node: n, from: c.From()}
	s := stream.New(c, func(q *stream.Request) {
		if !n.admitsControl(c, q.Type) {
			q.Answer(wire.CodeBad, nil)
			return
		}
		switch q.Type {
		case wire.Confirm:
			n.answerConfirm(q)
		case wire.Vouch:
			n.answerVouch(q, waiting)
		case wire.Lineage:
			n.answerLineage(c, q)
		case wire.Who:
			own := n.gossip.Described()
			q.Answer(wire.CodeOK, wire.Marshal(&wire.WhoAnswer{
				Ending: own.Ending || own.Leaving,
				Name:   n.self.Name, Boot: n.self.Boot, Addr: n.self.Addr, Founding: n.founding.Value(), Accepted: n.founding.Accepted(), Hint: n.hint(),
			}))
		case wire.Progress:
			n.answerProgress(q)
		case wire.InConfig:
			n.answerInConfig(q, waiting)
		case wire.Follows:
			n.answerFollows(q)
		case wire.Attest:
			n.answerAttest(q)
		case wire.Goodbye:
			n.answerGoodbye(c, q)
		case wire.Prepare, wire.Accept, wire.Chosen, wire.Retire, wire.Invite, wire.Removed, wire.Stand:
			// These wait for a disk or for raft, and must not delay the
			// stream, which carries Confirm too.
			slow.run(q, func() {
				if !n.deniesStep(c.Hello.From, q) {
					n.answerSlow(c, q)
				}
			})
		default:
			q.Answer(wire.CodeBad, nil)
		}
	})
	s.Serve()
	slow.wait()
}

// answerConfirm answers a leader's round.
func (n *Node) answerConfirm(q *stream.Request) {
	var req wire.ConfirmRequest
	if wire.Unmarshal(q.Body, &req) != nil {
		q.Answer(wire.CodeBad, nil)
		return
	}
	if r := n.seat.Current(); r == nil || !r.Vouches(req.Voter, req.Term) {
		q.Answer(wire.CodeNo, nil)
		return
	}
	q.Answer(wire.CodeOK, nil)
}

func (n *Node) answerProgress(q *stream.Request) {
	r := n.seat.Current()
	if r == nil {
		q.Answer(wire.CodeNo, nil)
		return
	}
	q.Answer(wire.CodeOK, wire.Marshal(&wire.ProgressAnswer{
		Raft: r.ID(), Term: r.Term(), Last: r.LastIndex(), Applied: r.AppliedIndex(),
		Leaves: n.leaving() || n.cfg.Voting.Thin,
	}))
}

func (n *Node) answerInConfig(q *stream.Request, waiting *roundQuestions) {
	var req wire.InConfigRequest
	l := n.leading.Load()
	if l == nil || wire.Unmarshal(q.Body, &req) != nil {
		q.Answer(wire.CodeNotLeader, nil)
		return
	}
	if !waiting.begin(q) {
		return
	}
	l.voters.InConfig(req.Raft, func(c wire.Code) {
		waiting.end()
		q.Answer(c, nil)
	})
}

func (n *Node) answerSlow(c *port.Conn, q *stream.Request) {
	limit := timing.Dial
	if q.Type == wire.Chosen || q.Type == wire.Retire {
		limit = timing.Retirement // they may end this member's part in its cluster
	}
	ctx, cancel := context.WithTimeout(n.ctx, limit)
	defer cancel()
	switch q.Type {
	case wire.Invite:
		if !n.mayVote() || n.leaving() {
			q.Answer(wire.CodeNo, nil)
			return
		}
		id, err := n.seat.Invited(ctx)
		if err != nil {
			if n.ctx.Err() == nil {
				n.self.Log.Info("invitation to vote not followed", "error", err,
					"next", "nothing: the leader invites another member; after a disk failure check Dir")
			}
			q.Answer(wire.CodeNo, nil)
			return
		}
		q.Answer(wire.CodeOK, wire.Marshal(&wire.InviteAnswer{Raft: id, Durable: n.cfg.Dir != ""}))
	case wire.Removed:
		var req wire.RemovedNotice
		if wire.Unmarshal(q.Body, &req) != nil {
			q.Answer(wire.CodeBad, nil)
			return
		}
		if !n.takeRemoved(ctx, req.Raft) {
			q.Answer(wire.CodeNo, nil)
			return
		}
		q.Answer(wire.CodeOK, nil)
	case wire.Stand:
		n.answerStand(ctx, q)
	default:
		q.Answer(n.founding.Step(ctx, member.Process{Name: c.Remote.Name, Boot: c.Remote.Boot}, q.Type, q.Body))
	}
}
