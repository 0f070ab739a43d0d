package auth

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"math/big"
	"net"
	"net/url"
	"testing"
	"time"
)

// outcome is the result of one handshake at both sides.
type outcome struct {
	server, client         Identity
	serverErr, clientErr   error
	serverConn, clientConn net.Conn
}

// ok reports whether both sides have accepted each other.
func (o outcome) ok() bool { return o.serverErr == nil && o.clientErr == nil }

// meet connects two methods over loopback. As a port does, the dialling side reads an
// answer before it believes in the connection.
func meet(t testing.TB, server, client Method) (o outcome) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		raw, err := l.Accept()
		if err != nil {
			o.serverErr = err
			return
		}
		o.serverConn, o.server, o.serverErr = server.Server(ctx, raw)
		if o.serverErr != nil {
			_ = raw.(*net.TCPConn).CloseWrite()
			_, _ = io.Copy(io.Discard, raw) // a reset could overtake the alert
			_ = raw.Close()
			return
		}
		_, _ = o.serverConn.Write([]byte("y"))
	}()
	raw, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	o.clientConn, o.client, o.clientErr = client.Client(ctx, raw)
	if o.clientErr == nil {
		_, _ = o.clientConn.Write(make([]byte, 60))
		var b [1]byte
		_, err := io.ReadFull(o.clientConn, b[:])
		o.clientErr = Explain(err)
	}
	if o.clientErr != nil {
		_ = raw.Close()
	}
	<-done
	t.Cleanup(func() {
		_ = raw.Close()
		if o.serverConn != nil {
			_ = o.serverConn.Close()
		}
	})
	return o
}

// authority is a CA of the user's.
type authority struct {
	t     testing.TB
	cert  *x509.Certificate
	key   *ecdsa.PrivateKey
	roots *x509.CertPool
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(100 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, _ := x509.ParseCertificate(der)
	roots := x509.NewCertPool()
	roots.AddCert(cert)
	return &authority{t, cert, key, roots}
}

// issue returns a certificate for both sides, with a URI; "": without.
func (a *authority) issue(uri string, change ...func(*x509.Certificate)) tls.Certificate {
	a.t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames:    []string{"wardmote.example.com"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if uri != "" {
		u, err := url.Parse(uri)
		if err != nil {
			a.t.Fatal(err)
		}
		template.URIs = []*url.URL{u}
	}
	for _, c := range change {
		c(template)
	}
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// member returns the Method of a member with a certificate of the URI.
func (a *authority) member(uri string, change ...func(*tls.Config)) *Certificates {
	a.t.Helper()
	return a.certificates(&tls.Config{RootCAs: a.roots, Certificates: []tls.Certificate{a.issue(uri)}}, change...)
}

func (a *authority) certificates(cfg *tls.Config, change ...func(*tls.Config)) *Certificates {
	a.t.Helper()
	for _, c := range change {
		c(cfg)
	}
	m, err := NewCertificates(cfg, byURI)
	if err != nil {
		a.t.Fatal(err)
	}
	return m
}

func byURI(leaf *x509.Certificate) (string, bool, error) { return NameAndRole(leaf, "test") }

// rawClient dials with a configuration of its own, as a program of another kind.
type rawClient struct{ cfg *tls.Config }

func (r rawClient) Client(ctx context.Context, raw net.Conn) (net.Conn, Identity, error) {
	c := tls.Client(raw, r.cfg)
	err := c.HandshakeContext(ctx)
	return c, Identity{}, err
}

func (r rawClient) Server(ctx context.Context, raw net.Conn) (net.Conn, Identity, error) {
	c := tls.Server(raw, r.cfg)
	err := c.HandshakeContext(ctx)
	return c, Identity{}, err
}

// show shows one certificate, whichever CAs are asked for.
func show(cert tls.Certificate) func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	return func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil }
}
