package port

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/meter"
	"github.com/wardmote/wardmote/internal/refused"
	"github.com/wardmote/wardmote/transport"
)

// metered counts the bytes of a port.
func metered(m *meter.Node) func(*Config) { return func(c *Config) { c.Meter = m } }

// large is a stranger's TLS, with certificates of 200 KiB.
func large() *tls.Config {
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	cert := tls.Certificate{Certificate: [][]byte{make([]byte, 200<<10)}, PrivateKey: key}
	return &tls.Config{
		InsecureSkipVerify: true, NextProtos: []string{"wardmote/1"}, MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil },
	}
}

// A handshake that is not over after maxShaken bytes fails, whichever message they are
// of, and is counted.
func TestAHandshakeReadsNoMoreThanItMay(t *testing.T) {
	inBubble := func(t *testing.T, way func(t *testing.T, w world, log *refused.Log, m *meter.Node, proof func(*Config))) {
		synctest.Test(t, func(t *testing.T) {
			log, m := newLog(), new(meter.Node)
			way(t, memoryWorld(transport.NewMemory(1)), log, m, pki(t)("wardmote://test/m2", time.Hour))
			synctest.Wait()
			if n := m.ReceivedBytes.Load(); n == 0 || n > maxShaken {
				t.Errorf("%d bytes read, and %d are allowed", n, maxShaken)
			}
			if log.Counts()[refused.Handshake] != 1 {
				t.Errorf("counted %v", log.Counts())
			}
		})
	}
	for name, send := range map[string]func(c net.Conn){
		"ClientHello": func(c net.Conn) {
			hello := append([]byte{tlsHandshake, 3, 1, 64, 0, 1, 0, 255, 0}, make([]byte, 16<<10-4)...) // of 65,280 bytes, in records of 16 KiB
			for range 4 {
				_, _ = c.Write(hello)
				copy(hello[5:], make([]byte, 4))
			}
		},
		"certificates": func(c net.Conn) { _ = tls.Client(c, large()).Handshake() },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w world, log *refused.Log, m *meter.Node, proof func(*Config)) {
				b, mallory := w.open(t, 2, proof, counted(log), metered(m)), w.listen(t, 3)
				defer closeAll(b, mallory)
				b.Serve()
				c, err := mallory.Dial(t.Context(), b.Addr())
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				send(c)
				synctest.Wait()
			})
		})
	}
	t.Run("dialling", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w world, log *refused.Log, m *meter.Node, proof func(*Config)) {
			b, mallory := w.open(t, 2, proof, counted(log), metered(m)), w.listen(t, 3)
			defer closeAll(b, mallory)
			go func() {
				if c, err := mallory.Accept(); err == nil {
					_ = tls.Server(c, large()).Handshake()
				}
			}()
			_, err := b.Dial(t.Context(), mallory.Addr(), KindMember, Peer{})
			if err == nil || !strings.Contains(err.Error(), "sends more than 32 KiB") {
				t.Errorf("dialled: %v", err)
			}
		})
	})
}

// The bytes of a connection that stands are not those of its handshake.
func TestAConnectionCarriesMoreThanItsHandshake(t *testing.T) {
	everywhere(t, func(t *testing.T, w world) {
		for _, proof := range []func(*Config){func(*Config) {}, secret(t, ourSecret)} {
			a, b := w.open(t, 1, proof), w.open(t, 2, proof)
			b.Handle(KindMember, echo)
			b.Serve()
			c, err := a.Dial(t.Context(), b.Addr(), KindMember, Peer{})
			if err != nil {
				t.Fatal(err)
			}
			for range 2 * maxShaken / 8 {
				if err := talk(c); err != nil {
					t.Fatal(err)
				}
			}
			closeAll(c, a, b)
		}
	})
}
