package cluster

import (
	"context"
	"encoding/hex"
	"fmt"
	"sync"

	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/port"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// conflictLog remembers the conflicts told so far: each conflict is told once, and
// strangers cannot fill the memory.
type conflictLog struct {
	mu   sync.Mutex
	told map[string]bool
}

const maxConflicts = 256

// first reports whether a conflict is new, and remembers the conflict.
func (c *conflictLog) first(key string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.told[key] || len(c.told) >= maxConflicts {
		return false
	}
	if c.told == nil {
		c.told = make(map[string]bool)
	}
	c.told[key] = true
	return true
}

// conflict reports members whose configurations exclude each other, once for each
// process and detail.
func (n *Node) conflict(p member.Process, detail string) {
	if !n.conflicts.first(fmt.Sprintf("%s.%d %s", p.Name, p.Boot, detail)) {
		return
	}
	n.self.Log.Error("conflict", "with", p.Name, "address", p.Addr, "detail", detail)
	n.event(Event{Kind: Conflict, Member: memberOf(p), Detail: detail})
}

func clusterText(id [16]byte) string { return hex.EncodeToString(id[:4]) }

// foreign is called after a connection from or to a member of another cluster.
func (n *Node) foreign(h port.Hello, addr string) {
	if h.Cluster == n.self.Cluster {
		n.beside.Store(true)
	}
	detail := fmt.Sprintf("connection with cluster %q, id %s", h.Cluster, clusterText(h.ClusterID))
	n.conflict(member.Process{Name: h.From.Name, Addr: addr, Boot: h.From.Boot}, detail)
}

// foreignGossip is called after gossip from a member of another cluster.
func (n *Node) foreignGossip(p member.Process) {
	n.beside.Store(true)
	n.conflict(p, "a member of another cluster of this name gossips with us")
}

// namesake looks into another process with this member's name: an earlier
// process of this member, still believed alive by gossip, or a second process by
// mistake. Of two running processes the member of the cluster stays, or else the
// older process.
func (n *Node) namesake(s member.Sighting) {
	ready := n.granted.Load()
	n.spawn(func() {
		ctx, cancel := context.WithTimeout(n.ctx, timing.Dial)
		defer cancel()
		var who wire.WhoAnswer
		err := n.peers.AskInto(ctx, s.Process, wire.Who, nil, &who)
		if err != nil || who.Name != n.self.Name || who.Boot == n.self.Boot {
			return
		}
		n.conflict(s.Process, "two running members of one name")
		if !ready && s.Boot < n.self.Boot {
			n.fail(&ConfigError{"Config.Name", fmt.Sprintf("%q is the name of a running member at %s", n.self.Name, s.Addr)})
		}
	})
}

// fail stops a node that can take no part in the cluster. Calls return err from then on.
// A later Stop waits for the end of this one.
func (n *Node) fail(err error) {
	if n.ctx.Err() != nil {
		return
	}
	n.self.Log.Error("node failed", "error", err)
	n.event(Event{Kind: NodeFailed, Detail: err.Error()})
	n.cancel(err)
	go n.Stop()
}
