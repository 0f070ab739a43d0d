package stream

import (
	"github.com/wardmote/wardmote/internal/budget"
	"github.com/wardmote/wardmote/internal/wire"
)

const (
	// MaxServing is how many requests a peer may have under way, if they are small.
	MaxServing = 32 << 10

	requestCost = 512 // bytes of a request without a body, and of what serves it
)

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

// begin counts a request of the peer, and reports false if the request must be
// refused.
func (s *Stream) begin(q *Request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return true // nothing is counted any more
	}
	s.serving++
	return s.chargeLocked(class(q.Type), q.cost) && s.serving <= MaxServing
}

// endLocked counts a request that is answered.
func (s *Stream) endLocked(q *Request) {
	if s.err == nil {
		s.serving--
		s.chargeLocked(class(q.Type), -q.cost)
	}
}

// chargeLocked has the budget count n bytes more of open requests. It reports false if they
// do not fit.
func (s *Stream) chargeLocked(c budget.Class, n int) (fits bool) {
	before := s.bytes[c]
	s.bytes[c] += n
	return s.share.Count(c, before, s.bytes[c])
}

// class returns the class of the requests of type t in the budget.
func class(t wire.Type) budget.Class {
	switch {
	case t == wire.Beat:
		return budget.Beats
	case t.Waits():
		return budget.Lasting
	}
	return budget.Passing
}
