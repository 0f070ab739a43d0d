package cluster

import (
	"net/netip"

	"github.com/wardmote/wardmote/internal/port"
)

// living reports whether gossip sees a process alive at an address with this IP, so
// that its connections may take the places kept for known members. A stranger who
// knows a member's name and boot has not its address too, unless both share a host.
func (n *Node) living(from port.Peer, ip netip.Addr) bool {
	for _, s := range n.gossip.Of(from.Name) {
		if !s.Alive || s.Boot != from.Boot {
			continue
		}
		if at, err := netip.ParseAddrPort(s.Addr); err == nil && port.Host(at.Addr()) == ip {
			return true
		}
	}
	return false
}

// known reports whether gossip sees a process alive.
func (n *Node) known(from port.Peer) bool {
	for _, s := range n.gossip.Of(from.Name) {
		if s.Alive && s.Boot == from.Boot {
			return true
		}
	}
	return false
}
