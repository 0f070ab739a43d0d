package term

import (
	"time"

	"github.com/wardmote/wardmote/internal/stream"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// A Guide is a node's knowledge of the leader and of the asking member, for members that
// look for the leader. All functions must be set. They are called from any goroutine and must
// not block.
type Guide struct {
	// Current returns this node's present Term, or nil.
	Current func() *Term

	// Hint names the leader as far as this node knows.
	Hint func() wire.Hint

	// Changed returns a channel, closed when Current or Hint may have changed.
	Changed func() <-chan struct{}

	// Heard returns the time at which this node's raft last heard the leader; zero
	// without raft.
	Heard func() time.Time

	// From, Shared and Mere are those of the asking member's Subscriber.
	From         string
	Shared, Mere bool

	// Bound is the binding of the asking member's TLS stream; nil without TLS. Under TLS
	// only session keys with a proof for this binding count: see wire.KeyProof.
	Bound []byte
}

// answers returns the hint for a question that came at the time asked. Ready is
// false if the question should wait for news.
//
// A node without raft answers at once: such a node learns of a new leader no
// sooner than the asker. A deposed leader that does not know yet tells an old
// term, and the asker has said to look above a term at least as new.
func (g Guide) answers(req wire.FindRequest, asked time.Time) (h wire.Hint, ready bool) {
	h = g.Hint()
	if t := g.Current(); t != nil && (t.Number() > req.Above || req.Lost && t.Number() == req.Above) {
		return h, true
	}
	if !h.Votes {
		return h, true
	}
	if h.Leader == "" || h.Term < req.Above {
		return h, false
	}
	// A message of the leader that was under way when the leader fell silent is no
	// sign of life.
	lives := req.Lost && g.Heard().After(asked.Add(timing.SignOfLife))
	return h, h.Term > req.Above || lives
}

// find answers a question for the leader, now or when there is news. A second
// question on the stream is refused while the first waits, so that a stream costs
// one goroutine at most.
func (m *memberStream) find(q *stream.Request) {
	var req wire.FindRequest
	if wire.Unmarshal(q.Body, &req) != nil {
		q.Answer(wire.CodeBad, nil)
		return
	}
	asked := time.Now()
	hint, ready := m.guide.answers(req, asked)
	wait := time.Duration(min(req.Wait, uint64(timing.MostHold/time.Millisecond))) * time.Millisecond
	if ready || wait == 0 {
		q.Answer(wire.CodeOK, wire.Marshal(&hint))
		return
	}
	if !m.finding.CompareAndSwap(false, true) {
		q.Answer(wire.CodeBusy, nil)
		return
	}
	m.finds.Go(func() {
		hint, ok := m.awaitNews(req, asked, wait)
		m.finding.Store(false) // before the answer: the next question may follow at once
		if ok {
			q.Answer(wire.CodeOK, wire.Marshal(&hint))
		}
	})
}

// awaitNews waits for news, until wait is over. Ok is false if the stream has
// stopped.
func (m *memberStream) awaitNews(req wire.FindRequest, asked time.Time, wait time.Duration) (h wire.Hint, ok bool) {
	limit := time.NewTimer(wait)
	defer limit.Stop()
	var listen <-chan time.Time
	if req.Lost {
		// Raft tells no event for each message of the leader.
		t := time.NewTicker(timing.SignOfLife)
		defer t.Stop()
		listen = t.C
	}
	for {
		changed := m.guide.Changed()
		h, ready := m.guide.answers(req, asked)
		if ready {
			return h, true
		}
		select {
		case <-changed:
		case <-listen:
		case <-limit.C:
			return h, true
		case <-m.stream.Stopped():
			return h, false
		}
	}
}
