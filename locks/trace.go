package locks

import (
	"sync"
	"time"

	"github.com/wardmote/wardmote/fence"
)

// Trace is told what happens in a Client, for metrics and logs. Each function
// may be nil.
//
// The functions are called in the order in which things happened, one at a
// time, from a goroutine of the client's own; a call may come after the method
// it tells of has returned. They must not block and must not call the client's
// Close; what piles up behind a function that blocks is kept up to a limit of
// 65,536 calls, and dropped beyond it. Close waits for the last call.
type Trace struct {
	// SessionOpened: the cluster opened a session with this TTL. It is the
	// first of the client's, or takes the place of one that ended.
	SessionOpened func(ttl time.Duration)

	// SessionLost: the session ended, and with it all its locks and waits; a
	// call of Lost for each lock came before.
	SessionLost func(Reason)

	// Queued: a request waits, for Took so far, behind so many holders and
	// waiters as Behind says: at first, and whenever that number changes. With
	// this function each wait watches its queue, which costs the leader a read
	// for each change of it.
	Queued func(LockEvent)

	// Acquired: the client was granted a key, or several of which Key is the
	// first, Took after it asked. That an owner entered again, or that a lock
	// was upgraded, is not told.
	Acquired func(LockEvent)

	// Released: the client let a key go, Took after the grant. The cluster
	// hears of it next.
	Released func(LockEvent)

	// Lost: a grant ended otherwise, Took after it; Err is the *LostError.
	Lost func(LockEvent)

	// Asked: somebody, the client By where that is known, asks the holder to let
	// go. Once in the life of a grant.
	Asked func(LockEvent)

	// Contended: somebody waits for what is held, the first since the grant.
	Contended func(LockEvent)

	// CleanupFailed: the cluster could not be told that a key was released
	// (Token is set) or that a wait was given up (Token is 0). It is tried
	// again for as long as the session lives.
	CleanupFailed func(LockEvent)

	// BeatFailed: a beat was not confirmed. A session that loses all its beats
	// ends; one lost beat does nothing.
	BeatFailed func(error)

	// Retrying: Elect or Spread had a failure that it hopes will pass, and
	// stands again; or a leader resigned for a successor that there was not.
	Retrying func(LockEvent)

	// Stuck: the work of Do, Elect or Spread still runs a TTL after its context
	// ended. Its key stays taken until it returns, unless it lets go of it by itself
	// or the session ends.
	Stuck func(LockEvent)

	_ struct{}
}

// LockEvent is what Trace functions are told of a key.
type LockEvent struct {
	Key    string
	Token  fence.Token   // 0 if nothing was granted
	Took   time.Duration // see the function
	Err    error         // see the function
	Behind int           // Queued
	By     string        // Asked
}

// maxTraced bounds what waits for a Trace function that blocks.
const maxTraced = 1 << 16

// tracer calls a Trace's functions in order. Its mutex is a leaf: it may be
// locked, and so a call queued, under any other, which is how the order is kept.
type tracer struct {
	trace *Trace // nil: nobody

	mu      sync.Mutex
	queue   []func()
	running bool
	closed  bool
	idle    chan struct{} // closed once closed and no longer running
}

func newTracer(to *Trace) *tracer { return &tracer{trace: to, idle: make(chan struct{})} }

func (t *tracer) enqueue(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || len(t.queue) >= maxTraced {
		return
	}
	t.queue = append(t.queue, f)
	if !t.running {
		t.running = true
		go t.run()
	}
}

// run calls what is queued and ends. It is joined by close.
func (t *tracer) run() {
	var queue []func()
	ended := false
	defer func() {
		if ended {
			return
		}
		// A function ended the goroutine, as t.FailNow of a test's does. Those
		// after it are called all the same, and close does not wait for ever.
		t.mu.Lock()
		t.queue = append(queue, t.queue...)
		t.mu.Unlock()
		go t.run()
	}()
	for {
		t.mu.Lock()
		queue, t.queue = t.queue, nil
		if len(queue) == 0 {
			ended = true
			t.running = false
			if t.closed {
				close(t.idle)
			}
			t.mu.Unlock()
			return
		}
		t.mu.Unlock()
		for len(queue) > 0 {
			f := queue[0]
			queue = queue[1:]
			f()
		}
	}
}

// close refuses further calls and waits for those that were queued.
func (t *tracer) close() {
	t.mu.Lock()
	if !t.closed {
		t.closed = true
		if !t.running {
			close(t.idle)
		}
	}
	t.mu.Unlock()
	<-t.idle
}

func (t *tracer) sessionOpened(ttl time.Duration) {
	if t.trace != nil && t.trace.SessionOpened != nil {
		t.enqueue(func() { t.trace.SessionOpened(ttl) })
	}
}

func (t *tracer) sessionLost(r Reason) {
	if t.trace != nil && t.trace.SessionLost != nil {
		t.enqueue(func() { t.trace.SessionLost(r) })
	}
}

func (t *tracer) beatFailed(err error) {
	if t.trace != nil && t.trace.BeatFailed != nil {
		t.enqueue(func() { t.trace.BeatFailed(err) })
	}
}

func (t *tracer) wantsQueued() bool { return t.trace != nil && t.trace.Queued != nil }

func (t *tracer) queued(e LockEvent) {
	if t.trace != nil {
		t.enqueueEvent(t.trace.Queued, e)
	}
}

func (t *tracer) asked(e LockEvent) {
	if t.trace != nil {
		t.enqueueEvent(t.trace.Asked, e)
	}
}

func (t *tracer) contended(e LockEvent) {
	if t.trace != nil {
		t.enqueueEvent(t.trace.Contended, e)
	}
}

func (t *tracer) acquired(e LockEvent) {
	if t.trace != nil {
		t.enqueueEvent(t.trace.Acquired, e)
	}
}

func (t *tracer) released(e LockEvent) {
	if t.trace != nil {
		t.enqueueEvent(t.trace.Released, e)
	}
}

func (t *tracer) lost(e LockEvent) {
	if t.trace != nil {
		t.enqueueEvent(t.trace.Lost, e)
	}
}

func (t *tracer) cleanupFailed(e LockEvent) {
	if t.trace != nil {
		t.enqueueEvent(t.trace.CleanupFailed, e)
	}
}

func (t *tracer) retrying(e LockEvent) {
	if t.trace != nil {
		t.enqueueEvent(t.trace.Retrying, e)
	}
}

func (t *tracer) stuck(e LockEvent) {
	if t.trace != nil {
		t.enqueueEvent(t.trace.Stuck, e)
	}
}

func (t *tracer) enqueueEvent(f func(LockEvent), e LockEvent) {
	if f != nil {
		t.enqueue(func() { f(e) })
	}
}
