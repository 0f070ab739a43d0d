package simnet

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"
)

// An Endpoint is a bound address of a host. See transport.Endpoint for the
// contract of the methods.
type Endpoint struct {
	host    *host
	addr    netip.AddrPort
	text    string
	closed  bool
	backlog []*stream
	packets []packet
	accepts sync.Cond // on Network.mu
	reads   sync.Cond // on Network.mu
}

// packet is a packet, with the sender's address also as text.
type packet struct {
	data     []byte
	from, to netip.AddrPort
	sender   string
}

// Addr returns the bound address.
func (e *Endpoint) Addr() string { return e.text }

// Dial takes the delay of both directions, and waits while either is cut or the
// host is frozen.
func (e *Endpoint) Dial(ctx context.Context, addr string) (net.Conn, error) {
	to, err := parseAddr(addr)
	if err != nil {
		return nil, e.fail("dial", err)
	}
	n := e.host.net
	there, back := route{e.addr.Addr(), to.Addr()}, route{to.Addr(), e.addr.Addr()}
	n.mu.Lock()
	defer n.mu.Unlock()
	for travelled := false; ; {
		if err := ctx.Err(); err != nil {
			return nil, e.failTo("dial", to, err)
		}
		if e.closed {
			return nil, e.failTo("dial", to, net.ErrClosed)
		}
		if e.host.frozen || n.isCut(there) || n.isCut(back) {
			travelled = false
			n.wait(ctx, n.changed.Wait(), nil)
			continue
		}
		if travelled {
			break
		}
		travelled = true
		d := n.travelTime(there, synRetransmit, maxSynTransmits) + n.travelTime(back, synRetransmit, maxSynTransmits)
		if d > 0 {
			n.wait(ctx, nil, time.After(d))
		}
	}
	listener := n.host(to.Addr()).endpoints[to.Port()]
	if listener == nil || len(listener.backlog) >= backlogSize {
		return nil, e.failTo("dial", to, syscall.ECONNREFUSED)
	}
	dialled, accepted := n.connect(e.host, netip.AddrPortFrom(e.addr.Addr(), e.host.pickPort()), listener.host, to)
	listener.backlog = append(listener.backlog, accepted)
	e.host.sent.Streams++
	listener.host.received.Streams++
	listener.accepts.Signal()
	return dialled, nil
}

// wait releases mu until ctx ends or one of the channels is ready, and takes mu
// again.
func (n *Network) wait(ctx context.Context, changed <-chan struct{}, due <-chan time.Time) {
	n.mu.Unlock()
	defer n.mu.Lock()
	select {
	case <-ctx.Done():
	case <-changed:
	case <-due:
	}
}

// Accept waits for the next stream, and also while the host is frozen.
func (e *Endpoint) Accept() (net.Conn, error) {
	s, err := take(e, "accept", &e.backlog, &e.accepts)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// ReadFrom waits for the next packet, and also while the host is frozen.
func (e *Endpoint) ReadFrom(p []byte) (int, string, error) {
	x, err := take(e, "read", &e.packets, &e.reads)
	return copy(p, x.data), x.sender, err
}

// take waits for the first element of a queue of e. arrived tells of changes.
func take[T any](e *Endpoint, op string, queue *[]T, arrived *sync.Cond) (first T, err error) {
	n := e.host.net
	n.mu.Lock()
	defer n.mu.Unlock()
	for !e.closed && (e.host.frozen || len(*queue) == 0) {
		arrived.Wait()
	}
	if e.closed {
		return first, e.fail(op, net.ErrClosed)
	}
	first, (*queue)[0] = (*queue)[0], first
	*queue = (*queue)[1:]
	return first, nil
}

// WriteTo sends a copy of p. While the host is frozen, the packet waits.
func (e *Endpoint) WriteTo(p []byte, addr string) error {
	if len(p) > maxPacket {
		return e.fail("write", syscall.EMSGSIZE)
	}
	to, err := parseAddr(addr)
	if err != nil {
		return e.fail("write", err)
	}
	x := packet{data: bytes.Clone(p), from: e.addr, to: to, sender: e.text}
	n := e.host.net
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case e.closed:
		return e.fail("write", net.ErrClosed)
	case !e.host.frozen:
		n.send(x)
	case len(e.host.unsent) < packetQueue:
		e.host.unsent = append(e.host.unsent, x)
	}
	return nil
}

// send puts a packet on the link to its destination. The caller holds mu.
func (n *Network) send(p packet) {
	r := route{p.from.Addr(), p.to.Addr()}
	n.host(r.from).sent.packet(p)
	if n.isCut(r) {
		return
	}
	l, rng := n.quality(r)
	if l.lost(rng) {
		return
	}
	if d := l.latency(rng); d > 0 {
		n.at(time.Now().Add(d), func() { n.receive(p) })
		return
	}
	n.receive(p)
}

// receive queues a packet at its destination, unless the link was cut
// meanwhile. The caller holds mu.
func (n *Network) receive(p packet) {
	if n.isCut(route{p.from.Addr(), p.to.Addr()}) {
		return
	}
	h := n.host(p.to.Addr())
	e := h.endpoints[p.to.Port()]
	if e == nil || len(e.packets) >= packetQueue {
		return
	}
	h.received.packet(p)
	e.packets = append(e.packets, p)
	e.reads.Signal()
}

// Close frees the address. Unaccepted streams are reset.
func (e *Endpoint) Close() error {
	n := e.host.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if e.closed {
		return e.fail("close", net.ErrClosed)
	}
	e.shut()
	return nil
}

// shut does the work of Close. The caller holds mu.
func (e *Endpoint) shut() {
	e.closed = true
	delete(e.host.endpoints, e.addr.Port())
	for _, s := range e.backlog {
		s.crash()
	}
	e.backlog, e.packets = nil, nil
	e.accepts.Broadcast()
	e.reads.Broadcast()
	e.host.net.changed.Wake()
}

func (e *Endpoint) fail(op string, err error) error {
	return &net.OpError{Op: op, Net: "memory", Source: net.TCPAddrFromAddrPort(e.addr), Err: err}
}

func (e *Endpoint) failTo(op string, to netip.AddrPort, err error) error {
	return &net.OpError{Op: op, Net: "memory", Source: net.TCPAddrFromAddrPort(e.addr), Addr: net.TCPAddrFromAddrPort(to), Err: err}
}

func parseAddr(addr string) (netip.AddrPort, error) {
	a, err := netip.ParseAddrPort(addr)
	if err != nil {
		// There are no names to look up.
		return a, errors.Join(&net.DNSError{Err: "no such host", Name: addr, IsNotFound: true}, err)
	}
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()), nil
}
