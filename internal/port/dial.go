package port

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/wardmote/wardmote/internal/timing"
)

// Dial opens a connection of kind k to the member to at addr. An empty to.Name
// accepts any member, to.Boot 0 any incarnation. ctx bounds the call, not the
// connection. Once the other side's host has answered, the call takes no longer
// than 5 s.
//
// Dial fails with a *RefusedError if the other side was reached and one of the
// two sides refused. When Dial fails, no connection is left behind, and nothing
// but the preamble was sent.
func (p *Port) Dial(ctx context.Context, addr string, k Kind, to Peer) (*Conn, error) {
	as := p.standing()
	return p.dialOpen(ctx, addr, to, func(ctx context.Context) (*Conn, error) { return p.dial(ctx, addr, k, to, as) })
}

// DialAcross is Dial without a claim to a cluster: members of every cluster of this
// name answer, as they answer a member that is in no cluster yet. The questions of
// founding and of lineage pass so between a dead cluster and its successors.
func (p *Port) DialAcross(ctx context.Context, addr string, k Kind, to Peer) (*Conn, error) {
	as := standing{era: p.currentEra()}
	return p.dialOpen(ctx, addr, to, func(ctx context.Context) (*Conn, error) { return p.dial(ctx, addr, k, to, as) })
}

// dialOpen runs dial until the Port is closed.
func (p *Port) dialOpen(ctx context.Context, addr string, to Peer, dial func(context.Context) (*Conn, error)) (*Conn, error) {
	if len(to.Name) > maxName {
		return nil, fmt.Errorf("transport: dial: name of %d bytes exceeds %d", len(to.Name), maxName)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()

	c, err := dial(ctx)
	if err != nil && p.ctx.Err() != nil {
		return nil, fmt.Errorf("transport: dial %s: %w", addr, net.ErrClosed)
	}
	return c, err
}

func (p *Port) dial(ctx context.Context, addr string, k Kind, to Peer, as standing) (*Conn, error) {
	raw, err := p.endpoint.Dial(ctx, addr)
	if err != nil {
		return nil, fmt.Errorf("transport: %w", err)
	}
	return p.shake(ctx, raw, addr, k, to, as)
}

// shake does the dialling side's handshake on raw, which reaches addr. If shake
// fails, raw is closed.
func (p *Port) shake(ctx context.Context, raw net.Conn, addr string, k Kind, to Peer, as standing) (*Conn, error) {
	hello := Hello{Kind: k, Cluster: p.cfg.Cluster, ClusterID: as.cluster, From: p.cfg.Self, To: to}
	_ = raw.SetDeadline(time.Now().Add(timing.Handshake))
	// Only a close is certain to end a handshake, TLS's handshake included.
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	below := &dialled{Conn: raw, left: maxShaken}
	stream, proved, a, err := p.dialHandshake(ctx, below, addr, hello)
	below.stands.Store(true)
	if err == nil {
		err = p.judge(addr, hello, proved, a)
	}
	if !stop() && !isRefused(err) {
		err = fmt.Errorf("transport: dial %s: %w", addr, ctx.Err())
	}
	if err != nil {
		_ = raw.Close()
		return nil, err
	}
	_ = raw.SetDeadline(time.Time{})
	c := &Conn{Conn: stream, Hello: hello, Remote: a.from, Advertised: a.addr, Proved: proved, era: as.era, raw: raw, port: p, renew: make(chan struct{}), gone: make(chan struct{})}
	p.mu.Lock()
	closed := p.closed || as.era != p.era
	if !closed {
		p.conns[c] = struct{}{}
		c.noteHeard() // the handshake
		p.startAge(c)
		if outer, ok := raw.(carrier); ok {
			outer.Conn.carries = c
			if outer.renewing {
				p.renewLocked(c)
			}
		}
	}
	p.mu.Unlock()
	if closed {
		_ = raw.Close()
		return nil, fmt.Errorf("transport: dial %s: %w", addr, net.ErrClosed)
	}
	return c, nil
}
