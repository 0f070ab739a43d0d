package port

import (
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/transport"
	"go.uber.org/goleak"
)

// A world is a place to run a test: host i has a network and an address to
// bind, with a free port.
type world func(i int) (n transport.Network, bind string)

func tcpWorld(int) (transport.Network, string) { return transport.TCP(), "127.0.0.1:0" }

func memoryWorld(m *transport.Memory) world {
	return func(i int) (transport.Network, string) {
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
	inMemory(t, f)
}

// inMemory runs a claim on the memory networks alone. Their clock is the bubble's: a
// claim that takes hundreds of dials would otherwise fail on a host that stands still
// for longer than the time of one dial.
func inMemory(t *testing.T, f func(t *testing.T, w world)) {
	t.Run("memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { f(t, memoryWorld(transport.NewMemory(1))) })
	})
	t.Run("slow memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m := transport.NewMemory(1)
			m.SetLink("", "", transport.Link{Delay: 20 * time.Millisecond, Jitter: 10 * time.Millisecond})
			f(t, memoryWorld(m))
		})
	})
}

func (w world) listen(t *testing.T, i int) transport.Endpoint {
	t.Helper()
	n, bind := w(i)
	e, err := n.Listen(bind)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

var (
	clusterA = [16]byte{0xa}
	clusterB = [16]byte{0xb}
)

func known(id [16]byte) func() [16]byte { return func() [16]byte { return id } }

// open opens the port of member m<i> with boot i. edit changes the rest.
func (w world) open(t *testing.T, i int, edit ...func(*Config)) *Port {
	t.Helper()
	n, bind := w(i)
	cfg := Config{Network: n, Bind: bind, Cluster: "test", Self: Peer{fmt.Sprintf("m%d", i), uint64(i)}}
	for _, e := range edit {
		e(&cfg)
	}
	p, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// echo is a handler: it sends every byte back.
func echo(c *Conn) {
	defer c.Close()
	_, _ = io.Copy(c, c)
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

// served checks that p still serves a healthy member.
func served(t *testing.T, from, p *Port) {
	t.Helper()
	c, err := from.Dial(t.Context(), p.Addr(), KindMember, Peer{})
	if err != nil {
		t.Errorf("a healthy member is not served: %v", err)
		return
	}
	defer c.Close()
	check(t, talk(c))
}

func wantRefused(t *testing.T, c *Conn, err error, want Status) *RefusedError {
	t.Helper()
	var refused *RefusedError
	if c != nil || !errors.As(err, &refused) || refused.Status != want {
		t.Fatalf("refusal %q wanted, got %v, %v", want, c, err)
	}
	if refused.Error() == "" || refused.Addr == "" {
		t.Errorf("a refusal without facts: %+v", refused)
	}
	return refused
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
