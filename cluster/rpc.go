package cluster

import (
	"bufio"
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/wire"
)

// Limits of one stream.
const (
	maxOutgoing = 8 << 20          // bytes queued for a peer that does not read
	fullEnough  = maxOutgoing / 4  // of these, before what can wait does
	maxWaiting  = 1 << 20          // frames that wait for that
	maxServing  = 64 << 10         // requests of the peer under way
	writeLimit  = 10 * time.Second // one write; a peer this slow is gone
)

var (
	errStreamClosed = errors.New("cluster: stream closed")
	errSlowPeer     = errors.New("cluster: peer does not read its stream")
	errBadID        = errors.New("cluster: request without an ID of its own")
)

// An rpc is one stream between two members: numbered requests and their
// answers, and notices, both ways, pipelined.
//
// Nothing here blocks its caller: frames go to a bounded buffer that one
// goroutine writes out, and a peer that lets the buffer fill loses the stream.
// Back-pressure comes from requests waiting for their answers. It is not enough
// where one entry is the cause of more than the buffer holds: see push.
type rpc struct {
	conn    net.Conn
	serve   func(*request) // called in the order of arrival; must not block
	stopped chan struct{}  // closed once the stream is dead
	wake    chan struct{}  // size 1: out has bytes

	mu      sync.Mutex
	out     []byte
	waiting []func() wire.Frame // frames behind out
	nextID  uint64
	calls   map[uint64]func(wire.Frame, error)
	serving int
	err     error // why the stream died
	onStop  []func()

	wg sync.WaitGroup
}

// A request is a peer's, to be answered exactly once unless it is a notice.
type request struct {
	rpc *rpc
	wire.Frame
}

func newRPC(conn net.Conn, serve func(*request)) *rpc {
	r := &rpc{
		conn:    conn,
		serve:   serve,
		stopped: make(chan struct{}),
		wake:    make(chan struct{}, 1),
		calls:   make(map[uint64]func(wire.Frame, error)),
	}
	return r
}

// start runs the stream's two goroutines; stop and wait join them.
func (r *rpc) start() {
	r.wg.Go(r.readLoop)
	r.wg.Go(r.writeLoop)
}

func (r *rpc) readLoop() {
	br := bufio.NewReaderSize(r.conn, 32<<10)
	for {
		f, err := wire.ReadFrame(br)
		if err != nil {
			r.stop(err)
			return
		}
		if f.Code != wire.CodeRequest {
			r.mu.Lock()
			done := r.calls[f.ID]
			delete(r.calls, f.ID)
			r.mu.Unlock()
			if done != nil {
				done(f, nil)
			}
			continue
		}
		if f.ID == 0 && f.Type.Asks() {
			// It would count as no request, of which a peer may have so many.
			r.stop(errBadID)
			return
		}
		if f.ID != 0 {
			r.mu.Lock()
			r.serving++
			full := r.serving > maxServing
			r.mu.Unlock()
			if full {
				(&request{r, f}).answer(wire.CodeBusy, nil)
				continue
			}
		}
		r.serve(&request{r, f})
	}
}

func (r *rpc) writeLoop() {
	var buf []byte
	for {
		r.mu.Lock()
		err := r.refillLocked()
		buf, r.out = r.out, buf[:0]
		r.mu.Unlock()
		if err != nil {
			r.stop(err)
			return
		}
		if len(buf) == 0 {
			select {
			case <-r.stopped:
				return
			case <-r.wake:
			}
			continue
		}
		r.conn.SetWriteDeadline(time.Now().Add(writeLimit))
		if _, err := r.conn.Write(buf); err != nil {
			r.stop(err)
			return
		}
	}
}

// send queues one frame. It reports whether the frame may reach the peer.
func (r *rpc) send(f wire.Frame) error {
	r.mu.Lock()
	err := r.queueLocked(f)
	r.mu.Unlock()
	if errors.Is(err, errSlowPeer) {
		r.stop(err)
	}
	return err
}

func (r *rpc) queueLocked(f wire.Frame) error {
	if r.err != nil {
		return r.err
	}
	out, err := wire.AppendFrame(r.out, f)
	if err != nil {
		return err
	}
	if len(out) > maxOutgoing {
		return errSlowPeer
	}
	r.out = out
	select {
	case r.wake <- struct{}{}:
	default:
	}
	return nil
}

// begin sends a request and calls done once with its answer, or with the
// error that ended the stream. If begin itself fails nothing was sent and done is not called.
func (r *rpc) begin(t wire.Type, body []byte, done func(wire.Frame, error)) (id uint64, err error) {
	r.mu.Lock()
	r.nextID++
	id = r.nextID
	if err = r.queueLocked(wire.Frame{Type: t, ID: id, Body: body}); err == nil {
		r.calls[id] = done
	}
	r.mu.Unlock()
	if errors.Is(err, errSlowPeer) {
		r.stop(err)
	}
	return id, err
}

// forget drops a request's callback: nobody waits for the answer any more.
func (r *rpc) forget(id uint64) {
	r.mu.Lock()
	delete(r.calls, id)
	r.mu.Unlock()
}

// call sends a request and waits for its answer. sent tells whether the peer
// may have got it.
func (r *rpc) call(ctx context.Context, t wire.Type, body []byte) (f wire.Frame, sent bool, err error) {
	type answer struct {
		f   wire.Frame
		err error
	}
	ch := make(chan answer, 1)
	id, err := r.begin(t, body, func(f wire.Frame, err error) { ch <- answer{f, err} })
	if err != nil {
		return f, false, err
	}
	select {
	case a := <-ch:
		return a.f, true, a.err
	case <-ctx.Done():
		r.forget(id)
		return f, true, context.Cause(ctx)
	}
}

// notify sends a frame that has no answer.
func (r *rpc) notify(t wire.Type, body []byte) error {
	return r.send(wire.Frame{Type: t, Body: body})
}

// push queues a frame of which much may come at once, in the order of the pushes.
// When there is no room its bytes are made later, by f under mu: until then it costs
// what f holds on to, and a peer that reads loses nothing. Other frames may overtake
// it.
func (r *rpc) push(f func() wire.Frame) error {
	r.mu.Lock()
	err := r.err
	switch {
	case err != nil:
	case len(r.waiting) == 0 && len(r.out) < fullEnough:
		err = r.queueLocked(f())
	case len(r.waiting) == maxWaiting:
		err = errSlowPeer
	default:
		r.waiting = append(r.waiting, f) // the writer looks here after each write
	}
	r.mu.Unlock()
	if errors.Is(err, errSlowPeer) {
		r.stop(err)
	}
	return err
}

// refillLocked moves frames that wait to out, as many as there is room for.
func (r *rpc) refillLocked() error {
	for len(r.waiting) > 0 && len(r.out) < fullEnough && r.err == nil {
		f := r.waiting[0]
		r.waiting[0] = nil
		if r.waiting = r.waiting[1:]; len(r.waiting) == 0 {
			r.waiting = nil
		}
		if err := r.queueLocked(f()); err != nil {
			return err
		}
	}
	return nil
}

// full reports whether so much is queued for the peer that what can be asked for
// again should be.
func (r *rpc) full() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.out) >= fullEnough
}

func (q *request) answer(code wire.Code, body []byte) {
	if q.ID == 0 {
		return
	}
	r := q.rpc
	r.mu.Lock()
	r.serving--
	err := r.queueLocked(wire.Frame{Type: q.Type, ID: q.ID, Code: code, Body: body})
	r.mu.Unlock()
	if err != nil {
		// An answer that cannot be sent leaves its asker waiting: end the
		// stream, and it asks again elsewhere.
		r.stop(err)
	}
}

// answerLater is answer for what may come at once with many others as large: see
// push. Until it is queued it counts as under way.
func (q *request) answerLater(code wire.Code, body func() []byte) {
	if q.ID == 0 {
		return
	}
	r := q.rpc
	err := r.push(func() wire.Frame {
		r.serving--
		return wire.Frame{Type: q.Type, ID: q.ID, Code: code, Body: body()}
	})
	if err != nil {
		r.stop(err)
	}
}

// stop ends the stream: requests under way fail with err. It does not wait.
func (r *rpc) stop(err error) {
	r.mu.Lock()
	if r.err != nil {
		r.mu.Unlock()
		return
	}
	r.err = err
	calls, onStop := r.calls, r.onStop
	r.calls, r.onStop, r.out, r.waiting = nil, nil, nil, nil
	r.mu.Unlock()
	close(r.stopped)
	r.conn.Close()
	for _, done := range calls {
		done(wire.Frame{}, err)
	}
	for _, f := range onStop {
		f()
	}
}

// atStop has f called once when the stream ends, at once if it has.
func (r *rpc) atStop(f func()) {
	r.mu.Lock()
	dead := r.err != nil
	if !dead {
		r.onStop = append(r.onStop, f)
	}
	r.mu.Unlock()
	if dead {
		f()
	}
}

// close ends the stream and joins its goroutines.
func (r *rpc) close() {
	r.stop(errStreamClosed)
	r.wg.Wait()
}
