package port

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/transport"
)

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

// answering runs a server with a fixed answer to every preamble.
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
		ok := answer{StatusOK, ours, clusterA, Peer{"m2", 2}, ""}
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
			{[]byte("wmt1\x02 bytes of a later version"), StatusBadVersion},
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

// The dialler learns which process answers, and whether that process claims the
// dialled address, both when admitted and when refused.
func TestTheDiallerLearnsTheAnswerersAddress(t *testing.T) {
	everywhere(t, func(t *testing.T, w world) {
		a := w.open(t, 1)
		b := w.open(t, 2, func(c *Config) { c.Advertised = func() string { return "10.9.9.9:7000" } })
		defer closeAll(a, b)
		b.Handle(KindControl, echo)
		b.Serve()
		c, err := a.Dial(t.Context(), b.Addr(), KindControl, Peer{"m2", 2})
		check(t, err)
		if c.Advertised != "10.9.9.9:7000" || c.Remote != (Peer{"m2", 2}) {
			t.Errorf("admitted: %v advertises %q", c.Remote, c.Advertised)
		}
		check(t, c.Close())
		c, err = a.Dial(t.Context(), b.Addr(), KindControl, Peer{"m2", 1})
		if r := wantRefused(t, c, err, StatusWrongDestination); r.Advertised != "10.9.9.9:7000" || r.Peer != (Peer{"m2", 2}) {
			t.Errorf("refused: %v advertises %q", r.Peer, r.Advertised)
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

func TestSilentServerIsGivenUpAtTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := memoryWorld(transport.NewMemory(1))
		a, e := w.open(t, 1), w.listen(t, 2)
		defer closeAll(a, e)
		start := time.Now()
		if _, err := a.Dial(t.Context(), e.Addr(), KindMember, Peer{}); err == nil {
			t.Error("dialled without an answer")
		}
		if d := time.Since(start); d != timing.Handshake {
			t.Errorf("gave up after %v", d)
		}
	})
}
