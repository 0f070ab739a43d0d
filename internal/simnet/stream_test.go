package simnet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestStreamSurvivesAShortCut(t *testing.T) {
	for _, oneWay := range []bool{true, false} {
		inBubble(t, func(t *testing.T, sim *Network, e []*Endpoint) {
			x, y := pair(t, e[1], e[2])
			sim.Cut(ip(1), ip(2))
			if !oneWay {
				sim.Cut(ip(2), ip(1))
			}
			start := time.Now()
			_, err := x.Write([]byte("hello"))
			check(t, err)
			go func() { time.Sleep(24 * time.Second); sim.Heal() }()
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

func TestSilenceResetsBothEnds(t *testing.T) {
	for name, cut := range map[string]func(sim *Network){
		"one way":   func(sim *Network) { sim.Cut(ip(1), ip(2)) },
		"other way": func(sim *Network) { sim.Cut(ip(2), ip(1)) },
		"isolated":  func(sim *Network) { sim.Isolate(ip(1)) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, sim *Network, e []*Endpoint) {
				x, y := pair(t, e[1], e[2])
				defer closeAll(x, y)
				go func() {
					cut(sim)
					time.Sleep(20 * time.Second)
					sim.Heal() // begins anew
					cut(sim)
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
				if len(sim.streams) != 0 {
					t.Error("the stream is still kept")
				}
			})
		})
	}
}

func TestStreamKeepsItsOrderOnABadLink(t *testing.T) {
	inBubble(t, func(t *testing.T, sim *Network, e []*Endpoint) {
		sim.SetDefault(Link{Loss: 0.2, Delay: time.Millisecond, Jitter: 50 * time.Millisecond})
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
	inBubble(t, func(t *testing.T, sim *Network, e []*Endpoint) {
		sim.SetDefault(Link{Loss: 1})
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
	inBubble(t, func(t *testing.T, sim *Network, e []*Endpoint) {
		for _, l := range []Link{{}, {Delay: time.Second}} {
			sim.SetDefault(l)
			x, y := pair(t, e[1], e[2])
			check(t, x.SetWriteDeadline(time.Now().Add(time.Minute)))
			n, err := x.Write(make([]byte, 2*windowSize))
			if n != windowSize || !errors.Is(err, os.ErrDeadlineExceeded) {
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
		if len(sim.streams) != 0 {
			t.Errorf("%d sides are still kept", len(sim.streams))
		}
	})
}

func TestWritesDoNotMix(t *testing.T) {
	inBubble(t, func(t *testing.T, sim *Network, e []*Endpoint) {
		x, y := pair(t, e[1], e[2])
		defer y.Close()
		const size = windowSize + 1000
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
