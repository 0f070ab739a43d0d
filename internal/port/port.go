package port

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/transport"
)

// packetBuffer holds any UDP datagram, in bytes.
const packetBuffer = 64 << 10

// A Port is one member's port: it accepts and dials connections of every kind,
// and sends and receives packets. Its methods may be called from any
// goroutine.
type Port struct {
	cfg       Config
	endpoint  transport.Endpoint
	serverTLS *tls.Config
	clientTLS *tls.Config
	cluster   [16]byte // hash of cfg.Cluster

	ctx  context.Context // ends with Close
	stop context.CancelFunc
	wg   sync.WaitGroup // loops, handshakes and handlers

	mu       sync.Mutex // never held while a connection is used or closed
	closed   bool
	serving  bool
	handlers map[Kind]func(*Conn)
	packets  func(b []byte, from string, at time.Time)
	conns    map[*Conn]struct{} // admitted and dialled
	accepted int                // of conns
	perIP    map[netip.Addr]int // of accepted
	perName  map[string]int     // of accepted
	pending  map[net.Conn]pending
	begun    uint64 // handshakes so far
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
		endpoint: endpoint,
		cluster:  hashCluster(cfg.Cluster),
		handlers: make(map[Kind]func(*Conn)),
		conns:    make(map[*Conn]struct{}),
		perIP:    make(map[netip.Addr]int),
		perName:  make(map[string]int),
		pending:  make(map[net.Conn]pending),
	}
	p.ctx, p.stop = context.WithCancel(context.Background())
	if cfg.TLS != nil {
		p.serverTLS, p.clientTLS = mutual(cfg.TLS)
	}
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
	p.repeat("accept failed", func() error {
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
	p.repeat("receiving packets failed", func() error {
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
// error (too many open files, say) repeat logs failure and pauses, twice as long
// after each further error.
func (p *Port) repeat(failure string, step func() error) {
	var pause time.Duration
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
		p.cfg.Logger.Warn(failure, "err", err, "retry", pause)
		select {
		case <-time.After(pause):
		case <-p.ctx.Done():
			return
		}
	}
}

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
	shaking := slices.Collect(maps.Keys(p.pending))
	p.mu.Unlock()

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

// Drop closes every connection, accepted or dialled, with an incarnation of
// the member name other than except.
func (p *Port) Drop(name string, except uint64) {
	var drop []*Conn
	p.mu.Lock()
	for c := range p.conns {
		if c.Remote.Name == name && c.Remote.Boot != except {
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
	if _, ok := p.conns[c]; !ok {
		return
	}
	delete(p.conns, c)
	if !c.Accepted {
		return
	}
	p.accepted--
	decrement(p.perIP, remoteIP(c.raw))
	decrement(p.perName, c.Remote.Name)
}

func decrement[K comparable](m map[K]int, k K) {
	if m[k]--; m[k] <= 0 {
		delete(m, k)
	}
}

// remoteIP is the other side's address without the port. A side without an IP
// address counts under the zero Addr, as if that were an address.
func remoteIP(c net.Conn) netip.Addr {
	a, _ := netip.ParseAddrPort(c.RemoteAddr().String())
	return a.Addr().Unmap()
}
