package term

import (
	"slices"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/timing"
)

// This file bounds the events that are told again. A subscriber to which a session's events
// move is told every grant that the session has not seen. A process that attaches to one
// session on many streams in turn, and reads none of them, would have each stream keep
// each grant, again and again. So the events of this kind that are not on their way yet
// are counted by process: while any wait, and more than maxRetold would, no further
// session moves. The subscriber asks again. A process without such events is told all,
// however many. Whoever takes the name and boot of another process has another signer,
// with TLS, and its events do not count against that process.

// maxRetold bounds the events of a process, some 200 bytes each. A stream that is alone
// may have more.
const maxRetold = 4 << 10

// mayRetell counts n events for s, and reports false, without counting them, if too many
// events of the process of s wait. Those on a stream that takes none any more, as behind a cut
// that nobody tells of, must not keep the process from its next stream: that stream ends.
func (t *Term) mayRetell(s *Subscriber, n int) bool {
	if s.Later == nil || n == 0 {
		return true // nothing piles up
	}
	now := time.Since(t.created)
	t.mu.Lock()
	own, waiting := t.subscribers[s], 0
	var stuck *Subscriber
	for o, k := range t.streamsOf(s) {
		if own == nil || k.signer != own.signer {
			continue
		}
		left := int(o.retold.Load())
		waiting += left
		if left > 0 && o != s && k.signer != "" && !k.displaced && o.Stop != nil && now-time.Duration(o.took.Load()) >= timing.AnswerLimit(t.table.Bound()) {
			stuck = o
		}
	}
	full := waiting > 0 && waiting+n > maxRetold
	switch {
	case full && stuck != nil:
		t.subscribers[stuck].displaced = true
	case !full:
		stuck = nil
		s.took.Store(int64(now))
		s.retold.Add(int64(n))
	}
	t.mu.Unlock()
	if stuck != nil {
		stuck.Stop()
	}
	return !full
}

// countRetold adds n events for s.
func (t *Term) countRetold(s *Subscriber, n int) {
	if s.Later == nil {
		return
	}
	if n > 0 && s.retold.Load() <= 0 {
		s.took.Store(int64(time.Since(t.created)))
	}
	s.retold.Add(int64(n))
}

// retell tells s events that mayRetell has counted.
func (t *Term) retell(s *Subscriber, events []machine.Event) {
	for _, e := range events {
		if s.Later == nil {
			s.Event(e)
			continue
		}
		s.Later(func() machine.Event {
			s.retold.Add(-1)
			s.took.Store(int64(time.Since(t.created)))
			return e
		})
	}
}

// missed counts what s would be told about if the events of the sessions came to s. The
// events are not made for that: a process may ask for a million of them, again and again,
// and be refused each time.
func (t *Term) missed(s *Subscriber, ids []machine.SessionID) (n int) {
	moving := make([]machine.SessionID, 0, min(len(ids), sessionsAtOnce))
	for some := range slices.Chunk(ids, sessionsAtOnce) {
		moving = moving[:0]
		t.mu.Lock()
		for _, id := range some {
			if t.sessions[id] != s {
				moving = append(moving, id)
			}
		}
		t.mu.Unlock()
		t.table.View(func(m *machine.State) {
			for _, id := range moving {
				n += m.Pends(id)
			}
		})
	}
	return n
}
