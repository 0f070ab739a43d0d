package port

import (
	"errors"
	"net"
	"net/netip"
	"time"

	"github.com/wardmote/wardmote/internal/auth"
	"github.com/wardmote/wardmote/internal/refused"
	"github.com/wardmote/wardmote/internal/timing"
)

// startHandshake starts the handshake of an accepted connection. When too many are
// under way, another handshake gives way: see handshakes.
func (p *Port) startHandshake(raw net.Conn) {
	c := &tracked{Conn: raw, ip: remoteIP(raw), shakes: p.shakes, left: maxShaken}
	s, victim := p.shakes.begin(c, c.ip)
	if s == nil {
		_ = raw.Close()
		return
	}
	c.shaking.Store(s)
	p.wg.Go(func() { p.shakeAndHandle(c, s) })
	if victim != nil {
		_ = victim.raw.Close()
		p.cfg.Refused.Note(refused.Flood, victim.from.ip.String(), "too many handshakes at once: the slowest gave way")
	}
}

// shakeAndHandle runs once per accepted connection: first the handshake, then
// the handler.
func (p *Port) shakeAndHandle(raw *tracked, s *shaking) {
	c, handler := p.acceptHandshake(raw, raw.ip)
	raw.shaking.Store(nil)
	p.shakes.end(s)
	if c == nil {
		_ = raw.Close()
		return
	}
	raw.settle()
	// The handshake has grown this goroutine's stack, and a connection lasts.
	p.wg.Go(func() { handler(c) })
}

// admit is the accepting side's verdict on c.Hello. With StatusOK the
// connection has been added to p.conns.
func (p *Port) admit(c *Conn, hash [16]byte, ip netip.Addr) (Status, func(*Conn)) {
	h := &c.Hello
	// A stranger to the name claims nothing: neither another cluster nor a kind.
	if !matches(c.Proved, h.From) {
		p.cfg.Refused.Note(refused.Identity, c.RemoteAddr().String(), impostor(c.Proved, h.From))
		return StatusImpostor, nil
	}
	if hash == p.cluster {
		h.Cluster = p.cfg.Cluster
	}
	if hash != p.cluster || differ(h.ClusterID, p.cfg.ClusterID()) {
		p.cfg.Foreign(*h, c.RemoteAddr().String(), false)
		return StatusForeignCluster, nil
	}
	if misdelivered(*h, p.cfg.Self) {
		return StatusWrongDestination, nil
	}
	if h.Kind == KindRaft && !c.Proved.Voter {
		p.cfg.Refused.Note(refused.Role, c.From(), noVoter)
		return StatusNoVoter, nil
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
	return p.takePlace(c), handler
}

// takePlace adds c to p.conns, or returns the reason against it.
func (p *Port) takePlace(c *Conn) Status {
	c.newcomer = p.isNewcomer(c)
	status, victims := p.tryPlace(c, c.Proved.Name != "")
	if status == StatusTooManyConnections && c.newcomer && p.meetNewcomers() {
		status, victims = p.tryPlace(c, c.Proved.Name != "")
	}
	if status == StatusTooManyConnections && p.cfg.Living(c.Hello.From, c.claimant().ip) {
		status, victims = p.tryPlace(c, true)
	}
	for _, v := range victims {
		_ = v.raw.Close()
	}
	if len(victims) > 0 || status == StatusTooManyConnections {
		detail := "too many connections: refused"
		if len(victims) > 0 {
			detail = "too many connections: idle ones closed"
		}
		p.cfg.Refused.Note(refused.Flood, c.From(), detail)
	}
	return status
}

// isNewcomer reports whether the places for newcomers are those of c. Names in certificates
// are as many as their authority likes. A stream of gossip is short, and makes its process
// known.
func (p *Port) isNewcomer(c *Conn) bool {
	named := c.Proved.Name != "" && c.Proved.Key == auth.KeyID{}
	return !named && c.Hello.Kind != KindGossip && !p.cfg.Known(c.Hello.From)
}

// meetNewcomers takes the newcomers that have become known out of the places for newcomers,
// once in timing.SilentPlace. It reports whether there were any.
func (p *Port) meetNewcomers() (any bool) {
	now := time.Now()
	var newcomers []*Conn
	p.mu.Lock()
	if now.Sub(p.met) >= timing.SilentPlace {
		p.met = now
		for c := range p.conns {
			if c.newcomer {
				newcomers = append(newcomers, c)
			}
		}
	}
	p.mu.Unlock()
	for _, c := range newcomers {
		if !p.cfg.Known(c.Hello.From) {
			continue
		}
		p.mu.Lock()
		if _, there := p.conns[c]; there {
			p.places.remove(c)
			c.newcomer = false
			p.places.add(c)
			any = true
		}
		p.mu.Unlock()
	}
	return any
}

// tryPlace is takePlace for a member that is known or not. The victims have lost
// their places to c, and the caller closes them.
func (p *Port) tryPlace(c *Conn, known bool) (s Status, victims []*Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || c.era != p.era {
		return StatusRefused, nil
	}
	victims, ok := p.makeRoom(c, known)
	if !ok {
		return StatusTooManyConnections, nil
	}
	for _, v := range victims {
		p.removeLocked(v)
	}
	c.raw.(*tracked).admitted = time.Now()
	p.conns[c] = struct{}{}
	c.noteHeard() // the handshake
	p.places.add(c)
	p.startAge(c)
	return StatusOK, victims
}
