package port

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"testing"
	"time"
)

// certified returns a TLS configuration for hosts at the test's addresses. The
// configuration trusts only its own certificate.
func certified(t *testing.T) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "wardmote"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(10, 0, 0, 1), net.IPv4(10, 0, 0, 2)},
		IsCA:        true, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(cert)
	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
}

func TestTLSIsMutual(t *testing.T) {
	everywhere(t, func(t *testing.T, w world) {
		ours, theirs := certified(t), certified(t)
		with := func(cfg *tls.Config) func(*Config) { return func(c *Config) { c.TLS = cfg } }
		b := w.open(t, 2, with(ours))
		defer b.Close()
		reached := make(chan *Conn, 9)
		b.Handle(KindRaft, func(c *Conn) { reached <- c; echo(c) })
		b.Serve()

		a := w.open(t, 1, with(ours))
		defer a.Close()
		c, err := a.Dial(t.Context(), b.Addr(), KindRaft, Peer{"m2", 0})
		if err != nil {
			t.Fatal(err)
		}
		check(t, talk(c))
		state := c.Conn.(*tls.Conn).ConnectionState()
		if s := (<-reached).Conn.(*tls.Conn).ConnectionState(); state.Version != tls.VersionTLS13 || len(s.PeerCertificates) != 1 {
			t.Errorf("version %x, %d certificates", state.Version, len(s.PeerCertificates))
		}
		check(t, c.Close())

		for name, cfg := range map[string]*tls.Config{
			"plain":          nil,
			"no certificate": {RootCAs: ours.RootCAs},
			"other CA":       {RootCAs: ours.RootCAs, Certificates: theirs.Certificates},
			"distrust":       theirs,
			"TLS 1.2":        {RootCAs: ours.RootCAs, Certificates: ours.Certificates, MaxVersion: tls.VersionTLS12},
		} {
			x := w.open(t, 1, with(cfg))
			if name == "TLS 1.2" { // as a program of another kind would
				x.clientTLS = cfg.Clone()
			}
			if c, err := x.Dial(t.Context(), b.Addr(), KindRaft, Peer{}); err == nil {
				_ = c.Close()
				t.Errorf("%s: admitted", name)
			}
			check(t, x.Close())
		}
		if len(reached) != 0 {
			t.Error("a handler saw a connection that TLS refuses")
		}
	})
}
