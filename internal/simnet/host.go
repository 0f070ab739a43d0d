package simnet

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"syscall"
)

// host is a host of a Network. Network.mu guards all fields.
type host struct {
	net       *Network
	ip        netip.Addr
	frozen    bool
	isolated  bool
	endpoints map[uint16]*Endpoint
	dynamic   uint16   // the port number picked last
	unsent    []packet // sent while frozen

	sent, received Traffic
}

// host returns the host with this address. The caller holds mu.
func (n *Network) host(ip netip.Addr) *host {
	h := n.hosts[ip]
	if h == nil {
		h = &host{net: n, ip: ip, endpoints: make(map[uint16]*Endpoint), dynamic: firstDynamic - 1}
		n.hosts[ip] = h
	}
	return h
}

// A Host is the view of a Network from one host. Listen returns endpoints as
// type E, and a Host[transport.Endpoint] is a transport.Network. This package
// cannot name the interface itself, because transport imports this package.
// Listen panics if *Endpoint is not assignable to E.
type Host[E any] struct{ h *host }

// HostOf returns the host with this IP address.
func HostOf[E any](n *Network, ip string) Host[E] {
	n.mu.Lock()
	defer n.mu.Unlock()
	return Host[E]{n.host(mustIP(ip))}
}

// InMemory is a mark for package cluster: this network sends nothing beyond the
// process, and plain text is safe.
func (Host[E]) InMemory() {}

// Listen binds addr on this host; ":0" and "0.0.0.0:0" stand for the host's own
// address. Port 0 picks a free port.
func (h Host[E]) Listen(addr string) (e E, err error) {
	endpoint, err := h.h.listen(addr)
	if err != nil {
		return e, fmt.Errorf("transport: memory: listen %s: %w", addr, err)
	}
	return any(endpoint).(E), nil
}

func (h *host) listen(addr string) (*Endpoint, error) {
	name, service, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	wanted, err := netip.ParseAddrPort(net.JoinHostPort(cmp.Or(name, h.ip.String()), service))
	if err != nil {
		return nil, err
	}
	if ip := wanted.Addr(); ip.Unmap() != h.ip && !ip.IsUnspecified() {
		return nil, syscall.EADDRNOTAVAIL
	}
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	port := wanted.Port()
	if port == 0 {
		port = h.pickPort()
	}
	if port == 0 || h.endpoints[port] != nil {
		return nil, syscall.EADDRINUSE
	}
	e := &Endpoint{host: h, addr: netip.AddrPortFrom(h.ip, port)}
	e.text = e.addr.String()
	e.accepts.L, e.reads.L = &h.net.mu, &h.net.mu
	h.endpoints[port] = e
	return e, nil
}

// pickPort returns a port without an endpoint, or 0 if there is none. The
// caller holds mu.
func (h *host) pickPort() uint16 {
	for range 1<<16 - firstDynamic {
		if h.dynamic++; h.dynamic < firstDynamic {
			h.dynamic = firstDynamic
		}
		if h.endpoints[h.dynamic] == nil {
			return h.dynamic
		}
	}
	return 0
}
