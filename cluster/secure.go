package cluster

import (
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"

	"github.com/wardmote/wardmote/internal/auth"
)

// certificates returns the handshakes under the user's certificates.
func (cfg *Config) certificates() (*auth.Certificates, error) {
	return auth.NewCertificates(cfg.Security.TLS, func(leaf *x509.Certificate) (string, bool, error) {
		if cfg.Security.Identity == nil {
			return auth.NameAndRole(leaf, cfg.Cluster)
		}
		name, role, err := cfg.Security.Identity(leaf)
		if err == nil && role != RoleMember && role != RoleVoter {
			err = fmt.Errorf("Security.Identity returned the unknown role %d", role)
		}
		return name, role == RoleVoter, err
	})
}

// secure makes the proof that this member shows to the others, and judges the own
// certificate as the others will.
func (n *Node) secure() (err error) {
	s := n.cfg.Security
	if len(s.Secrets) > 0 {
		if n.keyring, err = auth.NewKeyring(n.self.Cluster, n.self.Name, n.self.Boot, s.Secrets...); err != nil {
			return err
		}
	}
	if s.TLS == nil {
		return nil
	}
	if n.certs, err = n.cfg.certificates(); err != nil {
		return badConfig("Security.TLS", "%v", err)
	}
	own, err := n.certs.Own()
	switch {
	case err != nil:
		return badConfig("Security.TLS", "the others would refuse this member: %v", err)
	case own.Name != "" && own.Name != n.self.Name:
		return badConfig("Security.TLS", "this member's own certificate names %q, and its Name is %q", own.Name, n.self.Name)
	case !own.Voter && !n.cfg.Voting.Thin:
		return badConfig("Voting.Thin", "this member's own certificate has the role of a member, so the member must be thin")
	}
	return nil
}

// ownProof says why the others refuse this member's certificate; "" if they accept
// it, or if there is none. The text stays the same while the certificate does.
func (n *Node) ownProof() string {
	if n.certs == nil {
		return ""
	}
	if _, err := n.certs.Own(); err != nil {
		return "the others refuse this member: " + err.Error()
	}
	return ""
}

// refusedAt lists the addresses of Join with a member that refuses this member's
// proof, with the reasons: a secret was replaced, for example, and not here.
func (n *Node) refusedAt() string {
	refuses := func(text string) bool {
		return strings.Contains(text, " refuses this member: ") &&
			(strings.Contains(text, "Security") || strings.Contains(text, "certificate") || strings.Contains(text, "secret"))
	}
	return strings.Join(slices.DeleteFunc(n.gossip.Tried(), func(text string) bool { return !refuses(text) }), "; ")
}

// method returns the handshake of this member's streams.
func (n *Node) method() auth.Method {
	switch {
	case n.certs != nil:
		return n.certs
	case n.keyring != nil:
		return n.keyring
	}
	return auth.Plain{}
}

// mayVote reports whether the own certificate, which may have been replaced, still
// allows this member to vote.
func (n *Node) mayVote() bool {
	return !n.cfg.Voting.Thin && n.provesVoter()
}

// provesVoter reports whether the own certificate has the voter role, as every secret has.
func (n *Node) provesVoter() bool {
	if n.certs == nil {
		return true
	}
	own, err := n.certs.Own()
	return err == nil && own.Voter
}

// sharesCertificate reports whether the own certificate proves no name, so that other
// processes can have the same one.
func (n *Node) sharesCertificate() bool {
	if n.certs == nil {
		return false
	}
	own, err := n.certs.Own()
	return err == nil && own.Name == ""
}

// SetSecrets replaces Security.Secrets, newest first, while the member runs. To
// replace a secret without a break: add the new secret last on all members, then put
// it first on all members, then, half a minute later at the earliest, remove the old
// secret from all members. In between every two members have a common secret, and
// the streams move to the first one.
//
// Streams under a removed secret are replaced, and cut after ten seconds. SetSecrets
// returns at once. It fails with a *ConfigError, and changes nothing, if the secrets
// are none or break the limits of Security.Secrets, or if the member was started
// without secrets; and with ErrStopped after the end of the node.
func (n *Node) SetSecrets(newestFirst ...[]byte) error {
	defer n.self.Clock.Enter()()
	if n.ctx.Err() != nil {
		return context.Cause(n.ctx)
	}
	if n.keyring == nil {
		return badConfig("Security.Secrets", "this member was started without secrets; restart all members to begin with one")
	}
	if len(newestFirst) == 0 {
		return badConfig("Security.Secrets", "empty; the last secret is not removed while the member runs")
	}
	secrets, err := checkSecrets(newestFirst)
	if err != nil {
		return err
	}
	n.rekeying.Lock() // streams and gossip get one caller's secrets
	defer n.rekeying.Unlock()
	if err := n.keyring.Set(secrets...); err != nil {
		return err
	}
	n.port.Rekeyed()
	return n.setGossipKeys(n.gossipKeys())
}
