package simnet

import (
	"bytes"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"
)

// stream is one side of a stream and implements net.Conn. Network.mu guards all
// fields.
type stream struct {
	net           *Network
	host          *host
	local, remote net.Addr
	peer          *stream
	in, out       *flow

	closed  bool // by Close or by a crash
	reset   bool // by the other side or by silence
	writing bool // a Write is at work: Writes do not mix

	readers, writers waiters
}

// connect returns the two sides of a new stream. The caller holds mu.
func (n *Network) connect(nearHost *host, near netip.AddrPort, farHost *host, far netip.AddrPort) (*stream, *stream) {
	a := &stream{net: n, host: nearHost, local: net.TCPAddrFromAddrPort(near), remote: net.TCPAddrFromAddrPort(far)}
	b := &stream{net: n, host: farHost, local: a.remote, remote: a.local}
	a.peer, b.peer = b, a
	a.out = &flow{net: n, route: route{near.Addr(), far.Addr()}, src: a, dst: b}
	b.out = &flow{net: n, route: route{far.Addr(), near.Addr()}, src: b, dst: a}
	a.in, b.in = b.out, a.out
	for _, s := range []*stream{a, b} {
		s.readers.L, s.writers.L = &n.mu, &n.mu
		n.streams[s] = struct{}{}
	}
	return a, b
}

func (s *stream) LocalAddr() net.Addr  { return s.local }
func (s *stream) RemoteAddr() net.Addr { return s.remote }

// Read returns all arrived bytes before the end of the stream, as TCP does.
func (s *stream) Read(p []byte) (int, error) {
	s.net.mu.Lock()
	defer s.net.mu.Unlock()
	for {
		switch {
		case s.closed:
			return 0, s.fail("read", net.ErrClosed)
		case s.readers.late():
			return 0, s.fail("read", os.ErrDeadlineExceeded)
		case len(p) == 0:
			return 0, nil
		case s.host.frozen:
		case s.in.arrived.Len() > 0:
			n, _ := s.in.arrived.Read(p)
			s.in.size -= n
			s.peer.writers.Broadcast()
			return n, nil
		case s.in.eof:
			return 0, io.EOF
		case s.reset:
			return 0, s.fail("read", syscall.ECONNRESET)
		}
		s.readers.Wait()
	}
}

// Write returns once all of p is within the window.
func (s *stream) Write(p []byte) (n int, err error) {
	s.net.mu.Lock()
	defer s.net.mu.Unlock()
	turn := false
	defer func() {
		if turn {
			s.writing = false
			s.writers.Broadcast()
		}
	}()
	for {
		switch {
		case s.closed:
			return n, s.fail("write", net.ErrClosed)
		case s.writers.late():
			return n, s.fail("write", os.ErrDeadlineExceeded)
		case s.reset:
			return n, s.fail("write", syscall.ECONNRESET)
		case s.writing && !turn:
			s.writers.Wait()
			continue
		}
		turn, s.writing = true, true
		if n == len(p) {
			return n, nil
		}
		free := min(windowSize-s.out.size, len(p)-n)
		if free <= 0 {
			s.writers.Wait()
			continue
		}
		s.out.send(p[n:n+free], dataSegment)
		n += free
	}
}

// Close ends this side. The other side reads all bytes written before, and then
// the end of the stream.
func (s *stream) Close() error {
	s.net.mu.Lock()
	defer s.net.mu.Unlock()
	if s.closed {
		return s.fail("close", net.ErrClosed)
	}
	s.closed = true
	if !s.reset {
		s.out.send(nil, eofSegment)
		if s.in.arrived.Len() > 0 { // nobody will read these bytes: the writer must know
			s.out.send(nil, resetSegment)
		}
	}
	s.tearDown()
	return nil
}

// crash ends this side like the death of the process. The caller holds mu.
func (s *stream) crash() {
	first := s.out.firstUnsent()
	never := s.out.queue[first:] // will never leave the host
	if s.closed && len(never) == 0 {
		return // and the other side knows, or will
	}
	for _, g := range never {
		s.out.size -= len(g.data)
		s.out.broken = s.out.broken && g.kind != resetSegment
	}
	s.out.queue = s.out.queue[:first]
	s.closed = true
	if !s.reset {
		// The kernel sends the reset, so a frozen process does not matter.
		frozen := s.host.frozen
		s.host.frozen = false
		s.out.send(nil, resetSegment)
		s.host.frozen = frozen
	}
	s.tearDown()
}

// abort resets this side. The caller holds mu.
func (s *stream) abort() {
	if s.reset {
		return
	}
	s.reset = true
	s.out.discard()
	s.tearDown()
}

// tearDown wakes all callers after a side was closed or reset. When both sides
// are dead, the network forgets the stream. The caller holds mu.
func (s *stream) tearDown() {
	if s.closed {
		s.in.size -= s.in.arrived.Len()
		s.in.arrived = bytes.Buffer{}
		s.readers.stopTimer()
		s.writers.stopTimer()
	}
	s.readers.Broadcast()
	s.writers.Broadcast()
	if !s.dead() || !s.peer.dead() {
		return
	}
	s.out.discard()
	s.in.discard()
	for _, side := range []*stream{s, s.peer} {
		if side.closed { // else a Read may be waiting for its host to thaw
			delete(s.net.streams, side)
		}
	}
}

// dead reports whether this side can neither send nor receive any more.
func (s *stream) dead() bool { return s.closed || s.reset }

func (s *stream) fail(op string, err error) error {
	return &net.OpError{Op: op, Net: "memory", Source: s.local, Addr: s.remote, Err: err}
}

func (s *stream) SetDeadline(t time.Time) error      { return s.setDeadline(t, &s.readers, &s.writers) }
func (s *stream) SetReadDeadline(t time.Time) error  { return s.setDeadline(t, &s.readers) }
func (s *stream) SetWriteDeadline(t time.Time) error { return s.setDeadline(t, &s.writers) }

func (s *stream) setDeadline(t time.Time, of ...*waiters) error {
	s.net.mu.Lock()
	defer s.net.mu.Unlock()
	if s.closed {
		return s.fail("set", net.ErrClosed)
	}
	for _, w := range of {
		w.setDeadline(t)
	}
	return nil
}

// waiters are the callers of Read, or of Write, and their deadline. The timer
// only wakes the callers, and each caller looks at the time itself.
type waiters struct {
	sync.Cond // on Network.mu
	deadline  time.Time
	timer     *time.Timer // nil: no deadline was ever set
}

// late reports whether the deadline has passed.
func (w *waiters) late() bool { return !w.deadline.IsZero() && !time.Now().Before(w.deadline) }

func (w *waiters) stopTimer() {
	if w.timer != nil {
		w.timer.Stop()
	}
}

func (w *waiters) setDeadline(t time.Time) {
	w.stopTimer()
	w.deadline = t
	w.Broadcast()
	switch {
	case t.IsZero() || w.late():
	case w.timer != nil:
		w.timer.Reset(time.Until(t))
	default:
		w.timer = time.AfterFunc(time.Until(t), func() {
			w.L.Lock()
			defer w.L.Unlock()
			w.Broadcast()
		})
	}
}
