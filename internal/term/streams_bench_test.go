package term_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/term"
	"github.com/wardmote/wardmote/internal/wire"
)

// BenchmarkHeapOfAStream reports the memory that a leader keeps for the stream of one
// attached member: heap and stacks, without the kernel's and without package port's. The
// member's end keeps nothing here.
func BenchmarkHeapOfAStream(b *testing.B) {
	plain := func(c net.Conn) net.Conn { return c }
	server, client := selfSigned(b)
	for _, tt := range []struct {
		name         string
		leads, joins func(net.Conn) net.Conn
	}{
		{"plain", plain, plain},
		{"tls", func(c net.Conn) net.Conn { return tls.Server(c, server) }, func(c net.Conn) net.Conn { return tls.Client(c, client) }},
	} {
		b.Run(tt.name, func(b *testing.B) {
			tm, _ := benchTerm(b)
			const streams = 1000
			attach, err := wire.AppendFrame(nil, wire.Frame{Type: wire.Attach, ID: 1, Body: wire.Marshal(&wire.AttachRequest{})})
			if err != nil {
				b.Fatal(err)
			}
			before := inUse()
			var serving sync.WaitGroup
			var conns []net.Conn
			for i := range streams {
				near, far := net.Pipe()
				conns = append(conns, near)
				serving.Go(func() {
					term.ServeMember(tt.leads(far), fmt.Sprintf("thin-%d", i), uint64(i+1), term.Guide{
						Current: func() *term.Term { return tm },
						Hint:    func() wire.Hint { return wire.Hint{} },
						Changed: func() <-chan struct{} { return nil },
						Heard:   func() time.Time { return time.Time{} },
					})
				})
				c := tt.joins(near)
				if _, err := c.Write(attach); err != nil {
					b.Fatal(err)
				}
				if f, err := wire.ReadFrame(c); err != nil || f.Code != wire.CodeOK {
					b.Fatal(f.Code, err)
				}
			}
			for b.Loop() {
				b.ReportMetric(float64(inUse()-before)/streams, "bytes/stream")
			}
			for _, c := range conns {
				c.Close()
			}
			serving.Wait()
		})
	}
}

func inUse() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

// selfSigned returns the TLS configurations of two ends that each show a certificate.
func selfSigned(b *testing.B) (server, client *tls.Config) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		b.Fatal(err)
	}
	from := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"leader"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, from, from, key.Public(), key)
	if err != nil {
		b.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		b.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	own := []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}
	server = &tls.Config{Certificates: own, ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true}
	return server, &tls.Config{Certificates: own, RootCAs: pool, ServerName: "leader", MinVersion: tls.VersionTLS13}
}
