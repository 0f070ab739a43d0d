package simnet

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/testrounds"
)

// inBubble runs a claim about a Network. The hosts 10.0.0.1 to 10.0.0.3 listen
// on port 7000; e[i] is the endpoint of host i.
func inBubble(t *testing.T, f func(t *testing.T, sim *Network, e []*Endpoint)) {
	synctest.Test(t, func(t *testing.T) {
		sim := New(1)
		e := []*Endpoint{nil}
		for i := 1; i <= 3; i++ {
			x, err := HostOf[*Endpoint](sim, ip(i)).Listen(":7000")
			if err != nil {
				t.Fatal(err)
			}
			defer x.Close()
			e = append(e, x)
		}
		f(t, sim, e)
	})
}

func ip(i int) string { return fmt.Sprintf("10.0.0.%d", i) }

// listen returns an endpoint of host i on a free port.
func listen(t *testing.T, sim *Network, i int) *Endpoint {
	t.Helper()
	e, err := HostOf[*Endpoint](sim, ip(i)).Listen(":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// pair returns two sides of a stream, closed by the caller.
func pair(t *testing.T, from, to *Endpoint) (dialled, accepted net.Conn) {
	t.Helper()
	dialled, err := from.Dial(t.Context(), to.Addr())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err = to.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return dialled, accepted
}

// reaches reports whether a packet from one endpoint reaches the other within a
// minute. No other packet may be under way.
func reaches(t *testing.T, from, to *Endpoint) bool {
	t.Helper()
	check(t, from.WriteTo([]byte("probe"), to.Addr()))
	time.Sleep(time.Minute)
	return unread(to) == 1
}

// unread empties an endpoint's queue and returns the number of packets.
func unread(e *Endpoint) int {
	e.host.net.mu.Lock()
	defer e.host.net.mu.Unlock()
	n := len(e.packets)
	e.packets = nil
	return n
}

// ends waits for the end of a stream and returns its time and its error.
func ends(c net.Conn) (time.Duration, error) {
	start := time.Now()
	_, err := io.Copy(io.Discard, c)
	return time.Since(start), err
}

// talk sends a line over an echoing connection and waits for the echo.
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

func echoRaw(c net.Conn) { _, _ = io.Copy(c, c) }

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

func closeAll(cs ...io.Closer) {
	for _, c := range cs {
		_ = c.Close()
	}
}

// Under all faults, a stream delivers a prefix of the written bytes or all
// bytes, and every goroutine ends.
func TestStreamsUnderRandomFaults(t *testing.T) {
	for seed := range uint64(testrounds.Rounds(3, 10)) {
		synctest.Test(t, func(t *testing.T) {
			sim := New(seed)
			rng := rand.New(rand.NewPCG(seed, 0))
			sim.SetDefault(Link{Loss: 0.05, Delay: 5 * time.Millisecond, Jitter: 20 * time.Millisecond})
			a, b := listen(t, sim, 1), listen(t, sim, 2)
			var wg sync.WaitGroup
			done := make(chan struct{})
			wg.Go(func() { // the server checks that bytes count up
				for {
					c, err := b.Accept()
					if err != nil {
						return
					}
					wg.Go(func() {
						defer c.Close()
						buf := make([]byte, 10_000)
						for next := byte(0); ; {
							n, err := c.Read(buf)
							for _, x := range buf[:n] {
								if x != next {
									t.Errorf("seed %d: byte %d, want %d", seed, x, next)
									return
								}
								next++
							}
							if err != nil {
								return
							}
						}
					})
				}
			})
			for range 4 {
				wg.Go(func() {
					for {
						select {
						case <-done:
							return
						default:
						}
						ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
						c, err := a.Dial(ctx, b.Addr())
						cancel()
						if err != nil {
							time.Sleep(100 * time.Millisecond)
							continue
						}
						next := byte(0)
						for range 200 {
							p := make([]byte, 1+rand.N(10_000))
							for i := range p {
								p[i] = next
								next++
							}
							if _, err := c.Write(p); err != nil {
								break
							}
							time.Sleep(200 * time.Millisecond)
						}
						_ = c.Close()
					}
				})
			}
			for range 40 {
				x, y := ip(1+rng.IntN(2)), ip(1+rng.IntN(2))
				switch rng.IntN(5) {
				case 0:
					sim.Cut(x, y)
				case 1:
					sim.Isolate(x)
				case 2:
					sim.Freeze(x)
				case 3:
					sim.Heal()
				case 4:
					sim.Thaw(x)
				}
				time.Sleep(time.Duration(rng.IntN(10_000)) * time.Millisecond)
			}
			sim.Heal()
			close(done)
			time.Sleep(time.Minute)
			closeAll(a, b)
			wg.Wait()
			time.Sleep(time.Minute)
			sim.mu.Lock()
			defer sim.mu.Unlock()
			if len(sim.streams)+len(sim.events) != 0 {
				t.Errorf("seed %d: %d sides and %d events are left", seed, len(sim.streams), len(sim.events))
			}
		})
	}
}
