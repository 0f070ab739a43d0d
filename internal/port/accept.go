package port

import (
	"errors"
	"net"
	"net/netip"
)

// Caps on accepted connections: a flood costs a bounded amount of memory and
// leaves places for healthy members. A connection beyond a cap on admitted
// connections is answered with StatusTooManyConnections. A connection beyond the
// cap on handshakes is not refused but replaces another one: see
// Port.startHandshake.
const (
	maxConns        = 4096 // admitted, in all
	maxConnsPerIP   = 1024 // admitted, from one address: hosts behind a proxy share theirs
	maxConnsPerName = 64   // admitted, from members of one name
	maxHandshaking  = 256  // not yet admitted
)

// pending is an accepted connection during its handshake.
type pending struct {
	ip     netip.Addr
	number uint64 // in order of arrival
}

// startHandshake starts the handshake of an accepted connection. At the cap, it
// closes the oldest handshake of the address with the most handshakes: an
// address that only opens connections then starves itself, and an honest
// handshake is over long before it is the oldest.
func (p *Port) startHandshake(raw net.Conn) {
	ip := remoteIP(raw)
	var victim net.Conn
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		_ = raw.Close()
		return
	}
	if len(p.pending) >= maxHandshaking {
		victim = p.oldestOfBusiest()
		delete(p.pending, victim)
	}
	p.begun++
	p.pending[raw] = pending{ip, p.begun}
	// Under mu, so that Close either sees the connection or waits for it.
	p.wg.Go(func() { p.shakeAndHandle(raw, ip) })
	p.mu.Unlock()
	if victim != nil {
		p.cfg.Logger.Debug("handshake gave way", "remote", victim.RemoteAddr())
		_ = victim.Close()
	}
}

// oldestOfBusiest returns the oldest pending connection of the address with the
// most pending connections. It is called with mu held.
func (p *Port) oldestOfBusiest() net.Conn {
	count := make(map[netip.Addr]int)
	most := 0
	for _, s := range p.pending {
		count[s.ip]++
		most = max(most, count[s.ip])
	}
	var oldest net.Conn
	var number uint64
	for c, s := range p.pending {
		if count[s.ip] == most && (oldest == nil || s.number < number) {
			oldest, number = c, s.number
		}
	}
	return oldest
}

// shakeAndHandle runs once per accepted connection: first the handshake, then
// the handler.
func (p *Port) shakeAndHandle(raw net.Conn, ip netip.Addr) {
	c, handler := p.acceptHandshake(raw, ip)
	p.mu.Lock()
	delete(p.pending, raw)
	p.mu.Unlock()
	if c == nil {
		_ = raw.Close()
		return
	}
	handler(c)
}

// admit is the accepting side's verdict on c.Hello. With StatusOK the
// connection has been added to p.conns.
func (p *Port) admit(c *Conn, hash [16]byte, ip netip.Addr) (Status, func(*Conn)) {
	h := &c.Hello
	if hash == p.cluster {
		h.Cluster = p.cfg.Cluster
	}
	if hash != p.cluster || differ(h.ClusterID, p.cfg.ClusterID()) {
		p.cfg.Foreign(*h, c.RemoteAddr().String())
		return StatusForeignCluster, nil
	}
	if misdelivered(*h, p.cfg.Self) {
		return StatusWrongDestination, nil
	}
	p.mu.Lock()
	handler := p.handlers[h.Kind]
	p.mu.Unlock()
	if handler == nil {
		return StatusRefused, nil
	}
	if err := p.cfg.Admit(*h); err != nil {
		var refused *RefusedError
		if errors.As(err, &refused) && refused.Status != StatusOK {
			return refused.Status, nil
		}
		return StatusRefused, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return StatusRefused, nil
	case p.accepted >= maxConns,
		p.perIP[ip] >= maxConnsPerIP,
		p.perName[h.From.Name] >= maxConnsPerName:
		return StatusTooManyConnections, nil
	}
	p.conns[c] = struct{}{}
	p.accepted++
	p.perIP[ip]++
	p.perName[h.From.Name]++
	return StatusOK, handler
}
