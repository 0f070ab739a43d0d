package port

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/transport"
)

// squat opens n connections in a name from an address, and sends a byte on each if
// they talk.
func squat(t *testing.T, e transport.Endpoint, p *Port, name string, n int, talks bool) (open []net.Conn) {
	t.Helper()
	for i := range n {
		c, err := e.Dial(t.Context(), p.Addr())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write(appendHello(nil, Hello{Kind: KindMember, Cluster: "test", From: Peer{name, 6}}))
		if got, err := readAnswer(c); err != nil || got.status != StatusOK {
			t.Fatalf("connection %d: %v, %v", i, got.status, err)
		}
		if talks {
			_, _ = c.Write([]byte{1})
		}
		open = append(open, c)
	}
	return open
}

// closedOf returns how many of the connections the other side has closed.
func closedOf(open []net.Conn) (n int) {
	for _, c := range open {
		_ = c.SetReadDeadline(time.Now().Add(time.Nanosecond))
		if _, err := io.Copy(io.Discard, c); err == nil {
			n++
		}
	}
	return n
}

func TestSilentConnectionsInAMembersNameGiveWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := memoryWorld(transport.NewMemory(1))
		a, b, mallory := w.open(t, 1), w.open(t, 2), w.listen(t, 3)
		defer closeAll(a, b, mallory)
		b.Handle(KindMember, echo)
		b.Serve()
		open := squat(t, mallory, b, "m1", maxConnsPerName, false)
		c, err := a.Dial(t.Context(), b.Addr(), KindMember, Peer{})
		wantRefused(t, c, err, StatusTooManyConnections)
		time.Sleep(timing.SilentPlace)
		served(t, a, b)
		if n := closedOf(open); n != 1 {
			t.Errorf("%d connections gave way to one", n)
		}
		time.Sleep(timing.FirstByte)
		if n := closedOf(open); n != len(open) {
			t.Errorf("%d of %d silent connections were cut", n, len(open))
		}
		closeAll(a, b, mallory)
		if b.places.all.size+len(b.places.perClaimant)+len(b.places.perName)+len(b.places.perIP) != 0 {
			t.Errorf("places are left: %+v", b.places)
		}
	})
}

// Of the idle, the connections of the stranger with the many give way, and the
// member's one stays.
func TestIdleConnectionsOfTheBusiestGiveWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := memoryWorld(transport.NewMemory(1))
		a, b, mallory := w.open(t, 1), w.open(t, 2), w.listen(t, 3)
		defer closeAll(a, b, mallory)
		b.Handle(KindMember, echo)
		b.Serve()
		own, err := a.Dial(t.Context(), b.Addr(), KindMember, Peer{})
		if err != nil {
			t.Fatal(err)
		}
		defer own.Close()
		check(t, talk(own))
		time.Sleep(time.Second)
		open := squat(t, mallory, b, "m1", maxConnsPerName-1, true)
		time.Sleep(timing.IdlePlace + time.Second) // the member's connection is idle for longest
		served(t, a, b)
		check(t, talk(own))
		if n := closedOf(open); n != 1 {
			t.Errorf("%d connections gave way to one", n)
		}
	})
}

// Strangers that talk in a member's name keep their places, and the member has
// places of its own.
func TestALivingMemberHasPlacesAboveTheCaps(t *testing.T) {
	for _, cap := range []struct {
		name string
		fill func(t *testing.T, m *transport.Memory, b *Port) (ends []io.Closer)
		more int // places for known members
	}{
		{"name", func(t *testing.T, m *transport.Memory, b *Port) []io.Closer {
			e, err := m.Host("10.0.0.3").Listen(":0")
			if err != nil {
				t.Fatal(err)
			}
			squat(t, e, b, "m1", maxConnsPerName, true)
			return []io.Closer{e}
		}, spareConnsPerName},
		{"total", func(t *testing.T, m *transport.Memory, b *Port) (ends []io.Closer) {
			for i := range 8 {
				e, err := m.Host(fmt.Sprintf("10.0.1.%d", i)).Listen(":0")
				if err != nil {
					t.Fatal(err)
				}
				ends = append(ends, e)
				for j := range 8 {
					squat(t, e, b, fmt.Sprint("mallory", i, j), maxConnsPerName, true)
				}
			}
			return ends
		}, spareConnsPerName + maxConnsPerName},
	} {
		t.Run(cap.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := transport.NewMemory(1)
				w := memoryWorld(m)
				living := func(from Peer, ip netip.Addr) bool {
					return from == Peer{"m1", 1} && ip == netip.MustParseAddr("10.0.0.1")
				}
				a, b := w.open(t, 1), w.open(t, 2, func(c *Config) { c.Living = living })
				defer closeAll(a, b)
				b.Handle(KindMember, echo)
				b.Serve()
				ends := cap.fill(t, m, b)
				defer closeAll(ends...)
				stranger := w.open(t, 1, func(c *Config) { c.Self.Boot = 9 })
				defer stranger.Close()
				c, err := stranger.Dial(t.Context(), b.Addr(), KindMember, Peer{})
				wantRefused(t, c, err, StatusTooManyConnections)
				for range cap.more {
					c, err := a.Dial(t.Context(), b.Addr(), KindMember, Peer{})
					if err != nil {
						t.Fatal(err)
					}
					defer c.Close()
					check(t, talk(c))
				}
				c, err = a.Dial(t.Context(), b.Addr(), KindMember, Peer{})
				wantRefused(t, c, err, StatusTooManyConnections)
			})
		})
	}
}

// A process that takes many names has a quarter of the places, from one host a sixteenth, and
// those that gossip knows have the others. Once gossip knows a newcomer, its place is free.
func TestNewcomersHaveAQuarterOfThePlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := transport.NewMemory(1)
		w := memoryWorld(m)
		var met atomic.Bool // mallory0
		a, b := w.open(t, 1), w.open(t, 2, func(c *Config) {
			c.Known = func(from Peer) bool { return from == Peer{"m1", 1} || met.Load() && from.Name == "mallory0" }
		})
		defer closeAll(a, b)
		for _, k := range []Kind{KindMember, KindGossip} {
			b.Handle(k, echo)
		}
		b.Serve()
		var ends, open []io.Closer
		defer func() { closeAll(ends...) }()
		var host transport.Endpoint
		for i := range maxNewcomers / maxConnsPerName {
			if i%(newcomersPerIP/maxConnsPerName) == 0 {
				if host != nil {
					extra, err := host.Dial(t.Context(), b.Addr())
					check(t, err)
					_, _ = extra.Write(appendHello(nil, Hello{Kind: KindMember, Cluster: "test", From: Peer{"extra", 6}}))
					if got, err := readAnswer(extra); err != nil || got.status != StatusTooManyConnections {
						t.Errorf("one more of a host: %v, %v", got.status, err)
					}
				}
				var err error
				if host, err = m.Host(fmt.Sprintf("10.0.1.%d", i)).Listen(":0"); err != nil {
					t.Fatal(err)
				}
				ends = append(ends, host)
			}
			for _, c := range squat(t, host, b, fmt.Sprint("mallory", i), maxConnsPerName, true) {
				open = append(open, c)
			}
		}
		stranger := w.open(t, 3)
		defer stranger.Close()
		c, err := stranger.Dial(t.Context(), b.Addr(), KindMember, Peer{})
		wantRefused(t, c, err, StatusTooManyConnections)
		c, err = stranger.Dial(t.Context(), b.Addr(), KindGossip, Peer{}) // and becomes known by it
		check(t, err)
		check(t, c.Close())
		for range maxConnsPerName {
			c, err := a.Dial(t.Context(), b.Addr(), KindMember, Peer{})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			check(t, talk(c))
		}
		if n := b.places.newcomers.size; n != maxNewcomers {
			t.Errorf("%d newcomers", n)
		}
		met.Store(true)
		time.Sleep(timing.SilentPlace)
		served(t, stranger, b)
		synctest.Wait()
		if n := b.places.newcomers.size; n != maxNewcomers-maxConnsPerName {
			t.Errorf("%d newcomers, once one name is known", n)
		}
		closeAll(open...)
		synctest.Wait()
		if n, at := b.places.newcomers.size, len(b.places.newcomersAt); n+at != 0 {
			t.Errorf("%d newcomers at %d addresses are left", n, at)
		}
	})
}

// A handler's own deadline takes the place of the first byte's, and stays.
func TestFirstByteLeavesTheHandlersDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := memoryWorld(transport.NewMemory(1))
		a, b := w.open(t, 1), w.open(t, 2)
		defer closeAll(a, b)
		after := make(chan time.Duration, 1)
		b.Handle(KindMember, func(c *Conn) {
			defer c.Close()
			begun := time.Now()
			_ = c.SetReadDeadline(begun.Add(time.Minute))
			_, _ = io.Copy(io.Discard, c)
			after <- time.Since(begun)
		})
		b.Serve()
		c, err := a.Dial(t.Context(), b.Addr(), KindMember, Peer{})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		time.Sleep(2 * timing.FirstByte)
		_, _ = c.Write([]byte{1})
		if d := <-after; d != time.Minute {
			t.Errorf("ended after %v", d)
		}
	})
}

func TestAnIPv6HostIsOneAddress(t *testing.T) {
	for _, x := range []struct{ a, b string }{
		{"[2001:db8::1]:1", "[2001:db8::ffff:2]:2"}, {"[::ffff:10.0.0.1]:1", "10.0.0.1:2"}, {"[fe80::1%1]:1", "[fe80::1]:1"},
	} {
		a, b := remoteIP(at(x.a)), remoteIP(at(x.b))
		if a != b {
			t.Errorf("%v and %v", a, b)
		}
	}
	if remoteIP(at("[2001:db8::1]:1")) == remoteIP(at("[2001:db8:0:1::1]:1")) {
		t.Error("two networks are one address")
	}
}

// at is a connection from an address.
func at(addr string) net.Conn { return remote{addr: addr} }

type remote struct {
	net.Conn
	addr string
}

func (r remote) RemoteAddr() net.Addr { return r }
func (r remote) Network() string      { return "tcp" }
func (r remote) String() string       { return r.addr }
