package port

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/timing"
)

// DialVia is Dial for a member out of direct reach: the member at via carries the
// connection to addr, if via relays to the member to. The connection is the two
// ends' own: their TLS and their preamble pass through via unread, and DialVia fails
// unless the member at addr proves itself as in Dial. Addr must be the host:port at
// which via reaches the member.
func (p *Port) DialVia(ctx context.Context, via, addr string, k Kind, to Peer) (*Conn, error) {
	as := p.standing()
	return p.dialOpen(ctx, addr, to, func(ctx context.Context) (*Conn, error) {
		outer, err := p.dial(ctx, via, KindRelay, Peer{Name: to.Name}, as)
		if err != nil {
			return nil, err
		}
		return p.shake(ctx, carrier{outer}, addr, k, to, as)
	})
}

// carrier is the connection that carries a relayed one. The relayed connection says
// farewell by itself, so the carrier closes at once.
type carrier struct{ *Conn }

func (c carrier) Close() error {
	c.cut()
	return nil
}

// Relay carries the bytes of an accepted KindRelay connection to addr and back,
// until either side ends, or does not read for timing.StreamWrite. Relay closes c, and
// returns as soon as c is closed, whatever the other side does.
func (p *Port) Relay(c *Conn, addr string) error {
	defer c.cut()
	ctx, cancel := context.WithTimeout(p.ctx, timing.Dial)
	defer cancel()
	far, err := p.endpoint.Dial(ctx, addr)
	if err != nil {
		return fmt.Errorf("transport: relay: %w", err)
	}
	var wg sync.WaitGroup
	carry := func(to, from net.Conn) {
		_, _ = io.Copy(patient{to}, from)
		c.cut()
		_ = far.Close()
	}
	// A side that stands still neither reads nor ends, and then nobody reads c: its end
	// has to be told.
	wg.Go(func() {
		<-c.gone
		_ = far.Close()
	})
	wg.Go(func() { carry(far, c) })
	carry(c, far)
	wg.Wait()
	return nil
}

// patient writes to a relayed side. A side that reads nothing for timing.StreamWrite has
// lost the connection, as it loses a stream.
type patient struct{ net.Conn }

func (p patient) Write(b []byte) (int, error) {
	_ = p.Conn.SetWriteDeadline(time.Now().Add(timing.StreamWrite))
	return p.Conn.Write(b)
}

// Relays returns the number of connections that this Port carries for others.
func (p *Port) Relays() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.places.relays.size
}
