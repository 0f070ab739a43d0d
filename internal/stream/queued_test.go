package stream

import (
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/budget"
	"github.com/wardmote/wardmote/internal/wire"
)

// A peer that asks and does not read has its answers queued, within the budget: beyond, it
// loses its streams, and another peer is served as before.
func TestAnswersThatNobodyReadsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budget.New(nil)
		answer := make([]byte, 500)
		serve := func(q *Request) { q.Answer(wire.CodeOK, answer) }
		ask := func(far net.Conn, n int) {
			request := frame(t, wire.Frame{Type: wire.Who, ID: 1})
			far.SetWriteDeadline(time.Now().Add(time.Second))
			for range n {
				if _, err := far.Write(request); err != nil {
					return
				}
			}
		}
		const streams, each = 40, 4000 // 2 MB each
		var deaf []*Stream
		for range streams {
			near, far := net.Pipe()
			s := New(charged{near, b.Share("mallory", netip.Addr{})}, serve)
			s.Start()
			deaf = append(deaf, s)
			ask(far, each)
			synctest.Wait()
			if held := b.Held(); held > budget.QueuedPerMember {
				t.Fatalf("%d bytes are queued for a member", held)
			}
		}
		alive := 0
		for _, s := range deaf {
			select {
			case <-s.Stopped():
				stoppedWith(t, s, ErrSlowPeer)
			default:
				alive++
				if !s.Full() {
					t.Error("large answers are still worth while")
				}
			}
		}
		if alive == 0 || alive == streams {
			t.Errorf("%d of %d streams are alive", alive, streams)
		}
		near, far := net.Pipe()
		honest := New(charged{near, b.Share("alice", netip.Addr{})}, serve)
		honest.Start()
		if honest.Full() {
			t.Error("a member without a queue is refused large answers")
		}
		go ask(far, 100)
		for range 100 {
			if f, err := wire.ReadFrame(far); err != nil || f.Code != wire.CodeOK {
				t.Fatal(f.Code, err)
			}
		}
		for _, s := range append(deaf, honest) {
			s.Close()
		}
		if held := b.Held(); held != 0 {
			t.Errorf("%d bytes are held after all streams have ended", held)
		}
	})
}

// The bytes of a queue count until they are written, and no longer.
func TestAQueueCountsUntilItIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budget.New(nil)
		near, far := net.Pipe()
		s := New(charged{near, b.Share("slow", netip.Addr{})}, func(*Request) {})
		s.Start()
		defer s.Close()
		const frames, size = 30, 100_000
		for range frames {
			if err := s.Notify(wire.Event, make([]byte, size)); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if held := b.Held(); held < frames*size-2*budget.QueuedLeast || held > frames*size+2*budget.QueuedLeast {
			t.Errorf("%d bytes are held with %d queued", held, frames*size)
		}
		for range frames {
			if _, err := wire.ReadFrame(far); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if held := b.Held(); held != 0 {
			t.Errorf("%d bytes are held for a peer that has read all", held)
		}
	})
}
