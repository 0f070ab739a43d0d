package port

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/wardmote/wardmote/internal/auth"
	"github.com/wardmote/wardmote/internal/refused"
	"github.com/wardmote/wardmote/internal/timing"
)

// acceptHandshake does the accepting side's half of a handshake, within
// timing.Handshake. It returns nil if the caller must close the connection.
func (p *Port) acceptHandshake(raw net.Conn, ip netip.Addr) (*Conn, func(*Conn)) {
	log := p.cfg.Logger.With("remote", raw.RemoteAddr())
	_ = raw.SetDeadline(time.Now().Add(timing.Handshake))
	stream, proved, err := p.cfg.Auth.Server(p.ctx, raw)
	if err != nil {
		log.Debug("handshake failed", "error", err)
		p.strange(raw, err)
		return nil, nil
	}
	h, hash, err := readHello(stream)
	if err != nil {
		log.Debug("connection refused", "error", err)
		switch err {
		case errMagic, errTLS:
			p.cfg.Refused.Note(refused.Handshake, raw.RemoteAddr().String(), err.Error())
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
	// The era is read before the cluster's ID, which admit compares.
	c := &Conn{Conn: stream, Hello: h, Remote: h.From, Proved: proved, Accepted: true, era: p.currentEra(), raw: raw, port: p, renew: make(chan struct{}), gone: make(chan struct{})}
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
	a := answer{status: s, cluster: p.cluster, clusterID: p.cfg.ClusterID(), from: p.cfg.Self, addr: p.cfg.Advertised()}
	_, err := stream.Write(appendAnswer(make([]byte, 0, maxAnswer), a))
	return err == nil
}

// dialHandshake does the dialling side's half of a handshake. It does not judge
// the answer.
func (p *Port) dialHandshake(ctx context.Context, raw net.Conn, addr string, h Hello) (net.Conn, auth.Identity, answer, error) {
	stream, proved, err := p.cfg.Auth.Client(ctx, raw)
	if err != nil {
		return nil, proved, answer{}, p.unproved(addr, "", err)
	}
	if _, err := stream.Write(appendHello(make([]byte, 0, maxHello), h)); err != nil {
		return nil, proved, answer{}, fmt.Errorf("transport: dial %s: %w", addr, err)
	}
	a, err := readAnswer(stream)
	if errors.Is(err, errVersion) {
		return stream, proved, answer{status: StatusBadVersion}, nil
	}
	if err != nil {
		return nil, proved, answer{}, p.unproved(addr, "no answer to the preamble: ", err)
	}
	return stream, proved, a, nil
}

// judge is the dialling side's verdict on an answer. It repeats the accepting
// side's checks, because the accepting side may mistake its own identity: a
// load balancer or a recycled host may answer at the address.
func (p *Port) judge(addr string, h Hello, proved auth.Identity, a answer) error {
	status := a.status
	switch {
	case status == StatusBadVersion: // the rest of the answer is unknown
	case !matches(proved, a.from):
		p.cfg.Refused.Note(refused.Identity, addr, impostor(proved, a.from))
		return &UnprovedError{addr, impostor(proved, a.from)}
	case h.Kind == KindRaft && !proved.Voter:
		p.cfg.Refused.Note(refused.Role, a.from.Name, noVoter)
		return &UnprovedError{addr, noVoter}
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
		p.cfg.Foreign(from, addr, true)
	}
	return &RefusedError{Addr: addr, Status: status, Kind: h.Kind, ClusterID: a.clusterID, Peer: a.from, Advertised: a.addr,
		Claimed: proved.Name == "" && !proved.Voter}
}

// differ reports whether two cluster IDs contradict each other. An unknown ID
// contradicts none.
func differ(a, b [16]byte) bool {
	return a != b && a != [16]byte{} && b != [16]byte{}
}

// misdelivered reports whether h was meant for a member other than self, or for
// another incarnation of self. In KindRaft the number is a generation, which
// only Config.Admit can judge. A relay is not meant for self.
func misdelivered(h Hello, self Peer) bool {
	if h.Kind == KindRelay {
		return false // the connection carried inside finds out
	}
	if h.To.Name != "" && h.To.Name != self.Name {
		return true
	}
	return h.Kind != KindRaft && h.To.Boot != 0 && h.To.Boot != self.Boot
}
