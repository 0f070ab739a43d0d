package port

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/transport"
)

// A tap keeps the bytes that a relay reads.
type tap struct {
	net.Conn
	mu   sync.Mutex
	seen bytes.Buffer
}

func (t *tap) Read(b []byte) (int, error) {
	n, err := t.Conn.Read(b)
	t.mu.Lock()
	t.seen.Write(b[:n])
	t.mu.Unlock()
	return n, err
}

// A relayed connection is the two ends' own: each end sees the other end's name, and
// under TLS the other end's certificate, and the relay sees no byte of either.
func TestARelayedConnectionIsTheTwoEnds(t *testing.T) {
	for name, secure := range map[string]bool{"plain": false, "tls": true} {
		t.Run(name, func(t *testing.T) {
			everywhere(t, func(t *testing.T, w world) {
				edit := func(c *Config) {}
				if secure {
					edit = secret(t, ourSecret)
				}
				a, b, via := w.open(t, 1, edit), w.open(t, 2, edit), w.open(t, 3, edit)
				for _, p := range []*Port{a, b, via} {
					defer p.Close()
				}
				reached := make(chan *Conn, 9)
				b.Handle(KindMember, func(c *Conn) { reached <- c; echo(c) })
				b.Serve()
				tapped := make(chan *tap, 9)
				via.Handle(KindRelay, func(c *Conn) {
					s := &tap{Conn: c.Conn}
					c.Conn = s
					tapped <- s
					_ = via.Relay(c, b.Addr())
				})
				via.Serve()
				c, err := a.DialVia(t.Context(), via.Addr(), b.Addr(), KindMember, Peer{Name: "m2"})
				if err != nil {
					t.Fatal(err)
				}
				check(t, talk(c))
				far, s := <-reached, <-tapped
				if c.Remote.Name != "m2" || far.Remote != a.cfg.Self || far.Hello.Kind != KindMember {
					t.Errorf("the ends see %v and %v", c.Remote, far.Hello)
				}
				s.mu.Lock()
				if read := bytes.Contains(s.seen.Bytes(), []byte("hello")); read == secure {
					t.Errorf("the relay saw the bytes of the connection: %v", read)
				}
				s.mu.Unlock()
				if secure && (c.Proved.Name != "m2" || far.Proved.Name != "m1" || !c.Conn.(*tls.Conn).ConnectionState().HandshakeComplete) {
					t.Error("no TLS from end to end")
				}
				// The end of one side ends all.
				far.cut()
				if err := talk(c); err == nil {
					t.Error("a relayed connection outlives its far end")
				}
				_ = c.Close()
				// Another member at the address is found out by the end, not by the relay.
				c, err = a.DialVia(t.Context(), via.Addr(), b.Addr(), KindMember, Peer{Name: "m9"})
				wantRefused(t, c, err, StatusWrongDestination)
			})
		})
	}
}

// A member relays a bounded number of connections, and room comes back.
func TestRelaysAreBounded(t *testing.T) {
	inMemory(t, func(t *testing.T, w world) {
		b, via := w.open(t, 2), w.open(t, 3)
		defer b.Close()
		defer via.Close()
		b.Handle(KindMember, echo)
		b.Serve()
		via.Handle(KindRelay, func(c *Conn) { _ = via.Relay(c, b.Addr()) })
		via.Serve()
		var open []*Conn
		for i := range maxRelays {
			// Each name has a limit of its own, and each host.
			a := w.open(t, 4+i/32, func(c *Config) { c.Self.Name = string(rune('a' + i/32)) })
			defer a.Close()
			c, err := a.DialVia(t.Context(), via.Addr(), b.Addr(), KindMember, Peer{})
			if err != nil {
				t.Fatal(i, err)
			}
			check(t, talk(c)) // a silent one would be cut
			open = append(open, c)
		}
		// Idle ones would give way.
		var talks sync.WaitGroup
		for _, c := range open {
			talks.Go(func() { check(t, talk(c)) })
		}
		talks.Wait()
		a := w.open(t, 1)
		defer a.Close()
		c, err := a.DialVia(t.Context(), via.Addr(), b.Addr(), KindMember, Peer{})
		wantRefused(t, c, err, StatusTooManyConnections)
		served(t, a, b)
		for _, c := range open {
			check(t, c.Close())
		}
		for range 100 {
			if c, err = a.DialVia(t.Context(), via.Addr(), b.Addr(), KindMember, Peer{}); err == nil {
				check(t, c.Close())
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Errorf("no room came back: %v", err)
	})
}

// A host that takes many names leaves relays to other hosts: a member that is cut off from the
// leader keeps its sessions.
func TestAHostLeavesRelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := transport.NewMemory(1)
		w := memoryWorld(m)
		via, mallory := w.open(t, 3), w.listen(t, 4)
		defer closeAll(via, mallory)
		via.Handle(KindRelay, echo) // as a far end that answers
		via.Serve()
		relays := func(e transport.Endpoint, name string) (n int) {
			for range maxConnsPerName {
				c, err := e.Dial(t.Context(), via.Addr())
				check(t, err)
				_, _ = c.Write(appendHello(nil, Hello{Kind: KindRelay, Cluster: "test", From: Peer{name, 6}}))
				if got, err := readAnswer(c); err != nil || got.status != StatusOK {
					_ = c.Close()
					continue
				}
				n++
				_, _ = c.Write([]byte{1}) // a silent one would give way
			}
			return n
		}
		got := 0
		for i := range maxRelays / maxConnsPerName {
			got += relays(mallory, fmt.Sprint("mallory", i))
		}
		if got != relaysPerIP {
			t.Errorf("a host has %d of %d relays", got, maxRelays)
		}
		for i := range maxRelays/relaysPerIP - 1 {
			e, err := m.Host(fmt.Sprintf("10.0.1.%d", i)).Listen(":0")
			check(t, err)
			defer e.Close()
			if n := relays(e, fmt.Sprint("honest", i)); n != maxConnsPerName {
				t.Errorf("host %d has %d relays", i, n)
			}
		}
		closeAll(via, mallory)
		if n := len(via.places.relaysAt); n != 0 {
			t.Errorf("places at %d addresses are left", n)
		}
	})
}

// A relay ends with its own connection although the far side reads nothing: a leader that
// stands still must not keep the relaying member from stopping.
func TestARelayToASilentEndStops(t *testing.T) {
	everywhere(t, func(t *testing.T, w world) {
		far, via, a := w.listen(t, 2), w.open(t, 3), w.open(t, 1)
		defer a.Close()
		defer via.Close()
		accepted := make(chan net.Conn, 1)
		go func() {
			c, _ := far.Accept()
			accepted <- c
		}()
		via.Handle(KindRelay, func(c *Conn) { _ = via.Relay(c, far.Addr()) })
		via.Serve()
		c, err := a.Dial(t.Context(), via.Addr(), KindRelay, Peer{Name: "m2"})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		silent := <-accepted
		defer silent.Close()
		for block := make([]byte, 1<<20); err == nil; {
			_ = c.SetWriteDeadline(time.Now().Add(500 * time.Millisecond))
			_, err = c.Write(block) // until all buffers on the way are full
		}
		stopped := make(chan struct{})
		go func() {
			_ = via.Close()
			close(stopped)
		}()
		select {
		case <-stopped:
		case <-time.After(5 * time.Second):
			t.Error("the relay does not stop")
			_ = silent.Close()
			<-stopped
		}
	})
}
