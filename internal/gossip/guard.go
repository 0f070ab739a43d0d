package gossip

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/refused"
	"github.com/wardmote/wardmote/internal/timing"
)

// Bounds of the streams of gossip that other members have dialled. A stream holds
// at most maxMessage bytes, and for as long as one exchange takes, so all streams
// together hold less than 50 MiB. A member of many streams leaves places to others. So
// does a host, of which a holder of a secret is all the members: a host has at most as many
// places as are free, so alone half of them, and they are enough for members that share an
// address, since an exchange is short.
const (
	maxStreams        = 16  // read at once
	maxStreamsPerName = 4   // of them from members of one name
	maxWaiting        = 128 // more wait for a place: a deployment that starts at once joins at once
	maxWaitingPerName = 8   // of them from members of one name
)

// guard gives places to accepted streams.
type guard struct {
	mu      sync.Mutex
	active  int
	waiting int
	names   map[string]streamsOf // names without streams have no entry
	hosts   map[netip.Addr]streamsOf
	freed   chan struct{} // closed and made anew when a place is freed
}

// streamsOf counts the streams from members of one name, or from one host.
type streamsOf struct{ active, waiting int }

func newGuard() *guard {
	return &guard{names: make(map[string]streamsOf), hosts: make(map[netip.Addr]streamsOf), freed: make(chan struct{})}
}

// enter takes a free place, or waits for one, for timing.GossipTurn at most, or until
// done. Enter returns nil if there is none; else the caller must call leave.
func (g *guard) enter(name string, host netip.Addr, done <-chan struct{}) (leave func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.full(name, host) && !g.wait(name, host, done) {
		return nil
	}
	g.count(name, host, 1, 0)
	return sync.OnceFunc(func() { g.leave(name, host) })
}

// full reports whether a stream from a member of the name at the host has no place. The
// caller holds g.mu.
func (g *guard) full(name string, host netip.Addr) bool {
	return g.hosts[host].active >= maxStreams-g.active || g.names[name].active >= maxStreamsPerName
}

// lineFull is full, of the places in the line.
func (g *guard) lineFull(name string, host netip.Addr) bool {
	return g.hosts[host].waiting >= maxWaiting-g.waiting || g.names[name].waiting >= maxWaitingPerName
}

// wait waits until there is a place, and reports whether there is one. The caller holds
// g.mu, which is free during the wait.
func (g *guard) wait(name string, host netip.Addr, done <-chan struct{}) bool {
	if g.lineFull(name, host) {
		return false
	}
	g.count(name, host, 0, 1)
	defer g.count(name, host, 0, -1)
	patience := time.NewTimer(timing.GossipTurn)
	defer patience.Stop()
	for g.full(name, host) {
		freed, over := g.freed, false
		g.mu.Unlock()
		select {
		case <-freed:
		case <-patience.C:
			over = true
		case <-done:
			over = true
		}
		g.mu.Lock()
		if over {
			return false
		}
	}
	return true
}

// count adds to the counts of streams. The caller holds g.mu.
func (g *guard) count(name string, host netip.Addr, active, waiting int) {
	g.active += active
	g.waiting += waiting
	countIn(g.names, name, active, waiting)
	countIn(g.hosts, host, active, waiting)
}

func countIn[K comparable](of map[K]streamsOf, k K, active, waiting int) {
	n := of[k]
	n.active += active
	n.waiting += waiting
	if of[k] = n; n == (streamsOf{}) {
		delete(of, k)
	}
}

func (g *guard) leave(name string, host netip.Addr) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.count(name, host, -1, 0)
	close(g.freed)
	g.freed = make(chan struct{})
}

// guarded is a stream of gossip. Each Write is one frame: a length of four bytes,
// then the sealed bytes. Read passes the first message on when it has come whole and
// has been checked, and nothing after it: memberlist reads no more.
type guarded struct {
	net.Conn
	transport *portTransport
	answer    bool   // this side has dialled
	leave     func() // frees the place; may be nil

	in   []byte // for Read
	done bool   // the message has been read
}

// Read implements net.Conn.
func (c *guarded) Read(p []byte) (int, error) {
	for len(c.in) == 0 {
		if c.done {
			return 0, io.EOF
		}
		if err := c.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, c.in)
	c.in = c.in[n:]
	return n, nil
}

// fill reads a frame. memberlist sends the cluster's name in a frame of its own.
func (c *guarded) fill() error {
	frame, err := readFrame(c.Conn, maxMessage+sealOverhead)
	if err != nil {
		return err
	}
	t := c.transport
	b, err := t.ring.open(frame, t.ring.messages)
	if err != nil {
		t.refused.Note(refused.Packet, c.RemoteAddr().String(), "a gossip stream under another key")
		return fmt.Errorf("cluster: gossip stream: %w", err)
	}
	rest, err := unlabel(b, t.label)
	if err == nil { // the name
		c.in = b[:len(b)-len(rest)]
		b = rest
	}
	if len(b) == 0 && len(c.in) > 0 {
		return nil
	}
	b, err = checkState(b, c.answer)
	if err != nil {
		t.refused.Note(refused.Packet, c.RemoteAddr().String(), "a gossip stream of another shape")
		return fmt.Errorf("cluster: gossip stream: %w", err)
	}
	c.in, c.done = append(c.in, b...), true
	return nil
}

// Write implements net.Conn.
func (c *guarded) Write(b []byte) (int, error) {
	if len(b) > maxMessage {
		return 0, fmt.Errorf("cluster: gossip message of %d bytes exceeds %d", len(b), maxMessage)
	}
	r := c.transport.ring
	frame := r.seal(make([]byte, 4, 4+len(b)+sealOverhead), b, r.messages)
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	if _, err := c.Conn.Write(frame); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Close implements net.Conn.
func (c *guarded) Close() error {
	if c.leave != nil {
		c.leave()
	}
	return c.Conn.Close()
}

// readFrame reads a length of four bytes and so many bytes, at most most. Memory
// grows with the bytes that have come, not with the length.
func readFrame(r io.Reader, most int) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if int64(n) > int64(most) {
		return nil, fmt.Errorf("cluster: frame of %d bytes exceeds %d", n, most)
	}
	var b bytes.Buffer
	if _, err := io.CopyN(&b, r, int64(n)); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
