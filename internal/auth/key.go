package auth

import (
	"crypto"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/big"
	"net/url"
	"time"
)

// key is everything derived from one secret. All members derive the same CA; the
// certificate below it is this process's own, drawn at the start.
type key struct {
	id     KeyID
	proto  string // in ALPN
	ca     *x509.Certificate
	leaf   *tls.Certificate
	names  cipher.AEAD // seals the process's name and boot in its certificate
	gossip []byte
	server *tls.Config // for the connections that rest on this secret
}

// process is the process named by the certificates of a Keyring.
type process struct {
	cluster, name string
	boot          uint64
}

// Secrets are compared, and end, by their presence in a ring alone. Certificates
// therefore hold at all times, and no clock matters.
var (
	always  = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	forever = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
)

// newKey derives the key of a secret, for a process.
func newKey(secret []byte, self process) (*key, error) {
	derive := func(purpose string, n int) []byte {
		// Fails for lengths above 8 KiB only.
		b, _ := hkdf.Key(sha256.New, secret, nil, "wardmote/2 "+purpose+" "+self.cluster, n)
		return b
	}
	k := &key{id: KeyID(derive("id", len(KeyID{}))), gossip: derive("gossip", 32)}
	k.proto = "wm/" + k.id.String()
	block, err := aes.NewCipher(derive("names", 32))
	if err == nil {
		k.names, err = cipher.NewGCM(block)
	}
	if err != nil {
		return nil, err
	}
	private := ed25519.NewKeyFromSeed(derive("ca", ed25519.SeedSize))
	ca, err := issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: k.id.String()}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, nil, private.Public(), private)
	if err != nil {
		return nil, err
	}
	public, leafKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	leaf, err := issue(&x509.Certificate{URIs: []*url.URL{k.uri(self)}, KeyUsage: x509.KeyUsageDigitalSignature}, ca, public, private)
	if err != nil {
		return nil, err
	}
	k.ca, k.leaf = ca, &tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: leafKey, Leaf: leaf}
	roots := x509.NewCertPool()
	roots.AddCert(ca) // the accepting side names the CA, so that the dialling side shows the right certificate
	k.server = &tls.Config{
		MinVersion:             tls.VersionTLS13,
		NextProtos:             []string{k.proto},
		Certificates:           []tls.Certificate{*k.leaf},
		ClientAuth:             tls.RequireAnyClientCert,
		ClientCAs:              roots,
		VerifyConnection:       func(cs tls.ConnectionState) error { return k.verify(cs, self.cluster) },
		SessionTicketsDisabled: true,
	}
	return k, nil
}

// issue returns the certificate of the template for a public key, signed by signer in
// the name of parent; nil: in its own name.
func issue(template, parent *x509.Certificate, public crypto.PublicKey, signer crypto.Signer) (*x509.Certificate, error) {
	template.SerialNumber = big.NewInt(1)
	template.NotBefore, template.NotAfter = always, forever
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, signer)
	if err != nil {
		return nil, fmt.Errorf("auth: certificate: %w", err)
	}
	return x509.ParseCertificate(der)
}

// verify judges the other side of a connection that rests on k. A certificate below
// the CA is as good as the secret, in spite of anything else in the certificate.
func (k *key) verify(cs tls.ConnectionState, cluster string) error {
	if cs.NegotiatedProtocol != k.proto || len(cs.PeerCertificates) == 0 {
		return refuse(noCommonSecret)
	}
	leaf := cs.PeerCertificates[0]
	if err := k.ca.CheckSignature(leaf.SignatureAlgorithm, leaf.RawTBSCertificate, leaf.Signature); err != nil {
		return &RefusedError{"shows a certificate that does not rest on the secret " + k.id.String(), err, false}
	}
	_, err := k.processOf(leaf, cluster)
	return err
}

// uri names a process to the holders of the secret alone: the accepting side shows its
// certificate before it has judged the dialling side. The text is sealed, and bound to
// the cluster.
func (k *key) uri(p process) *url.URL {
	nonce := make([]byte, k.names.NonceSize())
	rand.Read(nonce) // never fails
	text := append(binary.BigEndian.AppendUint64(nil, p.boot), p.name...)
	return &url.URL{Scheme: scheme, Opaque: hex.EncodeToString(k.names.Seal(nonce, nonce, text, []byte(p.cluster)))}
}

// processOf returns the process of this cluster that a certificate names.
func (k *key) processOf(leaf *x509.Certificate, cluster string) (process, error) {
	if len(leaf.URIs) != 1 || leaf.URIs[0].Scheme != scheme {
		return process{}, refuse("shows a certificate that names no process")
	}
	sealed, err := hex.DecodeString(leaf.URIs[0].Opaque)
	n := k.names.NonceSize()
	if err != nil || len(sealed) < n {
		return process{}, refuse("shows a certificate that names no process")
	}
	text, err := k.names.Open(nil, sealed[:n], sealed[n:], []byte(cluster))
	if err != nil || len(text) <= bootLen {
		return process{}, refuse("shows a certificate that names no process of this cluster")
	}
	boot := binary.BigEndian.Uint64(text)
	if boot == 0 {
		return process{}, refuse("shows a certificate without a boot")
	}
	return process{cluster, string(text[bootLen:]), boot}, nil
}

// bootLen is the length of a boot, before the name in the sealed text.
const bootLen = 8
