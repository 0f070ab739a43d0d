package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

var (
	clusterA = [16]byte{0xa}
	clusterB = [16]byte{0xb}
)

func known(id [16]byte) func() [16]byte { return func() [16]byte { return id } }

// open opens a port of the member m<i> with boot i; edit changes the rest.
func (w world) open(t *testing.T, i int, edit ...func(*Config)) *Port {
	t.Helper()
	n, bind := w(i)
	cfg := Config{Network: n, Bind: bind, Cluster: "test", Self: Peer{fmt.Sprintf("m%d", i), uint64(i)}}
	for _, e := range edit {
		e(&cfg)
	}
	p, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// echo serves a kind by sending back what it reads.
func echo(c *Conn) {
	defer c.Close()
	_, _ = io.Copy(c, c)
}

// talk sends a line over an echoing connection and waits for it to come back.
func talk(c net.Conn) error {
	if _, err := c.Write([]byte("hello")); err != nil {
		return err
	}
	buf := make([]byte, 5)
	_, err := io.ReadFull(c, buf)
	if err == nil && string(buf) != "hello" {
		return fmt.Errorf("hello came back as %q", buf)
	}
	return err
}

// served says whether p still serves a healthy member.
func served(t *testing.T, from, p *Port) {
	t.Helper()
	c, err := from.Dial(t.Context(), p.Addr(), KindMember, Peer{})
	if err != nil {
		t.Errorf("a healthy member is not served: %v", err)
		return
	}
	defer c.Close()
	check(t, talk(c))
}

func wantRefused(t *testing.T, c *Conn, err error, want Status) *RefusedError {
	t.Helper()
	var refused *RefusedError
	if c != nil || !errors.As(err, &refused) || refused.Status != want {
		t.Fatalf("refusal %q wanted, got %v, %v", want, c, err)
	}
	if refused.Error() == "" || refused.Addr == "" {
		t.Errorf("a refusal without facts: %+v", refused)
	}
	return refused
}

func TestDialReachesTheHandlerOfItsKind(t *testing.T) {
	everywhere(t, func(t *testing.T, w world) {
		a := w.open(t, 1, func(c *Config) { c.ClusterID = known(clusterA) })
		b := w.open(t, 2)
		defer closeAll(a, b)
		got := make(chan *Conn, 1)
		for _, k := range []Kind{KindRaft, KindGossip, KindMember, KindControl} {
			b.Handle(k, func(c *Conn) {
				if c.Hello.Kind != k {
					t.Errorf("handler of %v got %v", k, c.Hello.Kind)
				}
				got <- c
				echo(c)
			})
		}
		b.Serve()
		b.Serve() // again: nothing
		for _, k := range []Kind{KindRaft, KindGossip, KindMember, KindControl} {
			to := Peer{"m2", 2}
			if k == KindRaft {
				to.Boot = 77 // a generation
			}
			c, err := a.Dial(t.Context(), b.Addr(), k, to)
			if err != nil {
				t.Fatal(err)
			}
			s := <-got
			want := Hello{Kind: k, Cluster: "test", ClusterID: clusterA, From: Peer{"m1", 1}, To: to}
			if s.Hello != want || c.Hello != want {
				t.Errorf("sent %+v, received %+v, want %+v", c.Hello, s.Hello, want)
			}
			if (s.Remote != Peer{"m1", 1}) || (c.Remote != Peer{"m2", 2}) || !s.Accepted || c.Accepted {
				t.Errorf("remotes %v and %v, accepted %v and %v", s.Remote, c.Remote, s.Accepted, c.Accepted)
			}
			check(t, talk(c))
			check(t, c.Close())
		}
	})
}

func TestForeignClusterIsRefusedLoudly(t *testing.T) {
	everywhere(t, func(t *testing.T, w world) {
		var told atomic.Int32
		hear := func(name, cluster string, id [16]byte) func(*Config) {
			return func(c *Config) {
				c.Foreign = func(h Hello, addr string) {
					told.Add(1)
					if h.From.Name != name || h.Cluster != cluster || h.ClusterID != id || addr == "" {
						t.Errorf("told of %+v at %q; want %s of %q %x", h, addr, name, cluster, id)
					}
				}
			}
		}
		id := func(id [16]byte) func(*Config) { return func(c *Config) { c.ClusterID = known(id) } }
		named := func(n string) func(*Config) { return func(c *Config) { c.Cluster = n } }
		for _, x := range []struct {
			name string
			a, b []func(*Config)
			told int32
		}{
			{"other ID", []func(*Config){id(clusterA), hear("m2", "test", clusterB)}, []func(*Config){id(clusterB), hear("m1", "test", clusterA)}, 2},
			{"other name", []func(*Config){hear("m2", "", clusterB)}, []func(*Config){named("other"), id(clusterB), hear("m1", "", [16]byte{})}, 2},
			{"both", []func(*Config){id(clusterA), hear("m2", "", clusterB)}, []func(*Config){named("other"), id(clusterB), hear("m1", "", clusterA)}, 2},
		} {
			told.Store(0)
			a, b := w.open(t, 1, x.a...), w.open(t, 2, x.b...)
			b.Handle(KindMember, echo)
			b.Serve()
			c, err := a.Dial(t.Context(), b.Addr(), KindMember, Peer{})
			refused := wantRefused(t, c, err, StatusForeignCluster)
			if refused.ClusterID != clusterB || (refused.Peer != Peer{"m2", 2}) || refused.Kind != KindMember {
				t.Errorf("%s: %+v", x.name, refused)
			}
			closeAll(a, b)
			if told.Load() != x.told {
				t.Errorf("%s: %d were told, want %d", x.name, told.Load(), x.told)
			}
		}
		// One side that knows no ID yet is no stranger.
		for _, ids := range [][2][16]byte{{clusterA, {}}, {{}, clusterA}, {{}, {}}, {clusterA, clusterA}} {
			a, b := w.open(t, 1, id(ids[0])), w.open(t, 2, id(ids[1]))
			b.Handle(KindMember, echo)
			b.Serve()
			served(t, a, b)
			closeAll(a, b)
		}
	})
}

// answering runs a server that reads preambles and gives one fixed answer.
func (w world) answering(t *testing.T, reply []byte) (addr string, stop func()) {
	e := w.listen(t, 9)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := e.Accept()
			if err != nil {
				return
			}
			if _, _, err := readHello(c); err != nil {
				t.Errorf("preamble: %v", err)
			}
			_, _ = c.Write(reply)
			_, _ = io.Copy(io.Discard, c)
			_ = c.Close()
		}
	})
	return e.Addr(), func() { _ = e.Close(); wg.Wait() }
}

func TestDialDoesNotBelieveALyingAnswer(t *testing.T) {
	everywhere(t, func(t *testing.T, w world) {
		a := w.open(t, 1, func(c *Config) { c.ClusterID = known(clusterA) })
		defer a.Close()
		ours := hashCluster("test")
		ok := answer{StatusOK, ours, clusterA, Peer{"m2", 2}}
		with := func(edit func(*answer)) []byte { x := ok; edit(&x); return appendAnswer(nil, x) }
		for _, x := range []struct {
			reply []byte
			want  Status
		}{
			{with(func(x *answer) { x.clusterID = clusterB }), StatusForeignCluster},
			{with(func(x *answer) { x.cluster = hashCluster("other") }), StatusForeignCluster},
			{with(func(x *answer) { x.from.Name = "m3" }), StatusWrongDestination},
			{with(func(x *answer) { x.from.Boot = 3 }), StatusWrongDestination},
			{with(func(x *answer) { x.status = 99 }), 99},
			{[]byte("wmt1\x02 what later versions say"), StatusBadVersion},
		} {
			addr, stop := w.answering(t, x.reply)
			c, err := a.Dial(t.Context(), addr, KindMember, Peer{"m2", 2})
			wantRefused(t, c, err, x.want)
			stop()
		}
		for _, garbage := range []string{"HTTP/1.1 400 Bad Request\r\n\r\n", "wmt1\x01\x00\x00" + string(make([]byte, 200)), "wmt1\x01\x00\xff" + string(make([]byte, 300))} {
			addr, stop := w.answering(t, []byte(garbage))
			if c, err := a.Dial(t.Context(), addr, KindMember, Peer{}); err == nil || c != nil || isRefused(err) {
				t.Errorf("answer %.8q: %v, %v", garbage, c, err)
			}
			stop()
		}
		check(t, a.Close())
		if n := len(a.conns); n != 0 {
			t.Errorf("%d connections are left behind", n)
		}
	})
}

func TestWrongDestinationIsRefused(t *testing.T) {
	everywhere(t, func(t *testing.T, w world) {
		a := w.open(t, 1)
		b := w.open(t, 2, func(c *Config) {
			c.Admit = func(h Hello) error {
				if h.Kind == KindRaft && h.To.Boot != 5 {
					return &RefusedError{Status: StatusWrongDestination}
				}
				return nil
			}
		})
		defer closeAll(a, b)
		b.Handle(KindMember, echo)
		b.Handle(KindRaft, echo)
		b.Serve()
		for _, x := range []struct {
			kind Kind
			to   Peer
			want Status
		}{
			{KindMember, Peer{}, StatusOK},
			{KindMember, Peer{"m2", 0}, StatusOK},
			{KindMember, Peer{"m2", 2}, StatusOK},
			{KindMember, Peer{"", 2}, StatusOK},
			{KindMember, Peer{"m2", 3}, StatusWrongDestination}, // restarted since
			{KindMember, Peer{"m3", 0}, StatusWrongDestination}, // address reused
			{KindRaft, Peer{"m2", 5}, StatusOK},
			{KindRaft, Peer{"m2", 4}, StatusWrongDestination}, // by Admit
			{KindRaft, Peer{"m3", 5}, StatusWrongDestination},
		} {
			c, err := a.Dial(t.Context(), b.Addr(), x.kind, x.to)
			if x.want != StatusOK {
				wantRefused(t, c, err, x.want)
				continue
			}
			if err != nil {
				t.Errorf("%v to %v: %v", x.kind, x.to, err)
				continue
			}
			check(t, c.Close())
		}
	})
}

func TestKindsThatAreNotServedAreRefused(t *testing.T) {
	everywhere(t, func(t *testing.T, w world) {
		a := w.open(t, 1)
		b := w.open(t, 2, func(c *Config) {
			c.Admit = func(h Hello) error {
				switch h.Kind {
				case KindRaft:
					return errors.New("not founded yet")
				case KindControl:
					return fmt.Errorf("wrapped: %w", &RefusedError{Status: StatusTooManyConnections})
				case KindPackets:
					return &RefusedError{} // even without a status
				}
				return nil
			}
		})
		defer closeAll(a, b)
		for _, k := range []Kind{KindRaft, KindControl, KindMember, KindPackets} {
			b.Handle(k, echo)
		}
		b.Serve()
		for k, want := range map[Kind]Status{KindRaft: StatusRefused, KindControl: StatusTooManyConnections, KindPackets: StatusRefused, KindGossip: StatusRefused, 0: StatusRefused, 200: StatusRefused} {
			c, err := a.Dial(t.Context(), b.Addr(), k, Peer{})
			wantRefused(t, c, err, want)
		}
		served(t, a, b)
	})
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
		hub.Drop("x", 8)
		for c, gone := range dead {
			_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond)) // or it is closed
			_, err := c.Read(make([]byte, 1))
			var timeout net.Error
			if alive := errors.As(err, &timeout) && timeout.Timeout(); alive == gone {
				t.Errorf("connection with %v: %v", c.Remote, err)
			}
		}
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
		if len(hub.conns)+hub.accepted+len(hub.perIP)+len(hub.perName)+len(hub.pending) != 0 {
			t.Errorf("closed connections are still counted: %d %d %v %v", len(hub.conns), hub.accepted, hub.perIP, hub.perName)
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

func TestCloseAndCtxEndADialWithoutAnswer(t *testing.T) {
	everywhere(t, func(t *testing.T, w world) {
		e := w.listen(t, 9)
		defer e.Close()
		a := w.open(t, 1)
		got := make(chan net.Conn, 1)
		dial := func(ctx context.Context) (err error) {
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, err = a.Dial(ctx, e.Addr(), KindMember, Peer{})
			}()
			c, _ := e.Accept()
			_, _, herr := readHello(c)
			check(t, herr)
			got <- c
			<-done
			return err
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() { c := <-got; cancel(); <-ctx.Done(); defer c.Close() }()
		if err := dial(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled dial: %v", err)
		}
		go func() { c := <-got; defer c.Close(); _ = a.Close() }()
		if err := dial(t.Context()); !errors.Is(err, net.ErrClosed) {
			t.Errorf("dial of a closed port: %v", err)
		}
	})
}

func TestGarbageEndsTheConnectionOnly(t *testing.T) {
	good := appendHello(nil, Hello{Kind: KindMember, Cluster: "test", From: Peer{"mallory", 6}})
	edit := func(i int, b byte) []byte { x := bytes.Clone(good); x[i] = b; return x }
	for _, x := range []struct {
		name   string
		sent   []byte
		answer Status // StatusOK: none
	}{
		{"nothing", nil, 0},
		{"http", []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), 0},
		{"one wrong byte", []byte("x"), 0},
		{"half a preamble", good[:30], 0},
		{"no names", good[:helloHeader], 0},
		{"4 GiB claim", []byte("\xff\xff\xff\xff\xff"), 0},
		{"other version", append(edit(4, 2), make([]byte, 100)...), StatusBadVersion},
		{"no name", edit(6, 0), StatusBadPreamble},
		{"long name", edit(6, 255), StatusBadPreamble},
		{"long destination", edit(7, 129), StatusBadPreamble},
		{"control characters", edit(helloHeader, '\n'), StatusBadPreamble},
		{"invalid UTF-8", edit(helloHeader, 0xff), StatusBadPreamble},
		{"unknown kind", edit(5, 99), StatusRefused},
		{"other cluster", edit(8, good[8]+1), StatusForeignCluster},
	} {
		t.Run(x.name, func(t *testing.T) {
			everywhere(t, func(t *testing.T, w world) {
				a, b := w.open(t, 1), w.open(t, 2)
				defer closeAll(a, b)
				b.Handle(KindMember, echo)
				b.Serve()
				c, err := a.endpoint.Dial(t.Context(), b.Addr())
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				_, err = c.Write(x.sent)
				check(t, err)
				if x.answer == StatusOK && len(x.sent) > 0 && string(x.sent[:1]) == "w" || len(x.sent) == 0 {
					_ = c.Close() // it waits for more, until the deadline
				} else if a, err := readAnswer(c); x.answer != StatusOK && (err != nil || a.status != x.answer) {
					t.Errorf("answer %v, %v; want %v", a.status, err, x.answer)
				} else if x.answer == StatusOK && err == nil {
					t.Errorf("garbage was answered: %v", a.status)
				}
				served(t, a, b)
			})
		})
	}
}

func TestSlowPreambleIsCutAtTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := memoryWorld(NewMemory(1))
		a, b := w.open(t, 1), w.open(t, 2)
		defer closeAll(a, b)
		b.Handle(KindMember, echo)
		b.Serve()
		start := time.Now()
		var wg sync.WaitGroup
		for range 200 {
			wg.Go(func() {
				c, err := a.endpoint.Dial(t.Context(), b.Addr())
				check(t, err)
				defer c.Close()
				for _, x := range appendHello(nil, Hello{Kind: KindMember, Cluster: "test", From: Peer{"slow", 6}}) {
					if _, err := c.Write([]byte{x}); err != nil {
						break
					}
					time.Sleep(time.Second)
				}
				if d := time.Since(start); d < handshakeTimeout || d > handshakeTimeout+2*time.Second {
					t.Errorf("cut after %v", d)
				}
			})
		}
		synctest.Wait()
		served(t, a, b) // while all of them drip
		wg.Wait()
		check(t, b.Close())
		if len(b.pending)+b.accepted != 0 {
			t.Errorf("%d handshakes are left", len(b.pending))
		}
	})
}

func TestSilentServerIsGivenUpAtTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := memoryWorld(NewMemory(1))
		a, e := w.open(t, 1), w.listen(t, 2)
		defer closeAll(a, e)
		start := time.Now()
		if _, err := a.Dial(t.Context(), e.Addr(), KindMember, Peer{}); err == nil {
			t.Error("dialled without an answer")
		}
		if d := time.Since(start); d != handshakeTimeout {
			t.Errorf("gave up after %v", d)
		}
	})
}

func TestAdmittedConnectionHasNoDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := memoryWorld(NewMemory(1))
		a, b := w.open(t, 1), w.open(t, 2)
		defer closeAll(a, b)
		b.Handle(KindRaft, echo)
		b.Serve()
		c, err := a.Dial(t.Context(), b.Addr(), KindRaft, Peer{})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(24 * time.Hour)
		check(t, talk(c))
	})
}

func TestHandshakesBeyondTheCapPushOutTheFloodersOldest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := memoryWorld(NewMemory(1))
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
			b.mu.Lock()
			n := len(b.pending)
			b.mu.Unlock()
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
				m := NewMemory(1)
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
				ends := make(map[string]Endpoint)
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

func TestPacketsReachTheirHandler(t *testing.T) {
	everywhere(t, func(t *testing.T, w world) {
		a, b := w.open(t, 1), w.open(t, 2)
		defer closeAll(a, b)
		type packet struct {
			b    []byte
			from string
		}
		got := make(chan packet, 2)
		before := time.Now()
		b.HandlePackets(func(p []byte, from string, at time.Time) {
			if at.Before(before) || time.Since(at) < 0 {
				t.Errorf("packet read at %v", at)
			}
			got <- packet{p, from}
		})
		b.Serve()
		check(t, a.Send([]byte("one"), b.Addr()))
		one := <-got
		check(t, a.Send([]byte("two"), b.Addr()))
		two := <-got
		if string(one.b) != "one" || string(two.b) != "two" || one.from != a.Addr() {
			t.Errorf("packets %q and %q from %s", one.b, two.b, one.from)
		}
	})
}

// failing is an endpoint out of file descriptors.
type failing struct {
	Endpoint
	attempts atomic.Int32
	broken   atomic.Bool
}

func (f *failing) Listen(string) (Endpoint, error) { return f, nil }

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
		w := memoryWorld(NewMemory(1))
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
