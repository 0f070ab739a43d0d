package port

import (
	"crypto/tls"
	"net"
	"sync/atomic"
	"time"

	"github.com/wardmote/wardmote/internal/auth"
	"github.com/wardmote/wardmote/internal/budget"
)

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

	// Proved is the part of the other side's identity that the handshake has proved.
	// Without TLS nothing is proved, and the other side may do anything.
	Proved auth.Identity

	// Advertised is the address at which the other side wants to be reached, on
	// the dialling side; "" if unknown.
	Advertised string

	// Accepted is true on the accepting side.
	Accepted bool

	heard atomic.Int64 // the latest bytes, in nanoseconds after Port.began

	newcomer bool // has a place for newcomers; on the accepting side, under Port.mu once it has

	era  uint64   // Port.era when the handshake began
	raw  net.Conn // Conn without TLS
	port *Port

	renew    chan struct{} // closed when the connection should be replaced
	gone     chan struct{} // closed when the Port has forgotten the connection, which ends then
	renewing bool          // renew is closed; with the following fields under Port.mu
	grace    time.Duration // from the close of renew to the cut
	timer    *time.Timer   // of the close of renew, then of the cut
	carries  *Conn         // the connection inside a dialled KindRelay connection, once it stands
}

// Claimed reports whether nothing proves the name of the other side, or its role of a voter.
func (c *Conn) Claimed() bool { return c.Proved.Name == "" && !c.Proved.Voter }

// Read notes when the other side was heard.
func (c *Conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.noteHeard()
	}
	return n, err
}

// noteHeard notes that the other side was heard now.
func (c *Conn) noteHeard() { c.heard.Store(int64(time.Since(c.port.began))) }

// Voter reports whether the other side may speak as a voter: it has proved the role,
// or proves nothing, without TLS.
func (c *Conn) Voter() bool { return c.Proved.Voter }

// Binding returns bytes that both ends of this TLS stream know, that differ from those of every
// other stream, and that nobody else can choose: a signature over them proves something on
// this stream alone. Binding is nil without TLS.
func (c *Conn) Binding() ([]byte, error) {
	s, ok := c.Conn.(interface{ ConnectionState() tls.ConnectionState })
	if !ok {
		return nil, nil
	}
	cs := s.ConnectionState()
	return cs.ExportKeyingMaterial("EXPORTER-wardmote-stream", nil, 32)
}

// Budget returns the connection's share of the bytes that this member holds for its
// peers.
func (c *Conn) Budget() *budget.Share {
	return c.port.budget.Share(c.Remote.Name, remoteIP(c.raw))
}

// Close ends the connection. The other side reads all bytes sent before, and
// then the end of the stream. Under TLS, Close may take up to 5 s if the other
// side reads nothing.
func (c *Conn) Close() error {
	c.port.remove(c)
	return c.Conn.Close()
}

// Cut closes the connection at once, without TLS's farewell: bytes sent before may be
// lost, and Cut never blocks.
func (c *Conn) Cut() { c.cut() }

// cut closes the connection at once, without TLS's farewell: for a dead peer,
// and for closing many connections.
func (c *Conn) cut() {
	c.port.remove(c)
	_ = c.raw.Close()
}
