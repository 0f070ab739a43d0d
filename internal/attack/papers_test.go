package attack

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/hex"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/wardmote/wardmote/cluster"
)

// A mode is a way to configure Security.
type mode string

const (
	insecure   mode = "Insecure"
	withSecret mode = "Secret"
	withTLS    mode = "TLS"
	withBoth   mode = "both"
	withShared mode = "TLS, one certificate" // no column of the matrix: a member is every member, and a guest every guest
)

func (m mode) secret() bool { return m == withSecret || m == withBoth }
func (m mode) tls() bool    { return m == withTLS || m == withBoth || m == withShared }

// papers are the secrets and certificates of a town, with the papers of its attackers.
type papers struct {
	mode    mode
	secret  []byte
	ca      authority
	members []pair
	guest   pair // names nobody, with the role member: for mode withShared
}

// A pair is a certificate with its key, as PEM.
type pair struct{ cert, key []byte }

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newPapers(t *testing.T, m mode, addrs []string) *papers {
	t.Helper()
	p := &papers{mode: m, secret: cluster.NewSecret(), ca: newAuthority(t)}
	for i, addr := range addrs {
		p.members = append(p.members, p.ca.sign(t, subject{uri: memberURI(name(i)), ip: hostOf(addr)}))
	}
	p.guest = p.ca.sign(t, subject{uri: memberURI("guests") + "?role=member"})
	return p
}

// equip gives member i its papers.
func (p *papers) equip(s *settings, i int) {
	s.Insecure = p.mode == insecure
	if p.mode.secret() {
		s.Secrets = [][]byte{p.secret}
	}
	if p.mode.tls() {
		s.CA, s.Cert, s.Key = p.ca.pem, p.members[i].cert, p.members[i].key
	}
	if p.mode == withShared {
		s.Cert, s.Key, s.Shared = p.members[0].cert, p.members[0].key, true
	}
}

func memberURI(name string) string { return "wardmote://" + clusterName + "/" + name }

func hostOf(addr string) string {
	host, _, _ := net.SplitHostPort(addr)
	return host
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return authority{cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

// subject is the party that a certificate is made out to.
type subject struct {
	uri, dns, ip string
	expired      bool
}

func (a authority) sign(t *testing.T, s subject) pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, _ := rand.Int(rand.Reader, big.NewInt(1<<62))
	template := &x509.Certificate{
		SerialNumber: serial, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if s.expired {
		template.NotAfter = time.Now().Add(-time.Minute)
	}
	if s.uri != "" {
		u, err := url.Parse(s.uri)
		if err != nil {
			t.Fatal(err)
		}
		template.URIs = []*url.URL{u}
	}
	if s.dns != "" {
		template.DNSNames = []string{s.dns}
	}
	if s.ip != "" {
		template.IPAddresses = []net.IP{net.ParseIP(s.ip)}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	var cert, private bytes.Buffer
	_ = pem.Encode(&cert, &pem.Block{Type: "CERTIFICATE", Bytes: der})
	_ = pem.Encode(&private, &pem.Block{Type: "PRIVATE KEY", Bytes: raw})
	return pair{cert.Bytes(), private.Bytes()}
}

// client returns a TLS configuration that shows the certificate and believes
// anybody.
func (p pair) client(protocols ...string) *tls.Config {
	cert, err := tls.X509KeyPair(p.cert, p.key)
	if err != nil {
		panic(err)
	}
	return &tls.Config{
		// Certificates would show none to a side that asks for another authority.
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil },
		Certificates:         []tls.Certificate{cert}, InsecureSkipVerify: true, NextProtos: protocols, MinVersion: tls.VersionTLS13,
	}
}

// protocolOfTLS is the application protocol of members with certificates. Members with
// secrets have one for each secret, which everybody on the path can read.
const protocolOfTLS = "wardmote/1"

// openers returns the ways in which an attacker opens a stream, the best first.
func (p *papers) openers(t *testing.T, who string) []opener {
	t.Helper()
	self := newAuthority(t)
	plain := func(c net.Conn, _ peer) (net.Conn, error) { return c, nil }
	protocols := []string{protocolOfTLS}
	if p.mode == withSecret {
		protocols = []string{protocolOf(p.secret, clusterName)}
	}
	with := func(a authority, s subject) opener {
		return showing(a.sign(t, s), protocols)
	}
	if p.mode == insecure {
		return []opener{plain}
	}
	switch who {
	case impostor:
		all := []opener{with(self, subject{uri: memberURI(name(0))})}
		if p.mode.tls() {
			return append(all,
				with(p.ca, subject{uri: "spiffe://example/web", dns: "web.example"}),
				with(p.ca, subject{uri: "wardmote://another/" + name(0)}),
				with(p.ca, subject{uri: memberURI(name(0)) + "?role=admin"}),
				with(p.ca, subject{uri: memberURI(name(0)), expired: true}))
		}
		return append(all, with(self, subject{uri: memberURI(intruder.Name) + "/4d"}),
			secretOpener(cluster.NewSecret(), clusterName), secretOpener(p.secret, "another"))
	case guest:
		if p.mode == withShared {
			return []opener{showing(p.guest, protocols)}
		}
		return []opener{with(p.ca, subject{uri: memberURI(intruder.Name) + "?role=member"})}
	case member:
		if p.mode == withSecret {
			return []opener{secretOpener(p.secret, clusterName)}
		}
		if p.mode == withShared {
			return []opener{showing(p.members[0], protocols)}
		}
		return []opener{with(p.ca, subject{uri: memberURI(intruder.Name)})}
	}
	anonymous := &tls.Config{InsecureSkipVerify: true, NextProtos: protocols}
	return []opener{plain, with(self, subject{dns: "stranger"}), func(c net.Conn, _ peer) (net.Conn, error) {
		return handshake(c, anonymous)
	}}
}

// showing opens streams with a certificate.
func showing(p pair, protocols []string) opener {
	cfg := p.client(protocols...)
	return func(c net.Conn, _ peer) (net.Conn, error) { return handshake(c, cfg) }
}

// An opener opens a stream on a connection to a member, in the name of a process.
type opener func(net.Conn, peer) (net.Conn, error)

// handshake ends, in TLS 1.3, before the accepting side has judged the dialling side's
// certificate: the verdict shows at the first read.
func handshake(c net.Conn, cfg *tls.Config) (net.Conn, error) {
	s := tls.Client(c, cfg)
	return s, s.Handshake()
}

// derive derives bytes from a secret, as members do.
func derive(secret []byte, purpose, cluster string, n int) []byte {
	b, err := hkdf.Key(sha256.New, secret, nil, "wardmote/2 "+purpose+" "+cluster, n)
	if err != nil {
		panic(err)
	}
	return b
}

// protocolOf is the application protocol of members with a secret.
func protocolOf(secret []byte, cluster string) string {
	return "wm/" + hex.EncodeToString(derive(secret, "id", cluster, 8))
}

// secretOpener opens streams as a holder of the secret does: as any process.
func secretOpener(secret []byte, cluster string) opener {
	return func(c net.Conn, from peer) (net.Conn, error) {
		cert, err := secretCertificate(secret, cluster, from)
		if err != nil {
			return nil, err
		}
		return handshake(c, &tls.Config{
			InsecureSkipVerify: true, MinVersion: tls.VersionTLS13, NextProtos: []string{protocolOf(secret, cluster)},
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil },
		})
	}
}

// secretAuthority derives the name and the key of the authority of a secret.
func secretAuthority(secret []byte, cluster string) (*x509.Certificate, ed25519.PrivateKey) {
	return &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: protocolOf(secret, cluster)[3:]}},
		ed25519.NewKeyFromSeed(derive(secret, "ca", cluster, ed25519.SeedSize))
}

// secretCertificate makes a certificate of a process under a secret. The name is
// sealed.
func secretCertificate(secret []byte, cluster string, of peer) (*tls.Certificate, error) {
	parent, private := secretAuthority(secret, cluster)
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	gcm := newGCM(derive(secret, "names", cluster, 32))
	nonce := make([]byte, gcm.NonceSize())
	rand.Read(nonce)
	text := append(binary.BigEndian.AppendUint64(nil, of.Boot), of.Name...)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0), NotAfter: time.Now().AddDate(100, 0, 0),
		URIs:     []*url.URL{{Scheme: "wardmote", Opaque: hex.EncodeToString(gcm.Seal(nonce, nonce, text, []byte(cluster)))}},
		KeyUsage: x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, private)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}
