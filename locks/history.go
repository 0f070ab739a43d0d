package locks

import (
	"errors"
	"sync"
	"time"

	"github.com/wardmote/wardmote/cluster"
)

// history keeps a client's latest losses and events, for reports. Its mutex is a leaf.
type history struct {
	mu     sync.Mutex
	losses latest[OwnLoss]
	events latest[OwnEvent]
}

// maxLatest is how many losses and how many events a report has.
const maxLatest = 64

// latest keeps the latest values of a kind.
type latest[T any] struct {
	ring []T
	next int // the place of the oldest, once the ring is full
}

func (l *latest[T]) add(v T) {
	if len(l.ring) < maxLatest {
		l.ring = append(l.ring, v)
		return
	}
	l.ring[l.next] = v
	l.next = (l.next + 1) % maxLatest
}

// list returns the values, the oldest first.
func (l *latest[T]) list() []T {
	out := make([]T, 0, len(l.ring))
	out = append(out, l.ring[l.next:]...)
	return append(out, l.ring[:l.next]...)
}

// note keeps an event of the kind, which is the name of a function of Trace.
func (h *history) note(kind string, e LockEvent) {
	own := OwnEvent{At: time.Now(), Kind: kind, Key: e.Key, Token: e.Token, Took: cluster.Duration(e.Took)}
	switch {
	case e.Err != nil:
		own.Detail = e.Err.Error()
	case e.By != "":
		own.Detail = "by " + e.By
	}
	h.mu.Lock()
	h.events.add(own)
	h.mu.Unlock()
}

// lost keeps a loss.
func (h *history) lost(e LockEvent) {
	own := OwnLoss{At: time.Now(), Key: e.Key, Token: e.Token, Held: cluster.Duration(e.Took)}
	if lost, ok := errors.AsType[*LostError](e.Err); ok {
		own.Reason = lost.Reason
	}
	h.mu.Lock()
	h.losses.add(own)
	h.mu.Unlock()
}

// report fills in the client's part.
func (h *history) report(r *Report) {
	h.mu.Lock()
	r.Losses, r.Events = h.losses.list(), h.events.list()
	h.mu.Unlock()
}
