package transport

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// inBubble runs a claim about a Memory with the hosts 10.0.0.1 to 10.0.0.3,
// which all listen on port 7000.
func inBubble(t *testing.T, f func(t *testing.T, m *Memory, e []Endpoint)) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory(1)
		e := []Endpoint{nil}
		for i := 1; i <= 3; i++ {
			x, err := m.Host(ip(i)).Listen(":7000")
			if err != nil {
				t.Fatal(err)
			}
			defer x.Close()
			e = append(e, x)
		}
		f(t, m, e)
	})
}

func ip(i int) string { return fmt.Sprintf("10.0.0.%d", i) }

// reaches says whether a packet from one endpoint reaches the other within a
// minute. Both must be free of other packets.
func reaches(t *testing.T, from, to Endpoint) bool {
	t.Helper()
	check(t, from.WriteTo([]byte("probe"), to.Addr()))
	time.Sleep(time.Minute)
	return unread(to) == 1
}

// unread empties an endpoint's queue and returns how many packets it held.
func unread(e Endpoint) int {
	x := e.(*memoryEndpoint)
	x.host.memory.mu.Lock()
	defer x.host.memory.mu.Unlock()
	n := len(x.packets)
	x.packets = nil
	return n
}

// ends waits for the end of a stream and returns when and how it came.
func ends(c net.Conn) (time.Duration, error) {
	start := time.Now()
	_, err := io.Copy(io.Discard, c)
	return time.Since(start), err
}

func TestCutIsOneWay(t *testing.T) {
	inBubble(t, func(t *testing.T, m *Memory, e []Endpoint) {
		m.Cut(ip(1), ip(2))
		for _, x := range []struct {
			from, to int
			want     bool
		}{{1, 2, false}, {2, 1, true}, {1, 3, true}, {3, 2, true}, {1, 1, true}} {
			if got := reaches(t, e[x.from], e[x.to]); got != x.want {
				t.Errorf("%d reaches %d: %v", x.from, x.to, got)
			}
		}
		m.Heal()
		if !reaches(t, e[1], e[2]) {
			t.Error("healed, and still cut")
		}
	})
}

func TestPartitionSeparatesGroupsOnly(t *testing.T) {
	inBubble(t, func(t *testing.T, m *Memory, e []Endpoint) {
		m.Partition([]string{ip(1)}, []string{ip(2), ip(4)}) // 3 is the bridge
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

func TestIsolatedHostsRejoinOneByOne(t *testing.T) {
	inBubble(t, func(t *testing.T, m *Memory, e []Endpoint) {
		m.Isolate(ip(1))
		m.Isolate(ip(2))
		late, err := m.Host(ip(4)).Listen(":7000") // isolated from hosts to come
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
		m.Rejoin(ip(1))
		if !reaches(t, e[1], e[3]) || !reaches(t, late, e[1]) || reaches(t, e[1], e[2]) {
			t.Error("only the first host should have rejoined")
		}
	})
}

func TestPacketsInFlightAreSwallowedByACut(t *testing.T) {
	inBubble(t, func(t *testing.T, m *Memory, e []Endpoint) {
		m.SetLink(ip(1), ip(2), Link{Delay: time.Second})
		check(t, e[1].WriteTo([]byte("x"), e[2].Addr()))
		m.Cut(ip(1), ip(2))
		time.Sleep(time.Minute)
		m.Heal()
		time.Sleep(time.Minute)
		if unread(e[2]) != 0 {
			t.Error("a packet survived the cut")
		}
	})
}

func TestStreamSurvivesAShortCut(t *testing.T) {
	for _, oneWay := range []bool{true, false} {
		inBubble(t, func(t *testing.T, m *Memory, e []Endpoint) {
			x, y := pair(t, e[1], e[2])
			m.Cut(ip(1), ip(2))
			if !oneWay {
				m.Cut(ip(2), ip(1))
			}
			start := time.Now()
			_, err := x.Write([]byte("hello"))
			check(t, err)
			go func() { time.Sleep(24 * time.Second); m.Heal() }()
			buf := make([]byte, 5)
			_, err = io.ReadFull(y, buf)
			if d := time.Since(start); err != nil || string(buf) != "hello" || d != 24*time.Second {
				t.Errorf("read %q after %v, %v", buf, d, err)
			}
			time.Sleep(time.Hour) // the alarm of the old cut must not ring
			go echoRaw(y)
			check(t, talk(x))
			check(t, x.Close())
			synctest.Wait()
			check(t, y.Close())
		})
	}
}

func echoRaw(c net.Conn) { _, _ = io.Copy(c, c) }

func TestSilenceResetsBothEnds(t *testing.T) {
	for name, cut := range map[string]func(m *Memory){
		"one way":   func(m *Memory) { m.Cut(ip(1), ip(2)) },
		"other way": func(m *Memory) { m.Cut(ip(2), ip(1)) },
		"isolated":  func(m *Memory) { m.Isolate(ip(1)) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, m *Memory, e []Endpoint) {
				x, y := pair(t, e[1], e[2])
				defer closeAll(x, y)
				go func() {
					cut(m)
					time.Sleep(20 * time.Second)
					m.Heal() // begins anew
					cut(m)
				}()
				var wg sync.WaitGroup
				for _, c := range []net.Conn{x, y} {
					wg.Go(func() {
						if d, err := ends(c); d != 45*time.Second || !errors.Is(err, syscall.ECONNRESET) {
							t.Errorf("ended after %v: %v", d, err)
						}
						if _, err := c.Write([]byte("x")); !errors.Is(err, syscall.ECONNRESET) {
							t.Errorf("write: %v", err)
						}
					})
				}
				wg.Wait()
				closeAll(x, y)
				if len(m.streams) != 0 {
					t.Error("the stream is still kept")
				}
			})
		})
	}
}

func TestDialNeedsBothWays(t *testing.T) {
	for _, cut := range [][2]int{{1, 2}, {2, 1}} {
		inBubble(t, func(t *testing.T, m *Memory, e []Endpoint) {
			m.Cut(ip(cut[0]), ip(cut[1]))
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			start := time.Now()
			c, err := e[1].Dial(ctx, e[2].Addr())
			if c != nil || !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Hour {
				t.Errorf("dial over a cut link: %v, %v after %v", c, err, time.Since(start))
			}
			go func() { time.Sleep(time.Minute); m.Heal() }()
			x, y := pair(t, e[1], e[2])
			closeAll(x, y)
			// And closing the endpoint ends a Dial.
			m.Cut(ip(cut[0]), ip(cut[1]))
			go func() { time.Sleep(time.Minute); _ = e[1].Close() }()
			if _, err := e[1].Dial(t.Context(), e[2].Addr()); !errors.Is(err, net.ErrClosed) {
				t.Errorf("dial from a closed endpoint: %v", err)
			}
		})
	}
}

func TestLinksTakeTheirTime(t *testing.T) {
	inBubble(t, func(t *testing.T, m *Memory, e []Endpoint) {
		m.SetDefault(Link{Delay: time.Hour})
		m.SetLink(ip(1), ip(2), Link{Delay: 30 * time.Millisecond})
		m.SetLink(ip(2), ip(1), Link{Delay: 50 * time.Millisecond})
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

func TestPacketsKeepTheirOrderAtEqualDelay(t *testing.T) {
	for _, delay := range []time.Duration{0, time.Millisecond} {
		inBubble(t, func(t *testing.T, m *Memory, e []Endpoint) {
			m.SetDefault(Link{Delay: delay})
			for i := range uint32(memoryQueue) {
				check(t, e[1].WriteTo(binary.BigEndian.AppendUint32(nil, i), e[2].Addr()))
			}
			buf := make([]byte, 4)
			for i := range uint32(memoryQueue) {
				if _, _, err := e[2].ReadFrom(buf); err != nil || binary.BigEndian.Uint32(buf) != i {
					t.Fatalf("packet %d in place %d, %v", binary.BigEndian.Uint32(buf), i, err)
				}
			}
		})
	}
}

func TestFullQueueDropsPackets(t *testing.T) {
	inBubble(t, func(t *testing.T, m *Memory, e []Endpoint) {
		for range memoryQueue + 100 {
			check(t, e[1].WriteTo([]byte("x"), e[2].Addr()))
		}
		if n := unread(e[2]); n != memoryQueue {
			t.Errorf("%d packets are kept", n)
		}
	})
}

func TestLossFollowsTheSeed(t *testing.T) {
	arrived := func(t *testing.T, seed uint64, others bool) (got []byte) {
		synctest.Test(t, func(t *testing.T) {
			m := NewMemory(seed)
			m.SetDefault(Link{Loss: 0.3})
			w := memoryWorld(m)
			a, b, c := w.listen(t, 1), w.listen(t, 2), w.listen(t, 3)
			defer closeAll(a, b, c)
			for i := range 200 {
				check(t, a.WriteTo([]byte{byte(i)}, b.Addr()))
				if others {
					check(t, c.WriteTo([]byte{0}, a.Addr()))
				}
			}
			buf := make([]byte, 1)
			for range len(b.(*memoryEndpoint).packets) {
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

func TestStreamKeepsItsOrderOnABadLink(t *testing.T) {
	inBubble(t, func(t *testing.T, m *Memory, e []Endpoint) {
		m.SetDefault(Link{Loss: 0.2, Delay: time.Millisecond, Jitter: 50 * time.Millisecond})
		x, y := pair(t, e[1], e[2])
		defer y.Close()
		go func() {
			defer x.Close()
			for i := range uint32(2000) {
				_, err := x.Write(binary.BigEndian.AppendUint32(nil, i))
				check(t, err)
				time.Sleep(time.Duration(rand.N(3)) * time.Millisecond)
			}
		}()
		got, err := io.ReadAll(y)
		if err != nil || len(got) != 4*2000 {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
		for i := range uint32(2000) {
			if n := binary.BigEndian.Uint32(got[4*i:]); n != i {
				t.Fatalf("%d in place %d", n, i)
			}
		}
	})
}

func TestTotalLossOnlyDelaysAStream(t *testing.T) {
	inBubble(t, func(t *testing.T, m *Memory, e []Endpoint) {
		m.SetDefault(Link{Loss: 1})
		x, y := pair(t, e[1], e[2])
		defer closeAll(x, y)
		go echoRaw(y)
		check(t, talk(x))
		if reaches(t, e[1], e[2]) {
			t.Error("a packet passed")
		}
	})
}

func TestWindowBoundsWhatIsUnread(t *testing.T) {
	inBubble(t, func(t *testing.T, m *Memory, e []Endpoint) {
		for _, l := range []Link{{}, {Delay: time.Second}} {
			m.SetDefault(l)
			x, y := pair(t, e[1], e[2])
			check(t, x.SetWriteDeadline(time.Now().Add(time.Minute)))
			n, err := x.Write(make([]byte, 2*memoryWindow))
			if n != memoryWindow || !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("wrote %d, %v", n, err)
			}
			check(t, x.SetWriteDeadline(time.Time{}))
			go func() { time.Sleep(time.Second); _, _ = io.ReadFull(y, make([]byte, 1000)) }()
			if n, err := x.Write(make([]byte, 1000)); n != 1000 || err != nil {
				t.Errorf("wrote %d, %v", n, err)
			}
			check(t, y.Close()) // unread: the writer is told
			time.Sleep(time.Minute)
			if _, err := x.Write([]byte("x")); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("write to a closed side: %v", err)
			}
			check(t, x.Close())
		}
		if len(m.streams) != 0 {
			t.Errorf("%d sides are still kept", len(m.streams))
		}
	})
}

func TestWritesDoNotMix(t *testing.T) {
	inBubble(t, func(t *testing.T, m *Memory, e []Endpoint) {
		x, y := pair(t, e[1], e[2])
		defer y.Close()
		const size = memoryWindow + 1000
		var wg sync.WaitGroup
		for i := range byte(8) {
			wg.Go(func() {
				_, err := x.Write(bytes.Repeat([]byte{i}, size))
				check(t, err)
			})
		}
		go func() { wg.Wait(); _ = x.Close() }()
		for range 8 {
			buf := make([]byte, size)
			_, err := io.ReadFull(y, buf)
			if err != nil || !bytes.Equal(buf, bytes.Repeat(buf[:1], size)) {
				t.Fatalf("mixed, %v", err)
			}
		}
	})
}

func TestFrozenHostLosesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, m *Memory, e []Endpoint) {
		m.SetDefault(Link{Delay: time.Millisecond})
		x, y := pair(t, e[1], e[2])
		defer closeAll(x, y)
		m.Freeze(ip(2))
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
		at := func(what string, f func() error) {
			wg.Go(func() {
				if err := f(); err != nil || time.Since(start) < time.Hour || time.Since(start) > time.Hour+time.Second {
					t.Errorf("%s after %v: %v", what, time.Since(start), err)
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
		m.Thaw(ip(2))
		wg.Wait()
	})
}

func TestCrashResetsTheOtherEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, m *Memory, e []Endpoint) {
		m.SetDefault(Link{Delay: time.Second})
		m.SetLink(ip(3), ip(1), Link{})
		x, y := pair(t, e[1], e[2])
		z, far := pair(t, e[1], e[3])
		waiting, err := e[1].Dial(t.Context(), e[2].Addr()) // not accepted yet
		check(t, err)
		_, err = y.Write([]byte("last words"))
		check(t, err)
		m.Cut(ip(1), ip(3)) // no news on this way
		m.Crash(ip(2))
		m.Crash(ip(3))

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
		again, err := m.Host(ip(2)).Listen(":7000")
		check(t, err)
		if reaches(t, e[1], again) == false {
			t.Error("the new process is not reached")
		}
		closeAll(x, y, z, far, waiting, again)
		if len(m.streams) != 0 {
			t.Errorf("%d sides are still kept", len(m.streams))
		}
	})
}

func TestCrashBehindACutIsFoundOutBySilence(t *testing.T) {
	for _, healed := range []bool{false, true} {
		inBubble(t, func(t *testing.T, m *Memory, e []Endpoint) {
			x, y := pair(t, e[1], e[2])
			defer closeAll(x, y)
			m.Isolate(ip(2))
			m.Crash(ip(2))
			want := 25 * time.Second
			if healed {
				want = 10 * time.Second
				go func() { time.Sleep(want); m.Heal() }()
			}
			if d, err := ends(x); d != want || !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("ended after %v: %v", d, err)
			}
		})
	}
}

func TestCrashOfAFrozenHostTakesItsUnsentWords(t *testing.T) {
	inBubble(t, func(t *testing.T, m *Memory, e []Endpoint) {
		x, y := pair(t, e[1], e[2])
		defer closeAll(x, y)
		m.Freeze(ip(2))
		_, err := y.Write([]byte("unsent"))
		check(t, err)
		check(t, e[2].WriteTo([]byte("unsent"), e[1].Addr()))
		check(t, y.Close()) // by a goroutine that should not run
		m.Crash(ip(2))
		m.Thaw(ip(2))
		got, err := io.ReadAll(x)
		if len(got) != 0 || !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("read %q, %v", got, err)
		}
		if unread(e[1]) != 0 {
			t.Error("the dead sent a packet")
		}
	})
}

func TestListenKnowsItsHost(t *testing.T) {
	m := NewMemory(1)
	for addr, want := range map[string]error{
		"10.0.0.1:7001": nil, ":7002": nil, "0.0.0.0:7003": nil, "[::]:7004": nil, ":0": nil, "10.0.0.1:0": nil,
		"10.0.0.2:7000": syscall.EADDRNOTAVAIL, "127.0.0.1:0": syscall.EADDRNOTAVAIL,
		"host:1": errors.ErrUnsupported, ":http": errors.ErrUnsupported, ":70000": errors.ErrUnsupported, "": errors.ErrUnsupported,
	} {
		e, err := m.Host(ip(1)).Listen(addr)
		if want == errors.ErrUnsupported && err != nil {
			continue // any
		}
		if !errors.Is(err, want) {
			t.Errorf("listen %q: %v, want %v", addr, err, want)
		}
		if e != nil {
			defer e.Close()
			if _, err := m.Host(ip(1)).Listen(e.Addr()); !errors.Is(err, syscall.EADDRINUSE) {
				t.Errorf("second listen %q: %v", addr, err)
			}
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a name passed as an address")
		}
	}()
	m.Cut("node1", "node2")
}

// Whatever the faults, a stream delivers a prefix of what was written, or all
// of it, and everything ends.
func TestStreamsUnderRandomFaults(t *testing.T) {
	for seed := range uint64(10) {
		synctest.Test(t, func(t *testing.T) {
			m := NewMemory(seed)
			rng := rand.New(rand.NewPCG(seed, 0))
			m.SetDefault(Link{Loss: 0.05, Delay: 5 * time.Millisecond, Jitter: 20 * time.Millisecond})
			w := memoryWorld(m)
			a, b := w.listen(t, 1), w.listen(t, 2)
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
				switch rng.IntN(6) {
				case 0:
					m.Cut(x, y)
				case 1:
					m.Isolate(x)
				case 2:
					m.Freeze(x)
				case 3:
					m.Heal()
				case 4:
					m.Rejoin(x)
				case 5:
					m.Thaw(x)
				}
				time.Sleep(time.Duration(rng.IntN(10_000)) * time.Millisecond)
			}
			m.Heal()
			close(done)
			time.Sleep(time.Minute)
			closeAll(a, b)
			wg.Wait()
			time.Sleep(time.Minute)
			m.mu.Lock()
			defer m.mu.Unlock()
			if len(m.streams)+len(m.events) != 0 {
				t.Errorf("seed %d: %d sides and %d events are left", seed, len(m.streams), len(m.events))
			}
		})
	}
}

// 25 hosts that gossip for ten minutes, with streams on top, are cheap enough
// for every test to have them.
func TestTwentyFiveHostsForTenMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory(1)
		m.SetDefault(Link{Loss: 0.01, Delay: time.Millisecond, Jitter: time.Millisecond})
		w := memoryWorld(m)
		const hosts, rounds = 25, 5 * 600
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
