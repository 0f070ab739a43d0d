package port

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/refused"
	"github.com/wardmote/wardmote/internal/testrounds"
)

// Tests in this file attack a port as a stranger would. WARDMOTE_FULL=1 makes the
// attacks as large as the caps.

func attackSize(plain, full int) int {
	return testrounds.Rounds(plain, full)
}

// attackTime is how long an attack may take to reach its size.
func attackTime() time.Duration { return time.Duration(attackSize(2, 60)) * time.Second }

// An attack runs strike on a few goroutines until the test ends. A strike returns
// connections to hold; the oldest are closed beyond hold.
func attack(t *testing.T, hold int, strike func(i int) net.Conn) (struck *atomic.Int64) {
	const goroutines = 2
	struck = new(atomic.Int64)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			held := make([]net.Conn, hold/goroutines)
			for i := 0; ctx.Err() == nil; i++ {
				c := strike(int(struck.Add(1)))
				if c == nil {
					time.Sleep(time.Millisecond) // out of ports or files
					continue
				}
				at := &held[i%len(held)]
				if *at != nil {
					_ = (*at).Close()
				}
				*at = c
			}
			for _, c := range held {
				if c != nil {
					_ = c.Close()
				}
			}
		})
	}
	t.Cleanup(func() { cancel(); wg.Wait() })
	return struck
}

// strike dials from an address so that closed connections leave no port in
// TIME_WAIT. It returns nil if that fails, though not on a host that stands still for
// some seconds.
func strike(from, addr string) net.Conn {
	d := net.Dialer{Timeout: 5 * time.Second, LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := d.Dial("tcp", addr)
	if err != nil {
		return nil
	}
	_ = c.(*net.TCPConn).SetLinger(0)
	return c
}

// dialTimes dials n times and returns the sorted times. A dial may fail and is then
// repeated, within the same time.
func dialTimes(t *testing.T, a, b *Port, n int) (times []time.Duration, failed int) {
	t.Helper()
	for range n {
		begun := time.Now()
		for {
			c, err := a.Dial(t.Context(), b.Addr(), KindMember, Peer{})
			if err == nil {
				err = talk(c)
				_ = c.Close()
			}
			if err == nil {
				break
			}
			if failed++; failed > 10*n {
				t.Fatalf("honest dials fail: %v", err)
			}
		}
		times = append(times, time.Since(begun))
	}
	slices.Sort(times)
	return times, failed
}

func TestHonestDialsSucceedAmongHalfOpenConnections(t *testing.T) {
	proof := secured(t)
	plain := func(*Config) {}
	hello := clientHello(t)
	for _, x := range []struct {
		name  string
		from  string
		edit  func(*Config)
		first []byte
		size  int
		limit time.Duration // of the worst honest dial, on a busy host
	}{
		{"plain, silent", "127.0.0.1", plain, nil, 800, 10 * time.Second},
		{"silent", "127.0.0.1", proof, nil, 800, 10 * time.Second},
		{"one byte", "127.0.0.1", proof, hello[:1], 800, 10 * time.Second},
		// Nothing tells these from honest ones of the same host, which only get
		// their share of the turns.
		{"half a handshake", "127.0.0.1", proof, hello, 600, time.Minute},
		{"half a handshake from elsewhere", "127.0.0.2", proof, hello, 600, 10 * time.Second},
	} {
		t.Run(x.name, func(t *testing.T) {
			if x.from != "127.0.0.1" && runtime.GOOS != "linux" {
				t.Skip("only Linux has the whole of 127/8")
			}
			a, b := world(tcpWorld).open(t, 1, x.edit), world(tcpWorld).open(t, 2, x.edit)
			b.Handle(KindMember, echo)
			b.Serve()
			before, _ := dialTimes(t, a, b, 3)
			size := attackSize(x.size, 10000)
			struck := attack(t, size, func(int) net.Conn {
				if len(x.first) > 1 && size < 10000 {
					time.Sleep(5 * time.Millisecond) // each costs the port 1 ms, of which CI has few
				}
				c := strike(x.from, b.Addr())
				if c != nil && x.first != nil {
					_, _ = c.Write(x.first)
				}
				return c
			})
			// On a busy host fewer have come by then, and do.
			for limit := time.Now().Add(attackTime()); struck.Load() < int64(size) && time.Now().Before(limit); {
				time.Sleep(time.Millisecond)
			}
			begun, n := time.Now(), struck.Load()
			during, failed := dialTimes(t, a, b, attackSize(3, 50))
			rate := float64(struck.Load()-n) / time.Since(begun).Seconds()
			t.Logf("honest dials before %v, %v at most; during %v, p99 %v, %v at most, %d gave way; %.0f strikes a second",
				before[len(before)/2], before[len(before)-1], during[len(during)/2], during[len(during)*99/100], during[len(during)-1], failed, rate)
			if worst := during[len(during)-1]; worst > x.limit {
				t.Errorf("an honest dial took %v", worst)
			}
		})
	}
}

// secured puts the ports of a test under one proof.
func secured(t *testing.T) func(*Config) { return secret(t, ourSecret) }

// clientHello returns the first bytes of a TLS client.
func clientHello(t *testing.T) []byte {
	near, far := net.Pipe()
	defer near.Close()
	go func() { _ = tls.Client(far, &tls.Config{ServerName: "x"}).Handshake() }()
	b := make([]byte, 16<<10)
	n, err := near.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return b[:n]
}

// Connections without a byte cost little, honest members are admitted among them, and
// the flood is told in few lines.
func TestSilentAdmittedConnectionsDoNotFillThePort(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has the whole of 127/8")
	}
	var lines lineCount
	log := refused.New(slog.New(slog.NewTextHandler(&lines, nil)))
	edit := func(c *Config) { c.Refused = log }
	a, b := world(tcpWorld).open(t, 1, edit), world(tcpWorld).open(t, 2, edit)
	b.Handle(KindMember, echo)
	b.Serve()
	before := heapInUse()
	size := attackSize(maxConnsPerName, maxConns)
	for i := range size {
		// In the honest member's name, while that has places.
		name := "m1"
		if i >= maxConnsPerName {
			name = fmt.Sprint("mallory", i/maxConnsPerName)
		}
		c := strike(fmt.Sprintf("127.0.0.%d", 2+i%8), b.Addr())
		if c == nil {
			t.Fatal("out of ports or files")
		}
		defer c.Close()
		_, _ = c.Write(appendHello(nil, Hello{Kind: KindMember, Cluster: "test", From: Peer{name, 6}}))
		if got, err := readAnswer(c); err != nil || got.status != StatusOK {
			t.Fatalf("connection %d: %v, %v", i, got.status, err)
		}
	}
	cost := heapInUse() - before
	t.Logf("%d silent connections cost %d bytes each, the other ends included", size, cost/size)
	if cost/size > 64<<10 {
		t.Error("too much")
	}
	begun := time.Now()
	for i := 0; ; i++ {
		c, err := a.Dial(t.Context(), b.Addr(), KindMember, Peer{})
		if err == nil {
			check(t, talk(c))
			check(t, c.Close())
			break
		}
		if time.Since(begun) > 5*time.Second {
			t.Fatalf("no place for an honest member: %v", err)
		}
	}
	t.Logf("an honest member was admitted after %v", time.Since(begun))
	if n := lines.Load(); n > 3 {
		t.Errorf("%d lines", n)
	}
	if log.Counts()[refused.Flood] == 0 {
		t.Error("the flood is not counted")
	}
}

// lineCount counts the lines of a log.
type lineCount struct{ atomic.Int64 }

func (l *lineCount) Write(b []byte) (int, error) {
	l.Add(1)
	return len(b), nil
}

func heapInUse() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc + m.StackInuse)
}
