package cluster

import (
	"context"
	"errors"
	"time"

	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/port"
	"github.com/wardmote/wardmote/internal/proof"
	"github.com/wardmote/wardmote/internal/refused"
	"github.com/wardmote/wardmote/internal/stream"
	"github.com/wardmote/wardmote/internal/wire"
)

func (n *Node) newProof() *proof.Prover {
	return proof.New(proof.Config{
		Self:     n.self,
		Members:  n.gossip.All,
		Gossiped: n.gossip.Changed,
		// A leader replaces voters, and without a leader the founding must know who
		// may still live.
		Wanted: func() bool {
			if n.leading.Load() != nil {
				return true
			}
			_, _, attached := n.link.Leader()
			return !attached
		},
		Dial: func(ctx context.Context, to member.Process) (member.Process, error) {
			begun := time.Now()
			c, err := n.port.Dial(ctx, to.Addr, port.KindControl, port.Peer{Name: to.Name, Boot: to.Boot})
			who := n.noteHandshake(begun, to.Addr, c, err)
			if c != nil {
				_ = c.Close()
			}
			if who.Boot != 0 {
				err = nil
			}
			return who, err
		},
		Ended: func(name string, boot uint64) {
			n.self.Log.Info("a process has ended", "about", name, "boot", boot, "next", "nothing, unless its process should run")
		},
		Shared: func(addr string, a, b member.Process) {
			n.conflict(a, "two processes answer in turn at "+addr+", this one and "+b.Name+
				": give each member an address of its own to advertise")
		},
	})
}

// noteHandshake tells the prover who has answered a dial, and returns the answerer;
// its boot is 0 if nobody of this cluster has answered. Under a certificate without a name and
// without the voter role the answerer is a claim: a later process of a voter's name would
// cost the voter its vote at the next dial that fails. So the prover is not told, and the
// claim can show at most that a process lives.
func (n *Node) noteHandshake(begun time.Time, addr string, c *port.Conn, err error) (who member.Process) {
	var refused *port.RefusedError
	switch {
	case err == nil:
		who = member.Process{Name: c.Remote.Name, Boot: c.Remote.Boot, Addr: c.Advertised}
	case errors.As(err, &refused) && refused.Status != port.StatusForeignCluster && refused.Status != port.StatusBadVersion:
		who = member.Process{Name: refused.Peer.Name, Boot: refused.Peer.Boot, Addr: refused.Advertised}
	default:
		return who
	}
	if claimed := refused != nil && refused.Claimed || err == nil && c.Claimed(); !claimed {
		n.proof.Answered(begun, addr, who)
	}
	if err == nil {
		n.gossip.Met(who.Name, who.Boot, c.Proved.Voter, addr)
	}
	return who
}

// answerGoodbye takes the last message of a process. Only the process itself can
// send it: the preamble of the stream names the sender. Under a certificate without a name
// and without the voter role the preamble is a claim, and a forged goodbye would cost a
// voter its vote, or a founder the founding: gossip tells of the end of such a process.
func (n *Node) answerGoodbye(c *port.Conn, q *stream.Request) {
	var bye wire.GoodbyeNotice
	from := c.Hello.From
	switch {
	case c.Claimed():
		n.self.Refused.Note(refused.Role, c.From(), "a goodbye under a certificate without a name and without the voter role")
		q.Answer(wire.CodeNo, nil)
	case wire.Unmarshal(q.Body, &bye) != nil:
		q.Answer(wire.CodeBad, nil)
	case bye.Name != from.Name || bye.Boot != from.Boot || bye.Boot == 0:
		q.Answer(wire.CodeNo, nil)
	default:
		n.proof.Goodbye(bye.Name, bye.Boot)
		q.Answer(wire.CodeOK, nil)
	}
}
