package cluster

import (
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"

	"github.com/wardmote/wardmote/internal/member"
)

// Security keeps strangers out. Secrets or TLS, either alone, covers every byte that
// members exchange. Without both, members speak plain text: on loopback, or
// anywhere with Insecure.
type Security struct {
	// Secrets are known to all members of the cluster and to nobody else, the newest
	// first; usually there is one: see NewSecret. At most 8, of 32 to 1,024 bytes
	// each. Every stream is then TLS 1.3 under keys derived from a common secret, and
	// gossip's packets are encrypted. Node.SetSecrets changes them while the member
	// runs. Next to TLS the secrets encrypt gossip's packets alone.
	Secrets [][]byte

	// TLS puts the members' streams under the user's own certificates. Both sides
	// show one, and Identity judges it. Without Secrets gossip's packets travel in
	// such streams too.
	//
	// RootCAs is required, not empty, and verifies both sides; ClientCAs, if set, verifies the
	// dialling side. Host names count only with ServerName, since members are dialled
	// by IP address. A certificate is for client and server authentication both, and is
	// taken at each handshake: with GetCertificate or GetClientCertificate, either of
	// which serves both sides, a new one needs no restart. VerifyConnection is called
	// besides, and takes the place of RootCAs with InsecureSkipVerify, as SPIFFE does
	// it. The names of ClientCAs, or else of RootCAs, are told to the dialling side's
	// GetClientCertificate up to 12 KiB; of a larger pool none is told. Versions, ClientAuth and NextProtos are wardmote's own; nothing is resumed.
	// No stream outlives the certificate of either side, nor 24 hours.
	TLS *tls.Config

	// Identity returns the member name and the role that a verified certificate
	// stands for; an empty name means that members share the certificate. Default:
	// the certificate's URI wardmote://cluster/name, for a voter, or
	// wardmote://cluster/name?role=member. The name must be the Config.Name of the
	// certificate's member, and RoleMember goes with Voting.Thin. An error refuses the
	// certificate. Identity must not block.
	Identity func(*x509.Certificate) (name string, role Role, err error)

	// Authorize, if set, is asked before a request of such consequence is carried out:
	// on the leader for VerbBreak, VerbAsk, VerbEndSession, VerbResize and VerbSetCapacity, the requests of its own clients included;
	// for VerbRecover on the member that Recover is called on, and on each member that is
	// asked to take part. An error refuses the request: the caller gets a *DeniedError
	// with the error's text, and nothing is changed. peer is the asking member, as far as
	// its certificate proves the name; the address is empty if it is not known. All
	// members should decide alike, since any may come to lead. Authorize is called from
	// any goroutine, must not block, and must not call the node. If Authorize panics, the
	// request is refused.
	Authorize func(peer Member, v Verb, key string) error

	// Insecure allows plain text beyond loopback. Insecure beside Secrets or TLS is
	// refused.
	Insecure bool

	_ struct{}
}

// Role is the part in a cluster that a certificate allows.
type Role uint8

const (
	RoleMember Role = 1 // holds sessions and takes locks; never votes
	RoleVoter  Role = 2 // RoleMember, and may vote
)

// Verb is a request that touches the locks or the cluster of others.
type Verb uint8

// The verbs. More may be added: refuse an unknown verb.
const (
	VerbBreak       Verb = 1 // Client.Break: frees a key that another client holds
	VerbAsk         Verb = 2 // Client.Ask: asks the holders of a key to release the key
	VerbEndSession  Verb = 3 // Client.EndSession: ends the session of another client; the key is the session's Ref
	VerbResize      Verb = 4 // Client.Resize: changes the number of shards of a name, which is the key
	VerbSetCapacity Verb = 5 // Client.SetCapacity: changes the number of permits of a key
	VerbRecover     Verb = 6 // Node.Recover: founds a successor of a lost cluster; about no key
)

// String returns the verb as text for errors and logs.
func (v Verb) String() string {
	switch v {
	case VerbBreak:
		return "break"
	case VerbAsk:
		return "ask"
	case VerbEndSession:
		return "end session"
	case VerbResize:
		return "resize"
	case VerbSetCapacity:
		return "set capacity"
	case VerbRecover:
		return "recover"
	}
	return fmt.Sprintf("verb %d", uint8(v))
}

// Limits of secrets.
const (
	minSecret   = 32
	maxSecret   = 1024
	minDistinct = 8 // different bytes in a secret
	maxSecrets  = 8
)

// NewSecret returns a random secret of 32 bytes, for Security.Secrets of all members.
// It never fails. Keep the secret where only the members read it: whoever knows it is
// a member.
func NewSecret() []byte {
	secret := make([]byte, minSecret)
	rand.Read(secret)
	return secret
}

// String tells which fields are set, and no secret.
func (s Security) String() string {
	return fmt.Sprintf("{Secrets: %d, TLS: %t, Identity: %t, Authorize: %t, Insecure: %t}",
		len(s.Secrets), s.TLS != nil, s.Identity != nil, s.Authorize != nil, s.Insecure)
}

// GoString is String, so that %#v prints no secret either.
func (s Security) GoString() string { return s.String() }

// checkSecurity copies and checks Security, and refuses plain text beyond loopback.
// On a network in memory the bytes stay in this process.
func (cfg *Config) checkSecurity() (err error) {
	s := &cfg.Security
	if len(s.Secrets) > 0 {
		if s.Secrets, err = checkSecrets(s.Secrets); err != nil {
			return err
		}
	}
	switch {
	case s.Insecure && (len(s.Secrets) > 0 || s.TLS != nil):
		return badConfig("Security.Insecure", "given together with Secrets or TLS; plain text needs neither")
	case s.Identity != nil && s.TLS == nil:
		return badConfig("Security.Identity", "given without TLS, so there is no certificate to judge")
	}
	if s.TLS != nil {
		if _, err := cfg.certificates(); err != nil {
			return badConfig("Security.TLS", "%v", err)
		}
	}
	_, inMemory := cfg.Network.(interface{ InMemory() })
	if inMemory || s.TLS != nil || len(s.Secrets) > 0 || s.Insecure {
		return nil
	}
	const refusal = "%q is beyond loopback: set Security.Secrets (under wardmote.Main also by WARDMOTE_SECRET_FILE) or Security.TLS, or Security.Insecure to send plain text"
	host, _, _ := member.SplitAddr(cfg.Bind)
	if host == "" {
		return badConfig("Bind", refusal, cfg.Bind)
	}
	if !isLoopback(host) {
		return badConfig("Bind", refusal, host)
	}
	if cfg.Advertise != "" {
		if host, _, _ := member.SplitAddr(cfg.Advertise); !isLoopback(host) {
			return badConfig("Bind", refusal, host)
		}
	}
	return nil
}

// checkSecrets returns a checked copy of the secrets.
func checkSecrets(secrets [][]byte) ([][]byte, error) {
	if len(secrets) > maxSecrets {
		return nil, badConfig("Security.Secrets", "%d secrets exceed the limit of %d", len(secrets), maxSecrets)
	}
	var out [][]byte
	for i, secret := range secrets {
		distinct := make(map[byte]bool)
		for _, b := range secret {
			distinct[b] = true
		}
		switch n := len(secret); {
		case n < minSecret:
			return nil, badConfig("Security.Secrets", "secret %d: %d bytes are below the least, %d", i, n, minSecret)
		case n > maxSecret:
			return nil, badConfig("Security.Secrets", "secret %d: %d bytes exceed the limit of %d", i, n, maxSecret)
		case len(distinct) < minDistinct:
			// The name of a secret is seen on the path, so a weak one can be guessed
			// without asking any member.
			return nil, badConfig("Security.Secrets", "secret %d: %d different bytes are below the least, %d; see NewSecret", i, len(distinct), minDistinct)
		}
		for j, other := range out {
			if bytes.Equal(secret, other) {
				return nil, badConfig("Security.Secrets", "secrets %d and %d are the same", j, i)
			}
		}
		out = append(out, slices.Clone(secret))
	}
	return out, nil
}
