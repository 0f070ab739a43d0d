package simnet

import (
	"slices"
	"time"
)

// SetDefault sets every link except the links set by SetLink.
func (n *Network) SetDefault(l Link) {
	n.change(func() { n.defaultLink = l })
}

// SetLink sets the link from one host to another. Packets and bytes under way
// keep their delay.
func (n *Network) SetLink(from, to string, l Link) {
	n.change(func() {
		x := n.between(from, to)
		x.Link, x.set = l, true
	})
}

// Cut cuts the link from one host to another. The link back is unchanged.
func (n *Network) Cut(from, to string) {
	n.change(func() { n.between(from, to).cut = true })
}

// Partition cuts, both ways, the links between hosts of different groups.
// Hosts in no group keep their links. Earlier cuts stay.
func (n *Network) Partition(groups ...[]string) {
	n.change(func() {
		for i, near := range groups {
			for _, a := range near {
				for _, b := range slices.Concat(groups[i+1:]...) {
					n.between(a, b).cut = true
					n.between(b, a).cut = true
				}
			}
		}
	})
}

// Isolate cuts, both ways, every link between the host and all other hosts,
// including hosts that appear later.
func (n *Network) Isolate(host string) {
	n.change(func() { n.host(mustIP(host)).isolated = true })
}

// Heal undoes every Cut, Partition, Isolate and Freeze. Delays and losses stay.
func (n *Network) Heal() {
	n.change(func() {
		for _, l := range n.links {
			l.cut = false
		}
		for _, h := range n.hosts {
			h.isolated = false
			n.thaw(h)
		}
	})
}

// Freeze stops a host's process as SIGSTOP does: the process sends, reads and
// accepts nothing, while its kernel keeps the connections alive. Nothing is
// lost except packets beyond the queues. The test's own goroutines run on, and
// their deadlines pass.
func (n *Network) Freeze(host string) {
	n.change(func() { n.host(mustIP(host)).frozen = true })
}

// Thaw undoes Freeze, as SIGCONT does: waiting bytes and packets are sent.
func (n *Network) Thaw(host string) {
	n.change(func() { n.thaw(n.host(mustIP(host))) })
}

// Crash ends a host's process as kill -9 does. Its endpoints are gone and its
// streams are broken: each other end reads all bytes sent before the crash and
// is then reset, as soon as a link carries the news, or after 25 s if none
// does. Goroutines that the test left running on the host find everything
// closed. The address is free for a new Listen at once.
func (n *Network) Crash(host string) {
	n.change(func() {
		h := n.host(mustIP(host))
		h.unsent = nil
		for s := range n.streams {
			if s.host == h {
				s.crash()
			}
		}
		h.frozen = false
		for _, e := range h.endpoints {
			e.shut()
		}
	})
}

// change takes mu, applies f, adapts every stream and wakes every waiting
// goroutine.
func (n *Network) change(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
	now := time.Now()
	for s := range n.streams {
		s.out.adapt(now)
		s.readers.Broadcast()
	}
	for _, h := range n.hosts {
		for _, e := range h.endpoints {
			e.accepts.Broadcast()
			e.reads.Broadcast()
		}
	}
	n.changed.Wake()
}

// thaw lets the host send again. The caller holds mu.
func (n *Network) thaw(h *host) {
	h.frozen = false
	for _, p := range h.unsent {
		n.send(p)
	}
	h.unsent = nil
}
