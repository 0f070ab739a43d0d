// Package otelwardmote makes OpenTelemetry spans of wardmote's locks:
//
//   - lock.acquire, from the call of Acquire, Do, Elect or the like until the grant or
//     the failure, as a child of the caller's span;
//   - lock.hold, from the grant until the release or the loss, as a child of the
//     caller's span too, and linked to its lock.acquire. A lock.hold of Elect is a term
//     of an election, and a lock.hold of Spread a turn of a shard.
//
// If a request has waited for a holder, the spans of the request are linked to the
// holder's lock.acquire, in this process or another: the span context of a holder travels
// in the Meta of the grant. So a trace leads from a slow request to the request in its
// way.
//
//	client := locks.New(node, locks.Options{Trace: otelwardmote.Trace(provider, otelwardmote.Options{})})
//
// or, for a client that somebody else has made, as wardmote.Main does:
//
//	defer client.AddTrace(otelwardmote.Trace(provider, otelwardmote.Options{}))()
//
// See README.md for the attributes and the costs.
package otelwardmote

import (
	"context"
	"errors"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/locks"
)

// Names of the spans.
const (
	AcquireSpan = "lock.acquire"
	HoldSpan    = "lock.hold"
)

// scope is the name of the instrumentation.
const scope = "github.com/wardmote/wardmote/contrib/otel"

// The attributes of the spans. README.md has their meanings.
const (
	keyKey      = attribute.Key("wardmote.key")
	callKey     = attribute.Key("wardmote.call")
	tokenKey    = attribute.Key("wardmote.token")
	outcomeKey  = attribute.Key("wardmote.outcome")
	reasonKey   = attribute.Key("wardmote.reason")
	waitedKey   = attribute.Key("wardmote.waited")
	positionKey = attribute.Key("wardmote.position")
	holderKey   = attribute.Key("wardmote.holder")
	byKey       = attribute.Key("wardmote.by")
	linkKey     = attribute.Key("wardmote.link") // of a link
)

// Options configures Trace. The zero value is sound.
type Options struct {
	// Key returns the text of a key in the spans, for keys that nobody else may read, or
	// that are too many for a backend that indexes attributes. "" leaves the key out.
	// Default: the key itself.
	Key func(key string) string

	_ struct{}
}

// Trace returns a Trace that makes spans by a tracer of provider, for
// locks.Options.Trace or Client.AddTrace. It may serve any number of clients. A nil
// provider makes no spans.
//
// Spans have the times of their events; the functions of a Trace run a little later.
func Trace(provider trace.TracerProvider, o Options) *locks.Trace {
	if provider == nil {
		return &locks.Trace{}
	}
	s := &spans{tracer: provider.Tracer(scope), key: o.Key}
	if s.key == nil {
		s.key = func(key string) string { return key }
	}
	return &locks.Trace{
		Acquiring:     s.acquiring,
		Queued:        s.queued,
		Acquired:      s.acquired,
		AcquireFailed: s.acquireFailed,
		Released:      s.released,
		Lost:          s.lost,
		Asked:         s.asked,
		Contended:     func(ctx context.Context, e locks.LockEvent) { s.holdEvent(ctx, e, "contended") },
		Stuck:         func(ctx context.Context, e locks.LockEvent) { s.holdEvent(ctx, e, "stuck") },
		Retrying:      s.retrying,
		Blocked:       s.blocked,
	}
}

// spans makes the spans of any number of clients.
type spans struct {
	tracer trace.Tracer
	key    func(string) string
}

// request is a call that is to acquire a key, and its grant. Acquiring makes it, on the
// goroutine of the call; the other functions of the Trace run one after the other.
type request struct {
	caller   context.Context // without the spans of the request
	acquire  trace.Span
	ended    bool // acquire has ended
	queuedAt time.Time
	position int
	holder   locks.Holder // the last one seen that was in the way
	hold     trace.Span   // nil before the grant
}

// contextKey is the key of a request in a context. Each spans has a key of its own.
type contextKey struct{ s *spans }

// w3c carries a span context in a grant's Meta.
var w3c propagation.TraceContext

func (s *spans) acquiring(ctx context.Context, e locks.LockEvent) (context.Context, map[string]string) {
	r := s.begin(ctx, e, e.At)
	ctx = trace.ContextWithSpan(context.WithValue(ctx, contextKey{s}, r), r.acquire)
	if !r.acquire.SpanContext().IsSampled() {
		return ctx, nil // a link would lead nowhere
	}
	meta := make(propagation.MapCarrier, 2)
	w3c.Inject(ctx, meta)
	return ctx, meta
}

// begin begins a request with its lock.acquire.
func (s *spans) begin(ctx context.Context, e locks.LockEvent, at time.Time) *request {
	r := &request{caller: ctx}
	_, r.acquire = s.tracer.Start(ctx, AcquireSpan, trace.WithTimestamp(at), trace.WithAttributes(s.about(e)...))
	return r
}

// request returns the request of ctx, for the verdict e. If Acquiring was not called for
// the request, because AddTrace came later, request makes the lock.acquire now, as of the
// beginning of the call, and began is false.
func (s *spans) request(ctx context.Context, e locks.LockEvent) (r *request, began bool) {
	if r, ok := ctx.Value(contextKey{s}).(*request); ok {
		return r, true
	}
	return s.begin(ctx, e, e.At.Add(-e.Took)), false
}

// about returns the attributes that every span of an event's key has.
func (s *spans) about(e locks.LockEvent) []attribute.KeyValue {
	attrs := []attribute.KeyValue{callKey.String(e.Call.String())}
	if key := s.key(e.Key); key != "" {
		attrs = append(attrs, keyKey.String(key))
	}
	return attrs
}

func token(e locks.LockEvent) attribute.KeyValue {
	return tokenKey.String(strconv.FormatUint(uint64(e.Token), 10))
}

func (s *spans) queued(ctx context.Context, e locks.LockEvent) {
	r, ok := ctx.Value(contextKey{s}).(*request)
	if !ok || r.ended {
		return
	}
	if r.queuedAt.IsZero() {
		r.queuedAt, r.position = e.At, e.Behind
	}
	attrs := []attribute.KeyValue{positionKey.Int(e.Behind)}
	if e.Holder != nil {
		r.holder = *e.Holder
		attrs = append(attrs, holderKey.String(e.Holder.Client))
	}
	r.acquire.AddEvent("queued", trace.WithTimestamp(e.At), trace.WithAttributes(attrs...))
}

// endAcquire ends the lock.acquire of a request, if it runs.
func (r *request) endAcquire(e locks.LockEvent, attrs ...attribute.KeyValue) {
	if r.ended {
		return
	}
	r.ended = true
	waited := 0.0
	if !r.queuedAt.IsZero() {
		waited = e.At.Sub(r.queuedAt).Seconds()
		attrs = append(attrs, positionKey.Int(r.position))
	}
	if r.holder.Client != "" {
		attrs = append(attrs, holderKey.String(r.holder.Client))
	}
	r.acquire.SetAttributes(append(attrs, waitedKey.Float64(waited))...)
	if to, ok := r.before(); ok {
		r.acquire.AddLink(to)
	}
	r.acquire.End(trace.WithTimestamp(e.At))
}

// before returns the link to the request of the holder that was in the way.
func (r *request) before() (trace.Link, bool) {
	ctx := w3c.Extract(context.Background(), propagation.MapCarrier(r.holder.Meta))
	to := trace.SpanContextFromContext(ctx)
	return trace.Link{SpanContext: to, Attributes: []attribute.KeyValue{linkKey.String("before")}}, to.IsValid()
}

func (s *spans) acquired(ctx context.Context, e locks.LockEvent) {
	r, began := s.request(ctx, e)
	r.endAcquire(e, outcomeKey.String("granted"), token(e))
	if !began {
		return // nothing would tell the end of the hold
	}
	links := []trace.Link{{
		SpanContext: r.acquire.SpanContext(),
		Attributes:  []attribute.KeyValue{linkKey.String("acquire")},
	}}
	if to, ok := r.before(); ok {
		links = append(links, to)
	}
	_, r.hold = s.tracer.Start(r.caller, HoldSpan, trace.WithTimestamp(e.At), trace.WithLinks(links...),
		trace.WithAttributes(append(s.about(e), token(e))...))
}

func (s *spans) acquireFailed(ctx context.Context, e locks.LockEvent) {
	r, _ := s.request(ctx, e)
	if r.ended {
		return // the grant was lost before the call returned: its lock.hold says so
	}
	reason, fault := reasonOf(e.Err)
	if fault {
		r.acquire.RecordError(e.Err, trace.WithTimestamp(e.At))
		r.acquire.SetStatus(codes.Error, reason)
	}
	r.endAcquire(e, outcomeKey.String("failed"), reasonKey.String(reason))
}

// reasonOf returns one of a few words for the error of a request. fault is false for a
// held key and for a caller that gave up.
func reasonOf(err error) (reason string, fault bool) {
	for _, r := range []struct {
		err    error
		reason string
		fault  bool
	}{
		{cluster.ErrNoQuorum, "no quorum", true},
		{locks.ErrHeld, "held", false},
		{locks.ErrDeadlock, "deadlock", true},
		{locks.ErrTooManyWaiters, "too many waiters", true},
		{locks.ErrTooManyKeys, "too many keys", true},
		{locks.ErrQuota, "quota", true},
		{locks.ErrCapacity, "capacity", true},
		{locks.ErrLost, "lost", true},
		{locks.ErrClosed, "closed", false},
		{locks.ErrHandedOver, "not wanted", false},
		{cluster.ErrStopped, "stopped", false},
		{cluster.ErrFounding, "founding", false},
		{context.DeadlineExceeded, "timeout", true},
		{context.Canceled, "canceled", false},
	} {
		if errors.Is(err, r.err) {
			return r.reason, r.fault
		}
	}
	return "other", true
}

// held returns the lock.hold of the request that ctx is about, or nil.
func (s *spans) held(ctx context.Context) trace.Span {
	if r, ok := ctx.Value(contextKey{s}).(*request); ok {
		return r.hold
	}
	return nil
}

func (s *spans) released(ctx context.Context, e locks.LockEvent) {
	if hold := s.held(ctx); hold != nil {
		hold.SetAttributes(outcomeKey.String("released"))
		hold.End(trace.WithTimestamp(e.At))
	}
}

func (s *spans) lost(ctx context.Context, e locks.LockEvent) {
	hold := s.held(ctx)
	if hold == nil {
		return
	}
	reason := "lost"
	if lost, ok := errors.AsType[*locks.LostError](e.Err); ok {
		reason = lost.Reason.String()
	}
	hold.SetAttributes(outcomeKey.String("lost"), reasonKey.String(reason))
	if !errors.Is(e.Err, locks.ErrClosed) { // the program's own doing
		hold.SetStatus(codes.Error, reason)
	}
	hold.End(trace.WithTimestamp(e.At))
}

func (s *spans) asked(ctx context.Context, e locks.LockEvent) {
	s.holdEvent(ctx, e, "asked", byKey.String(e.By))
}

// holdEvent adds an event to the lock.hold of a request.
func (s *spans) holdEvent(ctx context.Context, e locks.LockEvent, name string, attrs ...attribute.KeyValue) {
	if hold := s.held(ctx); hold != nil {
		hold.AddEvent(name, trace.WithTimestamp(e.At), trace.WithAttributes(attrs...))
	}
}

func (s *spans) retrying(ctx context.Context, e locks.LockEvent) {
	if r, ok := ctx.Value(contextKey{s}).(*request); ok && !r.ended {
		addError(r.acquire, "retrying", e)
	}
}

// blocked adds an event to the caller's own span: the call may be any.
func (s *spans) blocked(ctx context.Context, e locks.LockEvent) {
	addError(trace.SpanFromContext(ctx), "wardmote blocked", e)
}

func addError(span trace.Span, name string, e locks.LockEvent) {
	span.AddEvent(name, trace.WithTimestamp(e.At), trace.WithAttributes(reasonKey.String(e.Err.Error())))
}
