package port

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/wardmote/wardmote/internal/auth"
	"github.com/wardmote/wardmote/internal/timing"
)

// A handshake proves the other side once, so a connection that lives for ever would
// outlive the certificate, its revocation and the secret. Each connection therefore
// has an end. A stream that breaks may cost an election or a session's beat; so the
// dialling side learns of the end before, and the owner dials anew first.
//
// The dialling side's end comes first: the dialling side alone can dial again. The
// accepting side's end is for a dialling side that does not renew.

// Renew returns a channel that is closed when the connection should be replaced:
// timing.RenewWithin before the Port cuts it, or half of the rest of its life before,
// if that is less. The owner dials a new connection first and closes the old one
// then. The accepting side, which cannot dial, may leave the channel alone.
func (c *Conn) Renew() <-chan struct{} { return c.renew }

// startAge begins the life of an admitted connection. It is called with mu held.
func (p *Port) startAge(c *Conn) {
	life := p.cfg.Age
	if ring, ok := p.cfg.Auth.(*auth.Keyring); ok && !slices.Contains(ring.IDs(), c.Proved.Key) {
		life = min(life, timing.RenewWithin) // removed during the handshake
	}
	if until := c.Proved.Until; !until.IsZero() {
		life = max(min(life, time.Until(until)), 0)
	}
	if !c.Accepted {
		if p.stale(c) {
			life = min(life, timing.StaleSecret)
		}
		// Spread, so that connections of one moment are not renewed in one moment.
		life -= life/8 + rand.N(life/8+1)
	}
	// Half of a short rest, since the next connection under the same certificate
	// would otherwise have to be renewed at once, and the next one too.
	c.grace = min(timing.RenewWithin, life/2)
	p.after(c, life-c.grace, p.renew)
}

// stale reports whether c rests on another secret than the newest. The dialling side
// alone can move the connection to the newest, once the other side prefers it too.
func (p *Port) stale(c *Conn) bool {
	ring, ok := p.cfg.Auth.(*auth.Keyring)
	return ok && !c.Accepted && ring.IDs()[0] != c.Proved.Key
}

// Rekeyed makes the connections follow the Keyring of Config.Auth after a change of
// its secrets. Connections under a removed secret end: see Expire. Dialled connections
// under a secret that is not the newest are renewed within timing.StaleSecret, and
// again until the newest is in use: so the old secret can be removed without a break.
func (p *Port) Rekeyed() {
	ring, ok := p.cfg.Auth.(*auth.Keyring)
	if !ok {
		return
	}
	ids := ring.IDs()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	for c := range p.conns {
		switch {
		case !slices.Contains(ids, c.Proved.Key):
			p.expireLocked(c)
		case p.stale(c) && !c.renewing:
			p.stopAge(c)
			p.startAge(c)
		}
	}
}

// Expire ends the connections proved by the secret key, which this member knows no
// more: their Renew is closed now, and the Port cuts them timing.RenewWithin later.
func (p *Port) Expire(key auth.KeyID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || key == (auth.KeyID{}) {
		return
	}
	for c := range p.conns {
		if c.Proved.Key == key {
			p.expireLocked(c)
		}
	}
}

func (p *Port) expireLocked(c *Conn) {
	c.grace = min(timing.RenewWithin, p.cfg.Age/2)
	p.renewLocked(c)
}

func (p *Port) renew(c *Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.renewLocked(c)
}

// renewLocked closes c.renew and begins the wait for the cut. A connection carried
// by c ends with c and is renewed too.
func (p *Port) renewLocked(c *Conn) {
	if _, open := p.conns[c]; !open || c.renewing {
		return
	}
	c.renewing = true
	close(c.renew)
	p.stopAge(c)
	p.after(c, c.grace, (*Conn).cut)
	if c.carries != nil {
		p.renewLocked(c.carries)
	}
}

// after calls f with c once d has passed, unless c is closed before. It is called
// with mu held. Close waits for f.
func (p *Port) after(c *Conn, d time.Duration, f func(*Conn)) {
	p.wg.Add(1)
	c.timer = time.AfterFunc(d, func() {
		defer p.wg.Done()
		f(c)
	})
}

// stopAge stops the timer of c. It is called with mu held.
func (p *Port) stopAge(c *Conn) {
	if c.timer != nil && c.timer.Stop() {
		p.wg.Done()
	}
	c.timer = nil
}
