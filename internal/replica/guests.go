package replica

import (
	"context"
	"maps"
	"slices"
	"sync"
)

// Guests are the sessions of a node's clients. A node ends after its guests, in
// this order:
//
//  1. Close tells every guest to end, and turns new ones away.
//  2. AwaitEnded waits until no lock of this process is trusted any more. Only
//     then may the node give up whatever keeps a second process of the member
//     away, for example the lock on the member's directory.
//  3. AwaitLeft waits until every guest has told the cluster so.
//
// The methods may be called from any goroutine.
type Guests struct {
	closing chan struct{}

	mu      sync.Mutex
	closed  bool
	present map[*Guest]struct{}
}

// Guest is the registration of one session.
type Guest struct {
	of    *Guests
	once  sync.Once
	ended chan struct{} // closed by Ended
	left  chan struct{} // closed by Left
}

// NewGuests returns a Guests without a guest.
func NewGuests() *Guests {
	return &Guests{closing: make(chan struct{}), present: make(map[*Guest]struct{})}
}

// Enter registers a session, or returns nil after Close.
func (g *Guests) Enter() *Guest {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil
	}
	a := &Guest{of: g, ended: make(chan struct{}), left: make(chan struct{})}
	g.present[a] = struct{}{}
	return a
}

// Done returns a channel that is closed by Close.
func (g *Guests) Done() <-chan struct{} { return g.closing }

// Close closes Done. A second call does nothing.
func (g *Guests) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.closed = true
		close(g.closing)
	}
}

// AwaitEnded waits, after Close, until Ended was called for every guest. A guest waits
// for functions that cancel contexts, and for a user's functions of Lock.BeforeNext, five
// seconds at most.
func (g *Guests) AwaitEnded() {
	for _, a := range g.list() {
		<-a.ended
	}
}

// AwaitLeft waits, after Close, until Left was called for every guest, or until
// ctx ends.
func (g *Guests) AwaitLeft(ctx context.Context) {
	for _, a := range g.list() {
		select {
		case <-a.left:
		case <-ctx.Done():
			return
		}
	}
}

func (g *Guests) list() []*Guest {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Keys(g.present))
}

// Ended says that the contexts of all locks of the session have ended, and that
// the session takes no more locks. A second call does nothing.
func (a *Guest) Ended() { a.once.Do(func() { close(a.ended) }) }

// Left says, after Ended, that the session has told the cluster of its end, or
// will not tell. The caller calls Left once.
func (a *Guest) Left() {
	a.Ended()
	close(a.left)
	a.of.mu.Lock()
	delete(a.of.present, a)
	a.of.mu.Unlock()
}
