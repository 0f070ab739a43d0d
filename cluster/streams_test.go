package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"net/url"
	"testing"
	"time"
)

// pki makes certificates of members under one CA.
type pki struct {
	t    *testing.T
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newPKI(t *testing.T) *pki {
	p := &pki{t: t}
	p.key, p.cert, _ = p.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	return p
}

// sign signs a certificate by the CA, or by itself for the CA.
func (p *pki) sign(c *x509.Certificate) (*ecdsa.PrivateKey, *x509.Certificate, []byte) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		p.t.Fatal(err)
	}
	c.SerialNumber = big.NewInt(time.Now().UnixNano())
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(100*time.Hour)
	parent, signer := c, key
	if p.cert != nil {
		parent, signer = p.cert, p.key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		p.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		p.t.Fatal(err)
	}
	return key, cert, der
}

// config returns the TLS configuration of the member of a name at an address.
func (p *pki) config(name, ip string) *tls.Config {
	key, _, der := p.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.ParseIP(ip)},
		URIs:        []*url.URL{{Scheme: "wardmote", Host: "test", Path: "/" + name}},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	roots := x509.NewCertPool()
	roots.AddCert(p.cert)
	return &tls.Config{RootCAs: roots, ClientCAs: roots, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
}

// Under certificates alone no gossip travels by UDP, and members find each other, and
// miss each other, as they do by UDP.
func TestUnderTLSAloneGossipTravelsInStreams(t *testing.T) {
	inBubble(t, func(b *bubble) {
		p, record := newPKI(t), &tape{}
		under := func(c *Config) {
			c.Security.TLS = p.config(c.Name, b.host(c.Name))
			c.Network = taped{c.Network, record}
		}
		nodes := b.form(under)
		token, _ := b.hold(nodes[0], 1, "key")
		stop := b.beat(nodes[0], 1)
		b.join("n4", under, thin)
		time.Sleep(30 * time.Second)
		for name, n := range b.nodes {
			if got := len(n.Members()); got != 4 {
				t.Errorf("%s sees %d members", name, got)
			}
		}
		b.crash("n4")
		b.eventually("n4 is missed", time.Minute, func() bool { return len(nodes[0].Members()) == 3 })
		if err := stop(); err != nil || token == 0 {
			t.Errorf("token %d, beats: %v", token, err)
		}
		if n := len(record.packets); n > 0 {
			t.Errorf("%d packets by UDP", n)
		}
	})
}
