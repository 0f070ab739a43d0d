package cluster

import (
	"context"
	"errors"
	"syscall"

	"github.com/wardmote/wardmote/internal/consensus"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/port"
	"github.com/wardmote/wardmote/internal/stream"
	"github.com/wardmote/wardmote/internal/wire"
)

// look dials the process of a raft ID, as raft itself does, and judges the
// result. A refused connection, another process at the address, and a process
// without that raft prove the end. A timeout, an unreachable host and an address
// that may be another one's prove nothing.
func (n *Node) look(ctx context.Context, raftID string, boot uint64) consensus.Evidence {
	name, generation, err := member.ParseRaftID(raftID)
	if err != nil {
		return consensus.Unproven
	}
	at, exact := n.whereabouts(name, raftID, boot)
	if at.Addr == "" {
		return consensus.Unproven
	}
	c, err := n.port.Dial(ctx, at.Addr, port.KindRaft, port.Peer{Name: name, Boot: generation})
	if err == nil {
		answered := c.Remote.Boot
		c.Close()
		return judge(answered, boot)
	}
	var refused *port.RefusedError
	switch {
	case errors.As(err, &refused):
		switch refused.Status {
		case port.StatusRefused: // the process lives and runs no such raft
			if refused.Peer.Name == name {
				return consensus.Ended
			}
		case port.StatusWrongDestination, port.StatusForeignCluster:
			if exact || refused.Peer.Name == name && refused.Peer.Boot > boot {
				return consensus.Ended
			}
		}
	case exact && (errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, wsaeconnrefused)):
		return consensus.Ended
	}
	return consensus.Unproven
}

// wsaeconnrefused is a refused connection on Windows, where syscall.ECONNREFUSED
// is another number.
const wsaeconnrefused = syscall.Errno(10061)

// judge compares the boot of the answer with the wanted boot.
func judge(answered, boot uint64) consensus.Evidence {
	if boot != 0 && answered > boot {
		return consensus.Ended
	}
	return consensus.Lives
}

// whereabouts returns the address of a process. exact is true for an address that
// this process itself has advertised, and false for the address of another
// process of the name.
func (n *Node) whereabouts(name, raftID string, boot uint64) (at member.Process, exact bool) {
	all := n.gossip.Of(name)
	for _, s := range all {
		if s.Boot == boot {
			return s.Process, true
		}
	}
	at, _ = member.Locate(all, raftID)
	return at, false
}

// askStand asks another voter whether this member may stand for election.
func (n *Node) askStand(ctx context.Context, q wire.StandRequest) (a wire.StandAnswer, yes bool, err error) {
	to, err := n.locate(q.Voter)
	if err != nil {
		return a, false, err
	}
	f, err := n.peers.Ask(ctx, to, wire.Stand, wire.Marshal(&q))
	if err != nil {
		return a, false, err
	}
	if f.Code != wire.CodeOK && f.Code != wire.CodeNo {
		return a, false, &stream.RefusedError{Code: f.Code}
	}
	if len(f.Body) > 0 {
		err = wire.Unmarshal(f.Body, &a)
	}
	return a, f.Code == wire.CodeOK, err
}

// answerStand answers a voter that wants to stand for election at once.
func (n *Node) answerStand(ctx context.Context, q *stream.Request) {
	var req wire.StandRequest
	if wire.Unmarshal(q.Body, &req) != nil {
		q.Answer(wire.CodeBad, nil)
		return
	}
	r := n.seat.Current()
	if r == nil {
		q.Answer(wire.CodeNo, nil)
		return
	}
	a, yes := r.MayStand(ctx, req)
	code := wire.CodeNo
	if yes {
		code = wire.CodeOK
	}
	q.Answer(code, wire.Marshal(&a))
}
