package auth

import (
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// The accepting side takes its own first secret that is named, and whatever is named,
// no configuration lets a stranger in.
func FuzzALPN(f *testing.F) {
	r := keyring(f, "n1", 1, newSecret, oldSecret)
	ring := r.ring.Load()
	first, second := ring.keys[0].proto, ring.keys[1].proto
	list := func(protos ...string) (b []byte) {
		for _, p := range protos {
			b = append(append(b, byte(len(p))), p...)
		}
		return b
	}
	f.Add(list())
	f.Add(list(second, first))
	f.Add(list("h2", second))
	f.Add(list("wm/", strings.ToUpper(first), first+"\x00", "wardmote/1"))
	f.Add([]byte("\xffwm/"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var named []string
		for len(b) > 0 {
			n := min(int(b[0]), len(b)-1)
			named, b = append(named, string(b[1:1+n])), b[1+n:]
		}
		cfg, err := ring.server.GetConfigForClient(&tls.ClientHelloInfo{SupportedProtos: named})
		if len(named) == 0 {
			if err == nil {
				t.Error("no protocol is enough")
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		want := ring.keys[0]
		if !slices.Contains(named, first) && slices.Contains(named, second) {
			want = ring.keys[1]
		}
		if cfg != want.server {
			t.Errorf("%q: configuration for %q", named, cfg.NextProtos)
		}
		if cfg.ClientAuth != tls.RequireAnyClientCert || cfg.VerifyConnection == nil || cfg.MinVersion != tls.VersionTLS13 {
			t.Error("a configuration that verifies nobody")
		}
		for _, p := range append(named, "") {
			for _, certs := range [][]*x509.Certificate{nil, {want.ca}} {
				cs := tls.ConnectionState{NegotiatedProtocol: p, PeerCertificates: certs}
				if cfg.VerifyConnection(cs) == nil || ring.client.VerifyConnection(cs) == nil {
					t.Errorf("%q: believed without a certificate of a process", p)
				}
			}
		}
	})
}

// A certificate is believed only if it is signed by the right authority and names one
// process, or one name and role, of this cluster.
func FuzzCertificate(f *testing.F) {
	k := keyring(f, "n1", 1, oldSecret).ring.Load().keys[0]
	pki := newAuthority(f)
	c := pki.member("wardmote://test/n1")
	f.Add(k.leaf.Certificate[0], k.leaf.Leaf.URIs[0].String())
	f.Add(k.ca.Raw, "wardmote://other/n1/1")
	f.Add(k.leaf.Certificate[0], k.uri(process{"test", "n1", 0}).String())
	f.Add(k.leaf.Certificate[0], "wardmote:00")
	f.Add(pki.issue("wardmote://test/n1").Certificate[0], "wardmote://test/n1?role=member")
	f.Add(append(pki.issue("wardmote://test/n1").Certificate[0], pki.cert.Raw...), "wardmote://u@test/n1?role=voter#x")
	f.Add(newAuthority(f).issue("wardmote://test/n1").Certificate[0], "wardmote://test/a%2fb/ffffffffffffffff")
	f.Fuzz(func(t *testing.T, der []byte, uri string) {
		if u, err := url.Parse(uri); err == nil {
			named(t, k, &x509.Certificate{URIs: []*url.URL{u}})
		}
		chain, err := x509.ParseCertificates(der)
		if err != nil || len(chain) == 0 {
			return
		}
		leaf := chain[0]
		named(t, k, leaf)
		if k.verify(tls.ConnectionState{NegotiatedProtocol: k.proto, PeerCertificates: chain}, "test") == nil {
			if !ed25519.Verify(k.ca.PublicKey.(ed25519.PublicKey), leaf.RawTBSCertificate, leaf.Signature) {
				t.Error("believed without the secret's signature")
			}
			if _, err := k.processOf(leaf, "test"); err != nil {
				t.Error("believed without a process")
			}
		}
		for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth} {
			id, err := c.verify(c.user, tls.ConnectionState{NegotiatedProtocol: protocol, PeerCertificates: chain}, usage)
			if err != nil {
				continue
			}
			// The fuzzer owns no key: the chain has the true authority's signature.
			if id.Name == "" || id.Until.IsZero() || !slices.ContainsFunc(append(chain, pki.cert), func(parent *x509.Certificate) bool {
				return parent.Equal(pki.cert) && leaf.CheckSignatureFrom(parent) == nil
			}) {
				t.Errorf("believed as %+v", id)
			}
		}
	})
}

// named checks the names that both methods find in a certificate.
func named(t *testing.T, k *key, leaf *x509.Certificate) {
	t.Helper()
	if p, err := k.processOf(leaf, "test"); err == nil {
		again, err := k.processOf(&x509.Certificate{URIs: []*url.URL{k.uri(p)}}, "test")
		if err != nil || again != p || p.name == "" || p.boot == 0 {
			t.Errorf("%v names the process %+v, and that is %+v, %v", leaf.URIs, p, again, err)
		}
	}
	if name, voter, err := NameAndRole(leaf, "test"); err == nil {
		if name == "" || strings.Contains(name, "/") {
			t.Errorf("%v has the name %q", leaf.URIs, name)
		}
		for _, u := range leaf.URIs {
			if voter && u.Host == "test" && strings.Contains(u.RawQuery, "member") {
				t.Errorf("%v is a voter's", leaf.URIs)
			}
		}
	}
}
