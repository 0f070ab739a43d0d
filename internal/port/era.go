package port

import (
	"maps"
	"slices"
)

// NewEra closes every connection, accepted or dialled, after this member has
// changed its cluster: Config.ClusterID returns the new ID already. Both sides of
// an open connection agreed on the former cluster, so requests, raft's messages and
// answers of that cluster could arrive in the new one. A handshake that began
// before the call fails. The address stays bound, and later connections work.
func (p *Port) NewEra() {
	p.mu.Lock()
	p.era++
	conns := slices.Collect(maps.Keys(p.conns))
	p.mu.Unlock()
	for _, c := range conns {
		c.cut()
	}
}

// standing is the cluster that a dialling member claims to be in.
type standing struct {
	cluster [16]byte // zero: none
	era     uint64
}

// standing returns the member's present cluster. The era is read first, so that a
// change in between makes the dial fail.
func (p *Port) standing() standing {
	era := p.currentEra()
	return standing{p.cfg.ClusterID(), era}
}

func (p *Port) currentEra() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.era
}
