package locks

import (
	"cmp"
	"errors"
	"sync"
	"time"

	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/internal/host"
)

// Trace has functions that a Client calls for its events, for metrics and logs.
// Each function may be nil.
//
// The client calls the functions one at a time, in the order of the events,
// from a goroutine of its own. A call may come after the method that caused the
// event has returned. The functions must not block and must not call the
// client's Close. If a function blocks, up to 65,536 calls are queued behind
// it, and further calls are dropped. Close waits for the last call.
type Trace struct {
	// SessionOpened: the cluster opened a session with this TTL: the client's
	// first session, or the next after a session that ended.
	SessionOpened func(ttl time.Duration)

	// SessionLost: the session ended, and with it all of its locks and waits.
	// Lost was called for each lock before.
	SessionLost func(Reason)

	// Queued: a request has been waiting for Took, behind Behind holders and
	// waiters. Queued is called at first, and after each change of Behind. With
	// this function, each wait watches its queue, which costs the leader a read
	// for each change of the queue.
	Queued func(LockEvent)

	// Acquired: the client was granted a key, Took after the request. For
	// several keys, Key is the first. Further locks of an owner (see Reentrant)
	// and upgrades are not reported.
	Acquired func(LockEvent)

	// Released: the client released a key, Took after the grant. The cluster is
	// told after this call was queued.
	Released func(LockEvent)

	// Lost: a grant was lost, Took after the grant; Err is the *LostError.
	Lost func(LockEvent)

	// Asked: another client asked the holder to release the key. By is that
	// client's name, if known. At most one call for each grant.
	Asked func(LockEvent)

	// Contended: a request waits for the key; the first since the grant.
	Contended func(LockEvent)

	// CleanupFailed: the cluster could not be told that a grant was released
	// (Token is set) or that a wait was given up (Token is 0). The client tries
	// again for as long as the session lives.
	CleanupFailed func(LockEvent)

	// BeatFailed: a beat was not confirmed. A session ends if all of its beats
	// fail; one failed beat has no effect.
	BeatFailed func(error)

	// Blocked: a call about the key (or about none, "") has been running for
	// Took, and no leader could be reached for some seconds. Err is the reason,
	// and matches cluster.ErrNoQuorum. Blocked is called again when the reason
	// changes, and after another loss of the leader. Every call that needs the
	// cluster reports, on its own; calls without a deadline would else wait in
	// silence.
	Blocked func(LockEvent)

	// Retrying: a call failed for a reason that may pass, and tries again: the
	// lead of Elect returned an error of its own, a session was lost during a
	// wait, or Elect or Spread could not reach a leader. Or a leader resigned for
	// a successor that did not wait.
	Retrying func(LockEvent)

	// Part: the leader has told a caller of Spread its part of the shards.
	Part func(PartEvent)

	// Stuck: the work of Do, Elect or Spread still runs a TTL after its context
	// ended. The key stays taken until the work returns, unless the work
	// releases the lock itself or the session ends.
	Stuck func(LockEvent)

	_ struct{}
}

// LockEvent is the argument of the Trace functions about keys.
type LockEvent struct {
	Key    string
	Token  fence.Token   // 0 if nothing was granted
	Took   time.Duration // see the function
	Err    error         // see the function
	Behind int           // for Queued
	By     string        // for Asked
}

// PartEvent is the argument of Trace.Part.
type PartEvent struct {
	Name    string // of Spread
	Version uint64 // rises with every change of the plan
	Shards  int    // the number of shards of Name
	Mine    int    // the number of shards assigned to this caller
	Drain   time.Duration
	Resized bool // the number of shards changes: this caller gives all up and ends
}

// maxTraced bounds the queue of calls behind a Trace function that blocks.
const maxTraced = 1 << 16

// tracer calls a Trace's functions in order. Its mutex is a leaf: a call may be
// queued while any other mutex is held, and so calls are queued in the order of
// the events.
type tracer struct {
	trace *Trace         // never nil
	runs  sync.WaitGroup // goroutines of run
	clock *host.Clock    // nil: package time
	past  history        // for reports

	mu      sync.Mutex
	queue   []func()
	running bool
	closed  bool
}

// newTracer returns a tracer of to, which may be nil.
func newTracer(to *Trace) *tracer { return &tracer{trace: cmp.Or(to, &Trace{})} }

// enqueue queues a call of f, unless the tracer is closed or the queue is full.
func (t *tracer) enqueue(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || len(t.queue) >= maxTraced {
		return
	}
	t.queue = append(t.queue, f)
	if !t.running {
		t.running = true
		t.runs.Go(t.run)
	}
}

// run makes the queued calls and returns.
func (t *tracer) run() {
	var queue []func()
	ended := false
	defer func() {
		if ended {
			return
		}
		// A function ended the goroutine, as t.FailNow of a test does. The
		// calls after it are made all the same.
		t.mu.Lock()
		t.queue = append(queue, t.queue...)
		t.mu.Unlock()
		t.runs.Go(t.run)
	}()
	for {
		t.mu.Lock()
		queue, t.queue = t.queue, nil
		ended = len(queue) == 0
		t.running = !ended
		t.mu.Unlock()
		if ended {
			return
		}
		for len(queue) > 0 {
			f := queue[0]
			queue = queue[1:]
			t.clock.Await()
			f()
		}
	}
}

// close refuses further calls and waits for the queued calls.
func (t *tracer) close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.runs.Wait()
}

func (t *tracer) sessionOpened(ttl time.Duration) {
	t.past.count(func(c *Counts) { c.Sessions++ })
	t.past.note("SessionOpened", LockEvent{Took: ttl})
	enqueueCall(t, t.trace.SessionOpened, ttl)
}

func (t *tracer) sessionLost(r Reason) {
	t.past.count(func(c *Counts) { c.SessionsLost++ })
	t.past.note("SessionLost", LockEvent{Err: errors.New(r.String())})
	enqueueCall(t, t.trace.SessionLost, r)
}

func (t *tracer) beatFailed(err error) {
	t.past.count(func(c *Counts) { c.BeatsFailed++ })
	t.past.note("BeatFailed", LockEvent{Err: err})
	enqueueCall(t, t.trace.BeatFailed, err)
}

func (t *tracer) acquired(e LockEvent) {
	t.past.count(func(c *Counts) { c.Granted++ })
	enqueueCall(t, t.trace.Acquired, e)
}

func (t *tracer) released(e LockEvent) {
	t.past.count(func(c *Counts) { c.Released++ })
	enqueueCall(t, t.trace.Released, e)
}

func (t *tracer) lost(e LockEvent) {
	var reason Reason
	if lost, ok := errors.AsType[*LostError](e.Err); ok {
		reason = lost.Reason
	}
	t.past.lost(e.Key, e.Token, reason, e.Took)
	enqueueCall(t, t.trace.Lost, e)
}

func (t *tracer) queued(e LockEvent)        { enqueueCall(t, t.trace.Queued, e) }
func (t *tracer) contended(e LockEvent)     { enqueueCall(t, t.trace.Contended, e) }
func (t *tracer) part(e PartEvent)          { enqueueCall(t, t.trace.Part, e) }
func (t *tracer) asked(e LockEvent)         { t.noted("Asked", t.trace.Asked, e) }
func (t *tracer) cleanupFailed(e LockEvent) { t.noted("CleanupFailed", t.trace.CleanupFailed, e) }
func (t *tracer) blocked(e LockEvent)       { t.noted("Blocked", t.trace.Blocked, e) }
func (t *tracer) retrying(e LockEvent)      { t.noted("Retrying", t.trace.Retrying, e) }
func (t *tracer) stuck(e LockEvent)         { t.noted("Stuck", t.trace.Stuck, e) }

// noted is enqueueCall for an event that reports have.
func (t *tracer) noted(kind string, f func(LockEvent), e LockEvent) {
	t.past.note(kind, e)
	enqueueCall(t, f, e)
}

// enqueueCall queues a call of f with the argument, unless f is nil.
func enqueueCall[T any](t *tracer, f func(T), argument T) {
	if f != nil {
		t.enqueue(func() { f(argument) })
	}
}
