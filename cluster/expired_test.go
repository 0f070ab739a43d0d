package cluster

import (
	"context"
	"crypto/tls"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// A voter that missed a rotation of the secret is cut off, and learns that the others
// live and refuse it. Recover, the advice for dead voters, would found a second cluster.
func TestAMissedRotationIsTold(t *testing.T) {
	inBubble(t, func(b *bubble) {
		nodes := b.form(secrets(oldSecret), ttl(10*time.Second)) // refused members dial every TTL/20
		left := nodes[2]
		if left == b.leader() {
			left = nodes[1]
		}
		for _, n := range nodes {
			if n != left {
				if err := n.SetSecrets(newSecret); err != nil {
					t.Fatal(err)
				}
			}
		}
		time.Sleep(30 * time.Second)
		h := left.Health(context.Background())
		if h.Quorum || !strings.Contains(h.Reason, "no common secret") || !strings.Contains(h.Next, "do not call Recover") {
			t.Errorf("quorum %v, %s; %s", h.Quorum, h.Reason, h.Next)
		}
		for _, n := range nodes {
			if h := n.Health(context.Background()); n != left && (!strings.Contains(h.Reason, left.Name()+" at ") ||
				!strings.Contains(h.Reason, "knew none of the present secrets") || !strings.Contains(h.Next, "missed the rotation")) {
				t.Errorf("%s tells of %s: %s; %s", n.Name(), left.Name(), h.Reason, h.Next)
			}
		}
		if err := left.SetSecrets(newSecret); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if h := left.Health(context.Background()); h.Reason != "" {
			t.Errorf("with the secret: %s; %s", h.Reason, h.Next)
		}
	})
}

// A member whose certificate has expired learns why no leader answers, and is back
// with the next certificate, without a restart.
func TestAnExpiredCertificateIsTold(t *testing.T) {
	inBubble(t, func(b *bubble) {
		ca := newCertifier(b.t)
		b.form(ca.certified(""), ttl(10*time.Second)) // refused members dial every TTL/20
		var cert atomic.Pointer[tls.Certificate]
		cert.Store(ca.issueFor("wardmote://test/n4", 10*time.Second))
		n4 := b.join("n4", thin, ttl(10*time.Second), func(c *Config) {
			c.Security.TLS = &tls.Config{RootCAs: ca.roots, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return cert.Load(), nil }}
		})
		time.Sleep(20 * time.Second)
		h := n4.Health(context.Background())
		if h.Quorum || !strings.Contains(h.Reason, "the others refuse this member: its certificate was valid until ") || !strings.Contains(h.Next, "GetCertificate") {
			t.Errorf("quorum %v, %s; %s", h.Quorum, h.Reason, h.Next)
		}
		cert.Store(ca.issue("wardmote://test/n4"))
		b.hold(n4, 4, "k4")
		if h := n4.Health(context.Background()); h.Reason != "" {
			t.Errorf("with the next certificate: %s; %s", h.Reason, h.Next)
		}
	})
}
