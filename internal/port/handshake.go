package port

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/wardmote/wardmote/internal/timing"
)

// mutual returns cfg for the two sides of a connection, with TLS 1.3 and
// certificates on both.
func mutual(cfg *tls.Config) (server, client *tls.Config) {
	client = cfg.Clone()
	client.MinVersion, client.MaxVersion = tls.VersionTLS13, 0
	server = client.Clone()
	if server.ClientCAs == nil {
		server.ClientCAs = server.RootCAs
	}
	// RequireAnyClientCert stands only beside the caller's own verification,
	// as SPIFFE does it.
	own := server.VerifyPeerCertificate != nil || server.VerifyConnection != nil
	if server.ClientAuth != tls.RequireAnyClientCert || !own {
		server.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return server, client
}

// acceptHandshake does the accepting side's half of a handshake, within
// timing.Handshake. It returns nil if the caller must close the connection.
func (p *Port) acceptHandshake(raw net.Conn, ip netip.Addr) (*Conn, func(*Conn)) {
	log := p.cfg.Logger.With("remote", raw.RemoteAddr())
	_ = raw.SetDeadline(time.Now().Add(timing.Handshake))
	stream := raw
	if p.serverTLS != nil {
		server := tls.Server(raw, p.serverTLS)
		if err := server.HandshakeContext(p.ctx); err != nil {
			log.Debug("tls handshake failed", "err", err)
			return nil, nil
		}
		stream = server
	}
	h, hash, err := readHello(stream)
	if err != nil {
		log.Debug("connection refused", "err", err)
		switch err {
		case errVersion:
			p.answer(stream, StatusBadVersion)
			// Bytes unread at a close would reset the connection, and the reset
			// could overtake the answer.
			_, _ = io.CopyN(io.Discard, stream, maxHello)
		case errLayout:
			p.answer(stream, StatusBadPreamble)
		default: // no answer: the other side may be any program that dials ports
		}
		return nil, nil
	}
	c := &Conn{Conn: stream, Hello: h, Remote: h.From, Accepted: true, raw: raw, port: p}
	status, handler := p.admit(c, hash, ip)
	if status != StatusOK {
		log.Debug("connection refused", "kind", h.Kind, "from", h.From, "status", status)
		p.answer(stream, status)
		return nil, nil
	}
	if !p.answer(stream, StatusOK) {
		c.cut()
		return nil, nil
	}
	_ = raw.SetDeadline(time.Time{})
	return c, handler
}

// answer sends the answer to a Hello, and reports success.
func (p *Port) answer(stream net.Conn, s Status) bool {
	a := answer{status: s, cluster: p.cluster, clusterID: p.cfg.ClusterID(), from: p.cfg.Self}
	_, err := stream.Write(appendAnswer(make([]byte, 0, maxAnswer), a))
	return err == nil
}

// dialHandshake does the dialling side's half of a handshake. It does not judge
// the answer.
func (p *Port) dialHandshake(ctx context.Context, raw net.Conn, addr string, h Hello) (net.Conn, answer, error) {
	stream := raw
	if p.clientTLS != nil {
		cfg := p.clientTLS
		if cfg.ServerName == "" {
			cfg = cfg.Clone()
			cfg.ServerName, _, _ = net.SplitHostPort(addr)
		}
		client := tls.Client(raw, cfg)
		if err := client.HandshakeContext(ctx); err != nil {
			return nil, answer{}, fmt.Errorf("transport: dial %s: tls: %w", addr, err)
		}
		stream = client
	}
	if _, err := stream.Write(appendHello(make([]byte, 0, maxHello), h)); err != nil {
		return nil, answer{}, fmt.Errorf("transport: dial %s: %w", addr, err)
	}
	a, err := readAnswer(stream)
	if errors.Is(err, errVersion) {
		return stream, answer{status: StatusBadVersion}, nil
	}
	if err != nil {
		return nil, answer{}, fmt.Errorf("transport: dial %s: no answer to the preamble: %w", addr, err)
	}
	return stream, a, nil
}

// judge is the dialling side's verdict on an answer. It repeats the accepting
// side's checks, because the accepting side may mistake its own identity: a
// load balancer or a recycled host may answer at the address.
func (p *Port) judge(addr string, h Hello, a answer) error {
	status := a.status
	switch {
	case status != StatusOK:
	case a.cluster != p.cluster, differ(h.ClusterID, a.clusterID):
		status = StatusForeignCluster
	case misdelivered(h, a.from):
		status = StatusWrongDestination
	default:
		return nil
	}
	if status == StatusForeignCluster {
		from := Hello{Kind: h.Kind, ClusterID: a.clusterID, From: a.from, To: h.From}
		if a.cluster == p.cluster {
			from.Cluster = h.Cluster
		}
		p.cfg.Foreign(from, addr)
	}
	return &RefusedError{Addr: addr, Status: status, Kind: h.Kind, ClusterID: a.clusterID, Peer: a.from}
}

// differ reports whether two cluster IDs contradict each other. An unknown ID
// contradicts none.
func differ(a, b [16]byte) bool {
	return a != b && a != [16]byte{} && b != [16]byte{}
}

// misdelivered reports whether h was meant for a member other than self, or for
// another incarnation of self. In KindRaft the number is a generation, which
// only Config.Admit can judge.
func misdelivered(h Hello, self Peer) bool {
	if h.To.Name != "" && h.To.Name != self.Name {
		return true
	}
	return h.Kind != KindRaft && h.To.Boot != 0 && h.To.Boot != self.Boot
}
