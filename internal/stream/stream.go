package stream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wardmote/wardmote/internal/budget"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wakeup"
	"github.com/wardmote/wardmote/internal/wire"
)

// Limits of a stream.
const (
	maxOutgoing = 8 << 20         // bytes queued for the peer
	fullEnough  = maxOutgoing / 4 // with more bytes queued, pushed frames are delayed
	maxDelayed  = 1 << 20         // delayed frames
	delayedCost = 160             // bytes that the budget counts for each: a function with its event, and the place
	fewRequests = 8               // have nothing to share a write with
	mostKept    = 64 << 10        // capacity of a buffer that is kept after its bytes are written
)

// Reasons for the end of a stream.
var (
	ErrClosed   = errors.New("cluster: stream closed")
	ErrSlowPeer = errors.New("cluster: peer does not read its stream")
	ErrBadID    = errors.New("cluster: request without an ID of its own")

	// errUnread is ErrSlowPeer for the budget's sake.
	errUnread = fmt.Errorf("%w, and much waits for its kind", ErrSlowPeer)
)

// A Stream is a connection between two members. It carries numbered requests with
// their answers, and notices, in both directions. All methods may be called from
// any goroutine.
//
// Frames go to a bounded buffer, written out by a goroutine of its own, so no
// sender blocks. A peer loses the stream when the buffer is full. Senders slow down
// while requests wait for their answers, and this keeps the buffer small unless a
// log entry causes more frames than the buffer holds: such frames are given to
// Push.
type Stream struct {
	conn    net.Conn
	handle  func(*Request)
	stopped chan struct{} // closed when the stream has stopped
	wake    wakeup.One    // out has bytes
	share   *budget.Share // of the node's budget; nil: without bounds
	queue   *budget.Queue // the same, of what waits for the peer
	over    atomic.Bool   // the budget has the stream end

	mu      sync.Mutex
	out     []byte              // encoded frames for the writer
	writing int                 // bytes that the writer has taken from out
	counted int                 // bytes that queue counts
	delayed []func() wire.Frame // pushed frames, sent when out has room
	writes  bool                // the writer runs
	nextID  uint64
	calls   map[uint64]func(wire.Frame, error) // open requests of this side
	serving int                                // open requests of the peer
	bytes   [budget.Classes]int                // of the open requests of the peer
	err     error                              // why the stream stopped
	onStop  []func()

	keeps keeps

	wg sync.WaitGroup
}

// New returns a stream on conn, which the stream owns from now on. Start or Serve begins
// to read. Handle receives the peer's requests and notices, one at a
// time, in the order of arrival, and must not block.
//
// A conn with a method Budget, as a connection of package port, has its large frames
// and its requests charged to that share.
func New(conn net.Conn, handle func(*Request)) *Stream {
	share := budget.Of(conn)
	s := &Stream{
		share:   share,
		conn:    conn,
		handle:  handle,
		stopped: make(chan struct{}),
		wake:    wakeup.NewOne(),
		calls:   make(map[uint64]func(wire.Frame, error)),
	}
	s.queue = share.Queue(s.giveWay)
	return s
}

// Start begins to read, on a goroutine of the stream's own, which Wait and Close join.
func (s *Stream) Start() { s.wg.Go(s.readLoop) }

// Serve reads on the caller's goroutine until the stream has stopped and its writer has
// returned.
func (s *Stream) Serve() {
	s.wg.Add(1)
	s.readLoop()
	s.wg.Done()
	s.wg.Wait()
}

// Wait blocks until the stream has stopped and its goroutines have returned.
func (s *Stream) Wait() { s.wg.Wait() }

func (s *Stream) readLoop() {
	in := frames{conn: s.conn, share: s.share, stopped: s.stopped}
	defer in.done()
	for {
		f, err := in.next()
		if err == nil {
			err = s.receive(f)
		}
		if err != nil {
			s.Stop(err)
			return
		}
		in.done()
	}
}

// receive handles a frame of the peer. An error ends the stream.
func (s *Stream) receive(f wire.Frame) error {
	if f.Code != wire.CodeRequest {
		s.mu.Lock()
		done := s.calls[f.ID]
		delete(s.calls, f.ID)
		s.mu.Unlock()
		if done != nil {
			done(f, nil)
		}
		return nil
	}
	if f.ID == 0 {
		if f.Type.Asks() {
			// A request without an ID would escape the count of requests under way.
			return ErrBadID
		}
		s.handle(&Request{f, s, 0})
		return nil
	}
	if f.Type.Tells() {
		return ErrBadID // nobody would answer, and the request would be under way for ever
	}
	q := &Request{f, s, requestCost + len(f.Body)}
	if !s.begin(q) {
		q.Answer(wire.CodeBusy, nil)
		s.share.Refused("too many requests under way")
		return nil
	}
	s.handle(q)
	return nil
}

// startWriterLocked begins the writer with the first bytes for the peer: thousands of
// streams of a peer that asks nothing cost no goroutine for what is never written. The
// stream has not stopped, so its reader has not ended either, and Wait has not returned.
func (s *Stream) startWriterLocked() {
	if !s.writes {
		s.writes = true
		s.wg.Go(s.writeLoop)
	}
}

func (s *Stream) writeLoop() {
	var buf []byte
	for {
		if cap(buf) > mostKept {
			buf = nil
		}
		s.mu.Lock()
		s.writing = 0
		err := s.queueDelayedLocked()
		buf, s.out = s.out, buf[:0]
		s.writing = len(buf)
		s.countLocked(0)
		s.mu.Unlock()
		if s.over.Load() {
			err = errUnread
		}
		if err != nil {
			s.Stop(err)
			return
		}
		if len(buf) == 0 {
			select {
			case <-s.stopped:
				return
			case <-s.wake:
			}
			// The caller that has queued a frame and waits gives its processor to this goroutine at
			// once. Where many ask, others are ready to run and have frames for the same write.
			// Where few do, a beat does not go behind all that is ready to run.
			if s.isBusy() {
				runtime.Gosched()
			}
			continue
		}
		s.conn.SetWriteDeadline(time.Now().Add(timing.StreamWrite))
		if s.over.Load() { // the deadline of giveWay may have come before
			s.Stop(errUnread)
			return
		}
		if _, err := s.conn.Write(buf); err != nil {
			if s.over.Load() {
				err = errUnread
			}
			s.Stop(err)
			return
		}
	}
}

// isBusy reports whether so many requests are under way, of both sides, that frames may share a write.
func (s *Stream) isBusy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.calls)+s.serving > fewRequests
}

func (s *Stream) queueLocked(f wire.Frame) error {
	if s.err != nil {
		return s.err
	}
	out, err := wire.AppendFrame(s.out, f)
	if err != nil {
		return err
	}
	if len(out) > maxOutgoing {
		return ErrSlowPeer
	}
	if !s.countLocked(len(out)) {
		return errUnread
	}
	s.out = out
	s.startWriterLocked()
	s.wake.Wake()
	return nil
}

// countLocked has the budget count what waits for the peer, with so many bytes in out. It
// reports false if that does not fit.
func (s *Stream) countLocked(out int) bool {
	n := s.queuedLocked(out)
	if s.err != nil || n == s.counted {
		return true
	}
	if !s.queue.Set(n) {
		return false
	}
	s.counted = n
	return true
}

// queuedLocked returns the bytes that count in the budget, with so many in out.
func (s *Stream) queuedLocked(out int) int {
	return budget.QueueBytes(out + s.writing + delayedCost*len(s.delayed))
}

// roomLocked reports whether a frame of so many bytes goes to out, and need not wait.
func (s *Stream) roomLocked(n int) bool {
	out := len(s.out) + n
	return len(s.out) < fullEnough && (out+s.writing <= budget.QueuedLeast || !s.queue.Crowded(s.queuedLocked(out)))
}

// giveWay ends the stream, for the budget. It neither blocks nor locks.
func (s *Stream) giveWay() {
	s.over.Store(true)
	_ = s.conn.SetWriteDeadline(time.Unix(1, 0)) // ends a write; the writer looks at over before the next
	s.wake.Wake()
}

// queueDelayedLocked moves delayed frames to out, as many as out has room for.
func (s *Stream) queueDelayedLocked() error {
	for len(s.delayed) > 0 && s.roomLocked(0) && s.err == nil {
		f := s.delayed[0]
		s.delayed[0] = nil
		if s.delayed = s.delayed[1:]; len(s.delayed) == 0 {
			s.delayed = nil
		}
		if err := s.queueLocked(f()); err != nil {
			return err
		}
	}
	return nil
}

// stopIfSlow stops the stream if err is ErrSlowPeer.
func (s *Stream) stopIfSlow(err error) {
	if errors.Is(err, ErrSlowPeer) {
		s.Stop(err)
	}
}

// Begin sends a request, and keeps no reference to the body. Done is called exactly once, on any goroutine, with
// the answer or with the error that stopped the stream; done must not block. If
// Begin fails, nothing was sent and done is not called.
func (s *Stream) Begin(t wire.Type, body []byte, done func(wire.Frame, error)) (id uint64, err error) {
	s.mu.Lock()
	s.nextID++
	id = s.nextID
	if err = s.queueLocked(wire.Frame{Type: t, ID: id, Body: body}); err == nil {
		s.calls[id] = done
	}
	s.mu.Unlock()
	s.stopIfSlow(err)
	return id, err
}

// Forget removes the callback of request id. The answer, if any comes, is
// dropped.
func (s *Stream) Forget(id uint64) {
	s.mu.Lock()
	delete(s.calls, id)
	s.mu.Unlock()
}

// Call sends a request and waits for the answer. After an error the peer may
// have received the request all the same. Call returns the cause of ctx if ctx
// ends first.
func (s *Stream) Call(ctx context.Context, t wire.Type, body []byte) (wire.Frame, error) {
	type answer struct {
		f   wire.Frame
		err error
	}
	ch := make(chan answer, 1)
	id, err := s.Begin(t, body, func(f wire.Frame, err error) { ch <- answer{f, err} })
	if err != nil {
		return wire.Frame{}, err
	}
	select {
	case a := <-ch:
		return a.f, a.err
	case <-ctx.Done():
		s.Forget(id)
		return wire.Frame{}, context.Cause(ctx)
	}
}

// Notify sends a frame without an answer. After an error the frame was not queued.
func (s *Stream) Notify(t wire.Type, body []byte) error {
	s.mu.Lock()
	err := s.queueLocked(wire.Frame{Type: t, Body: body})
	s.mu.Unlock()
	s.stopIfSlow(err)
	return err
}

// Push sends a frame, such as an event, when great numbers may come at once. Pushed
// frames keep their order. If the buffer is fairly full, f is kept and called
// later, so the frame costs no more than f refers to, and a peer that reads loses
// nothing; other frames may overtake a delayed frame. F is called with the
// stream's mutex held, and must not block or call the stream. After an error f is
// not sent.
func (s *Stream) Push(f func() wire.Frame) error {
	s.mu.Lock()
	err := s.err
	switch {
	case err != nil:
	case len(s.delayed) == 0 && s.roomLocked(0):
		err = s.queueLocked(f())
	case len(s.delayed) == maxDelayed:
		err = ErrSlowPeer
	default:
		s.delayed = append(s.delayed, f) // the writer looks here after each write
		if !s.countLocked(len(s.out)) {
			err = errUnread
		}
	}
	s.mu.Unlock()
	s.stopIfSlow(err)
	return err
}

// Full reports whether an answer of n bytes should be refused, if the peer can ask again:
// the queue for the peer is long, or much waits for all peers and the most for this one.
func (s *Stream) Full(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.roomLocked(n)
}

// Stop closes the connection and calls every open callback with err, on the
// caller's goroutine. Later calls fail with err. Stop does not wait for the
// stream's goroutines; a second Stop does nothing.
func (s *Stream) Stop(err error) {
	s.mu.Lock()
	if s.err != nil {
		s.mu.Unlock()
		return
	}
	s.err = err
	for c, n := range s.bytes {
		s.chargeLocked(budget.Class(c), -n)
	}
	s.queue.Set(0)
	calls, onStop := s.calls, s.onStop
	s.calls, s.onStop, s.out, s.delayed = nil, nil, nil, nil
	s.mu.Unlock()
	s.keeps.end(s.share)
	if err == errUnread {
		s.share.Refused("too many bytes that a member does not read")
	}
	close(s.stopped)
	s.conn.Close()
	for _, done := range calls {
		done(wire.Frame{}, err)
	}
	for _, f := range onStop {
		f()
	}
}

// Stopped returns a channel, closed when the stream stops.
func (s *Stream) Stopped() <-chan struct{} { return s.stopped }

// AtStop has f called once when the stream stops, or at once if the stream has
// stopped.
func (s *Stream) AtStop(f func()) {
	s.mu.Lock()
	dead := s.err != nil
	if !dead {
		s.onStop = append(s.onStop, f)
	}
	s.mu.Unlock()
	if dead {
		f()
	}
}

// Close stops the stream with ErrClosed and waits for its goroutines. The
// handler must not call Close.
func (s *Stream) Close() {
	s.Stop(ErrClosed)
	s.wg.Wait()
}
