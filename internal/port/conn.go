package port

import "net"

// A Conn is an admitted connection: both sides have named themselves and agree.
// The owner must close it: the handler on the accepting side, the caller of
// [Port.Dial] on the other. [Port.Close] and [Port.Drop] close it too.
//
// Like any [net.Conn] it may be used from several goroutines at once.
type Conn struct {
	net.Conn

	// Hello is the dialling side's preamble: as received on the accepting side,
	// as sent on the dialling side.
	Hello Hello

	// Remote is the other side's name and boot.
	Remote Peer

	// Accepted is true on the accepting side.
	Accepted bool

	raw  net.Conn // Conn without TLS
	port *Port
}

// Close ends the connection. The other side reads all bytes sent before, and
// then the end of the stream. Under TLS, Close may take up to 5 s if the other
// side reads nothing.
func (c *Conn) Close() error {
	c.port.remove(c)
	return c.Conn.Close()
}

// cut closes the connection at once, without TLS's farewell: for a dead peer,
// and for closing many connections.
func (c *Conn) cut() {
	c.port.remove(c)
	_ = c.raw.Close()
}
