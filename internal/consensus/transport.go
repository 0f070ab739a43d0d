package consensus

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/wardmote/wardmote/internal/raftstore"
	"github.com/wardmote/wardmote/internal/timing"
)

// ErrDiskStalled tells that the store has not answered a write for too long.
var ErrDiskStalled = errors.New("cluster: the disk does not answer")

// transport is raft's network transport with two changes:
//
//   - No fast path for heartbeats, because the fast path changes the term outside
//     raft's main goroutine and can let logs diverge.
//   - A leader with a stalled disk sends no entries and no heartbeats, so that
//     another leader is elected.
type transport struct {
	*raft.NetworkTransport
	store *raftstore.Store
}

var (
	_ raft.Transport   = transport{}
	_ raft.WithPreVote = transport{}
	_ raft.WithClose   = transport{}
)

// SetHeartbeatHandler leaves the fast path out.
func (transport) SetHeartbeatHandler(func(raft.RPC)) {}

// AppendEntries sends entries or a heartbeat, unless the disk has stalled.
func (t transport) AppendEntries(id raft.ServerID, to raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	if t.store.StalledFor() > timing.StoreStalled {
		return ErrDiskStalled
	}
	return t.NetworkTransport.AppendEntries(id, to, args, resp)
}

// stream is the layer below raft's network transport. Raft's addresses are raft
// IDs, and every dial finds the present host and port of an ID, so changed hosts
// and ports need no recovery.
type stream struct {
	id       string
	dial     func(context.Context, string) (net.Conn, error)
	incoming chan net.Conn

	open context.Context // ends with Close
	shut context.CancelFunc

	mu       sync.Mutex
	accepted map[net.Conn]struct{} // nil once closed
}

var _ raft.StreamLayer = (*stream)(nil)

func newStream(id string, dial func(context.Context, string) (net.Conn, error)) *stream {
	s := &stream{id: id, dial: dial, incoming: make(chan net.Conn), accepted: make(map[net.Conn]struct{})}
	s.open, s.shut = context.WithCancel(context.Background())
	return s
}

// give passes an accepted connection to raft, and blocks until raft takes the
// connection. A closed stream closes the connection.
func (s *stream) give(c net.Conn) {
	s.mu.Lock()
	if s.accepted == nil {
		s.mu.Unlock()
		c.Close()
		return
	}
	conn := &acceptedConn{Conn: c, stream: s}
	s.accepted[conn] = struct{}{}
	s.mu.Unlock()
	select {
	case s.incoming <- conn:
	case <-s.open.Done():
		conn.Close()
	}
}

// Accept implements net.Listener.
func (s *stream) Accept() (net.Conn, error) {
	select {
	case c := <-s.incoming:
		return c, nil
	case <-s.open.Done():
		return nil, net.ErrClosed
	}
}

// Dial implements raft.StreamLayer.
func (s *stream) Dial(addr raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return s.dial(ctx, string(addr))
}

// Addr implements net.Listener.
func (s *stream) Addr() net.Addr { return address(s.id) }

// Close implements net.Listener. Accepted connections stay open.
func (s *stream) Close() error {
	s.shut()
	return nil
}

// closeAccepted closes the stream and the connections that raft's Shutdown leaves
// open.
func (s *stream) closeAccepted() {
	s.Close()
	s.mu.Lock()
	accepted := s.accepted
	s.accepted = nil
	s.mu.Unlock()
	for c := range accepted {
		c.Close()
	}
}

// acceptedConn is forgotten by its stream when raft closes the connection.
type acceptedConn struct {
	net.Conn
	stream *stream
}

func (c *acceptedConn) Close() error {
	c.stream.mu.Lock()
	delete(c.stream.accepted, c)
	c.stream.mu.Unlock()
	return c.Conn.Close()
}

// address is a raft ID as a net.Addr.
type address string

func (a address) Network() string { return "wardmote" }
func (a address) String() string  { return string(a) }
