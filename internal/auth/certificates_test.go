package auth

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync/atomic"
	"testing"
	"time"
)

func TestCertificateProvesNameAndRole(t *testing.T) {
	ca := newAuthority(t)
	o := meet(t, ca.member("wardmote://test/n1"), ca.member("wardmote://test/n2?role=member"))
	if !o.ok() {
		t.Fatal(o.serverErr, o.clientErr)
	}
	if o.client.Name != "n1" || !o.client.Voter || o.server.Name != "n2" || o.server.Voter || o.server.Boot != 0 {
		t.Errorf("%+v, %+v", o.client, o.server)
	}
	if d := time.Until(o.client.Until); d < 59*time.Minute || d > time.Hour {
		t.Errorf("the proof ends in %v", d)
	}
}

func TestNameAndRole(t *testing.T) {
	ca := newAuthority(t)
	for uri, want := range map[string]string{
		"wardmote://test/n1":              "n1 true",
		"wardmote://test/n1?role=voter":   "n1 true",
		"wardmote://test/n1?role=member":  "n1 false",
		"wardmote://other/n1":             "",
		"spiffe://test/n1":                "",
		"wardmote://test":                 "",
		"wardmote://test/":                "",
		"wardmote://test/n1/1":            "",
		"wardmote://test/n1?role=admin":   "",
		"wardmote://test/n1?role=member&": "",
		"wardmote://me@test/n1":           "",
		"wardmote://test/n1#x":            "",
		"":                                "",
	} {
		leaf, err := x509.ParseCertificate(ca.issue(uri).Certificate[0])
		if err != nil {
			t.Fatal(uri, err)
		}
		name, voter, err := byURI(leaf)
		got := name + map[bool]string{true: " true", false: " false"}[voter]
		if err != nil {
			got = ""
		}
		if got != want {
			t.Errorf("%q is %q, want %q", uri, got, want)
		}
	}
	two := ca.issue("wardmote://test/n1", func(c *x509.Certificate) {
		c.URIs = append(c.URIs, &url.URL{Scheme: scheme, Host: "test", Path: "/n2"})
	})
	leaf, _ := x509.ParseCertificate(two.Certificate[0])
	if _, _, err := byURI(leaf); err == nil {
		t.Error("a certificate of two names is accepted")
	}
}

func TestCertificatesThatProveNothing(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	good := ours.member("wardmote://test/n1")
	with := func(cert tls.Certificate) *Certificates {
		return ours.certificates(&tls.Config{RootCAs: ours.roots, Certificates: []tls.Certificate{cert}})
	}
	for name, bad := range map[string]*Certificates{
		"foreign CA":      ours.certificates(&tls.Config{RootCAs: ours.roots, Certificates: []tls.Certificate{theirs.issue("wardmote://test/n1")}}),
		"expired":         with(ours.issue("wardmote://test/n2", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })),
		"not yet valid":   with(ours.issue("wardmote://test/n2", func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) })),
		"another service": with(ours.issue("")),
		"another cluster": ours.member("wardmote://other/n2"),
		"servers only":    with(ours.issue("wardmote://test/n2", func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[:1] })),
	} {
		o := meet(t, good, bad)
		if o.serverErr == nil {
			t.Errorf("%s: admitted as %+v", name, o.server)
		}
		wantReason(t, o.clientErr, "does not accept this member's certificate")
		if name == "servers only" {
			continue
		}
		o = meet(t, bad, good)
		if o.clientErr == nil {
			t.Errorf("%s: believed as %+v", name, o.client)
		}
	}
	// A program of another kind that holds a certificate of the CA.
	own := ours.issue("wardmote://test/n9")
	for name, cfg := range map[string]*tls.Config{
		"no protocol":    {InsecureSkipVerify: true, Certificates: []tls.Certificate{own}},
		"other protocol": {InsecureSkipVerify: true, Certificates: []tls.Certificate{own}, NextProtos: []string{"h2"}},
		"no certificate": {InsecureSkipVerify: true, NextProtos: []string{protocol}},
		"TLS 1.2":        {InsecureSkipVerify: true, NextProtos: []string{protocol}, Certificates: []tls.Certificate{own}, MaxVersion: tls.VersionTLS12},
	} {
		if o := meet(t, good, rawClient{cfg}); o.serverErr == nil {
			t.Errorf("%s: admitted", name)
		}
	}
	for name, cfg := range map[string]*tls.Config{
		"no demand":   {NextProtos: []string{protocol}, Certificates: []tls.Certificate{own}},
		"no protocol": {Certificates: []tls.Certificate{own}, ClientAuth: tls.RequestClientCert},
	} {
		if o := meet(t, rawClient{cfg}, good); o.clientErr == nil {
			t.Errorf("%s: believed", name)
		}
	}
}

func TestConfigurationsThatVerifyNobody(t *testing.T) {
	ca := newAuthority(t)
	certs := []tls.Certificate{ca.issue("wardmote://test/n1")}
	for want, cfg := range map[error]*tls.Config{
		errNoCertificate: {RootCAs: ca.roots},
		errNoRoots:       {Certificates: certs},
		errEmptyRoots:    {Certificates: certs, RootCAs: x509.NewCertPool()},
		errSkip:          {Certificates: certs, RootCAs: ca.roots, InsecureSkipVerify: true},
	} {
		if _, err := NewCertificates(cfg, byURI); !errors.Is(err, want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	// The same out of GetConfigForClient.
	lax := ca.member("wardmote://test/n1", func(c *tls.Config) {
		c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return &tls.Config{Certificates: certs, InsecureSkipVerify: true}, nil
		}
	})
	if o := meet(t, lax, ca.member("wardmote://test/n2")); o.serverErr == nil {
		t.Error("a configuration for one client verifies nobody")
	}
}

// counting counts the bytes that a handshake of the dialling side reads.
type counting struct {
	Method
	read *atomic.Int64
}

func (c counting) Client(ctx context.Context, raw net.Conn) (net.Conn, Identity, error) {
	return c.Method.Client(ctx, countingConn{raw, c.read})
}

type countingConn struct {
	net.Conn
	read *atomic.Int64
}

func (c countingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.read.Add(int64(n))
	return n, err
}

// The names of however many authorities leave a handshake room for its certificates, and a
// pool of usual size has its names told.
func TestManyAuthoritiesFitAHandshake(t *testing.T) {
	ca := newAuthority(t)
	key := p256()
	pools := make(map[int]*x509.CertPool)
	many := ca.roots.Clone()
	for i := range 600 {
		if i == 40 {
			pools[i+1] = many.Clone()
		}
		many.AddCert(below(t, nil, fmt.Sprintf("authority %0100d", i), key).cert)
	}
	pools[601] = many
	for n, pool := range pools {
		for _, change := range map[string]func(*tls.Config){
			"ClientCAs": func(c *tls.Config) { c.ClientCAs = pool },
			"RootCAs":   func(c *tls.Config) { c.RootCAs = pool },
			"GetConfigForClient": func(c *tls.Config) {
				other := c.Clone()
				other.ClientCAs = pool
				c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return other, nil }
			},
		} {
			told := 0
			server := ca.member("wardmote://test/n1", change)
			client := counting{ca.member("wardmote://test/n2", func(c *tls.Config) {
				cert := &c.Certificates[0]
				c.GetClientCertificate = func(req *tls.CertificateRequestInfo) (*tls.Certificate, error) {
					told = len(req.AcceptableCAs)
					return cert, nil
				}
			}), new(atomic.Int64)}
			if o := meet(t, server, client); !o.ok() {
				t.Fatal(o.serverErr, o.clientErr)
			}
			if read := client.read.Load(); read > 16<<10 {
				t.Errorf("with %d authorities a handshake has %d bytes", n, read)
			}
			if want := map[int]int{41: 41, 601: 0}[n]; told != want {
				t.Errorf("of %d authorities %d are told, want %d", n, told, want)
			}
		}
	}
}

// The user's own verification is asked in any case, and alone with InsecureSkipVerify.
func TestUsersVerification(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	var asked, chains atomic.Int32
	verify := func(c *tls.Config) {
		c.VerifyConnection = func(cs tls.ConnectionState) error {
			asked.Add(1)
			chains.Add(int32(len(cs.VerifiedChains)))
			return nil
		}
	}
	if o := meet(t, ours.member("wardmote://test/n1", verify), ours.member("wardmote://test/n2", verify)); !o.ok() {
		t.Fatal(o.serverErr, o.clientErr)
	}
	if asked.Load() != 2 || chains.Load() != 2 {
		t.Errorf("asked %d times with %d chains", asked.Load(), chains.Load())
	}
	skip := func(c *tls.Config) { c.InsecureSkipVerify = true }
	o := meet(t, ours.member("wardmote://test/n1", verify, skip), theirs.member("wardmote://test/n2", verify, skip))
	if !o.ok() || asked.Load() != 4 || chains.Load() != 2 {
		t.Error(o.serverErr, o.clientErr, asked.Load())
	}
	no := func(c *tls.Config) {
		c.VerifyPeerCertificate = func([][]byte, [][]*x509.Certificate) error { return errors.New("revoked") }
	}
	o = meet(t, ours.member("wardmote://test/n1", no), ours.member("wardmote://test/n2"))
	wantReason(t, o.serverErr, "revoked")
	o = meet(t, ours.member("wardmote://test/n1"), ours.member("wardmote://test/n2", no, skip))
	wantReason(t, o.clientErr, "revoked")
}

// Members are dialled by address, so host names count only if they are asked for.
func TestHostNamesCountIfAskedFor(t *testing.T) {
	ca := newAuthority(t)
	named := func(name string) func(*tls.Config) { return func(c *tls.Config) { c.ServerName = name } }
	server := ca.member("wardmote://test/n1")
	if o := meet(t, server, ca.member("wardmote://test/n2", named("wardmote.example.com"))); !o.ok() {
		t.Error(o.serverErr, o.clientErr)
	}
	o := meet(t, server, ca.member("wardmote://test/n2", named("other.example.com")))
	wantReason(t, o.clientErr, "other.example.com")
}

// A certificate is taken anew for each handshake, whichever function gives it, and
// one function is enough for both sides.
func TestReloadWithoutRestart(t *testing.T) {
	ca := newAuthority(t)
	var current atomic.Pointer[tls.Certificate]
	load := func(uri string) { cert := ca.issue(uri); current.Store(&cert) }
	for name, cfg := range map[string]*tls.Config{
		"GetCertificate":       {GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return current.Load(), nil }},
		"GetClientCertificate": {GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return current.Load(), nil }},
		"beside a list": {
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return current.Load(), nil },
			Certificates:   []tls.Certificate{ca.issue("wardmote://test/stale")},
		},
	} {
		cfg.RootCAs = ca.roots
		m, other := ca.certificates(cfg), ca.member("wardmote://test/n2")
		for _, want := range []string{"n1", "n1-again"} {
			load("wardmote://test/" + want)
			if o := meet(t, m, other); o.client.Name != want {
				t.Errorf("%s, accepting: %q, want %q (%v, %v)", name, o.client.Name, want, o.serverErr, o.clientErr)
			}
			if o := meet(t, other, m); o.server.Name != want {
				t.Errorf("%s, dialling: %q, want %q (%v, %v)", name, o.server.Name, want, o.serverErr, o.clientErr)
			}
			if own, err := m.Own(); err != nil || own.Name != want {
				t.Errorf("%s: own name %q, %v", name, own.Name, err)
			}
		}
	}
	// ClientCAs and certificates by GetConfigForClient.
	load("wardmote://test/n1")
	m := ca.member("wardmote://test/stale", func(c *tls.Config) {
		c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return &tls.Config{RootCAs: ca.roots, Certificates: []tls.Certificate{*current.Load()}}, nil
		}
	})
	if o := meet(t, m, ca.member("wardmote://test/n2")); o.client.Name != "n1" {
		t.Error(o.client, o.serverErr, o.clientErr)
	}
}

// A proof ends with the first certificate of either side.
func TestProofEndsWithEitherCertificate(t *testing.T) {
	ca := newAuthority(t)
	end := time.Now().Add(10 * time.Minute)
	short := ca.certificates(&tls.Config{RootCAs: ca.roots, Certificates: []tls.Certificate{
		ca.issue("wardmote://test/n1", func(c *x509.Certificate) { c.NotAfter = end })}})
	long := ca.member("wardmote://test/n2")
	for _, o := range []outcome{meet(t, short, long), meet(t, long, short)} {
		for _, id := range []Identity{o.server, o.client} {
			if d := end.Sub(id.Until); !o.ok() || d < 0 || d > time.Second {
				t.Errorf("%v, %v: %v", o.serverErr, o.clientErr, id.Until)
			}
		}
	}
}

func TestOwnCertificateIsJudged(t *testing.T) {
	ca := newAuthority(t)
	if id, err := ca.member("wardmote://test/n1?role=member").Own(); err != nil || id.Name != "n1" || id.Voter {
		t.Error(id, err)
	}
	for _, cert := range []tls.Certificate{ca.issue(""), ca.issue("wardmote://test/n1", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })} {
		if id, err := ca.certificates(&tls.Config{RootCAs: ca.roots, Certificates: []tls.Certificate{cert}}).Own(); err == nil {
			t.Error(id)
		}
	}
}

func TestCertificatesResumeNothing(t *testing.T) {
	ca := newAuthority(t)
	cache := func(c *tls.Config) {
		c.ClientSessionCache, c.ServerName = tls.NewLRUClientSessionCache(4), "wardmote.example.com"
	}
	client := ca.member("wardmote://test/n2", cache)
	server := ca.member("wardmote://test/n1", func(c *tls.Config) { c.SetSessionTicketKeys([][32]byte{{1}}) })
	stranger := rawClient{client.user.Clone()}
	stranger.cfg.NextProtos = []string{protocol}
	for range 2 {
		for _, c := range []Method{client, stranger} {
			o := meet(t, server, c)
			if !o.ok() {
				t.Fatal(o.serverErr, o.clientErr)
			}
			if o.clientConn.(*tls.Conn).ConnectionState().DidResume {
				t.Error("resumed")
			}
		}
	}
}

// A stream can be bound to proofs whatever the user's configuration says: package tls exports
// no key where renegotiation is allowed.
func TestEveryStreamCanBeBound(t *testing.T) {
	ca := newAuthority(t)
	renegotiate := func(c *tls.Config) { c.Renegotiation = tls.RenegotiateFreelyAsClient }
	o := meet(t, ca.member("wardmote://test/n1", renegotiate), ca.member("wardmote://test/n2", renegotiate))
	if !o.ok() {
		t.Fatal(o.serverErr, o.clientErr)
	}
	var keys [2][]byte
	for i, c := range []net.Conn{o.serverConn, o.clientConn} {
		cs := c.(*tls.Conn).ConnectionState()
		var err error
		if keys[i], err = cs.ExportKeyingMaterial("test", nil, 32); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(keys[0], keys[1]) {
		t.Error("both ends export other keys")
	}
}
