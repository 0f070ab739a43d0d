package transport

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

// memoryStream is one side of a stream. All its fields are guarded by
// Memory.mu.
type memoryStream struct {
	memory        *Memory
	host          *memoryHost
	local, remote net.Addr
	peer          *memoryStream
	in, out       *flow

	closed  bool // by Close or a crash
	reset   bool // by the other side or by silence
	writing bool // a Write is at it: Writes do not mix

	readers, writers sync.Cond // on Memory.mu
	read, write      deadline
}

// flow is one direction of a stream.
//
// I1: size is the number of data bytes in queue and arrived.
// I2: queue is ordered by due, and what is held comes last.
type flow struct {
	memory   *Memory
	route    route
	src, dst *memoryStream

	queue   []segment // written, not yet arrived
	arrived bytes.Buffer
	size    int
	ended   bool // the end of the stream arrived
	broken  bool // a reset was sent

	scheduled bool      // an event will deliver
	cut       bool      // as last seen
	cutAt     time.Time // since when
}

type segment struct {
	data []byte
	mark mark
	due  time.Time
	held bool // the sender is frozen: due is not known yet
}

// mark is what a segment says beyond its data.
type mark uint8

const (
	markData mark = iota
	markEnd
	markReset
)

// connect returns the two sides of a new stream.
func (m *Memory) connect(nearHost *memoryHost, near netip.AddrPort, farHost *memoryHost, far netip.AddrPort) (*memoryStream, *memoryStream) {
	a := &memoryStream{memory: m, host: nearHost, local: net.TCPAddrFromAddrPort(near), remote: net.TCPAddrFromAddrPort(far)}
	b := &memoryStream{memory: m, host: farHost, local: a.remote, remote: a.local}
	a.peer, b.peer = b, a
	a.out = &flow{memory: m, route: route{near.Addr(), far.Addr()}, src: a, dst: b}
	b.out = &flow{memory: m, route: route{far.Addr(), near.Addr()}, src: b, dst: a}
	a.in, b.in = b.out, a.out
	for _, s := range []*memoryStream{a, b} {
		s.readers.L, s.writers.L = &m.mu, &m.mu
		m.streams[s] = struct{}{}
	}
	return a, b
}

func (s *memoryStream) LocalAddr() net.Addr  { return s.local }
func (s *memoryStream) RemoteAddr() net.Addr { return s.remote }

// Read returns what arrived before it reports how the stream ended, as TCP
// does.
func (s *memoryStream) Read(p []byte) (int, error) {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	for {
		switch {
		case s.closed:
			return 0, s.fail("read", net.ErrClosed)
		case s.read.passed():
			return 0, s.fail("read", os.ErrDeadlineExceeded)
		case len(p) == 0:
			return 0, nil
		case s.host.frozen:
		case s.in.arrived.Len() > 0:
			n, _ := s.in.arrived.Read(p)
			s.in.size -= n
			s.peer.writers.Broadcast()
			return n, nil
		case s.in.ended:
			return 0, io.EOF
		case s.reset:
			return 0, s.fail("read", syscall.ECONNRESET)
		}
		s.readers.Wait()
	}
}

// Write returns once everything is within the window.
func (s *memoryStream) Write(p []byte) (n int, err error) {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
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
		case s.write.passed():
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
		room := min(memoryWindow-s.out.size, len(p)-n)
		if room <= 0 {
			s.writers.Wait()
			continue
		}
		s.out.send(p[n:n+room], markData)
		n += room
	}
}

// Close has the other side read the end of the stream after what was written.
func (s *memoryStream) Close() error {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	if s.closed {
		return s.fail("close", net.ErrClosed)
	}
	s.closed = true
	if !s.reset {
		s.out.send(nil, markEnd)
		if s.in.arrived.Len() > 0 { // nobody will read it: the writer must know
			s.out.send(nil, markReset)
		}
	}
	s.finish()
	return nil
}

// crash ends the side as the death of its process does. It is called with mu
// held.
func (s *memoryStream) crash() {
	first := s.out.firstHeld()
	never := s.out.queue[first:] // left the host
	if s.closed && len(never) == 0 {
		return // and the other side knows, or will
	}
	for _, g := range never {
		s.out.size -= len(g.data)
		s.out.broken = s.out.broken && g.mark != markReset
	}
	s.out.queue = s.out.queue[:first]
	s.closed = true
	if !s.reset {
		// The kernel speaks now, not the process.
		frozen := s.host.frozen
		s.host.frozen = false
		s.out.send(nil, markReset)
		s.host.frozen = frozen
	}
	s.finish()
}

// abort resets the side. It is called with mu held.
func (s *memoryStream) abort() {
	if s.reset {
		return
	}
	s.reset = true
	s.out.drop()
	s.finish()
}

// finish is called with mu held when the side was closed or reset.
func (s *memoryStream) finish() {
	if s.closed {
		s.in.size -= s.in.arrived.Len()
		s.in.arrived = bytes.Buffer{}
		s.read.stop()
		s.write.stop()
	}
	s.readers.Broadcast()
	s.writers.Broadcast()
	if !s.done() || !s.peer.done() {
		return
	}
	s.out.drop()
	s.in.drop()
	for _, side := range []*memoryStream{s, s.peer} {
		if side.closed { // else a Read may be waiting for its host to thaw
			delete(s.memory.streams, side)
		}
	}
}

// done says whether nothing more is for the side to send or receive.
func (s *memoryStream) done() bool { return s.closed || s.reset }

// drop forgets what is under way.
func (f *flow) drop() {
	for _, g := range f.queue {
		f.size -= len(g.data)
	}
	f.queue = nil
}

func (f *flow) firstHeld() int {
	for i, g := range f.queue {
		if g.held {
			return i
		}
	}
	return len(f.queue)
}

// send puts data, or a mark, on its way. It is called with mu held, as are all
// methods of flow.
func (f *flow) send(data []byte, k mark) {
	if f.broken {
		return
	}
	f.broken = k == markReset
	f.size += len(data)
	g := segment{data: data, mark: k, held: f.src.host.frozen}
	now := time.Now()
	if !g.held {
		g.due = f.travel(now)
		if len(f.queue) == 0 && !g.due.After(now) && !f.memory.isCut(f.route) {
			f.arrive(g) // at once, and data is copied there
			return
		}
	}
	g.data = bytes.Clone(data)
	f.queue = append(f.queue, g)
	f.deliver(now)
}

// travel draws when something sent now arrives: never before what was sent
// earlier.
func (f *flow) travel(now time.Time) time.Time {
	l, rng := f.memory.quality(f.route)
	due := now.Add(l.latency(rng))
	again := retransmission
	for range maxRetransmits {
		if !l.lost(rng) {
			break
		}
		due = due.Add(again)
		again *= 2
	}
	for i := len(f.queue) - 1; i >= 0; i-- {
		if last := f.queue[i]; !last.held {
			if last.due.After(due) {
				due = last.due
			}
			break
		}
	}
	return due
}

// deliver lets arrive what is due, and sees to it that the rest will.
func (f *flow) deliver(now time.Time) {
	if f.memory.isCut(f.route) {
		return // adapt will come back to it
	}
	for len(f.queue) > 0 && !f.queue[0].held && !f.queue[0].due.After(now) {
		g := f.queue[0]
		f.queue[0] = segment{}
		f.queue = f.queue[1:]
		f.arrive(g)
	}
	if len(f.queue) == 0 || f.queue[0].held || f.scheduled {
		return
	}
	f.scheduled = true
	f.memory.at(f.queue[0].due, func() {
		f.scheduled = false
		f.deliver(time.Now())
	})
}

// arrive gives a segment to the side it is for.
func (f *flow) arrive(g segment) {
	d := f.dst
	if d.reset {
		f.size -= len(g.data)
		return
	}
	switch g.mark {
	case markEnd:
		f.ended = true
		d.readers.Broadcast()
	case markReset:
		d.abort()
	case markData:
		if d.closed { // nobody will read it: the writer must know
			f.size -= len(g.data)
			d.out.send(nil, markReset)
			return
		}
		f.arrived.Write(g.data)
		d.readers.Broadcast()
	}
}

// adapt takes notice of a change to the network.
func (f *flow) adapt(now time.Time) {
	if f.src.done() && f.dst.done() {
		return
	}
	if !f.src.host.frozen {
		for i := f.firstHeld(); i < len(f.queue); i++ {
			f.queue[i].due = f.travel(now)
			f.queue[i].held = false
		}
	}
	cut := f.memory.isCut(f.route)
	switch {
	case cut && !f.cut:
		f.cut, f.cutAt = true, now
		f.memory.at(now.Add(memorySilence), func() {
			if f.cut && f.cutAt.Equal(now) {
				f.src.abort()
				f.dst.abort()
			}
		})
	case !cut && f.cut:
		// What the link swallowed is sent again now.
		f.cut = false
		l, rng := f.memory.quality(f.route)
		again := now.Add(l.latency(rng))
		for i := range f.queue {
			if g := &f.queue[i]; !g.held && g.due.Before(again) {
				g.due = again
			}
		}
	}
	f.deliver(now)
}

// deadline is one of a stream's deadlines. The timer only wakes who waits.
type deadline struct {
	at    time.Time
	timer *time.Timer
}

func (d *deadline) passed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

func (d *deadline) stop() {
	if d.timer != nil {
		d.timer.Stop()
	}
}

func (d *deadline) set(at time.Time, cond *sync.Cond) {
	d.stop()
	d.at = at
	cond.Broadcast()
	if at.IsZero() || d.passed() {
		return
	}
	if d.timer != nil {
		d.timer.Reset(time.Until(at))
		return
	}
	d.timer = time.AfterFunc(time.Until(at), func() {
		cond.L.Lock()
		defer cond.L.Unlock()
		cond.Broadcast()
	})
}

func (s *memoryStream) SetDeadline(t time.Time) error {
	return s.setDeadline(t, true, true)
}

func (s *memoryStream) SetReadDeadline(t time.Time) error {
	return s.setDeadline(t, true, false)
}

func (s *memoryStream) SetWriteDeadline(t time.Time) error {
	return s.setDeadline(t, false, true)
}

func (s *memoryStream) setDeadline(t time.Time, read, write bool) error {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	if s.closed {
		return s.fail("set", net.ErrClosed)
	}
	if read {
		s.read.set(t, &s.readers)
	}
	if write {
		s.write.set(t, &s.writers)
	}
	return nil
}

func (s *memoryStream) fail(op string, err error) error {
	return &net.OpError{Op: op, Net: "memory", Source: s.local, Addr: s.remote, Err: err}
}
