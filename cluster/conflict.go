package cluster

import (
	"context"
	"fmt"

	"github.com/wardmote/wardmote/internal/port"
	"github.com/wardmote/wardmote/internal/wire"
)

// conflict tells, once for each member, that something is set up wrongly.
func (n *Node) conflict(m Member, detail string) {
	key := gossipName(m.Name, m.Boot) + detail
	n.mu.Lock()
	told := n.conflicts[key] || len(n.conflicts) >= maxConflicts
	if !told {
		n.conflicts[key] = true
	}
	n.mu.Unlock()
	if !told {
		n.log.Error("conflict", "with", m.Name, "address", m.Addr, "detail", detail)
		n.event(Event{Kind: Conflict, Member: m, Detail: detail})
	}
}

const maxConflicts = 256

// foreign is told of a connection from or to another cluster.
func (n *Node) foreign(h port.Hello, addr string) {
	if h.Cluster == n.cfg.Cluster {
		n.beside.Store(true)
	}
	detail := fmt.Sprintf("connection with cluster %q, id %s", h.Cluster, clusterText(h.ClusterID))
	n.conflict(Member{Name: h.From.Name, Addr: addr, Boot: h.From.Boot}, detail)
}

// namesake looks into another member with our name: an earlier process of
// ours that gossip has not given up yet, or a second one by mistake. Of two
// that run, the one that is in the cluster stays, or else the older.
func (n *Node) namesake(s sighting) {
	n.mu.Lock()
	defer n.mu.Unlock()
	ready := n.ready
	if n.ctx.Err() != nil {
		return // Stop may wait already
	}
	n.wg.Go(func() {
		ctx, cancel := context.WithTimeout(n.ctx, dialTimeout)
		defer cancel()
		var who wire.WhoAnswer
		if n.control.askInto(ctx, s.at(), wire.Who, nil, &who) != nil || who.Name != n.cfg.Name || who.Boot == n.boot {
			return
		}
		m := Member{Name: s.name, Addr: s.addr, Boot: s.boot}
		n.conflict(m, "two running members of one name")
		if !ready && s.boot < n.boot {
			n.fail(&ConfigError{"Config.Name", fmt.Sprintf("%q is the name of a running member at %s", n.cfg.Name, s.addr)})
		}
	})
}

// fail stops a node that cannot take part. Its calls return err from now on. A
// later Stop waits for the end of this one.
func (n *Node) fail(err error) {
	if n.ctx.Err() != nil {
		return
	}
	n.log.Error("node failed", "error", err)
	n.event(Event{Kind: NodeFailed, Detail: err.Error()})
	n.cancel(err)
	go n.Stop()
}
