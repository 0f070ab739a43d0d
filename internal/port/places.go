package port

import (
	"net"
	"net/netip"
	"time"

	"github.com/wardmote/wardmote/internal/timing"
)

// Caps on admitted connections, and the places above each cap that only known
// members may take: members whose certificate proves their name, or that
// Config.Living knows at the connection's address.
const (
	maxConns        = 4096 // in all
	maxConnsPerIP   = 1024 // from one address: hosts behind a proxy share theirs
	maxConnsPerName = 64   // from members of one name
	maxRelays       = 256  // of KindRelay: each costs a connection onwards,
	relaysPerIP     = 64   // and from one address: other members that are cut off find one
	maxNewcomers    = 1024 // from processes that Config.Known does not know,
	newcomersPerIP  = 256  // and from one address

	spareConns        = 512
	spareConnsPerIP   = 256
	spareConnsPerName = 16
)

// places counts the admitted connections, by each of the caps. Port.mu guards all.
type places struct {
	all         scope
	relays      scope
	relaysAt    map[netip.Addr]*scope
	newcomers   scope
	newcomersAt map[netip.Addr]*scope
	perIP       map[netip.Addr]*scope
	perName     map[string]*scope
	perClaimant map[claimant]int
}

// scope is a set of connections under a cap.
type scope struct {
	size  int
	quiet time.Time // no connection of the set can give way before
}

// claimant is a name as claimed from an address. Connections of a stranger in a member's
// name are of another claimant than the member's own, unless both share a host.
type claimant struct {
	name string
	ip   netip.Addr
}

func newPlaces() places {
	return places{perIP: make(map[netip.Addr]*scope), perName: make(map[string]*scope), newcomersAt: make(map[netip.Addr]*scope), relaysAt: make(map[netip.Addr]*scope), perClaimant: make(map[claimant]int)}
}

// capped is a scope with its bounds and its members.
type capped struct {
	*scope
	max, spare int
	contains   func(*Conn) bool
}

// scopes returns the scopes that c belongs to.
func (l *places) scopes(c *Conn) []capped {
	at := c.claimant()
	scopes := []capped{
		{&l.all, maxConns, spareConns, func(*Conn) bool { return true }},
		{entry(l.perIP, at.ip), maxConnsPerIP, spareConnsPerIP, func(d *Conn) bool { return d.claimant().ip == at.ip }},
		{entry(l.perName, at.name), maxConnsPerName, spareConnsPerName, func(d *Conn) bool { return d.claimant().name == at.name }},
	}
	if c.Hello.Kind == KindRelay {
		scopes = append(scopes,
			capped{&l.relays, maxRelays, 0, func(d *Conn) bool { return d.Hello.Kind == KindRelay }},
			capped{entry(l.relaysAt, at.ip), relaysPerIP, 0, func(d *Conn) bool { return d.Hello.Kind == KindRelay && d.claimant().ip == at.ip }})
	}
	if c.newcomer {
		scopes = append(scopes,
			capped{&l.newcomers, maxNewcomers, 0, func(d *Conn) bool { return d.newcomer }},
			capped{entry(l.newcomersAt, at.ip), newcomersPerIP, 0, func(d *Conn) bool { return d.newcomer && d.claimant().ip == at.ip }})
	}
	return scopes
}

func entry[K comparable](m map[K]*scope, k K) *scope {
	s := m[k]
	if s == nil {
		s = new(scope)
		m[k] = s
	}
	return s
}

// add takes the places of an admitted connection.
func (l *places) add(c *Conn) {
	for _, s := range l.scopes(c) {
		s.size++
	}
	l.perClaimant[c.claimant()]++
}

// remove frees the places of an admitted connection.
func (l *places) remove(c *Conn) {
	for _, s := range l.scopes(c) {
		s.size--
	}
	l.forget(c)
	at := c.claimant()
	if l.perClaimant[at]--; l.perClaimant[at] == 0 {
		delete(l.perClaimant, at)
	}
}

// forget drops the empty scopes that c belongs to.
func (l *places) forget(c *Conn) {
	at := c.claimant()
	if l.perIP[at.ip].size == 0 {
		delete(l.perIP, at.ip)
	}
	if l.perName[at.name].size == 0 {
		delete(l.perName, at.name)
	}
	for _, m := range []map[netip.Addr]*scope{l.newcomersAt, l.relaysAt} {
		if s := m[at.ip]; s != nil && s.size == 0 {
			delete(m, at.ip)
		}
	}
}

// claimant is the claimant of an accepted connection.
func (c *Conn) claimant() claimant { return claimant{c.Hello.From.Name, c.Host()} }

// Host is the host of the other side of an accepted connection, as the package's function
// Host has it; the zero Addr, if this side has dialled. A relayed connection comes from the
// host that relays.
func (c *Conn) Host() (ip netip.Addr) {
	if t, accepted := c.raw.(*tracked); accepted {
		ip = t.ip
	}
	return ip
}

// From names the other side in a refusal: many processes can claim a name, and the host is
// where an operator finds the one.
func (c *Conn) From() string {
	if ip := c.Host(); ip.IsValid() {
		return c.Hello.From.Name + " at " + ip.String()
	}
	return c.Remote.Name
}

// makeRoom reports whether c gets a place, and which connections give way for it: in
// each scope that is full, one that says nothing, of the name and address with the
// most connections. A connection gives way if its peer has sent nothing since it was
// admitted, timing.SilentPlace ago or longer, or nothing for timing.IdlePlace. So
// talking members keep their connections; an idle member dials again when it next
// has a question. Beyond, only known members get a place. It is called with mu held.
func (p *Port) makeRoom(c *Conn, known bool) (victims []*Conn, ok bool) {
	now := time.Now()
	for _, s := range p.places.scopes(c) {
		size := s.size
		for _, v := range victims {
			if s.contains(v) {
				size--
			}
		}
		if size < s.max {
			continue
		}
		if v := p.idlest(s, now); v != nil {
			victims = append(victims, v)
			continue
		}
		if !known || size >= s.max+s.spare {
			p.places.forget(c)
			return nil, false
		}
	}
	return victims, true
}

// idlest returns the connection of s that gives way, or nil.
func (p *Port) idlest(s capped, now time.Time) (victim *Conn) {
	if now.Before(s.quiet) {
		return nil
	}
	var longest time.Duration
	most := 0
	// A connection admitted after this look can give way after SilentPlace.
	soonest := timing.SilentPlace
	for c := range p.conns {
		if !c.Accepted || !s.contains(c) {
			continue
		}
		idle, spoke := c.raw.(*tracked).idle(now)
		least := timing.SilentPlace
		if spoke {
			least = timing.IdlePlace
		}
		if idle < least {
			soonest = min(soonest, least-idle)
			continue
		}
		if n := p.places.perClaimant[c.claimant()]; n > most || n == most && idle > longest {
			victim, most, longest = c, n, idle
		}
	}
	if victim == nil {
		s.quiet = now.Add(soonest)
	}
	return victim
}

// remoteIP is the other side's host. A side without an IP address counts under the
// zero Addr, as if that were an address.
func remoteIP(c net.Conn) netip.Addr {
	a, _ := netip.ParseAddrPort(c.RemoteAddr().String())
	return Host(a.Addr())
}

// Host returns the address under which the connections of an IP address are counted.
// Of an IPv6 address only the first 64 bits count: a host may have all addresses that
// share them.
func Host(ip netip.Addr) netip.Addr {
	ip = ip.Unmap().WithZone("")
	if ip.Is6() {
		prefix, _ := ip.Prefix(64)
		ip = prefix.Addr()
	}
	return ip
}
