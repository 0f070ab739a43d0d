package gossip

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/timing"
)

const (
	maxLanes  = 256      // streams of packets at once; beyond, the one used longest ago is closed
	laneQueue = 64       // packets that wait in a stream; further ones are dropped, as by UDP
	maxPacket = 64 << 10 // a packet in a stream; as long as a datagram may be
)

// lanes carries packets in streams, one for each process: under the user's own
// certificates nothing encrypts UDP. A stream is dialled for its first packet and
// closed when it is idle. Packets are dropped where UDP would drop them: while the
// process cannot be reached, and when too many wait.
type lanes struct {
	ctx  context.Context
	dial func(context.Context, member.Process) (net.Conn, error)
	wg   sync.WaitGroup

	mu    sync.Mutex
	lanes map[member.Process]*lane
}

// lane is a stream to one process, and the packets for it.
type lane struct {
	to     member.Process
	queue  chan []byte
	cancel context.CancelFunc
	used   time.Time
}

// newLanes returns lanes without a stream, until ctx ends.
func newLanes(ctx context.Context, dial func(context.Context, member.Process) (net.Conn, error)) *lanes {
	return &lanes{ctx: ctx, dial: dial, lanes: make(map[member.Process]*lane)}
}

// wait waits for all goroutines. The ctx of newLanes has ended.
func (l *lanes) wait() {
	l.mu.Lock()
	l.lanes = nil // under mu: no send is between its look at ctx and its goroutine
	l.mu.Unlock()
	l.wg.Wait()
}

// send queues a packet, which it keeps, and does not block.
func (l *lanes) send(b []byte, to member.Process) error {
	if len(b) > maxPacket {
		return fmt.Errorf("cluster: packet of %d bytes exceeds %d", len(b), maxPacket)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil {
		return net.ErrClosed
	}
	a := l.lanes[to]
	if a == nil {
		if len(l.lanes) >= maxLanes {
			l.evict()
		}
		a = &lane{to: to, queue: make(chan []byte, laneQueue)}
		var ctx context.Context
		ctx, a.cancel = context.WithCancel(l.ctx)
		l.lanes[to] = a
		l.wg.Go(func() { l.run(ctx, a) })
	}
	a.used = time.Now()
	select {
	case a.queue <- b:
	default:
	}
	return nil
}

// evict ends the lane that was used longest ago. The caller holds l.mu.
func (l *lanes) evict() {
	var oldest *lane
	for _, a := range l.lanes {
		if oldest == nil || a.used.Before(oldest.used) {
			oldest = a
		}
	}
	oldest.cancel()
	delete(l.lanes, oldest.to)
}

// forget takes a lane out of the list, unless packets wait in it and busy is false.
func (l *lanes) forget(a *lane, busy bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(a.queue) > 0 && !busy {
		return false
	}
	if l.lanes[a.to] == a {
		delete(l.lanes, a.to)
	}
	return true
}

// run dials the process and writes packets until the lane is idle, or broken. After
// a failure the lane stays for timing.PacketRest, and takes no more packets than its
// queue has room for: so a dead process costs few dials.
func (l *lanes) run(ctx context.Context, a *lane) {
	defer a.cancel()
	if l.carry(ctx, a) != nil {
		select {
		case <-ctx.Done():
		case <-time.After(timing.PacketRest):
		}
	}
	l.forget(a, true)
}

// carry writes packets until the lane is idle. It fails if the process cannot be
// reached, or the stream breaks.
func (l *lanes) carry(ctx context.Context, a *lane) error {
	s, err := l.connect(ctx, a.to)
	if err != nil {
		return err
	}
	defer func() { s.close() }()
	idle := time.NewTimer(timing.PacketIdle)
	defer idle.Stop()
	for {
		select {
		case b := <-a.queue:
			if err := s.write(b); err != nil {
				return err
			}
			idle.Reset(timing.PacketIdle)
		case <-idle.C:
			if l.forget(a, false) {
				return nil
			}
		case <-s.renew:
			// The new stream first: packets wait meanwhile, and none is lost.
			next, err := l.connect(ctx, a.to)
			if err != nil {
				return err
			}
			s.close()
			s = next
		case <-s.ended:
			return io.EOF
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// packetStream is the stream of a lane.
type packetStream struct {
	conn  net.Conn
	renew <-chan struct{} // closed when another stream should take over
	ended chan struct{}   // closed when the other side has closed the stream
	keep  func() bool     // keeps the end of the lane from closing the stream
}

// connect dials a process, for timing.Dial at most. The caller must close the stream.
func (l *lanes) connect(ctx context.Context, to member.Process) (*packetStream, error) {
	dialling, cancel := context.WithTimeout(ctx, timing.Dial)
	defer cancel()
	conn, err := l.dial(dialling, to)
	if err != nil {
		return nil, err
	}
	s := &packetStream{conn: conn, ended: make(chan struct{})}
	if r, ok := conn.(interface{ Renew() <-chan struct{} }); ok {
		s.renew = r.Renew()
	}
	s.keep = context.AfterFunc(ctx, s.cut) // a write may block, and the end of the lane does not wait
	l.wg.Go(func() {
		defer close(s.ended)
		_, _ = io.ReadFull(conn, make([]byte, 1)) // the other side sends nothing
	})
	return s, nil
}

func (s *packetStream) write(b []byte) error {
	_ = s.conn.SetWriteDeadline(time.Now().Add(timing.Dial))
	frame := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(b)), uint32(len(b)))
	_, err := s.conn.Write(append(frame, b...))
	return err
}

func (s *packetStream) close() {
	s.keep()
	s.cut()
	<-s.ended
}

// cut closes the stream without a farewell where the stream can: under TLS a farewell
// waits five seconds for a process that reads nothing, and no packet needs one.
func (s *packetStream) cut() {
	if c, ok := s.conn.(interface{ Cut() }); ok {
		c.Cut()
		return
	}
	_ = s.conn.Close()
}

// receive hands the packets of an accepted stream to take, one after the other, until
// the stream or ctx ends, and closes the stream.
func receive(ctx context.Context, conn net.Conn, take func(b []byte)) error {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	for {
		_ = conn.SetReadDeadline(time.Now().Add(2 * timing.PacketIdle))
		b, err := readFrame(conn, maxPacket)
		if err != nil {
			return err
		}
		take(b)
	}
}
