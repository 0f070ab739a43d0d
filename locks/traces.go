package locks

import (
	"context"
	"slices"
	"time"
)

// Traces returns a Trace that calls the functions of each of traces, in their order. nil
// ones are left out. Of several Acquiring each gets the context that the one before has
// returned, and their metas are added up; an earlier entry wins.
func Traces(traces ...*Trace) *Trace {
	traces = slices.DeleteFunc(slices.Clone(traces), func(t *Trace) bool { return t == nil })
	if len(traces) == 1 {
		return traces[0]
	}
	all := &Trace{}
	var acquiring []func(context.Context, LockEvent) (context.Context, map[string]string)
	for _, t := range traces {
		if t.Acquiring != nil {
			acquiring = append(acquiring, t.Acquiring)
		}
		all.SessionOpened = both(all.SessionOpened, t.SessionOpened)
		all.SessionLost = both(all.SessionLost, t.SessionLost)
		all.Queued = both(all.Queued, t.Queued)
		all.Acquired = both(all.Acquired, t.Acquired)
		all.AcquireFailed = both(all.AcquireFailed, t.AcquireFailed)
		all.Released = both(all.Released, t.Released)
		all.Lost = both(all.Lost, t.Lost)
		all.Asked = both(all.Asked, t.Asked)
		all.Contended = both(all.Contended, t.Contended)
		all.CleanupFailed = both(all.CleanupFailed, t.CleanupFailed)
		all.BeatConfirmed = both(all.BeatConfirmed, t.BeatConfirmed)
		all.BeatFailed = both(all.BeatFailed, t.BeatFailed)
		all.Blocked = both(all.Blocked, t.Blocked)
		all.Retrying = both(all.Retrying, t.Retrying)
		all.Part = both(all.Part, t.Part)
		all.Stuck = both(all.Stuck, t.Stuck)
	}
	if len(acquiring) > 0 {
		all.Acquiring = func(ctx context.Context, e LockEvent) (context.Context, map[string]string) {
			meta := make(map[string]string)
			for _, f := range acquiring {
				next, more := f(ctx, e)
				if next != nil {
					ctx = next
				}
				addMissing(meta, more)
			}
			return ctx, meta
		}
	}
	return all
}

// both returns a function that calls f and then g. nil counts as a function that does
// nothing.
func both[T any](f, g func(context.Context, T)) func(context.Context, T) {
	switch {
	case f == nil:
		return g
	case g == nil:
		return f
	}
	return func(ctx context.Context, argument T) {
		f(ctx, argument)
		g(ctx, argument)
	}
}

// addMissing adds the entries of more whose keys meta does not have.
func addMissing(meta, more map[string]string) {
	for key, value := range more {
		if _, has := meta[key]; !has {
			meta[key] = value
		}
	}
}

// AddTrace has the functions of t called for later events too, after those of
// Options.Trace, until remove is called. A call that is queued by then still comes. A
// program that is given its client, as by wardmote.Main, adds its Trace so.
func (c *Client) AddTrace(t *Trace) (remove func()) {
	added := Traces(t, &Trace{}) // of its own, so that the same t may be added twice
	c.trace.change(func(more []*Trace) []*Trace { return append(more, added) })
	return func() {
		c.trace.change(func(more []*Trace) []*Trace {
			return slices.DeleteFunc(slices.Clone(more), func(o *Trace) bool { return o == added })
		})
	}
}

// change replaces the traces that were added to the tracer.
func (t *tracer) change(to func(more []*Trace) []*Trace) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.more = to(t.more)
	t.trace.Store(Traces(append([]*Trace{t.own}, t.more...)...))
}

// Call is the method that has asked for a key.
type Call uint8

const (
	CallAcquire Call = iota + 1
	CallTryAcquire
	CallAcquireAll
	CallDo
	CallElect
	CallOnce
	CallSpread // a shard
)

var callNames = [...]string{
	CallAcquire: "Acquire", CallTryAcquire: "TryAcquire", CallAcquireAll: "AcquireAll", CallDo: "Do",
	CallElect: "Elect", CallOnce: "Once", CallSpread: "Spread",
}

// String returns the name of the method, and "" for 0.
func (c Call) String() string {
	if int(c) < len(callNames) {
		return callNames[c]
	}
	return ""
}

// traced is one call that is to acquire a key, as the Trace sees it.
type traced struct {
	c      *Client
	parent context.Context // has the values of the call's context
	ctx    context.Context // parent, or made of it by Acquiring
	begun  bool            // Acquiring was called, and AcquireFailed was not called since
}

// traceCall begins a call. Acquiring is called at once, unless the request has an
// owner: acquireForOwner calls Acquiring then, because a call that joins the owner's
// grant asks for nothing. parent has the values of the call's context.
func (c *Client) traceCall(parent context.Context, req *acquireRequest) *traced {
	req.began = time.Now()
	t := &traced{c: c, parent: parent, ctx: parent}
	if req.tracing = t; req.owner == "" {
		t.begin(req)
	}
	return t
}

// begin calls Acquiring, unless req has begun before.
func (t *traced) begin(req *acquireRequest) {
	f := t.c.trace.to().Acquiring
	if t.begun || f == nil {
		return
	}
	t.begun = true
	ctx, meta := f(context.WithoutCancel(t.parent), LockEvent{Key: req.key, Call: req.call, At: time.Now()})
	if ctx != nil {
		req.traced, t.ctx = ctx, ctx
	}
	req.addMeta(meta)
}

// failed ends the call, or an attempt of it, with AcquireFailed.
func (t *traced) failed(req *acquireRequest, err error) {
	t.c.trace.acquireFailed(t.ctx, LockEvent{Key: req.key, Call: req.call, Took: time.Since(req.began), Err: err})
	t.begun, t.ctx = false, t.parent
}
