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
	if len(to.Name) > maxName {
		return nil, fmt.Errorf("transport: dial: name of %d bytes exceeds %d", len(to.Name), maxName)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()

	c, err := p.dial(ctx, addr, k, to)
	if err != nil && p.ctx.Err() != nil {
		return nil, fmt.Errorf("transport: dial %s: %w", addr, net.ErrClosed)
	}
	return c, err
}

func (p *Port) dial(ctx context.Context, addr string, k Kind, to Peer) (*Conn, error) {
	raw, err := p.endpoint.Dial(ctx, addr)
	if err != nil {
		return nil, fmt.Errorf("transport: %w", err)
	}
	hello := Hello{Kind: k, Cluster: p.cfg.Cluster, ClusterID: p.cfg.ClusterID(), From: p.cfg.Self, To: to}
	_ = raw.SetDeadline(time.Now().Add(timing.Handshake))
	// Only a close is certain to end a handshake, TLS's handshake included.
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	stream, a, err := p.dialHandshake(ctx, raw, addr, hello)
	if err == nil {
		err = p.judge(addr, hello, a)
	}
	if !stop() && !isRefused(err) {
		err = fmt.Errorf("transport: dial %s: %w", addr, ctx.Err())
	}
	if err != nil {
		_ = raw.Close()
		return nil, err
	}
	_ = raw.SetDeadline(time.Time{})
	c := &Conn{Conn: stream, Hello: hello, Remote: a.from, raw: raw, port: p}
	p.mu.Lock()
	closed := p.closed
	if !closed {
		p.conns[c] = struct{}{}
	}
	p.mu.Unlock()
	if closed {
		_ = raw.Close()
		return nil, fmt.Errorf("transport: dial %s: %w", addr, net.ErrClosed)
	}
	return c, nil
}
