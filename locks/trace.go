package locks

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/internal/host"
)

// Trace has functions that a Client calls for its events, for metrics, traces and logs.
// Each function may be nil: an event without a function costs next to nothing.
//
// The client calls the functions one at a time, in the order of the events, from a
// goroutine of its own, and holds no lock meanwhile; Acquiring alone is called on the
// goroutine of its call. A call may come after the method that caused the event has
// returned. A function may call methods of the client, but not Close, which waits for
// the last call. A function that blocks delays further calls of functions, and nothing
// else: no beat, no grant, no release. Up to 65,536 calls are queued behind it, and
// further calls are dropped. A panic in a function ends the process, as a panic on any
// goroutine does.
//
// The first argument has the values of a context of the program, and never ends:
//
//   - for an event of a request or a grant, the context of the call that has asked for
//     the key, or the context that Acquiring has made of it, from the first event to
//     Released or Lost;
//   - for Blocked, Retrying and Part, the context of the call that is told of;
//   - for an event of the session, no values: a session belongs to no call.
type Trace struct {
	// Acquiring: a call begins to acquire a key. The function runs on the goroutine of
	// the call, before anything is sent, so it should return soon. The context that it
	// returns takes the place of the call's in the functions below, and nowhere else;
	// nil keeps the call's. The returned meta is added to the grant's Meta, for other
	// clients to see; entries of the call itself win, and meta that does not fit is
	// left out as a whole. A lock of Sticky that needs no request adds no meta. Acquiring is followed by Acquired or AcquireFailed, once. It is
	// not called for a lock that joins its owner's grant or request (see Reentrant).
	Acquiring func(context.Context, LockEvent) (_ context.Context, meta map[string]string)

	// SessionOpened: the cluster opened a session with this TTL: the client's
	// first session, or the next after a session that ended.
	SessionOpened func(_ context.Context, ttl time.Duration)

	// SessionLost: the session ended, and with it all of its locks and waits.
	// Lost was called for each lock before.
	SessionLost func(context.Context, Reason)

	// Queued: a request has been waiting for Took, behind Behind holders and
	// waiters. Queued is called at first, and after each change of Behind or of the
	// first Holder; once more when the holder's Meta has been read. With this function,
	// each wait watches its queue, which costs the leader a read for each change of the
	// queue.
	Queued func(context.Context, LockEvent)

	// Acquired: the client was granted a key, Took after the call began. For
	// several keys, Key is the first. Further locks of an owner (see Reentrant)
	// and upgrades are not reported.
	Acquired func(context.Context, LockEvent)

	// AcquireFailed: a call that was to acquire a key failed with Err, Took after the
	// call began: Acquire, TryAcquire, AcquireAll, Do, Once, each attempt of Elect and
	// of a shard of Spread. Key or options that cannot be used are told to the caller
	// alone. If a grant was lost before its call returned, and the call then failed,
	// Acquired and Lost were called before. Err of a shard that was assigned to another
	// caller meanwhile matches ErrHandedOver.
	AcquireFailed func(context.Context, LockEvent)

	// Released: the client released a key, Took after the grant. The cluster is
	// told after this call was queued.
	Released func(context.Context, LockEvent)

	// Lost: a grant was lost, Took after the grant; Err is the *LostError.
	Lost func(context.Context, LockEvent)

	// Asked: another client asked the holder to release the key. By is that
	// client's name, if known. At most one call for each grant.
	Asked func(context.Context, LockEvent)

	// Contended: a request waits for the key; the first since the grant.
	Contended func(context.Context, LockEvent)

	// CleanupFailed: the cluster could not be told that a grant was released
	// (Token is set) or that a wait was given up (Token is 0). The client tries
	// again for as long as the session lives.
	CleanupFailed func(context.Context, LockEvent)

	// BeatConfirmed: a beat was confirmed, this long after it was sent. There are three
	// beats in a TTL, and one for each Renew.
	BeatConfirmed func(_ context.Context, took time.Duration)

	// BeatFailed: a beat was not confirmed. A session ends if all of its beats
	// fail; one failed beat has no effect.
	BeatFailed func(context.Context, error)

	// Blocked: a call about the key (or about none, "") has been running for
	// Took, and no leader could be reached for some seconds. Err is the reason,
	// and matches cluster.ErrNoQuorum. Blocked is called again when the reason
	// changes, and after another loss of the leader. Every call that needs the
	// cluster reports, on its own; calls without a deadline would else wait in
	// silence.
	Blocked func(context.Context, LockEvent)

	// Retrying: a call failed for a reason that may pass, and tries again: the
	// lead of Elect returned an error of its own, a session was lost during a
	// wait, or Elect or Spread could not reach a leader. Or a leader resigned for
	// a successor that did not wait.
	Retrying func(context.Context, LockEvent)

	// Part: the leader has told a caller of Spread its part of the shards.
	Part func(context.Context, PartEvent)

	// Stuck: the work of Do, Elect or Spread still runs a TTL after its context
	// ended. The key stays taken until the work returns, unless the work
	// releases the lock itself or the session ends.
	Stuck func(context.Context, LockEvent)

	_ struct{}
}

// LockEvent is the argument of the Trace functions about keys.
type LockEvent struct {
	Key    string
	Call   Call          // of the request or grant; 0 if the event is about neither
	Token  fence.Token   // 0 if nothing was granted
	At     time.Time     // when the event happened, before the function was called
	Took   time.Duration // see the function
	Err    error         // see the function
	Behind int           // for Queued
	Holder *Holder       // for Queued: the first holder of the key; nil if none is known
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
	own   *Trace                // of Options; never nil
	trace atomic.Pointer[Trace] // own and more together; never nil
	runs  sync.WaitGroup        // goroutines of run
	clock *host.Clock           // nil: package time
	past  history               // for reports

	mu      sync.Mutex
	more    []*Trace // of AddTrace
	queue   []func()
	running bool
	closed  bool
}

// newTracer returns a tracer of to, which may be nil.
func newTracer(to *Trace) *tracer {
	t := &tracer{own: cmp.Or(to, &Trace{})}
	t.trace.Store(t.own)
	return t
}

// to returns the functions to call now.
func (t *tracer) to() *Trace { return t.trace.Load() }

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
	t.past.note("SessionOpened", LockEvent{Took: ttl})
	enqueueCall(t, context.Background(), t.to().SessionOpened, ttl)
}

func (t *tracer) sessionLost(r Reason) {
	t.past.note("SessionLost", LockEvent{Err: errors.New(r.String())})
	enqueueCall(t, context.Background(), t.to().SessionLost, r)
}

func (t *tracer) beatConfirmed(took time.Duration) {
	enqueueCall(t, context.Background(), t.to().BeatConfirmed, took)
}

func (t *tracer) beatFailed(err error) {
	t.past.note("BeatFailed", LockEvent{Err: err})
	enqueueCall(t, context.Background(), t.to().BeatFailed, err)
}

func (t *tracer) part(ctx context.Context, e PartEvent) { enqueueCall(t, ctx, t.to().Part, e) }

func (t *tracer) acquired(ctx context.Context, e LockEvent) {
	t.tell(ctx, t.to().Acquired, e)
}

func (t *tracer) released(ctx context.Context, e LockEvent) {
	t.tell(ctx, t.to().Released, e)
}

func (t *tracer) lost(ctx context.Context, e LockEvent) {
	t.past.lost(e)
	t.tell(ctx, t.to().Lost, e)
}

func (t *tracer) asked(ctx context.Context, e LockEvent) {
	t.past.note("Asked", e)
	t.tell(ctx, t.to().Asked, e)
}

func (t *tracer) cleanupFailed(ctx context.Context, e LockEvent) {
	t.past.note("CleanupFailed", e)
	t.tell(ctx, t.to().CleanupFailed, e)
}

func (t *tracer) blocked(ctx context.Context, e LockEvent) {
	// Not in the history: a report has the reason in Health, with or without this hook.
	t.tell(ctx, t.to().Blocked, e)
}

func (t *tracer) retrying(ctx context.Context, e LockEvent) {
	t.past.note("Retrying", e)
	t.tell(ctx, t.to().Retrying, e)
}

func (t *tracer) stuck(ctx context.Context, e LockEvent) {
	t.past.note("Stuck", e)
	t.tell(ctx, t.to().Stuck, e)
}

func (t *tracer) queued(ctx context.Context, e LockEvent)    { t.tell(ctx, t.to().Queued, e) }
func (t *tracer) contended(ctx context.Context, e LockEvent) { t.tell(ctx, t.to().Contended, e) }
func (t *tracer) acquireFailed(ctx context.Context, e LockEvent) {
	t.tell(ctx, t.to().AcquireFailed, e)
}

// tell queues a call of f about an event that happens now, unless f is nil.
func (t *tracer) tell(ctx context.Context, f func(context.Context, LockEvent), e LockEvent) {
	if f != nil {
		e.At = time.Now()
		enqueueCall(t, ctx, f, e)
	}
}

// enqueueCall queues a call of f with the values of ctx and the argument, unless f is
// nil.
func enqueueCall[T any](t *tracer, ctx context.Context, f func(context.Context, T), argument T) {
	if f != nil {
		ctx = context.WithoutCancel(ctx)
		t.enqueue(func() { f(ctx, argument) })
	}
}
