package cluster

import (
	"context"
	"fmt"
	"net"

	"github.com/wardmote/wardmote/internal/port"
	"github.com/wardmote/wardmote/internal/wire"
)

// resolve finds where the holder of a raft ID is.
func (n *Node) resolve(id string) (place, error) {
	name, gen, err := splitRaftID(id)
	if err != nil {
		return place{}, err
	}
	if name == n.cfg.Name {
		return place{addr: n.addr, name: name}, nil
	}
	var best *sighting
	for _, s := range n.gossip.all() {
		if s.name != name {
			continue
		}
		exact := s.meta.Generation == gen
		if best == nil || exact && best.meta.Generation != gen ||
			exact == (best.meta.Generation == gen) && (s.alive && !best.alive || s.alive == best.alive && s.boot > best.boot) {
			best = &s
		}
	}
	if best == nil {
		return place{}, fmt.Errorf("cluster: nobody knows where member %q is", name)
	}
	return best.at(), nil
}

func (n *Node) memberOf(id string) Member {
	name, _, _ := splitRaftID(id)
	at, _ := n.resolve(id)
	return Member{Name: name, Addr: at.addr}
}

// dialRaft connects to the holder of a raft ID.
func (n *Node) dialRaft(ctx context.Context, id string) (net.Conn, error) {
	at, err := n.resolve(id)
	if err != nil {
		return nil, err
	}
	_, gen, _ := splitRaftID(id)
	return n.port.Dial(ctx, at.addr, port.KindRaft, port.Peer{Name: at.name, Boot: gen})
}

// hint tells who leads, as far as this node knows.
func (n *Node) hint() *wire.Hint {
	if l := n.leader.Load(); l != nil {
		return &wire.Hint{Term: l.term, Leader: n.cfg.Name, Addr: n.addr}
	}
	if r := n.roles.current(); r != nil {
		if id := r.leaderID(); id != "" && id != r.id {
			if at, err := n.resolve(id); err == nil {
				return &wire.Hint{Term: r.term(), Leader: at.name, Addr: at.addr}
			}
		}
	}
	name, addr, _ := n.link.leader()
	return &wire.Hint{Leader: name, Addr: addr}
}
