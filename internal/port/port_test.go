package port

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestOpenRefusesABadConfig(t *testing.T) {
	for _, self := range []Peer{{"", 1}, {"m", 0}, {string(make([]byte, 129)), 1}, {"a\nb", 1}, {"\xff", 1}} {
		if p, err := Open(Config{Bind: "127.0.0.1:0", Self: self}); err == nil {
			_ = p.Close()
			t.Errorf("opened for %q", self)
		}
	}
	if p, err := Open(Config{Bind: "no port", Self: Peer{"m", 1}}); err == nil {
		_ = p.Close()
		t.Error("opened without a port")
	}
}

func TestDropClosesOtherIncarnations(t *testing.T) {
	everywhere(t, func(t *testing.T, w world) {
		hub := w.open(t, 1)
		conns := make(chan *Conn, 8)
		keep := func(c *Conn) { conns <- c }
		hub.Handle(KindMember, keep)
		hub.Serve()
		dead := make(map[*Conn]bool)
		accept := func(p *Port, gone bool) {
			c, err := p.Dial(t.Context(), hub.Addr(), KindMember, Peer{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			s := <-conns
			dead[s], dead[c] = gone, gone
			// And the hub's own connection to it.
			p.Handle(KindMember, keep)
			p.Serve()
			d, err := hub.Dial(t.Context(), p.Addr(), KindMember, Peer{})
			if err != nil {
				t.Fatal(err)
			}
			dead[<-conns], dead[d] = gone, gone
		}
		boot := func(n string, b uint64) func(*Config) { return func(c *Config) { c.Self = Peer{n, b} } }
		old, young, other := w.open(t, 2, boot("x", 7)), w.open(t, 3, boot("x", 8)), w.open(t, 4, boot("y", 7))
		accept(old, true)
		accept(young, false)
		accept(other, false)
		hub.Drop("x", 7)
		var readers sync.WaitGroup
		for c, gone := range dead {
			readers.Go(func() {
				_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond)) // or it is closed
				_, err := c.Read(make([]byte, 1))
				var timeout net.Error
				if alive := errors.As(err, &timeout) && timeout.Timeout(); alive == gone {
					t.Errorf("connection with %v: %v", c.Remote, err)
				}
			})
		}
		readers.Wait()
		hub.mu.Lock()
		n := len(hub.conns)
		hub.mu.Unlock()
		if n != 4 {
			t.Errorf("%d connections are counted, want 4", n)
		}
		for c := range dead {
			_ = c.Close()
		}
		closeAll(hub, old, young, other)
		if len(hub.conns)+hub.places.all.size+len(hub.places.perIP)+len(hub.places.perName)+len(hub.places.perClaimant)+hub.shakes.size != 0 {
			t.Errorf("closed connections are still counted: %d %d %v %v", len(hub.conns), hub.places.all.size, hub.places.perIP, hub.places.perName)
		}
	})
}

func TestCloseJoinsEverything(t *testing.T) {
	everywhere(t, func(t *testing.T, w world) {
		a, b := w.open(t, 1), w.open(t, 2)
		var running atomic.Int32
		b.Handle(KindMember, func(c *Conn) {
			running.Add(1)
			defer running.Add(-1)
			_, _ = c.Read(make([]byte, 1))
		})
		b.HandlePackets(func([]byte, string, time.Time) {})
		b.Serve()
		for range 10 {
			if _, err := a.Dial(t.Context(), b.Addr(), KindMember, Peer{}); err != nil {
				t.Fatal(err)
			}
		}
		silent, err := a.endpoint.Dial(t.Context(), b.Addr()) // never says hello
		if err != nil {
			t.Fatal(err)
		}
		defer silent.Close()
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { check(t, b.Close()) })
		}
		wg.Wait()
		if n := running.Load(); n != 0 {
			t.Errorf("%d handlers outlive Close", n)
		}
		b.Serve() // too late: nothing
		if _, err := b.Dial(t.Context(), a.Addr(), KindMember, Peer{}); !errors.Is(err, net.ErrClosed) {
			t.Errorf("dial after close: %v", err)
		}
		if err := b.Send(nil, a.Addr()); !errors.Is(err, net.ErrClosed) {
			t.Errorf("send after close: %v", err)
		}
		check(t, a.Close()) // never served
	})
}
