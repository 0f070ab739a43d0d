package consensus

import (
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/wardmote/wardmote/internal/judge"
	"github.com/wardmote/wardmote/internal/member"
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
	taken, dropped, late := &closeCounter{}, &closeCounter{}, &closeCounter{}
	end := make(chan struct{})
	s := newStream("n1#1", nil, func(c net.Conn, _ judge.Sender) {
		if c.(*acceptedConn).Conn == taken {
			<-end // for as long as the connection is open
		}
	})
	s.take(taken, member.Process{}, judge.Sender{})
	s.take(dropped, member.Process{}, judge.Sender{})
	synctest.Wait()
	closed := make(chan struct{})
	go func() { s.close(); close(closed) }()
	synctest.Wait()
	if taken.closed.Load() == 0 {
		t.Error("the taken connection was not closed")
	}
	select {
	case <-closed:
		t.Error("close has returned while a connection is served")
	default:
	}
	close(end)
	<-closed
	s.take(late, member.Process{}, judge.Sender{})
	if late.closed.Load() == 0 {
		t.Error("a late connection was not closed")
	}
	if dropped.closed.Load() != 1 {
		t.Errorf("the dropped connection was closed %d times", dropped.closed.Load())
	}
}
