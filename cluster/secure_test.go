package cluster

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/auth"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/port"
	"github.com/wardmote/wardmote/internal/refused"
	"github.com/wardmote/wardmote/internal/testrounds"
	"github.com/wardmote/wardmote/internal/timing"
)

var (
	oldSecret = bytes.Repeat([]byte("old secret, 1234"), 2)
	newSecret = bytes.Repeat([]byte("new secret, 5678"), 2)
)

func secrets(s ...[]byte) func(*Config) { return func(c *Config) { c.Security.Secrets = s } }

// certifier issues certificates of one CA.
type certifier struct {
	t     *testing.T
	ca    *x509.Certificate
	key   *ecdsa.PrivateKey
	roots *x509.CertPool
}

func newCertifier(t *testing.T) *certifier {
	t.Helper()
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(1000 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	ca, _ := x509.ParseCertificate(der)
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	return &certifier{t, ca, key, roots}
}

func (c *certifier) issue(uri string) *tls.Certificate { return c.issueFor(uri, time.Hour) }

func (c *certifier) issueFor(uri string, life time.Duration) *tls.Certificate {
	u, err := url.Parse(uri)
	if err != nil {
		c.t.Fatal(err)
	}
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), URIs: []*url.URL{u},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(life),
	}, c.ca, &key.PublicKey, c.key)
	if err != nil {
		c.t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// certified gives each member a certificate of its own, with a suffix of the URI.
func (c *certifier) certified(suffix string) func(*Config) {
	return func(cfg *Config) {
		cfg.Security.TLS = &tls.Config{
			RootCAs: c.roots, Certificates: []tls.Certificate{*c.issue("wardmote://test/" + cfg.Name + suffix)},
		}
	}
}

// A cluster under secrets, or under certificates, founds, grants and changes its
// leader; and every stream of a stranger is refused.
func TestStrangersReachNothing(t *testing.T) {
	for name, of := range map[string]func(t *testing.T) func(*Config){
		"secrets":      func(*testing.T) func(*Config) { return secrets(oldSecret) },
		"certificates": func(t *testing.T) func(*Config) { return newCertifier(t).certified("") },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				nodes := b.form(of(b.t))
				b.hold(nodes[0], 1, "k")
				for stranger, method := range map[string]func() (auth.Method, error){
					"plain":          func() (auth.Method, error) { return auth.Plain{}, nil },
					"foreign secret": func() (auth.Method, error) { return auth.NewKeyring("test", "n1", 1, newSecret) },
					"other cluster":  func() (auth.Method, error) { return auth.NewKeyring("other", "n1", 1, oldSecret) },
					"foreign CA": func() (auth.Method, error) {
						cfg := Config{Name: "n1", Cluster: "test"}
						newCertifier(b.t).certified("")(&cfg)
						return cfg.certificates()
					},
				} {
					m, err := method()
					if err != nil {
						b.t.Fatal(err)
					}
					p, err := port.Open(port.Config{
						Network: b.networkOf("stranger"), Bind: b.addr("stranger"), Cluster: "test", Auth: m,
						Self: port.Peer{Name: "n1", Boot: nodes[0].self.Boot}, ClusterID: func() [16]byte { return nodes[0].founding.Cluster() },
					})
					if err != nil {
						b.t.Fatal(err)
					}
					for _, kind := range []port.Kind{port.KindRaft, port.KindGossip, port.KindMember, port.KindControl, port.KindRelay} {
						c, err := p.Dial(b.within(10*time.Second), nodes[1].Addr(), kind, port.Peer{})
						var no *port.UnprovedError
						if c != nil || !errors.As(err, &no) && stranger != "plain" {
							t.Errorf("%s, %v: %v, %v", stranger, kind, c, err)
						}
					}
					if err := p.Close(); err != nil {
						t.Error(err)
					}
				}
				if n := nodes[1].self.Refused.Counts()[refused.Handshake]; n == 0 {
					t.Error("nothing is counted")
				}
				old := b.leader()
				b.crash(old.Name())
				b.served(b.elected(old))
			})
		})
	}
}

// A member with another secret learns why nobody answers.
func TestForeignSecretIsTold(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.form(secrets(oldSecret))
		n4 := b.start("n4", thin, ttl(10*time.Second), secrets(newSecret))
		time.Sleep(10 * time.Second)
		if told := strings.Join(n4.gossip.Tried(), "\n"); !strings.Contains(told, "no common secret") {
			t.Errorf("tried: %s", told)
		}
		if h := n4.Health(context.Background()); !strings.Contains(h.Reason+h.Next, "no common secret") {
			t.Errorf("health: %s; %s", h.Reason, h.Next)
		}
	})
}

// busy has each node take and free a key of its own again and again, and returns the
// longest time between two successes.
func (b *bubble) busy(nodes []*Node) (stop func() time.Duration) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	var worst atomic.Int64
	for i, n := range nodes {
		id := byte(100 + i)
		n.link.Attach(sid(id), nil)
		b.open(n, id)
		stopBeats := b.beat(n, id)
		wg.Go(func() {
			defer func() { _ = stopBeats() }()
			last := time.Now()
			for seq := uint64(1); ctx.Err() == nil; seq++ {
				o, err := n.link.Propose(ctx, machine.Acquire{Session: sid(id), Seq: seq, Key: fmt.Sprint("load", i)})
				if err == nil {
					_, err = n.link.Propose(ctx, machine.Release{Session: sid(id), Token: o.Token, Seen: []uint64{seq}})
				}
				if err == nil {
					if gap := int64(time.Since(last)); gap > worst.Load() {
						worst.Store(gap)
					}
					last = time.Now()
				} else if ctx.Err() == nil {
					b.t.Errorf("%s: %v", n.Name(), err)
					return
				}
				select {
				case <-time.After(250 * time.Millisecond):
				case <-ctx.Done():
				}
			}
		})
	}
	return func() time.Duration {
		cancel()
		wg.Wait()
		return time.Duration(worst.Load())
	}
}

// five forms a cluster of five, all of them voters and holders of a lock under load.
// The returned function ends the load, and fails the test if a lock was lost, the
// leader has changed or somebody waited for a second.
func (b *bubble) five(change ...func(*Config)) (nodes []*Node, done func()) {
	b.t.Helper()
	change = append(change, func(c *Config) { c.InitialSize, c.TTL = 5, 3*time.Second })
	for i := range 5 {
		nodes = append(nodes, b.start(fmt.Sprint("n", i+1), change...))
	}
	b.ready(nodes...)
	leader, term := b.leader(), b.leader().seat.Current().Term()
	locks, load := b.holders(nodes...), b.busy(nodes)
	return nodes, func() {
		b.t.Helper()
		if gap := load(); gap > time.Second {
			b.t.Errorf("somebody waited for %v", gap)
		}
		if lost := locks(); lost != 0 {
			b.t.Errorf("%d locks were lost", lost)
		}
		if now := b.leader(); now != leader || now.seat.Current().Term() != term {
			b.t.Errorf("%s leads in term %d, and led in term %d before", now.Name(), now.seat.Current().Term(), term)
		}
	}
}

// The secret is replaced on five members under load, one member at a time.
func TestSecretIsReplacedUnderLoad(t *testing.T) {
	inBubble(t, func(b *bubble) {
		nodes, done := b.five(secrets(oldSecret))
		for i, state := range [][][]byte{{oldSecret, newSecret}, {newSecret, oldSecret}, {newSecret}} {
			for _, n := range nodes {
				if err := n.SetSecrets(state...); err != nil {
					t.Fatal(err)
				}
				time.Sleep(300 * time.Millisecond)
			}
			if i == 2 || testrounds.Full() {
				time.Sleep(timing.StaleSecret) // streams under the old secret end
			}
		}
		for _, n := range nodes {
			if ids := n.keyring.IDs(); len(ids) != 1 || ids[0] != nodes[0].keyring.IDs()[0] {
				t.Errorf("%s knows %v", n.Name(), ids)
			}
		}
		done()
	})
}

// Streams end with their age again and again, and nothing else does.
func TestStreamsAgeWithoutAnElection(t *testing.T) {
	inBubble(t, func(b *bubble) {
		_, done := b.five(secrets(oldSecret), func(c *Config) { c.age = 10 * time.Second })
		time.Sleep(22 * time.Second)
		done()
	})
}

func TestSetSecretsIsChecked(t *testing.T) {
	inBubble(t, func(b *bubble) {
		n := b.join("n1", alone, secrets(oldSecret))
		before := n.keyring.IDs()
		for _, bad := range [][][]byte{nil, {[]byte("short")}, {oldSecret, oldSecret}, {make([]byte, 32)}} {
			var no *ConfigError
			if err := n.SetSecrets(bad...); !errors.As(err, &no) || no.Field != "Config.Security.Secrets" {
				t.Errorf("%q: %v", bad, err)
			}
		}
		if !slices.Equal(n.keyring.IDs(), before) {
			t.Error("a refused change has changed the secrets")
		}
		var no *ConfigError
		if err := b.join("n2", alone, func(c *Config) { c.Cluster = "plain" }).SetSecrets(oldSecret); !errors.As(err, &no) {
			t.Errorf("without secrets: %v", err)
		}
	})
}

// The own certificate is judged at the start, as the others will judge it.
func TestOwnCertificateIsCheckedAtTheStart(t *testing.T) {
	inBubble(t, func(b *bubble) {
		ca := newCertifier(b.t)
		for want, change := range map[string]func(*Config){
			`Config.Security.TLS: this member's own certificate names "n9", and its Name is "n1"`: func(c *Config) {
				c.Security.TLS = &tls.Config{RootCAs: ca.roots, Certificates: []tls.Certificate{*ca.issue("wardmote://test/n9")}}
			},
			`has no URI wardmote://test/name`: func(c *Config) {
				c.Security.TLS = &tls.Config{RootCAs: ca.roots, Certificates: []tls.Certificate{*ca.issue("https://example.com")}}
			},
			`Config.Voting.Thin: this member's own certificate has the role of a member`: ca.certified("?role=member"),
			`returned the unknown role 0`: func(c *Config) {
				ca.certified("")(c)
				c.Security.Identity = func(*x509.Certificate) (string, Role, error) { return "n1", 0, nil }
			},
			`not on the list`: func(c *Config) {
				ca.certified("")(c)
				c.Security.Identity = func(*x509.Certificate) (string, Role, error) { return "", RoleVoter, errors.New("not on the list") }
			},
		} {
			cfg := b.config("n1")
			change(&cfg)
			n, err := Start(context.Background(), cfg)
			if err == nil {
				n.Stop()
			}
			var bad *ConfigError
			if !errors.As(err, &bad) || !strings.Contains(err.Error(), want) {
				t.Errorf("want %q, got %v", want, err)
			}
		}
	})
}

// A member whose certificate has the role of a member takes locks and never votes,
// whatever the member says of itself.
func TestMemberRoleHoldsLocksAndNeverVotes(t *testing.T) {
	inBubble(t, func(b *bubble) {
		ca := newCertifier(b.t)
		b.form(ca.certified(""), wants(5))
		var cert atomic.Pointer[tls.Certificate]
		cert.Store(ca.issue("wardmote://test/n4"))
		n4 := b.join("n4", thin, func(c *Config) { c.Voting.Thin = true }, ca.certified("?role=member"))
		n5 := b.join("n5", thin, wants(5), func(c *Config) {
			c.Security.TLS = &tls.Config{RootCAs: ca.roots, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return cert.Load(), nil }}
		}, func(*Config) { cert.Store(ca.issue("wardmote://test/n5")) })
		cert.Store(ca.issue("wardmote://test/n5?role=member"))
		b.hold(n4, 4, "k4")
		b.hold(n5, 5, "k5")
		if n5.mayVote() || n4.mayVote() || !b.leader().mayVote() {
			t.Error("the role is not read from the certificate")
		}
	})
}
