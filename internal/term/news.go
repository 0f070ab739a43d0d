package term

import "github.com/wardmote/wardmote/internal/machine"

// news is an event of a session with the subscriber to be told.
type news struct {
	event machine.Event
	to    *Subscriber
}

// mostNews is the largest number of events for which the memory is kept.
const mostNews = 1 << 10

// tellNews tells the events of an entry to the subscribers of the sessions. A session without a
// subscriber is told when the member attaches. Term.mu is taken once: all commands wait for
// raft's goroutine, and many streams for the mutex.
func (t *Term) tellNews() {
	if len(t.news) == 0 {
		return
	}
	t.mu.Lock()
	for i := range t.news {
		if t.closed {
			break // the next leader tells
		}
		n := &t.news[i]
		n.to = t.sessions[n.event.Session]
		if n.event.Kind == machine.EventEnding {
			n.event.Kind = machine.EventEnded // the rest of the end is of no interest to the client
		}
		if n.event.Kind == machine.EventEnded {
			delete(t.sessions, n.event.Session)
		}
	}
	t.mu.Unlock()
	for _, n := range t.news {
		if n.to != nil {
			n.to.Event(n.event)
		}
	}
	clear(t.news)
	if t.news = t.news[:0]; cap(t.news) > mostNews {
		t.news = nil
	}
}
