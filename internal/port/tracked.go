package port

import (
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wardmote/wardmote/internal/timing"
)

// tracked is an accepted connection below TLS. During the handshake its reads give
// and take turns; afterwards they note when the peer was heard last.
type tracked struct {
	net.Conn
	ip      netip.Addr
	shakes  *handshakes
	shaking atomic.Pointer[shaking] // nil after the handshake
	left    int                     // of maxShaken

	admitted time.Time
	heard    atomic.Int64 // the latest byte, in nanoseconds after admitted; 0: none yet

	mu     sync.Mutex
	silent bool // the read deadline is the first byte's
}

func (c *tracked) Read(b []byte) (int, error) {
	if s := c.shaking.Load(); s != nil {
		c.shakes.await(s)
		n, err := shakeRead(c.Conn, b, &c.left)
		if !c.shakes.resume(s) {
			return 0, net.ErrClosed
		}
		return n, err
	}
	n, err := c.Conn.Read(b)
	if n > 0 && c.heard.Swap(max(1, int64(time.Since(c.admitted)))) == 0 {
		c.mu.Lock()
		if c.silent {
			c.silent = false
			_ = c.Conn.SetReadDeadline(time.Time{})
		}
		c.mu.Unlock()
	}
	return n, err
}

// dialled is a dialled connection below TLS: its handshake is bounded too.
type dialled struct {
	net.Conn
	stands atomic.Bool // the handshake is over
	left   int         // of maxShaken
}

func (c *dialled) Read(b []byte) (int, error) {
	if c.stands.Load() {
		return c.Conn.Read(b)
	}
	return shakeRead(c.Conn, b, &c.left)
}

// settle begins the time of an admitted connection, before its handler runs. The
// peer has timing.FirstByte for its first byte, unless the handler sets a deadline
// of its own: every kind's dialler speaks first and at once.
func (c *tracked) settle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.silent = true
	_ = c.Conn.SetReadDeadline(time.Now().Add(timing.FirstByte))
}

// idle returns for how long the peer has sent nothing, and whether it has sent
// anything since it was admitted.
func (c *tracked) idle(now time.Time) (idle time.Duration, spoke bool) {
	heard := time.Duration(c.heard.Load())
	return now.Sub(c.admitted) - heard, heard > 0
}

func (c *tracked) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.silent = false
	return c.Conn.SetReadDeadline(t)
}

func (c *tracked) SetDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.silent = false
	return c.Conn.SetDeadline(t)
}
