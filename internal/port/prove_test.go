package port

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/auth"
	"github.com/wardmote/wardmote/internal/refused"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/transport"
)

var (
	ourSecret   = bytes.Repeat([]byte("our secret, 1234"), 2)
	otherSecret = bytes.Repeat([]byte("another one, 567"), 2)
)

// secret puts a port under secrets, newest first.
func secret(t *testing.T, secrets ...[]byte) func(*Config) {
	return func(c *Config) {
		ring, err := auth.NewKeyring(c.Cluster, c.Self.Name, c.Self.Boot, secrets...)
		if err != nil {
			t.Fatal(err)
		}
		c.Auth = ring
	}
}

// as puts a port under the proof of another process.
func as(t *testing.T, name string, boot uint64) func(*Config) {
	return func(c *Config) {
		ring, err := auth.NewKeyring(c.Cluster, name, boot, ourSecret)
		if err != nil {
			t.Fatal(err)
		}
		c.Auth = ring
	}
}

// pki issues certificates of one CA.
func pki(t *testing.T) (certified func(uri string, until time.Duration) func(*Config)) {
	t.Helper()
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(1000 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, root, root, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	ca, _ := x509.ParseCertificate(der)
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	return func(uri string, until time.Duration) func(*Config) {
		u, _ := url.Parse(uri)
		leafKey, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
			SerialNumber: big.NewInt(2), URIs: []*url.URL{u},
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(until),
		}, ca, &leafKey.PublicKey, key)
		if err != nil {
			t.Fatal(err)
		}
		m, err := auth.NewCertificates(&tls.Config{RootCAs: roots, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: leafKey}}},
			func(leaf *x509.Certificate) (string, bool, error) { return auth.NameAndRole(leaf, "test") })
		if err != nil {
			t.Fatal(err)
		}
		return func(c *Config) { c.Auth = m }
	}
}

// counted counts the refusals of a port.
func counted(log *refused.Log) func(*Config) { return func(c *Config) { c.Refused = log } }

func newLog() *refused.Log { return refused.New(slog.New(slog.DiscardHandler)) }

func TestBothSidesProveThemselves(t *testing.T) {
	everywhere(t, func(t *testing.T, w world) {
		certified := pki(t)
		var bindings [][]byte
		for name, of := range map[string]func(member string) func(*Config){
			"secret":       func(string) func(*Config) { return secret(t, ourSecret) },
			"certificates": func(m string) func(*Config) { return certified("wardmote://test/"+m, time.Hour) },
		} {
			a, b := w.open(t, 1, of("m1")), w.open(t, 2, of("m2"))
			reached := make(chan *Conn, 1)
			b.Handle(KindRaft, func(c *Conn) { reached <- c; echo(c) })
			b.Serve()
			c, err := a.Dial(t.Context(), b.Addr(), KindRaft, Peer{"m2", 0})
			if err != nil {
				t.Fatal(name, err)
			}
			check(t, talk(c))
			far := <-reached
			if c.Proved.Name != "m2" || far.Proved.Name != "m1" || !c.Proved.Voter || !far.Proved.Voter {
				t.Errorf("%s: %+v, %+v", name, c.Proved, far.Proved)
			}
			if tls13 := c.Conn.(*tls.Conn).ConnectionState().Version; tls13 != tls.VersionTLS13 {
				t.Errorf("%s: version %x", name, tls13)
			}
			near, err := c.Binding()
			check(t, err)
			here, err := far.Binding()
			check(t, err)
			if len(near) != 32 || !bytes.Equal(near, here) || slices.ContainsFunc(bindings, func(o []byte) bool { return bytes.Equal(o, near) }) {
				t.Errorf("%s: a stream is bound to %x and %x after %x", name, near, here, bindings)
			}
			bindings = append(bindings, near)
			check(t, c.Close())
			check(t, a.Close())
			check(t, b.Close())
		}
	})
}

// Whoever proves nothing reaches no handler, learns the reason, and is counted.
func TestUnprovedIsRefused(t *testing.T) {
	everywhere(t, func(t *testing.T, w world) {
		certified := pki(t)
		for name, x := range map[string]struct {
			dialler, accepter func(*Config)
			tells, counts     string
		}{
			"foreign secret":                 {secret(t, otherSecret), secret(t, ourSecret), "no common secret", "handshake"},
			"plain to TLS":                   {func(*Config) {}, secret(t, ourSecret), "speaks TLS", "handshake"},
			"TLS to plain":                   {secret(t, ourSecret), func(*Config) {}, "perhaps only this side", "handshake"},
			"secret to PKI":                  {secret(t, ourSecret), certified("wardmote://test/m2", time.Hour), "no common secret", "handshake"},
			"foreign CA":                     {pki(t)("wardmote://test/m1", time.Hour), certified("wardmote://test/m2", time.Hour), "not accepted", ""},
			"other service":                  {certified("https://example.com", time.Hour), certified("wardmote://test/m2", time.Hour), "does not accept this member's certificate", "handshake"},
			"other cluster's":                {certified("wardmote://other/m1", time.Hour), certified("wardmote://test/m2", time.Hour), "does not accept this member's certificate", "handshake"},
			"expired":                        {certified("wardmote://test/m1", -time.Second), certified("wardmote://test/m2", time.Hour), "does not accept this member's certificate", "handshake"},
			"name, accepting side":           {secret(t, ourSecret), as(t, "m3", 2), "claims to be m2@2 and proves to be m3@2", ""},
			"boot, accepting side":           {secret(t, ourSecret), as(t, "m2", 3), "claims to be m2@2 and proves to be m2@3", ""},
			"name of a refusing certificate": {certified("wardmote://test/m1", time.Hour), certified("wardmote://test/m3", time.Hour), "claims to be m2@2 and proves to be m3", ""},
			"role, accepting side":           {certified("wardmote://test/m1", time.Hour), certified("wardmote://test/m2?role=member", time.Hour), "role is not voter", ""},
		} {
			log := newLog()
			a, b := w.open(t, 1, x.dialler), w.open(t, 2, x.accepter, counted(log))
			b.Handle(KindRaft, func(c *Conn) {
				var one [1]byte
				if n, _ := c.Read(one[:]); n > 0 {
					t.Errorf("%s: a byte came through", name)
				}
				_ = c.Close()
			})
			b.Serve()
			c, err := a.Dial(t.Context(), b.Addr(), KindRaft, Peer{})
			var no *UnprovedError
			if c != nil || !errors.As(err, &no) || !strings.Contains(no.Reason, x.tells) {
				t.Errorf("%s: %q wanted, got %v, %v", name, x.tells, c, err)
			}
			// The dialling side may learn of the refusal before it is counted.
			for range 200 {
				if x.counts == "" || log.Counts()[refused.Kind(x.counts)] == 1 {
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
			if x.counts != "" && log.Counts()[refused.Kind(x.counts)] != 1 {
				t.Errorf("%s: counted %v", name, log.Counts())
			}
			check(t, a.Close())
			check(t, b.Close())
		}
	})
}

// The accepting side compares the preamble with the proof, and the kind with the role.
func TestPreambleIsBoundToTheProof(t *testing.T) {
	everywhere(t, func(t *testing.T, w world) {
		certified := pki(t)
		for name, x := range map[string]struct {
			dialler, accepter func(*Config)
			want              Status
			counts            refused.Kind
		}{
			"name":              {as(t, "m3", 1), secret(t, ourSecret), StatusImpostor, refused.Identity},
			"boot":              {as(t, "m1", 9), secret(t, ourSecret), StatusImpostor, refused.Identity},
			"certificate":       {certified("wardmote://test/m3", time.Hour), certified("wardmote://test/m2", time.Hour), StatusImpostor, refused.Identity},
			"role":              {certified("wardmote://test/m1?role=member", time.Hour), certified("wardmote://test/m2", time.Hour), StatusNoVoter, refused.Role},
			"name before claim": {func(c *Config) { as(t, "m3", 1)(c); c.ClusterID = known(clusterB) }, secret(t, ourSecret), StatusImpostor, refused.Identity},
		} {
			log := newLog()
			a := w.open(t, 1, x.dialler)
			b := w.open(t, 2, x.accepter, counted(log), func(c *Config) {
				c.ClusterID = known(clusterA)
				c.Foreign = func(Hello, string, bool) { t.Errorf("%s: an impostor's claim is told", name) }
			})
			b.Handle(KindRaft, func(*Conn) { t.Errorf("%s: admitted", name) })
			b.Handle(KindMember, echo)
			b.Serve()
			c, err := a.Dial(t.Context(), b.Addr(), KindRaft, Peer{})
			wantRefused(t, c, err, x.want)
			if log.Counts()[x.counts] != 1 {
				t.Errorf("%s: counted %v", name, log.Counts())
			}
			if name == "role" { // and all other kinds are open
				served(t, a, b)
			}
			check(t, a.Close())
			check(t, b.Close())
		}
	})
}

// Several members may share a certificate whose identity has no name.
func TestSharedCertificate(t *testing.T) {
	everywhere(t, func(t *testing.T, w world) {
		certified := pki(t)("wardmote://test/any", time.Hour)
		shared := func(c *Config) {
			certified(c)
			c.Auth = nameless{c.Auth}
		}
		a, b := w.open(t, 1, shared), w.open(t, 2, shared)
		defer closeAll(a, b)
		b.Handle(KindMember, echo)
		b.Serve()
		served(t, a, b)
	})
}

// nameless proves no name.
type nameless struct{ auth.Method }

func (n nameless) Client(ctx context.Context, raw net.Conn) (net.Conn, auth.Identity, error) {
	c, id, err := n.Method.Client(ctx, raw)
	id.Name = ""
	return c, id, err
}

func (n nameless) Server(ctx context.Context, raw net.Conn) (net.Conn, auth.Identity, error) {
	c, id, err := n.Method.Server(ctx, raw)
	id.Name = ""
	return c, id, err
}

// A connection does not outlive the certificate of either side.
func TestConnectionEndsWithTheCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := memoryWorld(transport.NewMemory(1))
		certified := pki(t)
		a, b := w.open(t, 1, certified("wardmote://test/m1", 2*time.Hour)), w.open(t, 2, certified("wardmote://test/m2", time.Hour))
		reached := make(chan *Conn, 1)
		b.Handle(KindMember, func(c *Conn) { reached <- c; echo(c) })
		b.Serve()
		begun := time.Now()
		c, err := a.Dial(t.Context(), b.Addr(), KindMember, Peer{})
		if err != nil {
			t.Fatal(err)
		}
		check(t, talk(c))
		<-c.Renew()
		renewed := time.Since(begun)
		end := ended(c, begun)
		if end > time.Hour || end < 40*time.Minute || end-renewed != timing.RenewWithin {
			t.Errorf("to be renewed after %v, ended after %v", renewed, end)
		}
		check(t, a.Close())
		check(t, b.Close())
	})
}

// A secret is replaced while a connection lives: the connection moves to the new one
// by itself before the old one is removed, and is cut only after the removal.
func TestRekey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := memoryWorld(transport.NewMemory(1))
		a, b := w.open(t, 1, secret(t, ourSecret)), w.open(t, 2, secret(t, ourSecret))
		b.Handle(KindMember, echo)
		b.Serve()
		set := func(p *Port, secrets ...[]byte) {
			check(t, p.cfg.Auth.(*auth.Keyring).Set(secrets...))
			p.Rekeyed()
		}
		dial := func() *Conn {
			c, err := a.Dial(t.Context(), b.Addr(), KindMember, Peer{})
			if err != nil {
				t.Fatal(err)
			}
			check(t, talk(c))
			return c
		}
		c := dial()
		for _, p := range []*Port{a, b} { // added
			set(p, ourSecret, otherSecret)
		}
		time.Sleep(time.Hour)
		check(t, talk(c)) // the newest is still the same
		set(a, otherSecret, ourSecret)
		begun := time.Now()
		<-c.Renew()
		if d := time.Since(begun); d > timing.StaleSecret {
			t.Errorf("to be renewed after %v", d)
		}
		if c = dial(); c.Proved.Key != b.cfg.Auth.(*auth.Keyring).IDs()[0] {
			t.Error("not the accepting side's newest")
		}
		set(b, otherSecret, ourSecret)
		<-c.Renew() // within timing.StaleSecret again, since a's newest is another
		c = dial()
		if c.Proved.Key != a.cfg.Auth.(*auth.Keyring).IDs()[0] {
			t.Error("not the newest")
		}
		old := dial()
		old.Proved.Key = auth.KeyID{1} // a secret that a does not know any more
		set(a, otherSecret)
		set(b, otherSecret)
		select {
		case <-old.Renew():
		default:
			t.Error("the connection of a removed secret goes on")
		}
		time.Sleep(timing.RenewWithin + time.Second)
		if talk(old) == nil {
			t.Error("the connection of a removed secret is not cut")
		}
		time.Sleep(time.Hour)
		check(t, talk(c))
		check(t, a.Close())
		check(t, b.Close())
	})
}

// A stranger that sends garbage, and one that hangs up, end alike: without a word for
// the second, since every port scanner does so.
func TestHangingUpIsNoRefusal(t *testing.T) {
	everywhere(t, func(t *testing.T, w world) {
		log := newLog()
		e, b := w.listen(t, 1), w.open(t, 2, secret(t, ourSecret), counted(log))
		defer b.Close()
		b.Serve()
		raw, err := e.Dial(t.Context(), b.Addr())
		if err != nil {
			t.Fatal(err)
		}
		check(t, raw.Close())
		raw, err = e.Dial(t.Context(), b.Addr())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = raw.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
		_, _ = io.Copy(io.Discard, io.LimitReader(raw, 7))
		check(t, raw.Close())
		for range 200 {
			if log.Counts()[refused.Handshake] > 0 {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if n := log.Counts()[refused.Handshake]; n != 1 {
			t.Errorf("%d refusals", n)
		}
	})
}
