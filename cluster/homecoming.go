package cluster

import (
	"context"
	"sync"

	"github.com/wardmote/wardmote/internal/founding"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// This file keeps a voter that comes back with its Dir from voting in a cluster that
// has a successor. An operator called the voter gone; its disk was only away. With
// a second such voter, the old cluster would have a majority and grant beside the
// successor. So the voter asks all addresses that it knows before its raft sends or
// takes a message, and before it leads:
//
//   - a leader of the own cluster, confirmed by a majority: the voter votes;
//   - else a leader of a successor, confirmed by its majority and by witnesses: the
//     voter moves its store aside and joins the successor;
//   - else the voter votes. The look is short, and its answers may be lost: the look
//     makes an operator's mistake harmless where it can, and proves nothing.

// comeHome runs the look of a voter with a Dir, and then lets the voter vote.
func (n *Node) comeHome() {
	defer close(n.home)
	rec := n.record.Get()
	if n.cfg.Dir == "" || rec.Founding == nil || !rec.Stored || n.seat.Current() == nil {
		return
	}
	v, ok := n.successorOf(*rec.Founding)
	if !ok {
		return
	}
	n.self.Log.Warn("this member's cluster has a successor", "cluster", clusterText(rec.Founding.Cluster), "successor", clusterText(v.Cluster),
		"next", "nothing: its store is kept aside in Dir")
	ctx, cancel := context.WithTimeout(n.ctx, timing.StopWithoutDisk)
	defer cancel()
	if err := n.founding.Change(ctx, v); err != nil {
		n.self.Log.Warn("successor not entered", "error", err, "next", "see Health")
	}
}

// atHome reports whether this member's raft may take part in the cluster.
func (n *Node) atHome() bool {
	select {
	case <-n.home:
		return true
	default:
		return false
	}
}

// successorOf returns a successor of own with a confirmed leader. Ok is false if
// there is none, and if a leader of own is confirmed.
func (n *Node) successorOf(own wire.Founding) (successor wire.Founding, ok bool) {
	ctx, cancel := context.WithTimeout(n.ctx, timing.RetireLook)
	defer cancel()
	var mu sync.Mutex
	led := false
	var asking sync.WaitGroup
	for _, addr := range n.otherAddrs() {
		if addr == n.self.Addr {
			continue
		}
		asking.Go(func() {
			var who wire.WhoAnswer
			at := member.Process{Addr: addr}
			if err := n.across.AskInto(ctx, at, wire.Who, nil, &who); err != nil || who.Founding == nil {
				return
			}
			kin := founding.Kin(own, *who.Founding)
			if kin != founding.Same && kin != founding.Successor {
				return
			}
			v, confirmed := n.confirmedAtHome(ctx, at, kin, who.Founding.Cluster)
			if !confirmed {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if kin == founding.Same {
				led = true
				cancel() // no more doubt
			} else if !ok || founding.Kin(successor, v) == founding.Successor {
				successor, ok = v, true
			}
		})
	}
	asking.Wait()
	return successor, ok && !led
}

// confirmedAtHome asks for a leader of the own cluster, or for a witnessed leader of a
// successor, for whom this voter would move its store aside.
func (n *Node) confirmedAtHome(ctx context.Context, at member.Process, kin founding.Kinship, cluster machine.ClusterID) (wire.Founding, bool) {
	if kin == founding.Same {
		return n.founding.Confirmed(ctx, at, cluster)
	}
	return n.founding.Witnessed(ctx, at, cluster, n.oldVoters())
}

// awaitHome waits until this member may lead, or ctx ends.
func (n *Node) awaitHome(ctx context.Context) {
	select {
	case <-n.home:
	case <-ctx.Done():
	}
}
