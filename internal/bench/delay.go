package main

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/wardmote/wardmote/transport"
)

// wayDelay is the delay of one way from a member to another in the setting delayed. The
// host's timers make it a little longer.
const wayDelay = time.Millisecond

// A delayProxy forwards the streams that it accepts to an address, each way wayDelay later.
type delayProxy struct {
	to     string
	listen net.Listener
	wg     sync.WaitGroup

	mu     sync.Mutex
	closed bool
	conns  map[net.Conn]struct{}
}

func newDelayProxy(to string) (*delayProxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &delayProxy{to: to, listen: l, conns: make(map[net.Conn]struct{})}
	p.wg.Go(p.accept)
	return p, nil
}

func (p *delayProxy) addr() string { return p.listen.Addr().String() }
func (p *delayProxy) port() int    { return p.listen.Addr().(*net.TCPAddr).Port }

func (p *delayProxy) accept() {
	for {
		in, err := p.listen.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() { p.serve(in) })
	}
}

// serve joins an accepted stream with a new one to the target, until one of them ends.
func (p *delayProxy) serve(in net.Conn) {
	defer in.Close()
	out, err := net.DialTimeout("tcp", p.to, time.Second)
	if err != nil {
		return
	}
	defer out.Close()
	if !p.keep(in, out) {
		return
	}
	defer p.forget(in, out)
	var wg sync.WaitGroup
	for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
		wg.Go(func() {
			forwardLate(way[1], way[0])
			in.Close()
			out.Close()
		})
	}
	wg.Wait()
}

func (p *delayProxy) keep(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		p.conns[c] = struct{}{}
	}
	return !p.closed
}

func (p *delayProxy) forget(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		delete(p.conns, c)
	}
}

// forwardLate copies src to dst, each piece wayDelay after its arrival.
func forwardLate(dst, src net.Conn) {
	type piece struct {
		due   time.Time
		bytes []byte
	}
	pieces := make(chan piece, 4096)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(pieces)
	wg.Go(func() {
		failed := false
		for p := range pieces {
			if failed {
				continue
			}
			time.Sleep(time.Until(p.due))
			if _, err := dst.Write(p.bytes); err != nil {
				failed = true
				src.Close()
			}
		}
	})
	buffer := make([]byte, 64<<10)
	for {
		n, err := src.Read(buffer)
		if n > 0 {
			pieces <- piece{time.Now().Add(wayDelay), append([]byte(nil), buffer[:n]...)}
		}
		if err != nil {
			return
		}
	}
}

func (p *delayProxy) close() error {
	err := p.listen.Close()
	p.mu.Lock()
	p.closed = true
	for c := range p.conns {
		c.Close()
	}
	p.mu.Unlock()
	p.wg.Wait()
	return err
}

// proxies is the delayProxies of a system, one for each address.
type proxies struct {
	mu sync.Mutex
	to map[string]*delayProxy
}

// through returns the address of the proxy to an address.
func (p *proxies) through(addr string) (*delayProxy, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if d := p.to[addr]; d != nil {
		return d, nil
	}
	d, err := newDelayProxy(addr)
	if err != nil {
		return nil, err
	}
	if p.to == nil {
		p.to = make(map[string]*delayProxy)
	}
	p.to[addr] = d
	return d, nil
}

func (p *proxies) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, d := range p.to {
		errs = append(errs, d.close())
	}
	return errors.Join(errs...)
}

// A lateNetwork is the host's network with a proxy on the way to each address. Packets are
// late without a proxy.
type lateNetwork struct{ proxies *proxies }

func (l lateNetwork) Listen(addr string) (transport.Endpoint, error) {
	e, err := transport.TCP().Listen(addr)
	if err != nil {
		return nil, err
	}
	return lateEndpoint{e, l.proxies}, nil
}

type lateEndpoint struct {
	transport.Endpoint
	proxies *proxies
}

func (l lateEndpoint) Dial(ctx context.Context, addr string) (net.Conn, error) {
	p, err := l.proxies.through(addr)
	if err != nil {
		return nil, err
	}
	return l.Endpoint.Dial(ctx, p.addr())
}

func (l lateEndpoint) WriteTo(p []byte, addr string) error {
	late := append([]byte(nil), p...)
	time.AfterFunc(wayDelay, func() { l.Endpoint.WriteTo(late, addr) })
	return nil
}
