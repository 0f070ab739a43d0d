package auth

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
)

var (
	oldSecret = bytes.Repeat([]byte("old secret, 1234"), 2)
	newSecret = bytes.Repeat([]byte("new secret, 5678"), 2)
)

func keyring(t testing.TB, name string, boot uint64, secrets ...[]byte) *Keyring {
	t.Helper()
	r, err := NewKeyring("test", name, boot, secrets...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func wantReason(t *testing.T, err error, want string) {
	t.Helper()
	var no *RefusedError
	if !errors.As(err, &no) || !strings.Contains(no.Reason, want) {
		t.Errorf("refusal %q wanted, got %v", want, err)
	}
}

func TestSecretProvesNameAndBoot(t *testing.T) {
	for _, name := range []string{"n1", "a.b_c-D", "..", "with space/and slash", "ü"} {
		a, b := keyring(t, name, 7, oldSecret), keyring(t, "n2", 1<<63, oldSecret)
		o := meet(t, a, b)
		if !o.ok() {
			t.Fatal(name, o.serverErr, o.clientErr)
		}
		id := a.IDs()[0]
		if want := (Identity{Name: name, Boot: 7, Voter: true, Key: id}); o.client != want {
			t.Errorf("the dialling side learns %+v, want %+v", o.client, want)
		}
		if want := (Identity{Name: "n2", Boot: 1 << 63, Voter: true, Key: id}); o.server != want {
			t.Errorf("the accepting side learns %+v, want %+v", o.server, want)
		}
	}
}

func TestNoCommonSecret(t *testing.T) {
	o := meet(t, keyring(t, "n1", 1, oldSecret), keyring(t, "n2", 2, newSecret))
	wantReason(t, o.serverErr, noCommonSecret)
	wantReason(t, o.clientErr, noCommonSecret)
}

// One secret serves several clusters, and a member of one proves nothing to another.
func TestOtherClusterUnderTheSameSecret(t *testing.T) {
	other, err := NewKeyring("other", "n2", 2, oldSecret)
	if err != nil {
		t.Fatal(err)
	}
	o := meet(t, keyring(t, "n1", 1, oldSecret), other)
	wantReason(t, o.serverErr, noCommonSecret)
	wantReason(t, o.clientErr, noCommonSecret)
	if slices.Equal(keyring(t, "n1", 1, oldSecret).GossipKeys()[0], other.GossipKeys()[0]) {
		t.Error("the clusters share a key of gossip")
	}
}

// The cluster's name stands in the certificate too, not in the derivation alone.
func TestCertificateIsBoundToTheCluster(t *testing.T) {
	k, err := newKey(oldSecret, process{"test", "n1", 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.processOf(k.leaf.Leaf, "other"); err == nil {
		t.Error("a certificate of another cluster is accepted")
	}
}

// The accepting side shows its certificate to everybody who has read the key's ID on
// the path.
func TestCertificateTellsNothingWithoutTheSecret(t *testing.T) {
	r, err := NewKeyring("payroll", "blackbird", 1, oldSecret)
	if err != nil {
		t.Fatal(err)
	}
	shown := false
	meet(t, r, rawClient{&tls.Config{NextProtos: []string{r.ring.Load().keys[0].proto}, InsecureSkipVerify: true,
		VerifyConnection: func(cs tls.ConnectionState) error {
			shown = true
			for _, cert := range cs.PeerCertificates {
				for _, word := range []string{"payroll", "blackbird", hex.EncodeToString([]byte("payroll")), hex.EncodeToString([]byte("blackbird"))} {
					if bytes.Contains(cert.Raw, []byte(word)) {
						t.Errorf("the certificate tells %s", word)
					}
				}
			}
			return nil
		}}})
	if !shown {
		t.Error("no certificate to look at")
	}
}

// Every state through which a secret is replaced, on a member at a time.
func TestRotation(t *testing.T) {
	states := [][][]byte{{oldSecret}, {oldSecret, newSecret}, {newSecret, oldSecret}, {newSecret}}
	for i, server := range states {
		for j, client := range states {
			s, c := keyring(t, "n1", 1, server...), keyring(t, "n2", 2, client...)
			o := meet(t, s, c)
			if far := max(i, j)-min(i, j) == 3; far { // one has only the old, one only the new secret
				wantReason(t, o.serverErr, noCommonSecret)
				wantReason(t, o.clientErr, noCommonSecret)
				continue
			}
			if !o.ok() {
				t.Errorf("states %d and %d: %v, %v", i, j, o.serverErr, o.clientErr)
				continue
			}
			want := s.IDs()[slices.IndexFunc(s.IDs(), func(id KeyID) bool { return slices.Contains(c.IDs(), id) })]
			if o.server.Key != want || o.client.Key != want {
				t.Errorf("states %d and %d: keys %v and %v, want the accepting side's first common one, %v", i, j, o.server.Key, o.client.Key, want)
			}
		}
	}
}

func TestSetKeepsCertificatesAndWakes(t *testing.T) {
	r := keyring(t, "n1", 1, oldSecret)
	changed, leaf, id := r.Changed(), r.ring.Load().keys[0].leaf, r.IDs()[0]
	if err := r.Set(newSecret, oldSecret); err != nil {
		t.Fatal(err)
	}
	select {
	case <-changed:
	default:
		t.Error("Set has told nobody")
	}
	if ids := r.IDs(); len(ids) != 2 || ids[1] != id || r.ring.Load().keys[1].leaf != leaf || len(r.GossipKeys()) != 2 {
		t.Errorf("after Set: %v", ids)
	}
	if r.Set() == nil || len(r.IDs()) != 2 {
		t.Error("an empty Set has removed the secrets")
	}
}

func TestSetDuringHandshakes(t *testing.T) {
	s, c := keyring(t, "n1", 1, oldSecret, newSecret), keyring(t, "n2", 2, newSecret, oldSecret)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 4 {
				if o := meet(t, s, c); !o.ok() {
					t.Errorf("%v, %v", o.serverErr, o.clientErr)
				}
			}
		})
		if err := errors.Join(s.Set(oldSecret, newSecret), c.Set(newSecret, oldSecret)); err != nil || len(s.IDs()) != 2 {
			t.Error(i, err)
		}
	}
	wg.Wait()
}

// A stranger knows the key's ID, which is seen on the path, and nothing else.
func TestStrangersWithTheKeyID(t *testing.T) {
	r := keyring(t, "n1", 1, oldSecret)
	proto := r.ring.Load().keys[0].proto
	pki := newAuthority(t)
	foreign := pki.issue("wardmote://test/n1/1")
	// The stranger's CA has the name of the true one.
	public, private, _ := ed25519.GenerateKey(rand.Reader)
	ca := *r.ring.Load().keys[0].ca
	ca.PublicKey = public
	forged, err := issue(&x509.Certificate{URIs: []*url.URL{r.ring.Load().keys[0].uri(process{"test", "n1", 1})}}, &ca, public, private)
	if err != nil {
		t.Fatal(err)
	}
	for name, cfg := range map[string]*tls.Config{
		"no certificate":     {NextProtos: []string{proto}, InsecureSkipVerify: true},
		"foreign CA":         {NextProtos: []string{proto}, InsecureSkipVerify: true, Certificates: []tls.Certificate{foreign}},
		"CA of the name":     {NextProtos: []string{proto}, InsecureSkipVerify: true, GetClientCertificate: show(tls.Certificate{Certificate: [][]byte{forged.Raw}, PrivateKey: private})},
		"no protocol":        {InsecureSkipVerify: true},
		"other protocol":     {NextProtos: []string{"h2"}, InsecureSkipVerify: true},
		"TLS 1.2":            {NextProtos: []string{proto}, InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12},
		"unknown secret":     {NextProtos: []string{"wm/0123456789abcdef"}, InsecureSkipVerify: true},
		"the CA as its leaf": {NextProtos: []string{proto}, InsecureSkipVerify: true, GetClientCertificate: show(tls.Certificate{Certificate: [][]byte{ca.Raw}, PrivateKey: private})},
	} {
		if o := meet(t, r, rawClient{cfg}); o.serverErr == nil || o.clientErr == nil {
			t.Errorf("%s: admitted as %+v", name, o.server)
		}
	}
	for name, cfg := range map[string]*tls.Config{
		"foreign CA":     {NextProtos: []string{proto}, Certificates: []tls.Certificate{foreign}, ClientAuth: tls.RequestClientCert},
		"CA of the name": {NextProtos: []string{proto}, Certificates: []tls.Certificate{{Certificate: [][]byte{forged.Raw}, PrivateKey: private}}, ClientAuth: tls.RequestClientCert},
		"no protocol":    {Certificates: []tls.Certificate{foreign}},
	} {
		if o := meet(t, rawClient{cfg}, r); o.clientErr == nil {
			t.Errorf("%s: believed as %+v", name, o.client)
		}
	}
}

// A stranger without a common secret gets the alert before any certificate is sent.
func TestStrangerGetsAnAlert(t *testing.T) {
	r := keyring(t, "n1", 1, oldSecret)
	o := meet(t, r, rawClient{&tls.Config{NextProtos: []string{"wm/0123456789abcdef"}, InsecureSkipVerify: true,
		VerifyConnection: func(tls.ConnectionState) error { t.Error("a certificate was sent"); return nil }}})
	if alert, ok := remoteAlert(o.clientErr); !ok || alert != noProtocol {
		t.Errorf("alert %v", o.clientErr)
	}
	wantReason(t, o.serverErr, noCommonSecret)
}

func TestNothingIsResumed(t *testing.T) {
	r := keyring(t, "n1", 1, oldSecret)
	k := r.ring.Load().keys[0]
	cfg := &tls.Config{
		NextProtos: []string{k.proto}, InsecureSkipVerify: true, Certificates: []tls.Certificate{*k.leaf},
		ClientSessionCache: tls.NewLRUClientSessionCache(4), ServerName: "n1",
	}
	for range 2 {
		o := meet(t, r, rawClient{cfg})
		if !o.ok() {
			t.Fatal(o.serverErr, o.clientErr)
		}
		if o.clientConn.(*tls.Conn).ConnectionState().DidResume {
			t.Error("resumed")
		}
	}
	if _, ok := cfg.ClientSessionCache.Get("n1"); ok {
		t.Error("a ticket was given out")
	}
}

func TestPlainAndTLSMeet(t *testing.T) {
	r := keyring(t, "n1", 1, oldSecret)
	if o := meet(t, r, Plain{}); o.serverErr == nil {
		t.Error("plain text is admitted")
	} else {
		wantReason(t, o.serverErr, noTLS)
	}
	pki := newAuthority(t)
	o := meet(t, r, pki.member("wardmote://test/n2"))
	wantReason(t, o.clientErr, otherSecurity)
	wantReason(t, o.serverErr, noCommonSecret)
	o = meet(t, pki.member("wardmote://test/n2"), r)
	wantReason(t, o.clientErr, noCommonSecret)
	wantReason(t, o.serverErr, otherSecurity)
}

func TestClusterNamesThatAreNoHosts(t *testing.T) {
	for _, cluster := range []string{"wardmote", "a..b", ".", "x.", "A_b-c.9", strings.Repeat("l", 64)} {
		a, err := NewKeyring(cluster, "n1", 1, oldSecret)
		if err != nil {
			t.Fatal(cluster, err)
		}
		b, _ := NewKeyring(cluster, "n2", 2, oldSecret)
		if o := meet(t, a, b); !o.ok() {
			t.Error(cluster, o.serverErr, o.clientErr)
		}
	}
}

// BenchmarkHandshake is a whole handshake: the work of both sides.
func BenchmarkHandshake(b *testing.B) {
	s, c := keyring(b, "n1", 1, oldSecret), keyring(b, "n2", 2, oldSecret)
	for b.Loop() {
		o := meet(b, s, c)
		if !o.ok() {
			b.Fatal(o.serverErr, o.clientErr)
		}
		_, _ = o.clientConn.Close(), o.serverConn.Close()
	}
}
