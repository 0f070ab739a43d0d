package main

import (
	"context"
	"net"
	"sync"

	"github.com/wardmote/wardmote/transport"
)

// cuttable is the network of this computer, until it is cut: then nothing gets in or
// out, and nobody is told, as on a host whose cable is pulled. When the network heals,
// the streams of before are closed.
//
// Only the demo needs a network of its own. A program leaves Config.Network at nil.
type cuttable struct {
	transport.Network

	mu      sync.Mutex
	cut     bool
	streams map[*stream]bool // all open streams
}

func newCuttable() *cuttable {
	return &cuttable{Network: transport.TCP(), streams: make(map[*stream]bool)}
}

func (n *cuttable) Listen(addr string) (transport.Endpoint, error) {
	e, err := n.Network.Listen(addr)
	return &endpoint{e, n}, err
}

func (n *cuttable) setCut(cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut = cut
	for s := range n.streams {
		if s.lost && !cut {
			go s.Close()
		}
		s.lost = s.lost || cut
	}
}

func (n *cuttable) isCut() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cut
}

func (n *cuttable) follow(c net.Conn, err error) (net.Conn, error) {
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	s := &stream{Conn: c, network: n, lost: n.cut}
	n.streams[s] = true
	return s, nil
}

type endpoint struct {
	transport.Endpoint
	network *cuttable
}

func (e *endpoint) Accept() (net.Conn, error) { return e.network.follow(e.Endpoint.Accept()) }

func (e *endpoint) Dial(ctx context.Context, addr string) (net.Conn, error) {
	if e.network.isCut() {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	return e.network.follow(e.Endpoint.Dial(ctx, addr))
}

func (e *endpoint) ReadFrom(p []byte) (int, string, error) {
	for {
		n, from, err := e.Endpoint.ReadFrom(p)
		if err != nil || !e.network.isCut() {
			return n, from, err
		}
	}
}

func (e *endpoint) WriteTo(p []byte, addr string) error {
	if e.network.isCut() {
		return nil
	}
	return e.Endpoint.WriteTo(p, addr)
}

// stream is a stream that loses all bytes from the first cut on.
type stream struct {
	net.Conn
	network *cuttable
	lost    bool // guarded by network.mu
}

func (s *stream) isLost() bool {
	s.network.mu.Lock()
	defer s.network.mu.Unlock()
	return s.lost
}

func (s *stream) Read(p []byte) (int, error) {
	for {
		n, err := s.Conn.Read(p)
		if err != nil || !s.isLost() {
			return n, err
		}
	}
}

func (s *stream) Write(p []byte) (int, error) {
	if s.isLost() {
		return len(p), nil
	}
	return s.Conn.Write(p)
}

func (s *stream) Close() error {
	s.network.mu.Lock()
	delete(s.network.streams, s)
	s.network.mu.Unlock()
	return s.Conn.Close()
}
