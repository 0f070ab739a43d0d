package transport

import (
	"net"
	"sync"
)

// A Conn is a connection whose two sides have agreed who they are. It belongs
// to whom it was given: a handler, or the caller of [Port.Dial], who must
// close it. It is also closed by [Port.Close] and by [Port.Drop].
//
// Like any [net.Conn] it may be used from several goroutines at once.
type Conn struct {
	net.Conn

	// Hello is what the dialling side said. On the accepting side it is as
	// received, on the dialling side as sent.
	Hello Hello

	// Remote is the other side's name and boot.
	Remote Peer

	// Accepted is true on the accepting side.
	Accepted bool

	raw    net.Conn // Conn without TLS
	port   *Port
	forget sync.Once
}

// Close ends the connection; the other side reads the end of the stream once
// it has read what was sent before. Under TLS it may take up to 5 s if the
// other side reads nothing.
func (c *Conn) Close() error {
	c.forget.Do(func() { c.port.remove(c) })
	return c.Conn.Close()
}

// cut closes the connection at once, without TLS's farewell: for a peer that
// is gone, and for when many must be closed.
func (c *Conn) cut() {
	c.forget.Do(func() { c.port.remove(c) })
	_ = c.raw.Close()
}
