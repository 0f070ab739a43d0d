package simnet

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestLinksTakeTheirTime(t *testing.T) {
	inBubble(t, func(t *testing.T, sim *Network, e []*Endpoint) {
		sim.SetDefault(Link{Delay: time.Hour})
		sim.SetLink(ip(1), ip(2), Link{Delay: 30 * time.Millisecond})
		sim.SetLink(ip(2), ip(1), Link{Delay: 50 * time.Millisecond})
		start := time.Now()
		x, y := pair(t, e[1], e[2])
		defer closeAll(x, y)
		if d := time.Since(start); d != 80*time.Millisecond {
			t.Errorf("dialled in %v", d)
		}
		go echoRaw(y)
		start = time.Now()
		check(t, talk(x))
		if d := time.Since(start); d != 80*time.Millisecond {
			t.Errorf("there and back in %v", d)
		}
		start = time.Now()
		check(t, e[1].WriteTo([]byte("x"), e[2].Addr()))
		_, _, err := e[2].ReadFrom(make([]byte, 1))
		if d := time.Since(start); err != nil || d != 30*time.Millisecond {
			t.Errorf("packet in %v, %v", d, err)
		}
	})
}

func TestLossFollowsTheSeed(t *testing.T) {
	arrived := func(t *testing.T, seed uint64, others bool) (got []byte) {
		synctest.Test(t, func(t *testing.T) {
			sim := New(seed)
			sim.SetDefault(Link{Loss: 0.3})
			a, b, c := listen(t, sim, 1), listen(t, sim, 2), listen(t, sim, 3)
			defer closeAll(a, b, c)
			for i := range 200 {
				check(t, a.WriteTo([]byte{byte(i)}, b.Addr()))
				if others {
					check(t, c.WriteTo([]byte{0}, a.Addr()))
				}
			}
			buf := make([]byte, 1)
			for range len(b.packets) {
				_, _, _ = b.ReadFrom(buf)
				got = append(got, buf[0])
			}
		})
		return got
	}
	one := arrived(t, 1, false)
	if n := len(one); n < 110 || n > 170 {
		t.Errorf("%d of 200 packets arrived at a loss of 0.3", n)
	}
	if !slices.Equal(one, arrived(t, 1, true)) {
		t.Error("one seed lost different packets")
	}
	if slices.Equal(one, arrived(t, 2, false)) {
		t.Error("two seeds lost the same packets")
	}
}
