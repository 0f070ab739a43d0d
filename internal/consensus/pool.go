package consensus

import (
	"bufio"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/judge"
	"github.com/wardmote/wardmote/internal/timing"
)

// pool keeps the idle streams that this raft has dialled, up to maxPool to a server.
//
// A stream ends for good some time after its connection asked to be renewed: the
// other side's certificate expires, or a secret is taken out of use. The pool then
// dials another stream, beside the exchanges, and closes the old stream a moment
// later. So no exchange waits for a dial, and the server never sees the last stream of
// a living leader end.
type pool struct {
	dial func(id string, timeout time.Duration) (net.Conn, error)

	mu   sync.Mutex
	idle map[string][]*dialled // by raft ID; the last is used next
	all  map[*dialled]struct{} // idle and busy; nil once closed
	wg   sync.WaitGroup        // renewals
}

// dialled is a stream to a server. One exchange at a time uses it.
type dialled struct {
	id   string
	conn net.Conn
	in   *bufio.Reader
	buf  []byte

	ended chan struct{} // closed with the stream

	// Guarded by pool.mu.
	old, over bool // to be closed after the present exchange; ended is closed
}

// maxKept is the largest buffer that a dialled stream keeps between two messages.
const maxKept = 64 << 10

func newPool(dial func(string, time.Duration) (net.Conn, error)) *pool {
	return &pool{dial: dial, idle: make(map[string][]*dialled), all: make(map[*dialled]struct{})}
}

// get returns an idle stream to the server, or a new one.
func (p *pool) get(id string) (*dialled, error) {
	if c := p.take(id); c != nil {
		return c, nil
	}
	return p.dialNew(id)
}

// take returns an idle stream to the server, or nil.
func (p *pool) take(id string) *dialled {
	p.mu.Lock()
	defer p.mu.Unlock()
	idle := p.idle[id]
	if len(idle) == 0 {
		return nil
	}
	c := idle[len(idle)-1]
	p.idle[id] = idle[:len(idle)-1]
	return c
}

// dialNew returns a new stream to the server.
func (p *pool) dialNew(id string) (*dialled, error) {
	conn, err := p.dial(id, timing.RaftIO)
	if err != nil {
		return nil, err
	}
	c := &dialled{id: id, conn: conn, in: bufio.NewReaderSize(conn, 1<<10), ended: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all == nil {
		conn.Close()
		return nil, &dialError{net.ErrClosed}
	}
	p.all[c] = struct{}{}
	if ages, ok := conn.(interface{ Renew() <-chan struct{} }); ok {
		p.wg.Go(func() { p.renew(c, ages.Renew()) })
	}
	return c, nil
}

// put makes a stream idle after an exchange with this result. A stream that failed
// is closed, and so is one more than maxPool.
func (p *pool) put(c *dialled, err error) {
	if err != nil && !isFinal(err) {
		p.drop(c)
		return
	}
	p.mu.Lock()
	keep := p.all != nil && !c.old && !c.over && len(p.idle[c.id]) < maxPool
	if keep {
		p.idle[c.id] = append(p.idle[c.id], c)
	}
	p.mu.Unlock()
	if !keep {
		p.drop(c)
	}
}

// drop closes a stream.
func (p *pool) drop(c *dialled) {
	p.mu.Lock()
	delete(p.all, c)
	if !c.over {
		c.over = true
		close(c.ended)
	}
	p.mu.Unlock()
	c.conn.Close()
}

// renew replaces a stream when due is closed, and returns when the stream has ended.
func (p *pool) renew(c *dialled, due <-chan struct{}) {
	select {
	case <-due:
	case <-c.ended:
		return
	}
	var heir *dialled
	for pause := timing.LeastBackoff; heir == nil; pause = min(2*pause, timing.LeastElection) {
		var err error
		if heir, err = p.dialNew(c.id); err != nil && !p.pause(c, pause) {
			return
		}
	}
	if !p.pause(c, timing.SignOfLife) { // the server takes the new stream meanwhile
		p.put(heir, nil)
		return
	}
	p.replace(c, heir)
}

// pause waits, and returns false early if the stream ends.
func (p *pool) pause(c *dialled, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-c.ended:
		return false
	}
}

// replace puts a new stream in the place of an old one, and closes the old stream, or
// has the exchange that uses it close it.
func (p *pool) replace(c, heir *dialled) {
	p.mu.Lock()
	if p.all == nil || heir.over {
		p.mu.Unlock()
		return // closed by close
	}
	c.old = true
	idle := p.idle[c.id]
	i := slices.Index(idle, c)
	if i >= 0 {
		idle[i] = heir
	} else {
		p.idle[c.id] = append(idle, heir)
	}
	p.mu.Unlock()
	if i >= 0 {
		p.drop(c)
	}
}

// close closes all streams, and joins the renewals.
func (p *pool) close() {
	p.mu.Lock()
	all := p.all
	p.all, p.idle = nil, make(map[string][]*dialled)
	p.mu.Unlock()
	for c := range all {
		p.drop(c)
	}
	p.wg.Wait()
}

// send sends a request.
func (c *dialled) send(request any) error {
	b, err := judge.AppendRequest(c.buf[:0], request)
	if err != nil {
		return &judge.Refusal{Reason: err.Error()} // nothing is sent, and the stream is good
	}
	if cap(b) <= maxKept {
		c.buf = b
	}
	_, err = c.conn.Write(b)
	return err
}

// receive waits for the answer.
func (c *dialled) receive(answer any) error {
	frame, err := judge.ReadAnswer(c.in, c.buf[:0])
	if err != nil {
		return err
	}
	c.buf = frame // larger than a request of a few bytes; the answer has no part of it
	return judge.DecodeAnswer(frame, answer)
}
