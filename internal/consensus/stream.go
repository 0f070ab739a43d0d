package consensus

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/budget"
	"github.com/wardmote/wardmote/internal/judge"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/wakeup"
)

// stream has the connections of a raft: it dials, and serves the connections that
// arrive. Raft's addresses are raft IDs, and every dial finds the present host and
// port of an ID, so changed hosts and ports need no recovery.
type stream struct {
	id    string
	dial  func(context.Context, string) (net.Conn, error)
	serve func(net.Conn, judge.Sender) // answers the requests of a connection until it ends
	lost  wakeup.One                   // the last stream from some process has ended

	open context.Context // ends with Close
	shut context.CancelFunc

	serving  sync.WaitGroup
	mu       sync.Mutex
	accepted map[net.Conn]struct{} // nil once closed
	from     map[string]*arrivals  // by the name of the dialling member
}

// arrivals are the streams from one process, the newest that has dialled under a
// name.
type arrivals struct {
	boot uint64
	open int    // streams that have not ended
	all  uint64 // streams so far
}

// maxArrivals bounds the names remembered: far more than voters.
const maxArrivals = 64

func newStream(id string, dial func(context.Context, string) (net.Conn, error), serve func(net.Conn, judge.Sender)) *stream {
	s := &stream{id: id, dial: dial, serve: serve, lost: wakeup.NewOne(),
		accepted: make(map[net.Conn]struct{}), from: make(map[string]*arrivals)}
	s.open, s.shut = context.WithCancel(context.Background())
	return s
}

// take serves an accepted connection on a goroutine of its own, which close joins. A
// closed stream closes the connection. from is the dialling process; sender is what
// the connection's beginning has shown of it.
func (s *stream) take(c net.Conn, from member.Process, sender judge.Sender) {
	s.mu.Lock()
	if s.accepted == nil {
		s.mu.Unlock()
		c.Close()
		return
	}
	conn := &acceptedConn{Conn: c, stream: s}
	s.accepted[conn] = struct{}{}
	at := s.from[from.Name]
	if at == nil || at.boot < from.Boot {
		s.forget()
		at = &arrivals{boot: from.Boot}
		s.from[from.Name] = at
	}
	if at.boot == from.Boot {
		at.open++
		at.all++
		conn.from = at
	}
	// Beside the caller, which stops before raft does: a request may wait for raft for
	// as long as the disk hangs.
	s.serving.Go(func() {
		defer conn.Close()
		s.serve(conn, sender)
	})
	s.mu.Unlock()
}

// forget makes room for another name. The caller holds s.mu.
func (s *stream) forget() {
	if len(s.from) < maxArrivals {
		return
	}
	for name, at := range s.from {
		if at.open == 0 {
			delete(s.from, name)
		}
	}
}

// arrivals returns the streams from the newest process that has dialled under a
// name; zero if none has.
func (s *stream) arrivals(name string) arrivals {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := s.from[name]; at != nil {
		return *at
	}
	return arrivals{}
}

// Dial connects to the holder of a raft ID. A dial to the own ID ends in this raft:
// see Raft.standNow.
func (s *stream) Dial(id string, timeout time.Duration) (net.Conn, error) {
	if id == s.id {
		near, far := net.Pipe()
		s.take(far, member.Process{}, judge.Sender{Self: true})
		return near, nil
	}
	ctx, cancel := context.WithTimeout(s.open, timeout)
	defer cancel()
	c, err := s.dial(ctx, id)
	if err != nil {
		return nil, &dialError{err}
	}
	return c, nil
}

// close ends every dial under way, closes the accepted connections, and returns when
// all of them have been served.
func (s *stream) close() {
	s.shut()
	s.mu.Lock()
	accepted := s.accepted
	s.accepted = nil
	s.mu.Unlock()
	for c := range accepted {
		c.Close()
	}
	s.serving.Wait()
}

// acceptedConn is forgotten by its stream when it is closed.
type acceptedConn struct {
	net.Conn
	stream *stream
	from   *arrivals // guarded by stream.mu; nil once the connection has ended
}

// Budget returns the share of the connection.
func (c *acceptedConn) Budget() *budget.Share { return budget.Of(c.Conn) }

// Read notes the end of the connection, for example because the other side's
// process has ended.
func (c *acceptedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		c.ended()
	}
	return n, err
}

// ended counts the connection as ended, once.
func (c *acceptedConn) ended() {
	s := c.stream
	s.mu.Lock()
	last := false
	if c.from != nil {
		c.from.open--
		last = c.from.open == 0
		c.from = nil
	}
	s.mu.Unlock()
	if last {
		s.lost.Wake()
	}
}

func (c *acceptedConn) Close() error {
	c.ended()
	c.stream.mu.Lock()
	delete(c.stream.accepted, c)
	c.stream.mu.Unlock()
	return c.Conn.Close()
}
