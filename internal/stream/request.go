package stream

import "github.com/wardmote/wardmote/internal/wire"

// A Request is a request or a notice of the peer. A request must be answered
// exactly once, by Answer or AnswerLater, from any goroutine and at any time. A
// notice has ID 0, and its answer is dropped.
type Request struct {
	wire.Frame
	stream *Stream
	cost   int // bytes counted while the request is under way
}

// Answer sends the answer and does not block.
func (q *Request) Answer(code wire.Code, body []byte) {
	if q.ID == 0 {
		return
	}
	s := q.stream
	s.mu.Lock()
	s.endLocked(q)
	err := s.queueLocked(wire.Frame{Type: q.Type, ID: q.ID, Code: code, Body: body})
	s.mu.Unlock()
	if err != nil {
		// The peer waits for the answer, and would wait for ever. Without the
		// stream the peer asks again elsewhere.
		s.Stop(err)
	}
}

// AnswerNow is Answer, unless the queue for the peer is so long that AnswerLater would delay
// the answer: then nothing is done, and AnswerNow returns false. AnswerNow keeps no reference to
// the body.
func (q *Request) AnswerNow(code wire.Code, body []byte) bool {
	if q.ID == 0 {
		return true
	}
	s := q.stream
	s.mu.Lock()
	if s.err == nil && (len(s.delayed) > 0 || !s.roomLocked(len(body))) {
		s.mu.Unlock()
		return false
	}
	s.endLocked(q)
	err := s.queueLocked(wire.Frame{Type: q.Type, ID: q.ID, Code: code, Body: body})
	s.mu.Unlock()
	if err != nil {
		s.Stop(err) // see Answer
	}
	return true
}

// AnswerLater is Answer for large answers in great numbers at once. It may delay the
// answer and the call of body as Push does. Until
// the answer is queued the request counts as under way.
func (q *Request) AnswerLater(code wire.Code, body func() []byte) {
	if q.ID == 0 {
		return
	}
	s := q.stream
	err := s.Push(func() wire.Frame {
		s.endLocked(q)
		return wire.Frame{Type: q.Type, ID: q.ID, Code: code, Body: body()}
	})
	if err != nil {
		s.Stop(err)
	}
}
