package port

import (
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/transport"
)

func TestHandshakesBeyondTheCapPushOutTheFloodersOldest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := memoryWorld(transport.NewMemory(1))
		a, b, mallory := w.open(t, 1), w.open(t, 2), w.listen(t, 3)
		defer closeAll(a, b, mallory)
		b.Handle(KindMember, echo)
		b.Serve()
		slow, err := a.endpoint.Dial(t.Context(), b.Addr()) // an honest, slow handshake
		if err != nil {
			t.Fatal(err)
		}
		defer slow.Close()
		synctest.Wait()
		var flood []net.Conn
		for range 3 * maxHandshaking {
			c, err := mallory.Dial(t.Context(), b.Addr())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			flood = append(flood, c)
			synctest.Wait()
			b.shakes.mu.Lock()
			n := b.shakes.size
			b.shakes.mu.Unlock()
			if n > maxHandshaking {
				t.Fatalf("%d handshakes at once", n)
			}
		}
		served(t, a, b)
		_, err = slow.Write(appendHello(nil, Hello{Kind: KindMember, Cluster: "test", From: Peer{"m1", 1}}))
		check(t, err)
		if x, err := readAnswer(slow); err != nil || x.status != StatusOK {
			t.Errorf("the honest handshake gave way: %v, %v", x.status, err)
		}
		for i, c := range flood {
			check(t, c.SetReadDeadline(time.Now().Add(time.Millisecond)))
			_, err := c.Read(make([]byte, 1))
			// Two places went to the honest members.
			if closed := err == io.EOF; closed != (i < len(flood)-(maxHandshaking-2)) {
				t.Errorf("flooder's connection %d: %v", i, err)
			}
		}
	})
}

func TestConnectionsBeyondACapAreRefused(t *testing.T) {
	for _, x := range []struct {
		name string
		cap  int
		from func(i int) (ip, name string)
	}{
		{"name", maxConnsPerName, func(i int) (string, string) { return fmt.Sprintf("10.1.0.%d", i%8), "mallory" }},
		{"address", maxConnsPerIP, func(i int) (string, string) { return "10.1.0.1", fmt.Sprint("mallory", i) }},
		{"total", maxConns, func(i int) (string, string) { return fmt.Sprintf("10.1.0.%d", i%8), fmt.Sprint("mallory", i) }},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := transport.NewMemory(1)
				w := memoryWorld(m)
				a, b := w.open(t, 1), w.open(t, 2)
				defer closeAll(a, b)
				b.Handle(KindMember, echo)
				b.Serve()
				healthy, err := a.Dial(t.Context(), b.Addr(), KindMember, Peer{})
				if err != nil {
					t.Fatal(err)
				}
				defer healthy.Close()
				used := 0
				if x.name == "total" {
					used = 1 // the healthy one
				}
				ends := make(map[string]transport.Endpoint)
				hello := func(i int) (net.Conn, Status) {
					ip, name := x.from(i)
					e := ends[ip]
					if e == nil {
						if e, err = m.Host(ip).Listen(":0"); err != nil {
							t.Fatal(err)
						}
						ends[ip] = e
					}
					c, err := e.Dial(t.Context(), b.Addr())
					if err != nil {
						t.Fatal(err)
					}
					_, _ = c.Write(appendHello(nil, Hello{Kind: KindMember, Cluster: "test", From: Peer{name, 6}}))
					got, err := readAnswer(c)
					if err != nil {
						t.Fatalf("connection %d: %v", i, err)
					}
					return c, got.status
				}
				var open []net.Conn
				for i := range x.cap - used {
					c, s := hello(i)
					if s != StatusOK {
						t.Fatalf("connection %d: %v", i, s)
					}
					open = append(open, c)
				}
				for i := range 10 {
					c, s := hello(x.cap + i)
					if s != StatusTooManyConnections {
						t.Fatalf("beyond the cap: %v", s)
					}
					_ = c.Close()
				}
				check(t, talk(healthy))
				if x.name != "total" {
					served(t, a, b)
				}
				_ = open[0].Close()
				synctest.Wait()
				c, s := hello(0)
				if s != StatusOK {
					t.Errorf("a freed place is not given: %v", s)
				}
				_ = c.Close()
				for _, c := range open {
					_ = c.Close()
				}
				for _, e := range ends {
					_ = e.Close()
				}
			})
		})
	}
}

// failing is an endpoint out of file descriptors.
type failing struct {
	transport.Endpoint
	attempts atomic.Int32
	broken   atomic.Bool
}

func (f *failing) Listen(string) (transport.Endpoint, error) { return f, nil }

func (f *failing) Accept() (net.Conn, error) {
	if f.attempts.Add(1); f.broken.Load() {
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	}
	return f.Endpoint.Accept()
}

func (f *failing) ReadFrom(p []byte) (int, string, error) {
	if f.attempts.Add(1); f.broken.Load() {
		return 0, "", &net.OpError{Op: "read", Err: syscall.ENOBUFS}
	}
	return f.Endpoint.ReadFrom(p)
}

func TestPassingErrorsAreRetriedWithoutSpinning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := memoryWorld(transport.NewMemory(1))
		f := &failing{Endpoint: w.listen(t, 2)}
		f.broken.Store(true)
		a, b := w.open(t, 1), w.open(t, 2, func(c *Config) { c.Network = f })
		defer closeAll(a, b)
		b.Handle(KindMember, echo)
		b.Serve()
		time.Sleep(time.Minute)
		if n := f.attempts.Load(); n < 60 || n > 200 {
			t.Errorf("%d attempts in a minute", n)
		}
		f.broken.Store(false)
		time.Sleep(time.Second)
		served(t, a, b)
		f.broken.Store(true)
		served(t, a, b) // wakes the loop into its backoff, which Close ends
	})
}
