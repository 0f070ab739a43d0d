package port

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/transport"
)

func TestForeignClusterIsRefusedLoudly(t *testing.T) {
	everywhere(t, func(t *testing.T, w world) {
		var told atomic.Int32
		hear := func(name, cluster string, id [16]byte) func(*Config) {
			return func(c *Config) {
				c.Foreign = func(h Hello, addr string, dialled bool) {
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
		// A side without an ID yet is no stranger.
		for _, ids := range [][2][16]byte{{clusterA, {}}, {{}, clusterA}, {{}, {}}, {clusterA, clusterA}} {
			a, b := w.open(t, 1, id(ids[0])), w.open(t, 2, id(ids[1]))
			b.Handle(KindMember, echo)
			b.Serve()
			served(t, a, b)
			closeAll(a, b)
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
					_ = c.Close() // the port waits for more, until the deadline
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
		w := memoryWorld(transport.NewMemory(1))
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
				if d := time.Since(start); d < timing.Handshake || d > timing.Handshake+2*time.Second {
					t.Errorf("cut after %v", d)
				}
			})
		}
		synctest.Wait()
		served(t, a, b) // while all of them drip
		wg.Wait()
		check(t, b.Close())
		if b.shakes.size+b.places.all.size != 0 {
			t.Errorf("%d handshakes are left", b.shakes.size)
		}
	})
}

func TestAdmittedConnectionHasNoDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := memoryWorld(transport.NewMemory(1))
		a, b := w.open(t, 1), w.open(t, 2)
		defer closeAll(a, b)
		b.Handle(KindRaft, echo)
		b.Serve()
		c, err := a.Dial(t.Context(), b.Addr(), KindRaft, Peer{})
		if err != nil {
			t.Fatal(err)
		}
		check(t, talk(c))
		time.Sleep(12 * time.Hour)
		check(t, talk(c))
	})
}
