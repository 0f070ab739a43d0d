package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

// A world is a place to run a test: host i has a network and an address to
// bind, with a free port.
type world func(i int) (n Network, bind string)

func tcpWorld(int) (Network, string) { return TCP(), "127.0.0.1:0" }

func memoryWorld(m *Memory) world {
	return func(i int) (Network, string) {
		ip := fmt.Sprintf("10.0.0.%d", i)
		return m.Host(ip), ip + ":0"
	}
}

// everywhere runs a claim on every network: TCP, memory with perfect links, and
// memory with slow links.
func everywhere(t *testing.T, f func(t *testing.T, w world)) {
	t.Run("tcp", func(t *testing.T) {
		defer goleak.VerifyNone(t)
		f(t, tcpWorld)
	})
	t.Run("memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { f(t, memoryWorld(NewMemory(1))) })
	})
	t.Run("slow memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m := NewMemory(1)
			m.SetLink("", "", Link{Delay: 20 * time.Millisecond, Jitter: 10 * time.Millisecond})
			f(t, memoryWorld(m))
		})
	})
}

func (w world) listen(t *testing.T, i int) Endpoint {
	t.Helper()
	n, bind := w(i)
	e, err := n.Listen(bind)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// pair returns two sides of a stream, closed by the caller.
func pair(t *testing.T, from, to Endpoint) (dialled, accepted net.Conn) {
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

func TestStreamCarriesBytesBothWays(t *testing.T) {
	everywhere(t, func(t *testing.T, w world) {
		a, b := w.listen(t, 1), w.listen(t, 2)
		defer closeAll(a, b)
		var wg sync.WaitGroup
		for range 8 {
			x, y := pair(t, a, b)
			wg.Go(func() { // echo
				_, err := io.Copy(y, y)
				check(t, err)
				check(t, y.Close())
			})
			wg.Go(func() {
				sent := make([]byte, 1<<20)
				for i := range sent {
					sent[i] = byte(rand.N(256))
				}
				var writer sync.WaitGroup
				writer.Go(func() {
					for rest := sent; len(rest) > 0; {
						n, err := x.Write(rest[:min(len(rest), 1+rand.N(100_000))])
						check(t, err)
						rest = rest[n:]
					}
				})
				got := make([]byte, len(sent))
				_, err := io.ReadFull(x, got)
				check(t, err)
				if !bytes.Equal(sent, got) {
					t.Error("the bytes that came back are not those sent")
				}
				writer.Wait()
				check(t, x.Close())
			})
		}
		wg.Wait()
	})
}

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

func TestCloseIsReadAfterWhatWasWritten(t *testing.T) {
	everywhere(t, func(t *testing.T, w world) {
		a, b := w.listen(t, 1), w.listen(t, 2)
		defer closeAll(a, b)
		x, y := pair(t, a, b)
		defer y.Close()
		sent := bytes.Repeat([]byte("wardmote"), 4096)
		_, err := x.Write(sent)
		check(t, err)
		check(t, x.Close())
		got, err := io.ReadAll(y)
		if err != nil || !bytes.Equal(sent, got) {
			t.Errorf("read %d of %d bytes, %v", len(got), len(sent), err)
		}
		if _, err := x.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("write after close: %v", err)
		}
		if _, err := x.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("read after close: %v", err)
		}
		// The writer to a closed side is told, sooner or later.
		check(t, y.SetWriteDeadline(time.Now().Add(30*time.Second)))
		for err = nil; err == nil; {
			_, err = y.Write(sent)
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("a closed peer swallowed 30 s of writes")
		}
	})
}

func TestAddressesParse(t *testing.T) {
	everywhere(t, func(t *testing.T, w world) {
		a, b := w.listen(t, 1), w.listen(t, 2)
		defer closeAll(a, b)
		x, y := pair(t, a, b)
		defer closeAll(x, y)
		for _, addr := range []string{a.Addr(), b.Addr(), x.LocalAddr().String(), x.RemoteAddr().String(), y.LocalAddr().String(), y.RemoteAddr().String()} {
			if p, err := netip.ParseAddrPort(addr); err != nil || p.Port() == 0 {
				t.Errorf("address %q: %v", addr, err)
			}
		}
		if x.RemoteAddr().String() != b.Addr() || y.RemoteAddr().String() != x.LocalAddr().String() {
			t.Errorf("%v dialled %v, %v accepted %v", x.LocalAddr(), x.RemoteAddr(), y.LocalAddr(), y.RemoteAddr())
		}
	})
}

func TestPacketsArriveWhole(t *testing.T) {
	everywhere(t, func(t *testing.T, w world) {
		a, b := w.listen(t, 1), w.listen(t, 2)
		defer closeAll(a, b)
		buf := make([]byte, maxPacket)
		for _, size := range []int{0, 1, 1400, 60_000, maxPacket} {
			sent := bytes.Repeat([]byte{7}, size)
			check(t, a.WriteTo(sent, b.Addr()))
			clear(sent) // the network keeps no reference
			n, from, err := b.ReadFrom(buf)
			if err != nil || n != size || from != a.Addr() || !bytes.Equal(buf[:n], bytes.Repeat([]byte{7}, size)) {
				t.Fatalf("packet of %d bytes from %s: %d bytes from %s, %v", size, a.Addr(), n, from, err)
			}
			check(t, b.WriteTo([]byte("back"), from))
			if n, from, err = a.ReadFrom(buf); err != nil || string(buf[:n]) != "back" || from != b.Addr() {
				t.Fatalf("reply %q from %s, %v", buf[:n], from, err)
			}
		}
		if err := a.WriteTo(make([]byte, maxPacket+1), b.Addr()); !errors.Is(err, syscall.EMSGSIZE) {
			t.Errorf("oversize packet: %v", err)
		}
	})
}

func TestCloseEndsAcceptAndReadFrom(t *testing.T) {
	everywhere(t, func(t *testing.T, w world) {
		a := w.listen(t, 1)
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := a.Accept(); !errors.Is(err, net.ErrClosed) {
				t.Errorf("accept: %v", err)
			}
		})
		wg.Go(func() {
			if _, _, err := a.ReadFrom(make([]byte, 10)); !errors.Is(err, net.ErrClosed) {
				t.Errorf("read: %v", err)
			}
		})
		check(t, a.Close())
		wg.Wait()
		if err := a.WriteTo([]byte("x"), "127.0.0.1:7000"); !errors.Is(err, net.ErrClosed) {
			t.Errorf("write: %v", err)
		}
	})
}

func TestAddressIsHeldUntilClose(t *testing.T) {
	everywhere(t, func(t *testing.T, w world) {
		n, _ := w(1)
		a := w.listen(t, 1)
		if e, err := n.Listen(a.Addr()); err == nil {
			_ = e.Close()
			t.Fatal("one address was bound twice")
		} else if !errors.Is(err, syscall.EADDRINUSE) {
			t.Logf("second listen: %v", err) // its number is the platform's
		}
		check(t, a.Close())
		b, err := n.Listen(a.Addr())
		if err != nil {
			t.Fatalf("the address was not free after close: %v", err)
		}
		check(t, b.Close())
		if _, err := n.Listen("no port"); err == nil {
			t.Error("bound an address without a port")
		}
	})
}

func TestDialToNobodyIsRefused(t *testing.T) {
	everywhere(t, func(t *testing.T, w world) {
		a, b := w.listen(t, 1), w.listen(t, 2)
		defer a.Close()
		check(t, b.Close())
		c, err := a.Dial(t.Context(), b.Addr())
		var op *net.OpError
		if c != nil || !errors.Is(err, syscall.ECONNREFUSED) || !errors.As(err, &op) {
			t.Errorf("dial to nobody: %v, %v", c, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := a.Dial(ctx, a.Addr()); err == nil {
			t.Error("dialled after the end of ctx")
		}
	})
}

func TestDeadlinesEndReadsAndWrites(t *testing.T) {
	everywhere(t, func(t *testing.T, w world) {
		a, b := w.listen(t, 1), w.listen(t, 2)
		defer closeAll(a, b)
		x, y := pair(t, a, b)
		defer closeAll(x, y)
		buf := make([]byte, 64<<10)

		check(t, x.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
		if _, err := x.Read(buf); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("read: %v", err)
		}
		check(t, x.SetWriteDeadline(time.Now().Add(50*time.Millisecond)))
		var err error
		for err == nil { // until every buffer between the two is full
			_, err = x.Write(buf)
		}
		var timeout net.Error
		if !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Errorf("write: %v", err)
		}
		check(t, x.SetDeadline(time.Time{}))
		_, err = y.Write([]byte("late"))
		check(t, err)
		if n, err := x.Read(buf); err != nil || string(buf[:n]) != "late" {
			t.Errorf("after the deadline was lifted: %q, %v", buf[:n], err)
		}

		// A deadline in the past ends a waiting Read.
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := x.Read(buf); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("read: %v", err)
			}
		})
		check(t, x.SetReadDeadline(time.Now().Add(-time.Second)))
		wg.Wait()
	})
}

func TestCloseEndsReadsAndWrites(t *testing.T) {
	everywhere(t, func(t *testing.T, w world) {
		a, b := w.listen(t, 1), w.listen(t, 2)
		defer closeAll(a, b)
		x, y := pair(t, a, b)
		defer y.Close()
		var wg sync.WaitGroup
		full := make(chan struct{})
		wg.Go(func() {
			buf := make([]byte, 64<<10)
			for n := 0; ; n++ {
				if n == 4 {
					close(full)
				}
				if _, err := x.Write(buf); err != nil {
					if !errors.Is(err, net.ErrClosed) {
						t.Errorf("write: %v", err)
					}
					return
				}
			}
		})
		wg.Go(func() {
			if _, err := x.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
				t.Errorf("read: %v", err)
			}
		})
		<-full
		check(t, x.Close())
		wg.Wait()
	})
}
