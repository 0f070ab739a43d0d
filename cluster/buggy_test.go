package cluster_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/internal/port"
	"github.com/wardmote/wardmote/internal/simnet"
	"github.com/wardmote/wardmote/locks"
	"github.com/wardmote/wardmote/transport"
)

// A faulty network damages a part of what its member writes to streams of some kinds,
// behind their preambles.
type faulty struct {
	transport.Network
	mu     sync.Mutex
	rand   *rand.Rand
	on     atomic.Bool
	damage atomic.Int64

	kinds   map[int64]bool // of the streams to damage
	dialled bool           // damage the streams alone that the member has dialled
	every   int            // damage one write of so many
}

func (f *faulty) Listen(addr string) (transport.Endpoint, error) {
	e, err := f.Network.Listen(addr)
	return &faultyEndpoint{e, f}, err
}

type faultyEndpoint struct {
	transport.Endpoint
	f *faulty
}

func (e *faultyEndpoint) Accept() (net.Conn, error) {
	c, err := e.Endpoint.Accept()
	if err != nil {
		return nil, err
	}
	return &faultyConn{Conn: c, f: e.f, accepted: true}, nil
}

func (e *faultyEndpoint) Dial(ctx context.Context, addr string) (net.Conn, error) {
	c, err := e.Endpoint.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	return &faultyConn{Conn: c, f: e.f}, nil
}

// faultyConn knows its kind by the preamble, the first bytes of the dialling side.
type faultyConn struct {
	net.Conn
	f        *faulty
	accepted bool
	seen     int // bytes of the dialling side
	written  atomic.Int64
	kind     atomic.Int64
}

// preambleKind is the place of the kind in the preamble.
const preambleKind = 5

// see takes the next bytes of the dialling side. One goroutine calls it at a time.
func (c *faultyConn) see(b []byte) {
	if at := preambleKind - c.seen; c.kind.Load() == 0 && len(b) > at {
		c.kind.Store(int64(b[at]))
	}
	c.seen = min(c.seen+len(b), preambleKind)
}

func (c *faultyConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.accepted && c.kind.Load() == 0 {
		c.see(b[:n])
	}
	return n, err
}

func (c *faultyConn) Write(b []byte) (int, error) {
	if !c.accepted && c.kind.Load() == 0 {
		c.see(b)
	}
	first := c.written.Add(1) == 1 // the preamble, or its answer
	if kind := c.kind.Load(); first || !c.f.kinds[kind] || c.accepted && c.f.dialled || !c.f.on.Load() {
		return c.Conn.Write(b)
	}
	if _, err := c.Conn.Write(c.f.mangle(b)); err != nil {
		return 0, err
	}
	return len(b), nil
}

func (f *faulty) mangle(b []byte) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.rand.IntN(max(f.every, 1)) > 0 {
		return b
	}
	f.damage.Add(1)
	b = bytes.Clone(b)
	from := 0
	if len(b) > 4 && f.rand.IntN(4) > 0 {
		from = 4 // the length stays
	}
	for range 1 + f.rand.IntN(3) {
		at := from + f.rand.IntN(len(b)-from)
		switch f.rand.IntN(3) {
		case 0:
			b[at] ^= 1 << f.rand.IntN(8)
		case 1:
			b[at] = byte(f.rand.Uint32())
		case 2:
			copy(b[at:], "\xff\xff\xff\xff\xff\xff\xff\xff\x7f")
		}
	}
	return b
}

// A member whose streams of raft and of control are damaged ends no process, and no
// key has two holders. WARDMOTE_FULL plays many more rounds; WARDMOTE_BUGGY is a
// duration to play for.
func TestAMemberWithDamagedStreamsEndsNobody(t *testing.T) { buggyRounds(t, buggyRound) }

// buggyRounds plays rounds in bubbles.
func buggyRounds(t *testing.T, play func(t *testing.T, seed uint64, length time.Duration)) {
	rounds, length, limit := uint64(1), 8*time.Second, time.Duration(0)
	if os.Getenv("WARDMOTE_FULL") != "" {
		rounds, length = 12, 30*time.Second
	}
	if text := os.Getenv("WARDMOTE_BUGGY"); text != "" {
		var err error
		if limit, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	began, first := time.Now(), uint64(0)
	if limit > 0 {
		first = uint64(began.UnixNano()) // another run, other damage
	}
	for seed := first; (seed < first+rounds || time.Since(began) < limit) && !t.Failed(); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { synctest.Test(t, func(t *testing.T) { play(t, seed, length) }) })
	}
}

func buggyRound(t *testing.T, seed uint64, length time.Duration) {
	sim := simnet.New(seed)
	sim.SetDefault(simnet.Link{Delay: time.Millisecond})
	f := &faulty{rand: rand.New(rand.NewPCG(seed, 1)), every: 4, kinds: map[int64]bool{int64(port.KindRaft): true, int64(port.KindControl): true}}
	addr := func(i int) string { return fmt.Sprintf("10.0.0.%d:7000", i) }
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	buggy := 1 + int(seed%3)
	nodes := make(map[int]*cluster.Node)
	defer time.Sleep(time.Minute) // after all have stopped: memberlist's goroutines end late
	for i := 1; i <= 4; i++ {
		host := transport.Network(simnet.HostOf[transport.Endpoint](sim, fmt.Sprintf("10.0.0.%d", i)))
		if i == buggy {
			f.Network = host
			host = f
		}
		cfg := cluster.Config{Name: fmt.Sprint("n", i), Cluster: "test", Bind: addr(i), InitialSize: 3, TTL: 2 * time.Second,
			Join: []string{addr(1), addr(2), addr(3)}, Network: host, Security: cluster.Security{Insecure: true}}
		if i == 4 {
			cfg.InitialSize, cfg.Voting.Thin = 0, true
		}
		n, err := cluster.Start(context.Background(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		nodes[i] = n
		defer n.Stop()
	}
	for _, n := range nodes {
		if err := n.Ready(ctx); err != nil {
			t.Fatal(err)
		}
	}
	f.on.Store(true)

	grants := play(t, ctx, nodes, length, 0)
	f.on.Store(false)
	c := locks.New(nodes[4], locks.Options{})
	l, err := c.Acquire(ctx, "after")
	if err != nil {
		t.Fatalf("after the damage: %v", err)
	}
	_ = l.Release(ctx)
	_ = c.Close(ctx)
	t.Logf("%d grants beside %d damaged writes", grants, f.damage.Load())
	if f.damage.Load() < 20 || grants == 0 {
		t.Errorf("%d grants, %d damaged writes", grants, f.damage.Load())
	}
}
