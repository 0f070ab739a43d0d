package auth

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"strings"
	"testing"
	"time"
)

// link is a certificate of a chain, with its key.
type link struct {
	cert *x509.Certificate
	key  crypto.Signer
}

var serial int64

// below returns a certificate of the subject under the issuer; nil: signed by its own key.
func below(t testing.TB, issuer *link, subject string, key crypto.Signer, change ...func(*x509.Certificate)) *link {
	t.Helper()
	serial++
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: subject}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	for _, c := range change {
		c(template)
	}
	if issuer == nil {
		issuer = &link{template, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, issuer.cert, key.Public(), issuer.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &link{cert, key}
}

// chain returns what a side shows: the leaf, and the certificates above it.
func chain(leaf *link, above ...*link) tls.Certificate {
	c := tls.Certificate{Certificate: [][]byte{leaf.cert.Raw}, PrivateKey: leaf.key}
	for _, l := range above {
		c.Certificate = append(c.Certificate, l.cert.Raw)
	}
	return c
}

func p256() crypto.Signer {
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	return key
}

func alsoNamed(n int) func(*x509.Certificate) {
	return func(c *x509.Certificate) { c.DNSNames = []string{fmt.Sprint("n", n)} }
}

// leafOfMember makes the template that of a member's certificate.
func leafOfMember(name string) func(*x509.Certificate) {
	return func(c *x509.Certificate) {
		c.IsCA = false
		c.URIs = []*url.URL{{Scheme: scheme, Host: "test", Path: "/" + name}}
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	}
}

// Seven certificates of one subject and one key are seven parents for each other: x509
// alone gives up after 100 signatures.
func TestNoSignatureIsCheckedUnderAStrangersKey(t *testing.T) {
	ca := newAuthority(t)
	good := ca.member("wardmote://test/n1")
	key := p256()
	evil := below(t, nil, "evil", key)
	crowd := []*link{evil}
	for i := range maxShown - 2 {
		crowd = append(crowd, below(t, evil, "evil", key, alsoNamed(i)))
	}
	leaf := below(t, evil, "", p256(), leafOfMember("n2"))
	shown := make([]*x509.Certificate, 0, len(crowd))
	for _, l := range crowd {
		shown = append(shown, l.cert)
	}
	if pool := proven(ca.roots, shown, time.Now()); !pool.Equal(x509.NewCertPool()) {
		t.Error("a stranger's certificate passes for an intermediate one")
	}
	cfg := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}, MinVersion: tls.VersionTLS13, ClientAuth: tls.RequestClientCert}
	cert := chain(leaf, crowd...)
	cfg.Certificates, cfg.GetClientCertificate = []tls.Certificate{cert}, show(cert)
	o := meet(t, good, rawClient{cfg})
	refusedCheaply(t, o.serverErr)
	o = meet(t, rawClient{cfg}, good)
	refusedCheaply(t, o.clientErr)
}

// refusedCheaply checks that err is a refusal, before x509 has tried all the signatures
// that it tries at most.
func refusedCheaply(t *testing.T, err error) {
	t.Helper()
	if _, ok := errors.AsType[*RefusedError](err); !ok || strings.Contains(err.Error(), "limit") {
		t.Errorf("refused with %v", err)
	}
}

// More certificates than maxShown are not looked at, by neither side.
func TestACrowdOfCertificatesIsRefused(t *testing.T) {
	ca := newAuthority(t)
	good := ca.member("wardmote://test/n1")
	for n, want := range map[int]string{maxShown: "", maxShown + 1: fmt.Sprintf("shows %d certificates, and at most %d", maxShown+1, maxShown)} {
		cert := ca.issue("wardmote://test/n2")
		for len(cert.Certificate) < n {
			cert.Certificate = append(cert.Certificate, below(t, nil, "x", p256()).cert.Raw)
		}
		other := ca.certificates(&tls.Config{RootCAs: ca.roots, Certificates: []tls.Certificate{cert}})
		o, back := meet(t, good, other), meet(t, other, good)
		if want == "" {
			if !o.ok() || !back.ok() {
				t.Errorf("%d certificates: %v, %v", n, o.serverErr, back.clientErr)
			}
			continue
		}
		wantReason(t, o.serverErr, want)
		wantReason(t, back.clientErr, want)
	}
}

// Chains of a user's authorities pass, whatever their order.
func TestALongChainOfTheUsersPasses(t *testing.T) {
	keys := make([]crypto.Signer, 4)
	for i := range keys {
		keys[i] = p256()
		if i == 1 { // one of them is as large as any in use; more would be slow to make
			key, err := rsa.GenerateKey(rand.Reader, 4096)
			if err != nil {
				t.Fatal(err)
			}
			keys[i] = key
		}
	}
	root := below(t, nil, "root", p256())
	roots := x509.NewCertPool()
	roots.AddCert(root.cert)
	one := below(t, root, "one", keys[0])
	two := below(t, one, "two", keys[1])
	three := below(t, two, "three", keys[2])
	other := below(t, root, "other", keys[3])
	crossed := below(t, other, "one", keys[0]) // the same authority below another one
	leaf := below(t, three, "", p256(), leafOfMember("n2"))
	good := &Certificates{identify: byURI, user: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{chain(below(t, root, "", p256(), leafOfMember("n1")))}}}
	for name, above := range map[string][]*link{
		"in order":       {three, two, one},
		"with the root":  {three, two, one, root},
		"from above":     {one, two, three},
		"cross-signed":   {three, two, crossed, other, one},
		"twice the same": {three, three, two, one, one},
	} {
		member := &Certificates{identify: byURI, user: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{chain(leaf, above...)}}}
		if o := meet(t, good, member); !o.ok() || o.server.Name != "n2" {
			t.Errorf("%s: %v, %v", name, o.serverErr, o.clientErr)
		}
		if o := meet(t, member, good); !o.ok() || o.client.Name != "n2" {
			t.Errorf("%s, accepting: %v, %v", name, o.serverErr, o.clientErr)
		}
	}
	for name, above := range map[string][]*link{"a gap": {three, one}, "nothing": nil, "a leaf for an authority": {below(t, two, "three", keys[2], leafOfMember("n3")), two, one}} {
		member := &Certificates{identify: byURI, user: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{chain(leaf, above...)}}}
		if o := meet(t, good, member); o.serverErr == nil {
			t.Errorf("%s: admitted", name)
		}
	}
}
