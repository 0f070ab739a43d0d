package gossip

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/timing"
)

// farSide accepts the streams of lanes, and keeps their packets.
type farSide struct {
	ctx context.Context

	mu    sync.Mutex
	dials int
	open  int
	fail  error
	renew chan struct{} // of the latest stream
	got   []string
}

// agedConn is a connection that asks to be replaced.
type agedConn struct {
	net.Conn
	renew chan struct{}
}

func (c agedConn) Renew() <-chan struct{} { return c.renew }

func (s *farSide) dial(context.Context, member.Process) (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dials++
	if s.fail != nil {
		return nil, s.fail
	}
	here, there := net.Pipe()
	s.open++
	s.renew = make(chan struct{})
	go func() {
		_ = receive(s.ctx, there, func(b []byte) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.got = append(s.got, string(b))
		})
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open--
	}()
	return agedConn{here, s.renew}, nil
}

// state returns the number of dials, of open streams and of packets.
func (s *farSide) state() (dials, open, got int) {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dials, s.open, len(s.got)
}

func inLanes(t *testing.T, f func(l *lanes, s *farSide)) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := &farSide{ctx: ctx}
		l := newLanes(ctx, s.dial)
		f(l, s)
		cancel()
		l.wait()
		if err := l.send([]byte("late"), member.Process{Name: "a"}); !errors.Is(err, net.ErrClosed) {
			t.Errorf("after the end: %v", err)
		}
		if _, open, _ := s.state(); open != 0 {
			t.Errorf("%d streams are open", open)
		}
	})
}

func TestAStreamOfPacketsIsDialledOnceAndClosedWhenIdle(t *testing.T) {
	inLanes(t, func(l *lanes, s *farSide) {
		a := member.Process{Name: "a", Boot: 1, Addr: "10.0.0.1:7000"}
		for i := range 10 {
			if err := l.send([]byte(fmt.Sprint(i)), a); err != nil {
				t.Fatal(err)
			}
			time.Sleep(timing.PacketIdle / 2)
		}
		if dials, open, got := s.state(); dials != 1 || open != 1 || got != 10 {
			t.Errorf("%d dials, %d streams, %d packets", dials, open, got)
		}
		time.Sleep(timing.PacketIdle)
		if _, open, _ := s.state(); open != 0 || len(l.lanes) != 0 {
			t.Errorf("%d idle streams, %d lanes", open, len(l.lanes))
		}
		if err := l.send(make([]byte, maxPacket+1), a); err == nil {
			t.Error("a packet beyond the limit was sent")
		}
	})
}

func TestAnAgedStreamOfPacketsIsReplaced(t *testing.T) {
	inLanes(t, func(l *lanes, s *farSide) {
		a := member.Process{Name: "a", Boot: 1}
		for i := range 20 {
			_ = l.send([]byte("x"), a)
			time.Sleep(time.Second)
			if i%5 == 4 {
				s.mu.Lock()
				close(s.renew)
				s.mu.Unlock()
			}
		}
		if dials, open, got := s.state(); dials != 5 || open != 1 || got != 20 {
			t.Errorf("%d dials, %d streams, %d packets", dials, open, got)
		}
	})
}

func TestAProcessOutOfReachCostsFewDials(t *testing.T) {
	inLanes(t, func(l *lanes, s *farSide) {
		s.fail = errors.New("refused")
		for range 1000 {
			_ = l.send([]byte("x"), member.Process{Name: "a", Boot: 1})
			time.Sleep(10 * time.Millisecond)
		}
		if dials, _, _ := s.state(); dials > int(10*time.Second/timing.PacketRest)+1 {
			t.Errorf("%d dials in ten seconds", dials)
		}
	})
}

func TestStreamsOfPacketsAreBounded(t *testing.T) {
	inLanes(t, func(l *lanes, s *farSide) {
		for i := range 2 * maxLanes {
			_ = l.send([]byte("x"), member.Process{Name: fmt.Sprint("m", i), Boot: 1})
			time.Sleep(time.Millisecond)
		}
		if _, open, got := s.state(); open != maxLanes || got != 2*maxLanes {
			t.Errorf("%d streams, %d packets", open, got)
		}
	})
}

// deafConn is a stream under TLS to a process that reads nothing.
type deafConn struct{ net.Conn }

func (c deafConn) Close() error { time.Sleep(5 * time.Second); return c.Conn.Close() }
func (c deafConn) Cut()         { _ = c.Conn.Close() }

// The end of the lanes waits for no process that reads nothing.
func TestLanesEndAtOnce(t *testing.T) {
	for _, packets := range []int{0, 1} { // the stream idles, or a write blocks
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			near, far := net.Pipe()
			defer far.Close()
			l := newLanes(ctx, func(context.Context, member.Process) (net.Conn, error) { return deafConn{near}, nil })
			if err := l.send([]byte("packet"), member.Process{Name: "a", Boot: 1, Addr: "a:1"}); err != nil {
				t.Fatal(err)
			}
			if packets == 0 {
				_, _ = io.ReadFull(far, make([]byte, 4+len("packet")))
			}
			synctest.Wait()
			began := time.Now()
			cancel()
			l.wait()
			if took := time.Since(began); took > 0 {
				t.Errorf("ended after %v", took)
			}
		})
	}
}
