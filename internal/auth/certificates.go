package auth

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// Certificates is the Method of members with certificates of the user's own. The chain
// is verified on both sides, and without host names: members are dialled by IP
// address, and the certificate names the member.
//
// Certificates and roots are taken from the user's configuration at each handshake, so
// GetCertificate, GetClientCertificate and GetConfigForClient reload without a
// restart.
type Certificates struct {
	user     *tls.Config
	identify func(*x509.Certificate) (name string, voter bool, err error)
}

// protocol is the application protocol. A certificate's key may serve other programs
// too: their connections and these are kept apart.
const protocol = "wardmote/1"

// Reasons to refuse a configuration.
var (
	errNoRoots       = errors.New("RootCAs is nil: the host's roots would let anybody in who owns a domain")
	errEmptyRoots    = errors.New("RootCAs is empty: no member's certificate would be accepted; was the file of the CA read?")
	errNoCertificate = errors.New("no certificate: set Certificates or GetCertificate, since each side shows one")
	errSkip          = errors.New("InsecureSkipVerify without VerifyConnection or VerifyPeerCertificate verifies nobody")
)

// NewCertificates returns the Method for the user's configuration. The function
// identify returns the name and the role of a verified certificate; an empty name means
// that members share the certificate.
func NewCertificates(user *tls.Config, identify func(*x509.Certificate) (name string, voter bool, err error)) (*Certificates, error) {
	user = user.Clone()
	switch {
	case len(user.Certificates) == 0 && user.GetCertificate == nil && user.GetClientCertificate == nil:
		return nil, errNoCertificate
	case unverified(user):
		return nil, errSkip
	case user.RootCAs == nil && !user.InsecureSkipVerify:
		return nil, errNoRoots
	case !user.InsecureSkipVerify && user.RootCAs.Equal(x509.NewCertPool()):
		return nil, errEmptyRoots
	}
	return &Certificates{user, identify}, nil
}

func unverified(cfg *tls.Config) bool {
	return cfg.InsecureSkipVerify && cfg.VerifyConnection == nil && cfg.VerifyPeerCertificate == nil
}

// Own returns the identity of this process's own certificate, as seen by the others.
// Own fails if the others would refuse the certificate by its dates, its identity or its
// extended key usages.
func (c *Certificates) Own() (Identity, error) {
	hello := &tls.ClientHelloInfo{SupportedVersions: []uint16{tls.VersionTLS13}, SupportedProtos: []string{protocol}}
	cert, err := own(c.user, hello)
	if err != nil {
		return Identity{}, err
	}
	leaf, err := leafOf(cert)
	if err != nil {
		return Identity{}, err
	}
	if err := c.serves(leaf, hello); err != nil {
		return Identity{}, err
	}
	return c.identity(c.user, leaf, nil)
}

// own returns the certificate to show. One source is enough for both sides of a
// connection, and a function comes before a list, since a function reloads.
func own(cfg *tls.Config, hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if cfg.GetCertificate != nil {
		if cert, err := cfg.GetCertificate(hello); cert != nil || err != nil {
			return cert, err
		}
	}
	if cfg.GetClientCertificate != nil {
		cert, err := cfg.GetClientCertificate(&tls.CertificateRequestInfo{SignatureSchemes: hello.SignatureSchemes, Version: tls.VersionTLS13})
		if err != nil || cert != nil && len(cert.Certificate) > 0 {
			return cert, err
		}
	}
	for i := range cfg.Certificates {
		if i == len(cfg.Certificates)-1 || hello.SupportsCertificate(&cfg.Certificates[i]) == nil {
			return &cfg.Certificates[i], nil
		}
	}
	return nil, errNoCertificate
}

func leafOf(cert *tls.Certificate) (*x509.Certificate, error) {
	if cert.Leaf != nil {
		return cert.Leaf, nil
	}
	if len(cert.Certificate) == 0 {
		return nil, errNoCertificate
	}
	return x509.ParseCertificate(cert.Certificate[0])
}

// proof is the memory of a handshake: the certificate shown by this side, and the
// identity of the other side.
type proof struct {
	shown *tls.Certificate
	peer  Identity
}

// harden returns cfg for one handshake, whichever versions and verification cfg asks
// for.
func (c *Certificates) harden(cfg *tls.Config, p *proof, usage x509.ExtKeyUsage) *tls.Config {
	hard := cfg.Clone()
	hard.MinVersion, hard.MaxVersion = tls.VersionTLS13, 0
	hard.NextProtos = []string{protocol}
	hard.SessionTicketsDisabled, hard.ClientSessionCache = true, nil
	hard.WrapSession, hard.UnwrapSession = nil, nil
	hard.GetConfigForClient = nil
	hard.Renegotiation = tls.RenegotiateNever // TLS 1.3 has none, and otherwise a stream could not be bound to its members' proofs
	hard.Certificates = nil
	hard.GetCertificate = func(hello *tls.ClientHelloInfo) (_ *tls.Certificate, err error) {
		p.shown, err = own(cfg, hello)
		return p.shown, err
	}
	hard.GetClientCertificate = func(req *tls.CertificateRequestInfo) (_ *tls.Certificate, err error) {
		if get := cfg.GetClientCertificate; get != nil {
			if p.shown, err = get(req); err != nil || p.shown != nil && len(p.shown.Certificate) > 0 {
				return p.shown, err
			}
		}
		p.shown, err = own(cfg, &tls.ClientHelloInfo{
			SupportedVersions: []uint16{req.Version}, SignatureSchemes: req.SignatureSchemes, SupportedProtos: hard.NextProtos,
		})
		return p.shown, err
	}
	hard.ClientAuth = tls.RequireAnyClientCert
	if hard.ClientCAs == nil {
		hard.ClientCAs = hard.RootCAs
	}
	// ClientCAs are now but the names that the request for a certificate has; verify takes
	// the roots from cfg.
	if nameBytes(hard.ClientCAs) > maxNames {
		hard.ClientCAs = nil
	}
	// Package tls would verify the dialled host's name. VerifyConnection verifies the
	// rest, and calls the user's functions with its chains.
	hard.InsecureSkipVerify, hard.VerifyPeerCertificate = true, nil
	hard.VerifyConnection = func(cs tls.ConnectionState) (err error) {
		p.peer, err = c.verify(cfg, cs, usage)
		return err
	}
	return hard
}

// maxNames bounds the names of authorities in a request for a certificate, in bytes. They are
// a hint for a GetClientCertificate that chooses among certificates by AcceptableCAs. The
// other side reads 32 KiB of a handshake at most, certificates included (package port), and a
// pool of some 280 authorities would fill them with names. Such a pool's names are not sent.
const maxNames = 12 << 10

// nameBytes returns the size of a pool's names in a request for a certificate.
func nameBytes(pool *x509.CertPool) (n int) {
	if pool == nil {
		return 0
	}
	//lint:ignore SA1019 package tls sends these names
	for _, name := range pool.Subjects() {
		n += 2 + len(name)
	}
	return n
}

// verify judges the other side of a connection. cfg is the user's configuration, and
// usage the purpose of the other side's certificate.
func (c *Certificates) verify(cfg *tls.Config, cs tls.ConnectionState, usage x509.ExtKeyUsage) (Identity, error) {
	if cs.NegotiatedProtocol != protocol || len(cs.PeerCertificates) == 0 {
		return Identity{}, refuse(otherSecurity)
	}
	if n := len(cs.PeerCertificates); n > maxShown {
		return Identity{}, refuse(fmt.Sprintf("shows %d certificates, and at most %d are looked at", n, maxShown))
	}
	leaf := cs.PeerCertificates[0]
	if unverified(cfg) { // GetConfigForClient may return another configuration
		return Identity{}, refuse(errSkip.Error())
	}
	if !cfg.InsecureSkipVerify {
		roots := cfg.RootCAs
		if usage == x509.ExtKeyUsageClientAuth && cfg.ClientCAs != nil {
			roots = cfg.ClientCAs
		}
		if roots == nil {
			return Identity{}, refuse(errNoRoots.Error())
		}
		options := x509.VerifyOptions{
			Roots: roots, Intermediates: proven(roots, cs.PeerCertificates[1:], now(cfg)),
			CurrentTime: now(cfg), KeyUsages: []x509.ExtKeyUsage{usage},
		}
		if usage == x509.ExtKeyUsageServerAuth {
			options.DNSName = cfg.ServerName
		}
		chains, err := leaf.Verify(options)
		if err != nil {
			return Identity{}, &RefusedError{"shows a certificate that is not accepted here: " + err.Error(), err, false}
		}
		cs.VerifiedChains = chains
	}
	if cfg.VerifyPeerCertificate != nil {
		var raw [][]byte
		for _, cert := range cs.PeerCertificates {
			raw = append(raw, cert.Raw)
		}
		if err := cfg.VerifyPeerCertificate(raw, cs.VerifiedChains); err != nil {
			return Identity{}, &RefusedError{"refused by VerifyPeerCertificate: " + err.Error(), err, false}
		}
	}
	if cfg.VerifyConnection != nil {
		if err := cfg.VerifyConnection(cs); err != nil {
			return Identity{}, &RefusedError{"refused by VerifyConnection: " + err.Error(), err, false}
		}
	}
	return c.identity(cfg, leaf, cs.VerifiedChains)
}

// identity returns the identity of a verified certificate. The dates of the certificate
// count in any case.
func (c *Certificates) identity(cfg *tls.Config, leaf *x509.Certificate, chains [][]*x509.Certificate) (Identity, error) {
	switch at := now(cfg); {
	case at.After(leaf.NotAfter):
		return Identity{}, refuse("its certificate was valid until " + leaf.NotAfter.Format(time.RFC3339))
	case at.Before(leaf.NotBefore):
		return Identity{}, refuse("its certificate is valid only from " + leaf.NotBefore.Format(time.RFC3339) + " on")
	}
	name, voter, err := c.identify(leaf)
	if err != nil {
		return Identity{}, &RefusedError{err.Error(), err, false}
	}
	return Identity{Name: name, Voter: voter, Until: until(leaf, chains)}, nil
}

func now(cfg *tls.Config) time.Time {
	if cfg.Time != nil {
		return cfg.Time()
	}
	return time.Now()
}

// until returns the end of a certificate: of the chain with the latest end.
func until(leaf *x509.Certificate, chains [][]*x509.Certificate) time.Time {
	var last time.Time
	for _, chain := range chains {
		end := leaf.NotAfter
		for _, cert := range chain {
			if cert.NotAfter.Before(end) {
				end = cert.NotAfter
			}
		}
		if end.After(last) {
			last = end
		}
	}
	if len(chains) == 0 {
		return leaf.NotAfter
	}
	return last
}

// Server does the accepting side's half of a handshake.
func (c *Certificates) Server(ctx context.Context, raw net.Conn) (net.Conn, Identity, error) {
	var p proof
	cfg := c.harden(c.user, &p, x509.ExtKeyUsageClientAuth)
	if get := c.user.GetConfigForClient; get != nil {
		cfg.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			other, err := get(hello)
			if other == nil || err != nil {
				return nil, err
			}
			return c.harden(other, &p, x509.ExtKeyUsageClientAuth), nil
		}
	}
	return p.shake(ctx, tls.Server(raw, cfg), func(err error) error {
		if strings.HasPrefix(err.Error(), unsupportedProtocols) {
			return &RefusedError{otherSecurity, err, false}
		}
		return Explain(err)
	})
}

// Client does the dialling side's half of a handshake.
func (c *Certificates) Client(ctx context.Context, raw net.Conn) (net.Conn, Identity, error) {
	var p proof
	return p.shake(ctx, tls.Client(raw, c.harden(c.user, &p, x509.ExtKeyUsageServerAuth)), explainTo)
}

func (p *proof) shake(ctx context.Context, conn *tls.Conn, explain func(error) error) (net.Conn, Identity, error) {
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, Identity{}, explain(err)
	}
	id := p.peer
	// A connection is as old as its older proof, and the other side ends it by the
	// certificate shown here.
	if p.shown == nil {
		return nil, Identity{}, refuse("demands no certificate") // and so would serve anybody
	}
	if leaf, err := leafOf(p.shown); err == nil && leaf.NotAfter.Before(id.Until) {
		id.Until = leaf.NotAfter
	}
	return conn, id, nil
}
