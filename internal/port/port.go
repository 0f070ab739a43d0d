package port

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/budget"
	"github.com/wardmote/wardmote/internal/logging"
	"github.com/wardmote/wardmote/internal/refused"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/transport"
)

// packetBuffer holds any UDP datagram, in bytes.
const packetBuffer = 64 << 10

// A Port is one member's port: it accepts and dials connections of every kind,
// and sends and receives packets. Its methods may be called from any
// goroutine.
type Port struct {
	cfg      Config
	endpoint transport.Endpoint
	cluster  [16]byte // hash of cfg.Cluster

	ctx  context.Context // ends with Close
	stop context.CancelFunc
	wg   sync.WaitGroup // loops, handshakes and handlers

	shakes *handshakes
	budget *budget.Budget

	mu       sync.Mutex // never held while a connection is used or closed
	closed   bool
	serving  bool
	handlers map[Kind]func(*Conn)
	packets  func(b []byte, from string, at time.Time)
	conns    map[*Conn]struct{} // admitted and dialled
	places   places             // of the accepted ones of conns
	met      time.Time          // the latest meetNewcomers
	era      uint64             // how often the member has changed its cluster

	began time.Time              // the origin of Conn.heard
	past  map[Peer]time.Duration // when a process without a connection was last heard, after began
}

// Open binds cfg.Bind. Nothing runs before [Port.Serve]. When Open fails,
// nothing is bound.
func Open(cfg Config) (*Port, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	endpoint, err := cfg.Network.Listen(cfg.Bind)
	if err != nil {
		return nil, err
	}
	p := &Port{
		cfg:      cfg,
		endpoint: countBytes(endpoint, cfg.Meter),
		cluster:  hashCluster(cfg.Cluster),
		handlers: make(map[Kind]func(*Conn)),
		conns:    make(map[*Conn]struct{}),
		began:    time.Now(),
		past:     make(map[Peer]time.Duration),
		places:   newPlaces(),
		shakes:   newHandshakes(),
		budget:   budget.New(func(from, detail string) { cfg.Refused.Note(refused.Flood, from, detail) }),
	}
	p.ctx, p.stop = context.WithCancel(context.Background())
	return p, nil
}

// Addr is the bound address, host:port.
func (p *Port) Addr() string { return p.endpoint.Addr() }

// Handle sets the handler of accepted connections of kind k. Without a handler
// they are refused. Each call of h has its own goroutine. The handler must close
// the connection, which may outlive the call. Once the connection is closed, h
// must return, since Close waits for h.
func (p *Port) Handle(k Kind, h func(*Conn)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.handlers[k] = h
}

// HandlePackets sets the handler of packets. Without a handler they are
// dropped. h is called in the order of arrival, one call at a time, and must not
// block. h may keep b. The packet was read at the time at.
func (p *Port) HandlePackets(h func(b []byte, from string, at time.Time)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.packets = h
}

// Send sends b as one packet of at most 65,507 bytes. It does not block, keeps
// no reference to b, and does not know whether the packet arrives.
func (p *Port) Send(b []byte, addr string) error {
	return p.endpoint.WriteTo(b, addr)
}

// Serve starts accepting connections and receiving packets, and returns at
// once. After Close, or called again, Serve does nothing.
func (p *Port) Serve() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.serving {
		return
	}
	p.serving = true
	p.wg.Go(p.acceptLoop)
	p.wg.Go(p.packetLoop)
}

// acceptLoop runs from Serve to Close.
func (p *Port) acceptLoop() {
	p.repeat("accept", func() error {
		raw, err := p.endpoint.Accept()
		if err == nil {
			p.startHandshake(raw)
		}
		return err
	})
}

// packetLoop runs from Serve to Close.
func (p *Port) packetLoop() {
	buf := make([]byte, packetBuffer)
	p.repeat("receive", func() error {
		n, from, err := p.endpoint.ReadFrom(buf)
		if err != nil {
			return err
		}
		at := time.Now()
		p.mu.Lock()
		h := p.packets
		p.mu.Unlock()
		if h != nil {
			h(bytes.Clone(buf[:n]), from, at)
		}
		return nil
	})
}

// repeat runs step until the endpoint or the Port is closed. After a passing
// error (too many open files, say) repeat logs the failed call, not too often, and
// pauses, twice as long after each further error.
func (p *Port) repeat(failure string, step func() error) {
	var pause time.Duration
	limit := logging.NewLimiter(1, timing.TellAgain, timing.ChatterMost)
	for {
		err := step()
		switch {
		case err == nil:
			pause = 0
			continue
		case errors.Is(err, net.ErrClosed):
			return
		}
		pause = min(max(2*pause, timing.LeastAccept), timing.MostAccept)
		if left, ok := limit.Pass(failure); ok {
			p.cfg.Logger.Warn("the port does not work", "call", failure, "error", err, "more", left,
				"next", "check the limit of open files and the network of this host")
		}
		select {
		case <-time.After(pause):
		case <-p.ctx.Done():
			return
		}
	}
}

// Connections returns the numbers of connections, accepted and dialled together, of
// each kind.
func (p *Port) Connections() map[Kind]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := make(map[Kind]int)
	for kind := range kindNames {
		n[kind] = 0
	}
	for c := range p.conns {
		n[c.Hello.Kind]++
	}
	return n
}

// Held returns the bytes that the node holds for its peers.
func (p *Port) Held() int { return p.budget.Held() }

// Close frees the address, closes every connection, accepted or dialled, ends
// running Dials with [net.ErrClosed], and returns when every goroutine of the
// Port has ended. A handler must not call Close.
func (p *Port) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		p.wg.Wait()
		return nil
	}
	p.closed = true
	conns := slices.Collect(maps.Keys(p.conns))
	p.mu.Unlock()
	shaking := p.shakes.close()

	p.stop()
	err := p.endpoint.Close()
	for _, c := range shaking {
		_ = c.Close()
	}
	for _, c := range conns {
		c.cut()
	}
	p.wg.Wait()
	return err
}

// Drop closes every connection, accepted or dialled, with one incarnation of the
// member name. The connections of its other incarnations stay.
func (p *Port) Drop(name string, boot uint64) {
	var drop []*Conn
	p.mu.Lock()
	for c := range p.conns {
		if c.Remote == (Peer{name, boot}) {
			drop = append(drop, c)
		}
	}
	p.mu.Unlock()
	for _, c := range drop {
		c.cut()
	}
}

// remove forgets a closing connection, unless it is forgotten already.
func (p *Port) remove(c *Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.removeLocked(c)
}

func (p *Port) removeLocked(c *Conn) {
	if _, ok := p.conns[c]; !ok {
		return
	}
	delete(p.conns, c)
	p.remember(c)
	close(c.gone)
	p.stopAge(c)
	if c.Accepted {
		p.places.remove(c)
	}
}
