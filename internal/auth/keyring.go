package auth

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/wardmote/wardmote/internal/wakeup"
)

// A Keyring is the Method of members with common secrets. From each secret all members
// derive one CA, and each process signs itself a certificate below it.
//
// Both sides may know several secrets, so that a secret is replaced while members run:
// the new secret is added on all members, then put first, then the old secret is
// removed. The dialling side names all of its secrets, and the accepting side takes the
// first named secret of its own list.
//
// The methods may be called from any goroutine.
type Keyring struct {
	self    process
	changed wakeup.All
	set     sync.Mutex // one Set at a time
	ring    atomic.Pointer[ring]
}

// ring is the state of a Keyring. A ring never changes.
type ring struct {
	keys           []*key // newest first
	server, client *tls.Config
}

// NewKeyring returns the Keyring of a process, with the secrets, newest first.
func NewKeyring(cluster, name string, boot uint64, secrets ...[]byte) (*Keyring, error) {
	r := &Keyring{self: process{cluster, name, boot}}
	return r, r.Set(secrets...)
}

// Set replaces the secrets, newest first. Later handshakes use the new secrets; a handshake
// under way may still use the former secrets. If Set fails, nothing has changed.
func (r *Keyring) Set(secrets ...[]byte) error {
	if len(secrets) == 0 {
		return errors.New("auth: no secret")
	}
	r.set.Lock()
	defer r.set.Unlock()
	next := &ring{}
	former := r.ring.Load()
	for _, secret := range secrets {
		k, err := newKey(secret, r.self)
		if err != nil {
			return err
		}
		if same := former.byID(k.id); same != nil {
			k = same // the process keeps its certificate
		}
		next.keys = append(next.keys, k)
	}
	next.configure(r.self.cluster)
	r.ring.Store(next)
	r.changed.Wake()
	return nil
}

// Changed returns a channel closed by the next Set.
func (r *Keyring) Changed() <-chan struct{} { return r.changed.Wait() }

// IDs returns the names of the secrets, newest first.
func (r *Keyring) IDs() []KeyID {
	var ids []KeyID
	for _, k := range r.ring.Load().keys {
		ids = append(ids, k.id)
	}
	return ids
}

// GossipKeys returns the keys of gossip's packets, one of 32 bytes for each secret,
// newest first. The caller must not change them.
func (r *Keyring) GossipKeys() [][]byte {
	var keys [][]byte
	for _, k := range r.ring.Load().keys {
		keys = append(keys, k.gossip)
	}
	return keys
}

// configure makes the configurations of both sides.
func (r *ring) configure(cluster string) {
	r.server = &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			if len(hello.SupportedProtos) == 0 {
				return nil, refuse("speaks TLS, but not as a member")
			}
			for _, k := range r.keys {
				for _, proto := range hello.SupportedProtos {
					if proto == k.proto {
						return k.server, nil
					}
				}
			}
			return r.keys[0].server, nil // ends with the alert no_application_protocol
		},
	}
	r.client = &tls.Config{
		MinVersion: tls.VersionTLS13,
		// The CA follows from the negotiated secret, and there are neither host names
		// nor dates: VerifyConnection does all of the verification.
		InsecureSkipVerify: true,
		VerifyConnection: func(cs tls.ConnectionState) error {
			k := r.byProto(cs.NegotiatedProtocol)
			if k == nil {
				return refuse("speaks TLS, but not as a member")
			}
			return k.verify(cs, cluster)
		},
		GetClientCertificate: func(req *tls.CertificateRequestInfo) (*tls.Certificate, error) {
			for _, ca := range req.AcceptableCAs {
				for _, k := range r.keys {
					if string(ca) == string(k.ca.RawSubject) {
						return k.leaf, nil
					}
				}
			}
			return nil, refuse("demands a certificate of another kind")
		},
	}
	for _, k := range r.keys {
		r.client.NextProtos = append(r.client.NextProtos, k.proto)
	}
}

func (r *ring) byProto(proto string) *key {
	for _, k := range r.keys {
		if k.proto == proto {
			return k
		}
	}
	return nil
}

// byID is nil for an unknown ID, and on a nil ring.
func (r *ring) byID(id KeyID) *key {
	if r == nil {
		return nil
	}
	for _, k := range r.keys {
		if k.id == id {
			return k
		}
	}
	return nil
}

// Server does the accepting side's half of a handshake.
func (r *Keyring) Server(ctx context.Context, raw net.Conn) (net.Conn, Identity, error) {
	ring := r.ring.Load()
	return r.shake(ctx, ring, tls.Server(raw, ring.server), func(err error) error {
		if strings.HasPrefix(err.Error(), unsupportedProtocols) {
			return &RefusedError{noCommonSecret, err, false}
		}
		return Explain(err)
	})
}

// Client does the dialling side's half of a handshake.
func (r *Keyring) Client(ctx context.Context, raw net.Conn) (net.Conn, Identity, error) {
	ring := r.ring.Load()
	return r.shake(ctx, ring, tls.Client(raw, ring.client), func(err error) error {
		if alert, ok := remoteAlert(err); ok && alert == noProtocol {
			return &RefusedError{noCommonSecret, err, true}
		}
		return explainTo(err)
	})
}

func (r *Keyring) shake(ctx context.Context, ring *ring, c *tls.Conn, explain func(error) error) (net.Conn, Identity, error) {
	if err := c.HandshakeContext(ctx); err != nil {
		return nil, Identity{}, explain(err)
	}
	cs := c.ConnectionState()
	k := ring.byProto(cs.NegotiatedProtocol)
	peer, err := k.processOf(cs.PeerCertificates[0], r.self.cluster) // verified during the handshake
	if err != nil {
		return nil, Identity{}, err
	}
	return c, Identity{Name: peer.name, Boot: peer.boot, Voter: true, Key: k.id}, nil
}
