package port

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/testrounds"
	"github.com/wardmote/wardmote/transport"
)

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

// The hosts gossip for ten minutes, or for one in a plain run, with streams on
// top.
func TestTwentyFiveHostsLoseNoMoreThanTheirLinksLose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := transport.NewMemory(1)
		m.SetLink("", "", transport.Link{Loss: 0.01, Delay: time.Millisecond, Jitter: time.Millisecond})
		w := memoryWorld(m)
		const hosts = 25
		rounds := 5 * testrounds.Rounds(60, 600)
		var ports []*Port
		var got [hosts]int
		for i := range hosts {
			p := w.open(t, i+1)
			p.Handle(KindGossip, echo)
			p.HandlePackets(func([]byte, string, time.Time) { got[i]++ })
			p.Serve()
			ports = append(ports, p)
		}
		var wg sync.WaitGroup
		for i, p := range ports {
			wg.Go(func() {
				for r := range rounds {
					time.Sleep(200 * time.Millisecond)
					for k := range 3 {
						check(t, p.Send(make([]byte, 300), ports[(i+r*7+k*3+1)%hosts].Addr()))
					}
					if r%100 == 0 {
						c, err := p.Dial(t.Context(), ports[(i+r+1)%hosts].Addr(), KindGossip, Peer{})
						if err != nil {
							t.Error(err)
							continue
						}
						check(t, talk(c))
						_ = c.Close()
					}
				}
			})
		}
		wg.Wait()
		time.Sleep(time.Second)
		sum := 0
		for i, p := range ports {
			check(t, p.Close())
			sum += got[i]
		}
		if sent := hosts * rounds * 3; sum < sent*98/100 || sum > sent {
			t.Errorf("%d of %d packets arrived", sum, sent)
		}
	})
}
