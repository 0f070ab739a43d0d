package port

import (
	"context"
	"net"

	"github.com/wardmote/wardmote/internal/meter"
	"github.com/wardmote/wardmote/transport"
)

// countedEndpoint counts the bytes of streams and packets, as they are on the network:
// TLS and the bytes carried for others included.
type countedEndpoint struct {
	transport.Endpoint
	m *meter.Node
}

// countBytes returns e, counted by m unless m is nil.
func countBytes(e transport.Endpoint, m *meter.Node) transport.Endpoint {
	if m == nil {
		return e
	}
	return countedEndpoint{e, m}
}

func (e countedEndpoint) Accept() (net.Conn, error) {
	c, err := e.Endpoint.Accept()
	if err != nil {
		return nil, err
	}
	return countedConn{c, e.m}, nil
}

func (e countedEndpoint) Dial(ctx context.Context, addr string) (net.Conn, error) {
	c, err := e.Endpoint.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	return countedConn{c, e.m}, nil
}

func (e countedEndpoint) ReadFrom(p []byte) (n int, from string, err error) {
	n, from, err = e.Endpoint.ReadFrom(p)
	e.m.ReceivedBytes.Add(uint64(n))
	return n, from, err
}

func (e countedEndpoint) WriteTo(p []byte, addr string) error {
	err := e.Endpoint.WriteTo(p, addr)
	if err == nil {
		e.m.SentBytes.Add(uint64(len(p)))
	}
	return err
}

type countedConn struct {
	net.Conn
	m *meter.Node
}

func (c countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.m.ReceivedBytes.Add(uint64(n))
	return n, err
}

func (c countedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.m.SentBytes.Add(uint64(n))
	return n, err
}
