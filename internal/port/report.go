package port

import "time"

// Report is what a Port knows of its connections, for people to read.
type Report struct {
	Streams map[Kind]Streams
	Heard   map[Peer]time.Time // when each process was last heard over a connection
}

// Streams counts connections.
type Streams struct{ Dialled, Accepted int }

// Report asks nobody.
func (p *Port) Report() Report {
	r := Report{Streams: make(map[Kind]Streams), Heard: make(map[Peer]time.Time)}
	p.mu.Lock()
	defer p.mu.Unlock()
	for peer, at := range p.past {
		r.Heard[peer] = p.began.Add(at)
	}
	for c := range p.conns {
		n := r.Streams[c.Hello.Kind]
		if c.Accepted {
			n.Accepted++
		} else {
			n.Dialled++
		}
		r.Streams[c.Hello.Kind] = n
		if at := p.began.Add(time.Duration(c.heard.Load())); at.After(r.Heard[c.Remote]) {
			r.Heard[c.Remote] = at
		}
	}
	return r
}

// maxPast is the number of processes without a connection whose last sign is remembered.
const maxPast = 1024

// remember keeps when the process of a closing connection was last heard. At the limit,
// the process heard longest ago is forgotten. It is called with mu held.
func (p *Port) remember(c *Conn) {
	at := max(time.Duration(c.heard.Load()), p.past[c.Remote])
	if _, known := p.past[c.Remote]; !known && len(p.past) >= maxPast {
		var oldest Peer
		least := time.Duration(-1)
		for peer, at := range p.past {
			if least < 0 || at < least {
				oldest, least = peer, at
			}
		}
		delete(p.past, oldest)
	}
	p.past[c.Remote] = at
}
