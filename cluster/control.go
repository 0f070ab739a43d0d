package cluster

import (
	"context"
	"sync"

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
	var slow sync.WaitGroup
	s := stream.New(c, func(q *stream.Request) {
		switch q.Type {
		case wire.Confirm:
			n.answerConfirm(q)
		case wire.Who:
			q.Answer(wire.CodeOK, wire.Marshal(&wire.WhoAnswer{
				Name: n.self.Name, Boot: n.self.Boot, Founding: n.founding.Value(), Hint: n.hint(),
			}))
		case wire.Progress:
			n.answerProgress(q)
		case wire.InConfig:
			n.answerInConfig(q)
		case wire.Prepare, wire.Accept, wire.Chosen, wire.Invite, wire.Removed:
			// These wait for a disk or for raft, and must not delay the
			// stream, which carries Confirm too.
			slow.Go(func() { n.answerSlow(q) })
		default:
			q.Answer(wire.CodeBad, nil)
		}
	})
	s.Start()
	s.Wait()
	slow.Wait()
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
	}))
}

func (n *Node) answerInConfig(q *stream.Request) {
	var req wire.InConfigRequest
	l := n.leading.Load()
	if l == nil || wire.Unmarshal(q.Body, &req) != nil {
		q.Answer(wire.CodeNotLeader, nil)
		return
	}
	l.voters.InConfig(req.Raft, func(c wire.Code) { q.Answer(c, nil) })
}

func (n *Node) answerSlow(q *stream.Request) {
	ctx, cancel := context.WithTimeout(n.ctx, timing.Dial)
	defer cancel()
	switch q.Type {
	case wire.Invite:
		id, err := n.seat.Invited(ctx)
		if err != nil {
			n.self.Log.Warn("invitation to vote not followed", "error", err)
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
		n.seat.Removed(ctx, req.Raft)
		q.Answer(wire.CodeOK, nil)
	default:
		q.Answer(n.founding.Step(q.Type, q.Body))
	}
}

// askRemoved asks the leader that this member is attached to whether a raft ID
// has left the configuration. It is false too if no leader says so.
func (n *Node) askRemoved(ctx context.Context, raftID string) bool {
	name, addr, attached := n.link.Leader()
	if !attached {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, timing.Dial)
	defer cancel()
	leader := member.Process{Name: name, Addr: addr}
	f, err := n.peers.Ask(ctx, leader, wire.InConfig, wire.Marshal(&wire.InConfigRequest{Raft: raftID}))
	return err == nil && f.Code == wire.CodeNo
}
