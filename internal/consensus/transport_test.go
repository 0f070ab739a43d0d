package consensus

import (
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// closeCounter is a connection that counts the calls of Close.
type closeCounter struct {
	net.Conn
	closed atomic.Int32
}

func (c *closeCounter) Close() error {
	c.closed.Add(1)
	return nil
}

func TestAStreamClosesTheConnectionsItHasAccepted(t *testing.T) {
	synctest.Test(t, testStreamClose)
}

func testStreamClose(t *testing.T) {
	s := newStream("n1#1", nil)
	taken, dropped, waiting, late := &closeCounter{}, &closeCounter{}, &closeCounter{}, &closeCounter{}
	for _, c := range []*closeCounter{taken, dropped} {
		go s.give(c)
		conn, err := s.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if c == dropped {
			conn.Close()
		}
	}
	go s.give(waiting) // which raft never takes
	synctest.Wait()
	s.closeAccepted()
	synctest.Wait()
	s.give(late)
	for name, c := range map[string]*closeCounter{"taken": taken, "dropped": dropped, "waiting": waiting, "late": late} {
		if n := c.closed.Load(); n < 1 {
			t.Errorf("the %s connection was not closed", name)
		}
	}
	if dropped.closed.Load() != 1 {
		t.Error("a connection that raft had closed was closed again")
	}
	if _, err := s.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept after Close: %v", err)
	}
	if s.Addr().String() != "n1#1" {
		t.Errorf("address %q", s.Addr())
	}
}
