package simnet

import (
	"context"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// Dial takes the delay of both directions, and waits while either is cut or the
// host is frozen.
func (e *Endpoint) Dial(ctx context.Context, addr string) (net.Conn, error) {
	to, err := parseAddr(addr)
	if err != nil {
		return nil, e.fail("dial", err)
	}
	n := e.host.net
	there := route{e.addr.Addr(), to.Addr()}
	back := route{to.Addr(), e.addr.Addr()}
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
		if d := n.handshakeTime(there, back); d > 0 {
			t := time.NewTimer(d)
			n.wait(ctx, nil, t.C)
			t.Stop()
		}
	}
	far := n.hosts[to.Addr()]
	if far == nil || far.endpoints[to.Port()] == nil || len(far.endpoints[to.Port()].backlog) >= backlogSize {
		return nil, e.failTo("dial", to, syscall.ECONNREFUSED)
	}
	listener := far.endpoints[to.Port()]
	dialled, accepted := n.connect(e.host, netip.AddrPortFrom(e.addr.Addr(), e.host.pickPort()), far, to)
	listener.backlog = append(listener.backlog, accepted)
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

// handshakeTime draws the duration of TCP's handshake. The caller holds mu.
func (n *Network) handshakeTime(there, back route) (d time.Duration) {
	for _, r := range []route{there, back} {
		l, rng := n.quality(r)
		again := synRetransmit
		for range maxSynTransmits {
			if !l.lost(rng) {
				break
			}
			d += again
			again *= 2
		}
		d += l.latency(rng)
	}
	return d
}
