package cluster

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/wire"
)

// SucceedForTest retires the nodes from their cluster and has them found a
// successor, as a founding would. It returns the answers of the retirement.
func SucceedForTest(t testing.TB, id byte, nodes ...*Node) []wire.RetireAnswer {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	own := nodes[0].founding.Value()
	v := wire.Founding{Cluster: machine.ClusterID{id}, Predecessors: append([]machine.ClusterID{own.Cluster}, own.Predecessors...)}
	var answers []wire.RetireAnswer
	for _, n := range nodes {
		a, err := n.retire(ctx, own.Cluster)
		if err != nil || a.Refused != "" {
			t.Fatalf("%s: retire: %+v, %v", n.Name(), a, err)
		}
		answers = append(answers, a)
		v.Voters = append(v.Voters, a.Raft)
		v.TTL = max(v.TTL, a.TTL)
		v.Floor = max(v.Floor, a.Token+(a.TokenAge/1000+1)<<21)
	}
	for _, n := range nodes {
		if err := n.founding.Change(ctx, v); err != nil {
			t.Fatalf("%s: change: %v", n.Name(), err)
		}
	}
	return answers
}

// Kill ends a node as kill -9 ends its process: nobody is told anything. The test
// has cut its host off.
func (n *Node) Kill() error {
	n.cancel(errors.New("killed"))
	return n.Stop()
}

// RaftVoters returns the raft IDs of the voters if this node leads.
func (n *Node) RaftVoters() (ids []string, leads bool) {
	if l := n.leading.Load(); l != nil {
		return l.raft.Voters(), true
	}
	return nil, false
}

// RaftID returns the ID under which this node votes now, or "".
func (n *Node) RaftID() string {
	if r := n.seat.Current(); r != nil {
		return r.ID()
	}
	return ""
}

// Process returns the node's name and boot.
func (n *Node) Process() member.Process { return n.self.Process() }
