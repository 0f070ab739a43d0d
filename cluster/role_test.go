package cluster

import (
	"crypto/tls"
	"sync"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/refused"
)

// A process behind the name and the raft ID of a voter, without the voter role, is no
// voter to a member that dials it: its answers would count towards commits and
// majorities.
func TestTheDiallingSideLooksAtTheRole(t *testing.T) {
	inBubble(t, func(b *bubble) {
		ca := newCertifier(b.t)
		var mu sync.Mutex
		suffix := ""
		b.form(func(c *Config) {
			voter, mere := ca.issue("wardmote://test/"+c.Name), ca.issue("wardmote://test/"+c.Name+"?role=member")
			c.Security.TLS = &tls.Config{RootCAs: ca.roots, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
				mu.Lock()
				defer mu.Unlock()
				if suffix == c.Name {
					return mere, nil
				}
				return voter, nil
			}}
		})
		n, other := b.leader(), b.nodes["n1"]
		if n == other {
			other = b.nodes["n2"]
		}
		id := other.seat.Current().ID()
		looks := func() (raft error, reached bool) {
			c, err := n.dialRaft(b.within(time.Second), id)
			if err == nil {
				c.Close()
			}
			return err, n.reaches(b.within(time.Second), id)
		}
		if err, reached := looks(); err != nil || !reached {
			t.Errorf("a voter: %v, reached %t", err, reached)
		}
		mu.Lock()
		suffix = other.Name()
		mu.Unlock()
		before := n.self.Refused.Counts()[refused.Role]
		if err, reached := looks(); err == nil || reached {
			t.Errorf("without the role: %v, reached %t", err, reached)
		}
		if n.self.Refused.Counts()[refused.Role] == before {
			t.Error("not counted")
		}
	})
}
