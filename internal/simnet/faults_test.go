package simnet

import (
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"
)

func TestCutIsOneWay(t *testing.T) {
	inBubble(t, func(t *testing.T, sim *Network, e []*Endpoint) {
		sim.Cut(ip(1), ip(2))
		for _, x := range []struct {
			from, to int
			want     bool
		}{{1, 2, false}, {2, 1, true}, {1, 3, true}, {3, 2, true}, {1, 1, true}} {
			if got := reaches(t, e[x.from], e[x.to]); got != x.want {
				t.Errorf("%d reaches %d: %v", x.from, x.to, got)
			}
		}
		sim.Heal()
		if !reaches(t, e[1], e[2]) {
			t.Error("healed, and still cut")
		}
	})
}

func TestPartitionSeparatesGroupsOnly(t *testing.T) {
	inBubble(t, func(t *testing.T, sim *Network, e []*Endpoint) {
		sim.Partition([]string{ip(1)}, []string{ip(2), ip(4)}) // 3 is the bridge
		for _, x := range []struct {
			from, to int
			want     bool
		}{{1, 2, false}, {2, 1, false}, {1, 3, true}, {3, 1, true}, {2, 3, true}, {3, 2, true}} {
			if got := reaches(t, e[x.from], e[x.to]); got != x.want {
				t.Errorf("%d reaches %d: %v", x.from, x.to, got)
			}
		}
	})
}

func TestIsolatedHostReachesOnlyItself(t *testing.T) {
	inBubble(t, func(t *testing.T, sim *Network, e []*Endpoint) {
		sim.Isolate(ip(1))
		sim.Isolate(ip(2))
		late, err := HostOf[*Endpoint](sim, ip(4)).Listen(":7000") // isolated from hosts to come
		if err != nil {
			t.Fatal(err)
		}
		defer late.Close()
		if reaches(t, e[1], e[3]) || reaches(t, e[3], e[1]) || reaches(t, e[1], e[2]) || reaches(t, late, e[1]) {
			t.Error("an isolated host is reached")
		}
		if !reaches(t, e[1], e[1]) || !reaches(t, e[3], late) {
			t.Error("too much is cut")
		}
		sim.Heal()
		if !reaches(t, e[1], e[3]) || !reaches(t, late, e[1]) || !reaches(t, e[1], e[2]) {
			t.Error("healed, and still isolated")
		}
	})
}

func TestFrozenHostLosesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, sim *Network, e []*Endpoint) {
		sim.SetDefault(Link{Delay: time.Millisecond})
		x, y := pair(t, e[1], e[2])
		defer closeAll(x, y)
		sim.Freeze(ip(2))
		start := time.Now()
		// Towards the frozen host.
		_, err := x.Write([]byte("in"))
		check(t, err)
		check(t, e[1].WriteTo([]byte("in"), e[2].Addr()))
		late, err := e[1].Dial(t.Context(), e[2].Addr()) // its kernel answers
		check(t, err)
		defer late.Close()
		// From it.
		_, err = y.Write([]byte("out"))
		check(t, err)
		check(t, e[2].WriteTo([]byte("out"), e[1].Addr()))
		var wg sync.WaitGroup
		at := func(step string, f func() error) {
			wg.Go(func() {
				if err := f(); err != nil || time.Since(start) < time.Hour || time.Since(start) > time.Hour+time.Second {
					t.Errorf("%s after %v: %v", step, time.Since(start), err)
				}
			})
		}
		at("read by it", func() error { _, err := io.ReadFull(y, make([]byte, 2)); return err })
		at("read from it", func() error { _, err := io.ReadFull(x, make([]byte, 3)); return err })
		at("packet to it", func() error { _, _, err := e[2].ReadFrom(make([]byte, 9)); return err })
		at("packet from it", func() error { _, _, err := e[1].ReadFrom(make([]byte, 9)); return err })
		at("accepted by it", func() error {
			c, err := e[2].Accept()
			if err == nil {
				_ = c.Close()
			}
			return err
		})
		at("dialled by it", func() error {
			c, err := e[2].Dial(t.Context(), e[3].Addr())
			if err == nil {
				_ = c.Close()
			}
			return err
		})
		time.Sleep(time.Hour)
		sim.Thaw(ip(2))
		wg.Wait()
	})
}

func TestCrashResetsTheOtherEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, sim *Network, e []*Endpoint) {
		sim.SetDefault(Link{Delay: time.Second})
		sim.SetLink(ip(3), ip(1), Link{})
		x, y := pair(t, e[1], e[2])
		z, far := pair(t, e[1], e[3])
		waiting, err := e[1].Dial(t.Context(), e[2].Addr()) // not accepted yet
		check(t, err)
		_, err = y.Write([]byte("last words"))
		check(t, err)
		sim.Cut(ip(1), ip(3)) // no news on this way
		sim.Crash(ip(2))
		sim.Crash(ip(3))

		got, err := io.ReadAll(x)
		if string(got) != "last words" || !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the survivor read %q, %v", got, err)
		}
		if _, err := ends(waiting); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("unaccepted stream: %v", err)
		}
		if _, err := z.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("half cut off: %v", err)
		}
		for _, c := range []net.Conn{y, far} {
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
				t.Errorf("the dead read: %v", err)
			}
		}
		if _, err := e[2].Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("the dead accept: %v", err)
		}
		if _, err := e[1].Dial(t.Context(), e[2].Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dialled the dead: %v", err)
		}
		again, err := HostOf[*Endpoint](sim, ip(2)).Listen(":7000")
		check(t, err)
		if reaches(t, e[1], again) == false {
			t.Error("the new process is not reached")
		}
		closeAll(x, y, z, far, waiting, again)
		if len(sim.streams) != 0 {
			t.Errorf("%d sides are still kept", len(sim.streams))
		}
	})
}

func TestCrashBehindACutIsFoundOutBySilence(t *testing.T) {
	for _, healed := range []bool{false, true} {
		inBubble(t, func(t *testing.T, sim *Network, e []*Endpoint) {
			x, y := pair(t, e[1], e[2])
			defer closeAll(x, y)
			sim.Isolate(ip(2))
			sim.Crash(ip(2))
			want := 25 * time.Second
			if healed {
				want = 10 * time.Second
				go func() { time.Sleep(want); sim.Heal() }()
			}
			if d, err := ends(x); d != want || !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("ended after %v: %v", d, err)
			}
		})
	}
}

func TestCrashOfAFrozenHostTakesItsUnsentWords(t *testing.T) {
	inBubble(t, func(t *testing.T, sim *Network, e []*Endpoint) {
		x, y := pair(t, e[1], e[2])
		defer closeAll(x, y)
		sim.Freeze(ip(2))
		_, err := y.Write([]byte("unsent"))
		check(t, err)
		check(t, e[2].WriteTo([]byte("unsent"), e[1].Addr()))
		check(t, y.Close()) // by a goroutine that should not run
		sim.Crash(ip(2))
		sim.Thaw(ip(2))
		got, err := io.ReadAll(x)
		if len(got) != 0 || !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("read %q, %v", got, err)
		}
		if unread(e[1]) != 0 {
			t.Error("the dead sent a packet")
		}
	})
}
