package cluster

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wardmote/wardmote/internal/consensus"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/wakeup"
)

// Hooks are functions that a node calls. Each may be nil: an event without a function
// costs next to nothing.
//
// Each function is called in the order of its events, one at a time, on a goroutine of
// its own, and the node holds no lock meanwhile. A function that blocks delays its own
// further calls, and nothing else but the return of Stop, which waits for the last call:
// up to 1,024 events are kept behind it, and then the oldest are dropped. A function may
// call methods of the node, but not Stop or Leave, which would wait for the function. A
// panic in a function ends the process, as a panic on any goroutine does.
//
// ctx has the values of the context that Start was called with, and ends when the node
// ends; the last events may come with a ctx that has ended.
type Hooks struct {
	// Events is called with each event.
	Events func(ctx context.Context, e Event)

	// Commits is called on the leader, for each entry of the log with commands that the
	// cluster has committed. A busy leader commits thousands of entries in a second.
	Commits func(ctx context.Context, c Commit)

	_ struct{}
}

// Commit is an entry of the log that the leader has committed.
type Commit struct {
	Index    uint64 // of the entry
	Term     uint64 // in which this member leads
	Commands int    // in the entry
	Bytes    int    // of the entry

	// Append is the time that the leader's own store took to write the entry, flush
	// included; nothing is flushed by a member without a Dir. The other voters write at
	// the same time.
	Append time.Duration
	// Took is the time from the proposal of the entry to its application, once a
	// majority of the voters had stored it.
	Took time.Duration
}

// AddHooks has the functions of h called for later events too, after those of the
// Config, until remove is called. A call that is queued by then still comes. A program
// that is given its node, as by wardmote.Main, adds its hooks so.
func (n *Node) AddHooks(h Hooks) (remove func()) {
	removeEvents, removeCommits := n.events.add(running(n, h.Events)), n.commits.add(running(n, h.Commits))
	return func() {
		removeEvents()
		removeCommits()
	}
}

// running returns f for a process that may stand still: see host.Clock.
func running[T any](n *Node, f func(context.Context, T)) func(context.Context, T) {
	if f == nil {
		return nil
	}
	return func(ctx context.Context, e T) {
		n.self.Clock.Await()
		f(ctx, e)
	}
}

// committed tells of an entry that this node has committed as the leader.
func (n *Node) committed(c consensus.Committed) {
	if !n.commits.wanted() {
		return
	}
	outcomes, _ := c.Outcomes.([]machine.Outcome)
	n.commits.put(Commit{
		Index: c.Index, Term: c.Term, Commands: len(outcomes), Bytes: c.Bytes, Append: c.Append, Took: c.Took,
	})
}

// hookQueue calls the functions of one hook, on a goroutine of its own, so that no mutex
// is held and no loop waits for the user. The queue is bounded: while a function blocks,
// the oldest events are dropped.
type hookQueue[T any] struct {
	calls atomic.Pointer[[]*func(context.Context, T)] // nil: none
	more  wakeup.One

	mu sync.Mutex
	q  []T
}

const maxEvents = 1024

func newHookQueue[T any](first func(context.Context, T)) *hookQueue[T] {
	q := &hookQueue[T]{more: wakeup.NewOne()}
	q.add(first)
	return q
}

// add adds a function. nil adds nothing.
func (q *hookQueue[T]) add(f func(context.Context, T)) (remove func()) {
	if f == nil {
		return func() {}
	}
	added := &f
	q.change(func(calls []*func(context.Context, T)) []*func(context.Context, T) { return append(calls, added) })
	return func() {
		q.change(func(calls []*func(context.Context, T)) []*func(context.Context, T) {
			return slices.DeleteFunc(calls, func(o *func(context.Context, T)) bool { return o == added })
		})
	}
}

// change replaces the functions.
func (q *hookQueue[T]) change(to func([]*func(context.Context, T)) []*func(context.Context, T)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var calls []*func(context.Context, T)
	if old := q.calls.Load(); old != nil {
		calls = slices.Clone(*old)
	}
	if calls = to(calls); len(calls) == 0 {
		q.calls.Store(nil)
		return
	}
	q.calls.Store(&calls)
}

// wanted reports whether there is a function to call.
func (q *hookQueue[T]) wanted() bool { return q.calls.Load() != nil }

// put queues an event without blocking.
func (q *hookQueue[T]) put(e T) {
	if !q.wanted() {
		return
	}
	q.mu.Lock()
	if len(q.q) >= maxEvents {
		q.q = q.q[1:]
	}
	q.q = append(q.q, e)
	q.mu.Unlock()
	q.more.Wake()
}

// run tells events until ctx ends, and then the events still queued.
func (q *hookQueue[T]) run(ctx context.Context) {
	for stopping := false; !stopping; {
		select {
		case <-q.more:
		case <-ctx.Done():
			stopping = true
		}
		q.mu.Lock()
		events := q.q
		q.q = nil
		q.mu.Unlock()
		for _, e := range events {
			if calls := q.calls.Load(); calls != nil {
				for _, f := range *calls {
					(*f)(ctx, e)
				}
			}
		}
	}
}
