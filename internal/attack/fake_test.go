package attack

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"io"
	"math"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/wire"
)

// A fakeLeader accepts the streams of members in the name of a process, and says that it leads.
type fakeLeader struct {
	net.Listener
	a        *attacker
	as       peer
	control  func(wire.Frame) (body []byte) // answers questions on control streams; nil: no answers
	attached atomic.Int32                   // answers to attempts to attach, by which members ask
	used     atomic.Int32                   // requests for the locks, by members that believed the answers

	mu    sync.Mutex
	shown [][]byte // bodies with the keys of members' sessions
}

// steals shows the keys that members have shown to the fake leader to the true one, in the
// victim's name, with the proofs that came with them and with the attacker's own, and
// releases the victim's lock.
func (f *fakeLeader) steals() bool {
	f.mu.Lock()
	shown := slices.Clone(f.shown)
	f.mu.Unlock()
	for _, from := range f.a.names() {
		for _, body := range shown {
			for _, prove := range []bool{false, true} {
				var s *talk
				var err error
				if prove {
					s, err = f.a.session(from)
				} else {
					s, err = f.a.dial(f.a.w.leader(), hello{kind: kindMember, from: from})
				}
				if err != nil {
					continue
				}
				_, _ = s.call(wire.Attach, body)
				if o, err := s.propose(machine.Release{Session: f.a.know.victim.Session, Token: f.a.know.victim.Token}); err == nil && o.Code == machine.OK {
					return true
				}
			}
		}
	}
	return false
}

func (f *fakeLeader) addr() string { return f.Addr().String() }

// fakeLeader starts a fake leader, which lives as long as the attacker's streams.
func (a *attacker) fakeLeader(as peer) (*fakeLeader, error) {
	l, err := net.Listen("tcp", "127.254.1.9:0")
	if err != nil {
		return nil, err
	}
	f := &fakeLeader{Listener: l, a: a, as: as}
	a.atEnd(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go f.serve(c)
		}
	}()
	return f, nil
}

func (f *fakeLeader) serve(c net.Conn) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	if f.a.w.mode == withSecret && f.a.who == member {
		secret := f.a.w.papers.secret
		cert, err := secretCertificate(secret, clusterName, f.as)
		if err != nil {
			return
		}
		asks, private := secretAuthority(secret, clusterName)
		asks.IsCA, asks.BasicConstraintsValid = true, true
		der, err := x509.CreateCertificate(rand.Reader, asks, asks, private.Public(), private)
		if err != nil {
			return
		}
		roots := x509.NewCertPool() // members show the certificate of the authority that is asked for
		if authority, err := x509.ParseCertificate(der); err == nil {
			roots.AddCert(authority)
		}
		c = tls.Server(c, &tls.Config{Certificates: []tls.Certificate{*cert}, NextProtos: []string{protocolOf(secret, clusterName)},
			ClientAuth: tls.RequireAnyClientCert, ClientCAs: roots, MinVersion: tls.VersionTLS13})
	} else if f.a.w.mode != insecure {
		self := newAuthority(f.a.t)
		p := self.sign(f.a.t, subject{uri: memberURI(intruder.Name), ip: "127.254.1.9"})
		if f.a.w.mode.tls() && f.a.who != stranger {
			uri := memberURI(intruder.Name)
			if f.a.who == guest {
				uri += "?role=member"
			}
			p = f.a.w.papers.ca.sign(f.a.t, subject{uri: uri, ip: "127.254.1.9", expired: f.a.who == impostor})
		}
		if f.a.w.mode == withShared {
			p = map[string]pair{guest: f.a.w.papers.guest, member: f.a.w.papers.members[0]}[f.a.who]
		}
		cfg := p.client()
		cfg.ClientAuth = tls.RequireAnyClientCert
		cfg.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			cfg := cfg.Clone()
			cfg.NextProtos = h.SupportedProtos // whatever the member wants
			return cfg, nil
		}
		c = tls.Server(c, cfg)
	}
	var head [56]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return
	}
	if _, err := io.CopyN(io.Discard, c, int64(head[6])+int64(head[7])); err != nil {
		return
	}
	b := append([]byte("wmt1"), 1, statusOK, byte(len(f.as.Name)), 0)
	sum := sha256.Sum256([]byte(clusterName))
	b = append(append(b, sum[:16]...), f.a.know.cluster[:]...)
	b = append(binary.BigEndian.AppendUint64(b, f.as.Boot), f.as.Name...)
	if _, err := c.Write(b); err != nil || head[5] != kindMember {
		f.answer(c, head[5] == kindControl && err == nil)
		return
	}
	for {
		q, err := wire.ReadFrame(c)
		if err != nil {
			return
		}
		if q.Type != wire.Attach {
			if q.Type == wire.Propose || q.Type == wire.Beat || q.Type == wire.Read {
				f.used.Add(1)
			}
			continue // no answer is an answer that never comes
		}
		f.attached.Add(1)
		f.mu.Lock()
		if len(f.shown) < 16 {
			f.shown = append(f.shown, bytes.Clone(q.Body))
		}
		f.mu.Unlock()
		b, err := wire.AppendFrame(nil, wire.Frame{Type: q.Type, ID: q.ID, Code: wire.CodeOK,
			Body: wire.Marshal(&wire.AttachAnswer{Term: math.MaxUint64, TTL: uint64(ttl / time.Millisecond), Members: 9})})
		if err != nil {
			return
		}
		if _, err := c.Write(b); err != nil {
			return
		}
	}
}

// answer answers the questions on a control stream, as far as the fake leader does.
func (f *fakeLeader) answer(c net.Conn, control bool) {
	for control && f.control != nil {
		q, err := wire.ReadFrame(c)
		if err != nil {
			return
		}
		body := f.control(q)
		if body == nil {
			continue
		}
		b, err := wire.AppendFrame(nil, wire.Frame{Type: q.Type, ID: q.ID, Code: wire.CodeOK, Body: body})
		if err != nil {
			return
		}
		if _, err := c.Write(b); err != nil {
			return
		}
	}
}
