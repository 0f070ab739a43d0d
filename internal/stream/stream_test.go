package stream

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// inBubble runs f in a synctest bubble with a stream, served by handle, and the
// peer's raw end of the connection.
func inBubble(t *testing.T, handle func(*Request), f func(t *testing.T, s *Stream, far net.Conn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		s := New(near, handle)
		s.Start()
		f(t, s, far)
		far.Close()
		s.Close()
	})
}

// between runs f in a synctest bubble with two connected streams. The second
// stream serves the first by handle.
func between(t *testing.T, handle func(*Request), f func(t *testing.T, asker, answerer *Stream)) {
	t.Helper()
	inBubble(t, handle, func(t *testing.T, answerer *Stream, far net.Conn) {
		asker := New(far, func(q *Request) { q.Answer(wire.CodeBad, nil) })
		asker.Start()
		f(t, asker, answerer)
		asker.Close()
	})
}

func number(n int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

func frame(t *testing.T, f wire.Frame) []byte {
	t.Helper()
	b, err := wire.AppendFrame(nil, f)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// stoppedWith fails the test unless s has stopped with want.
func stoppedWith(t *testing.T, s *Stream, want error) {
	t.Helper()
	select {
	case <-s.Stopped():
	default:
		t.Fatal("the stream still runs")
	}
	if err := s.Notify(wire.Event, nil); !errors.Is(err, want) {
		t.Errorf("stopped with %v, want %v", err, want)
	}
}

func TestRequestsArePipelined(t *testing.T) {
	const requests = 1000
	var open []*Request
	between(t, func(q *Request) { open = append(open, q) }, func(t *testing.T, asker, _ *Stream) {
		var answers atomic.Int64
		for i := range requests {
			_, err := asker.Begin(wire.Propose, number(i), func(f wire.Frame, err error) {
				if err != nil || f.Code != wire.CodeOK || !slices.Equal(f.Body, number(i)) {
					t.Errorf("request %d: %+v, %v", i, f, err)
				}
				answers.Add(1)
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if len(open) != requests {
			t.Fatalf("%d of %d requests arrived before the first answer", len(open), requests)
		}
		for i, q := range open {
			if !slices.Equal(q.Body, number(i)) {
				t.Fatalf("request %x arrived in place %d", q.Body, i)
			}
		}
		slices.Reverse(open)
		for _, q := range open {
			q.Answer(wire.CodeOK, q.Body)
		}
		synctest.Wait()
		if n := answers.Load(); n != requests {
			t.Errorf("%d answers to %d requests", n, requests)
		}
	})
}

func TestSlowPeerLosesItsStream(t *testing.T) {
	inBubble(t, func(*Request) {}, func(t *testing.T, s *Stream, _ net.Conn) {
		body := make([]byte, 512<<10)
		var err error
		for range 64 {
			if err = s.Notify(wire.Event, body); err != nil {
				break
			}
		}
		if !errors.Is(err, ErrSlowPeer) {
			t.Errorf("32 MiB were queued: %v", err)
		}
		synctest.Wait()
		stoppedWith(t, s, ErrSlowPeer)
	})
}

func TestPeerThatTakesNoByteLosesItsStream(t *testing.T) {
	inBubble(t, func(*Request) {}, func(t *testing.T, s *Stream, _ net.Conn) {
		s.Notify(wire.Event, nil)
		time.Sleep(timing.StreamWrite - time.Millisecond)
		select {
		case <-s.Stopped():
			t.Fatal("the stream stopped before the limit of one write")
		default:
		}
		time.Sleep(2 * time.Millisecond)
		select {
		case <-s.Stopped():
		default:
			t.Error("the stream outlived the limit of one write")
		}
	})
}

// More pushed frames than the buffer holds are delayed. A reading peer gets every
// frame, in order, and keeps the stream.
func TestPushedFramesWaitWithoutLoss(t *testing.T) {
	inBubble(t, func(*Request) {}, func(t *testing.T, s *Stream, far net.Conn) {
		const frames, size = 300, 64 << 10 // about 19 MiB
		encoded := 0
		for i := range frames {
			err := s.Push(func() wire.Frame {
				encoded++
				return wire.Frame{Type: wire.Event, Body: append(number(i), make([]byte, size)...)}
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if most := 2 * fullEnough / size; encoded > most+2 {
			t.Errorf("%d frames were encoded before the peer read, want about %d", encoded, most)
		}
		for i := range frames {
			f, err := wire.ReadFrame(far)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(f.Body[:8], number(i)) {
				t.Fatalf("frame %x came in place %d", f.Body[:8], i)
			}
		}
	})
}

func TestDelayedFramesAreBounded(t *testing.T) {
	inBubble(t, func(*Request) {}, func(t *testing.T, s *Stream, _ net.Conn) {
		push := func() error {
			return s.Push(func() wire.Frame { return wire.Frame{Type: wire.Event, Body: make([]byte, 512<<10)} })
		}
		pushed := 0
		for ; pushed <= maxDelayed+100; pushed++ {
			if err := push(); err != nil {
				if !errors.Is(err, ErrSlowPeer) {
					t.Error(err)
				}
				break
			}
		}
		if pushed > maxDelayed+20 {
			t.Errorf("%d frames were delayed", pushed)
		}
		synctest.Wait()
		stoppedWith(t, s, ErrSlowPeer)
	})
}

func TestFullAsksForFewerLargeAnswers(t *testing.T) {
	inBubble(t, func(*Request) {}, func(t *testing.T, s *Stream, far net.Conn) {
		s.Notify(wire.Event, nil) // the writer takes this frame and waits for the peer
		synctest.Wait()
		if s.Full(0) {
			t.Error("full with nothing queued")
		}
		body := make([]byte, 512<<10)
		for range fullEnough / len(body) {
			s.Notify(wire.Event, body)
		}
		if !s.Full(0) {
			t.Error("not full at the limit")
		}
		for range 1 + fullEnough/len(body) {
			if _, err := wire.ReadFrame(far); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if s.Full(0) {
			t.Error("still full after the peer has read everything")
		}
	})
}

// A peer may have MaxServing requests under way. A further request is answered Busy
// without reaching the handler, and an answer makes room for another request.
func TestMoreThanMaxServingRequestsAreAnsweredBusy(t *testing.T) {
	const extra = 100
	var open []*Request
	between(t, func(q *Request) { open = append(open, q) }, func(t *testing.T, asker, _ *Stream) {
		var busy, ok atomic.Int64
		ask := func() {
			_, err := asker.Begin(wire.Read, nil, func(f wire.Frame, err error) {
				switch {
				case err != nil:
					t.Error(err)
				case f.Code == wire.CodeBusy:
					busy.Add(1)
				case f.Code == wire.CodeOK:
					ok.Add(1)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		for range MaxServing + extra {
			ask()
		}
		synctest.Wait()
		if len(open) != MaxServing || busy.Load() != extra {
			t.Fatalf("%d requests under way, %d refused", len(open), busy.Load())
		}
		open[0].Answer(wire.CodeOK, nil)
		ask()
		ask()
		synctest.Wait()
		if len(open) != MaxServing+1 || busy.Load() != extra+1 || ok.Load() != 1 {
			t.Errorf("after one answer: %d requests reached the handler, %d refused, %d answered", len(open), busy.Load(), ok.Load())
		}
		for _, q := range open[1:] {
			q.AnswerLater(wire.CodeOK, func() []byte { return nil })
		}
		synctest.Wait()
		if n := ok.Load(); n != MaxServing+1 {
			t.Errorf("%d answers", n)
		}
	})
}

func TestRequestWithoutAnIDStopsTheStream(t *testing.T) {
	served := 0
	inBubble(t, func(*Request) { served++ }, func(t *testing.T, s *Stream, far net.Conn) {
		far.Write(frame(t, wire.Frame{Type: wire.Read}))
		synctest.Wait()
		stoppedWith(t, s, ErrBadID)
		if served > 0 {
			t.Error("the request reached the handler")
		}
	})
}

// A notice with an ID is a request that nobody answers: it would be under way for as long as the
// stream.
func TestANoticeWithAnIDStopsTheStream(t *testing.T) {
	for _, kind := range []wire.Type{wire.Cancel, wire.Detach, wire.Describe} {
		inBubble(t, func(*Request) { t.Error("the notice reached the handler") }, func(t *testing.T, s *Stream, far net.Conn) {
			far.Write(frame(t, wire.Frame{Type: kind, ID: 7}))
			synctest.Wait()
			stoppedWith(t, s, ErrBadID)
		})
	}
}

// A notice needs no ID, known or unknown. A handler's answer to a notice is dropped.
func TestNoticesGetNoAnswer(t *testing.T) {
	var types []wire.Type
	inBubble(t, func(q *Request) {
		types = append(types, q.Type)
		q.Answer(wire.CodeBad, nil)
		q.AnswerLater(wire.CodeBad, func() []byte { t.Error("the answer to a notice was made"); return nil })
		if !q.AnswerNow(wire.CodeBad, nil) {
			t.Error("the answer to a notice waits")
		}
	}, func(t *testing.T, s *Stream, far net.Conn) {
		far.Write(frame(t, wire.Frame{Type: wire.Detach}))
		far.Write(frame(t, wire.Frame{Type: 200}))
		far.Write(frame(t, wire.Frame{Type: 201, ID: 6, Code: 77})) // an answer to no request
		synctest.Wait()
		if !slices.Equal(types, []wire.Type{wire.Detach, 200}) {
			t.Errorf("the handler received types %v", types)
		}
		far.SetReadDeadline(time.Now().Add(time.Second))
		if f, err := wire.ReadFrame(far); err == nil {
			t.Errorf("answered with %+v", f)
		}
	})
}

// More large answers than the buffer holds come late rather than at the price of
// the stream. A delayed answer counts as under way.
func TestLateAnswersDoNotCostTheStream(t *testing.T) {
	const requests, size = 300, 64 << 10
	var open []*Request
	inBubble(t, func(q *Request) { open = append(open, q) }, func(t *testing.T, s *Stream, far net.Conn) {
		for i := range requests {
			far.Write(frame(t, wire.Frame{Type: wire.Propose, ID: uint64(i + 1)}))
		}
		synctest.Wait()
		for _, q := range open {
			q.AnswerLater(wire.CodeOK, func() []byte { return make([]byte, size) })
		}
		synctest.Wait()
		s.mu.Lock()
		serving, delayed := s.serving, len(s.delayed)
		s.mu.Unlock()
		if delayed == 0 || serving != delayed {
			t.Errorf("%d requests are under way, %d answers delayed", serving, delayed)
		}
		for i := range requests {
			f, err := wire.ReadFrame(far)
			if err != nil {
				t.Fatal(err)
			}
			if f.ID != uint64(i+1) || len(f.Body) != size {
				t.Fatalf("answer %d has ID %d and %d bytes", i, f.ID, len(f.Body))
			}
		}
	})
}

// An answer of AnswerNow goes out while there is room, in its place behind the answers before.
// Behind delayed answers nothing is done: the request is still under way, and AnswerLater
// answers it.
func TestAnswerNow(t *testing.T) {
	const requests, size = 300, 64 << 10
	var open []*Request
	inBubble(t, func(q *Request) { open = append(open, q) }, func(t *testing.T, s *Stream, far net.Conn) {
		for i := range requests {
			far.Write(frame(t, wire.Frame{Type: wire.Propose, ID: uint64(i + 1)}))
		}
		synctest.Wait()
		body, later := make([]byte, size), 0
		for i, q := range open {
			clear(body)
			body[size-1] = byte(i)
			if !q.AnswerNow(wire.CodeOK, body) {
				later++
				q.AnswerLater(wire.CodeOK, func() []byte { return append(make([]byte, size-1), byte(i)) })
			}
		}
		clear(body) // the stream has copies
		synctest.Wait()
		s.mu.Lock()
		serving, delayed := s.serving, len(s.delayed)
		s.mu.Unlock()
		if later == 0 || later == requests || delayed == 0 || serving != delayed {
			t.Errorf("%d of %d answered later; %d requests are under way, %d answers delayed", later, requests, serving, delayed)
		}
		for i := range requests {
			f, err := wire.ReadFrame(far)
			if err != nil {
				t.Fatal(err)
			}
			if f.ID != uint64(i+1) || len(f.Body) != size || f.Body[size-1] != byte(i) {
				t.Fatalf("answer %d has ID %d, %d bytes and ends with %d", i, f.ID, len(f.Body), f.Body[len(f.Body)-1])
			}
		}
	})
}

func TestAnswerThatCannotBeSentStopsTheStream(t *testing.T) {
	handle := func(q *Request) { q.Answer(wire.CodeOK, make([]byte, wire.MaxFrame)) }
	between(t, handle, func(t *testing.T, asker, answerer *Stream) {
		if _, err := asker.Call(context.Background(), wire.Read, nil); err == nil {
			t.Error("an answer larger than a frame arrived")
		}
		<-answerer.Stopped()
	})
}

func TestRequestOverTheFrameLimitFailsAlone(t *testing.T) {
	handle := func(q *Request) { q.Answer(wire.CodeOK, nil) }
	between(t, handle, func(t *testing.T, asker, _ *Stream) {
		_, err := asker.Begin(wire.Read, make([]byte, wire.MaxFrame), func(wire.Frame, error) { t.Error("done was called") })
		if err == nil {
			t.Error("a request larger than a frame was sent")
		}
		if f, err := asker.Call(context.Background(), wire.Read, nil); err != nil || f.Code != wire.CodeOK {
			t.Errorf("the next request: %+v, %v", f, err)
		}
	})
}

func TestStopFailsOpenRequestsWithItsError(t *testing.T) {
	between(t, func(*Request) {}, func(t *testing.T, asker, answerer *Stream) {
		why := errors.New("why")
		var failed, told int
		asker.AtStop(func() { told++ })
		for range 10 {
			asker.Begin(wire.Read, nil, func(_ wire.Frame, err error) {
				if errors.Is(err, why) {
					failed++
				}
			})
		}
		synctest.Wait()
		asker.Stop(why)
		asker.Stop(errors.New("again"))
		asker.AtStop(func() { told++ })
		if failed != 10 || told != 2 {
			t.Errorf("%d of 10 requests failed with the error, %d of 2 AtStop functions were called", failed, told)
		}
		stoppedWith(t, asker, why)
		if _, err := asker.Begin(wire.Read, nil, func(wire.Frame, error) { t.Error("done was called") }); !errors.Is(err, why) {
			t.Errorf("Begin after Stop: %v", err)
		}
		if err := asker.Push(func() wire.Frame { t.Error("a frame was made"); return wire.Frame{} }); !errors.Is(err, why) {
			t.Errorf("Push after Stop: %v", err)
		}
		asker.Wait()
		<-answerer.Stopped() // by the end of the connection
	})
}

func TestCallEndsWithItsContext(t *testing.T) {
	var open *Request
	between(t, func(q *Request) { open = q }, func(t *testing.T, asker, _ *Stream) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if _, err := asker.Call(ctx, wire.Read, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		synctest.Wait()
		if len(asker.calls) > 0 {
			t.Error("the callback of the call was kept")
		}
		open.Answer(wire.CodeOK, nil) // the late answer is dropped
		synctest.Wait()
		select {
		case <-asker.Stopped():
			t.Error("the late answer stopped the stream")
		default:
		}
	})
}

func TestForgottenRequestsGetNoCallback(t *testing.T) {
	var open []*Request
	between(t, func(q *Request) { open = append(open, q) }, func(t *testing.T, asker, _ *Stream) {
		id, err := asker.Begin(wire.Read, nil, func(wire.Frame, error) { t.Error("done was called") })
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		asker.Forget(id)
		open[0].Answer(wire.CodeOK, nil)
		synctest.Wait()
	})
}
