package otelwardmote_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	otelwardmote "github.com/wardmote/wardmote/contrib/otel"
	"github.com/wardmote/wardmote/locks"
	"github.com/wardmote/wardmote/locks/lockstest"
)

// recorder is an exporter in memory, and its provider.
type recorder struct {
	t        *testing.T
	exporter *tracetest.InMemoryExporter
	provider *sdk.TracerProvider
}

func newRecorder(t *testing.T, opts ...sdk.TracerProviderOption) *recorder {
	e := tracetest.NewInMemoryExporter()
	return &recorder{t, e, sdk.NewTracerProvider(append(opts, sdk.WithSyncer(e))...)}
}

func (r *recorder) client(c *lockstest.Cluster, i int) *locks.Client {
	return c.NewClient(i, locks.Options{Name: fmt.Sprint("client-", i), Trace: otelwardmote.Trace(r.provider, otelwardmote.Options{})})
}

// caller begins a span of a caller. The caller ends it.
func (r *recorder) caller(name string) (context.Context, trace.Span) {
	return r.provider.Tracer("test").Start(r.t.Context(), name)
}

// of returns the ended spans of a name with all of these attributes, in the order of
// their beginnings.
func (r *recorder) of(name string, attrs ...string) (spans tracetest.SpanStubs) {
	time.Sleep(time.Millisecond)
	synctest.Wait()
	for _, s := range r.exporter.GetSpans() {
		if s.Name == name && !slices.ContainsFunc(attrs, func(a string) bool { return !slices.Contains(texts(s.Attributes), a) }) {
			spans = append(spans, s)
		}
	}
	slices.SortStableFunc(spans, func(a, b tracetest.SpanStub) int { return a.StartTime.Compare(b.StartTime) })
	return spans
}

// one returns the only such span.
func (r *recorder) one(name string, attrs ...string) tracetest.SpanStub {
	r.t.Helper()
	spans := r.of(name, attrs...)
	if len(spans) != 1 {
		r.t.Fatalf("%d spans %s with %q, want 1, among\n%s", len(spans), name, attrs, r.all())
	}
	return spans[0]
}

func (r *recorder) all() (text string) {
	for _, s := range r.exporter.GetSpans() {
		text += fmt.Sprintln(s.Name, texts(s.Attributes), "links", len(s.Links), s.Status)
	}
	return text
}

func texts(attrs []attribute.KeyValue) (out []string) {
	for _, a := range attrs {
		out = append(out, string(a.Key)+"="+a.Value.String())
	}
	return out
}

func value(s tracetest.SpanStub, key string) string {
	for _, a := range s.Attributes {
		if string(a.Key) == key {
			return a.Value.String()
		}
	}
	return ""
}

// links returns the span of each link, by its kind.
func links(s tracetest.SpanStub) map[string]trace.SpanID {
	out := make(map[string]trace.SpanID)
	for _, l := range s.Links {
		out[texts(l.Attributes)[0]] = l.SpanContext.SpanID()
	}
	return out
}

const (
	toAcquire = "wardmote.link=acquire"
	toBefore  = "wardmote.link=before"
)

func inCluster(t *testing.T, n int, f func(t *testing.T, c *lockstest.Cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, lockstest.New(t, n)) })
}

func TestSpansOfALockThatIsFree(t *testing.T) {
	inCluster(t, 1, func(t *testing.T, c *lockstest.Cluster) {
		r := newRecorder(t)
		client := r.client(c, 0)
		ctx, caller := r.caller("request")
		began := time.Now()
		var token string
		err := client.Do(ctx, "k", func(ctx context.Context, l *locks.Lock) error {
			token = strconv.FormatUint(uint64(l.Token()), 10)
			if trace.SpanFromContext(ctx) != caller {
				t.Error("the work's span is not the caller's")
			}
			time.Sleep(3 * time.Second)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		took := time.Since(began)
		caller.End()
		a := r.one("lock.acquire", "wardmote.key=k", "wardmote.call=Do", "wardmote.outcome=granted", "wardmote.waited=0", "wardmote.token="+token)
		h := r.one("lock.hold", "wardmote.key=k", "wardmote.call=Do", "wardmote.outcome=released", "wardmote.token="+token)
		for _, s := range []tracetest.SpanStub{a, h} {
			if s.Parent.SpanID() != caller.SpanContext().SpanID() || s.Status.Code != codes.Unset {
				t.Errorf("%s: parent %v, status %v", s.Name, s.Parent.SpanID(), s.Status)
			}
		}
		if !a.StartTime.Equal(began) || a.EndTime.After(h.StartTime) || h.StartTime.Sub(a.EndTime) > time.Millisecond {
			t.Errorf("called at %v: acquired from %v to %v, held from %v", began, a.StartTime, a.EndTime, h.StartTime)
		}
		if held := h.EndTime.Sub(h.StartTime); held < 3*time.Second || held > took {
			t.Errorf("held for %v", held)
		}
		if l := links(h); len(l) != 1 || l[toAcquire] != a.SpanContext.SpanID() {
			t.Errorf("links %v, want one to %v", l, a.SpanContext.SpanID())
		}
		if len(a.Links) > 0 {
			t.Errorf("links of the acquire: %v", links(a))
		}
	})
}

// A lock goes from hand to hand, on three members: each waiter is linked to the request
// of the holder before, although they are of different traces and processes.
func TestSpansAreLinkedAcrossAHandOver(t *testing.T) {
	inCluster(t, 3, func(t *testing.T, c *lockstest.Cluster) {
		r := newRecorder(t)
		var callers []trace.Span
		var held []chan *locks.Lock
		for i := range 3 {
			client := r.client(c, i)
			ctx, caller := r.caller(fmt.Sprint("request-", i))
			callers = append(callers, caller)
			got := make(chan *locks.Lock, 1)
			held = append(held, got)
			go func() {
				l, err := client.Acquire(ctx, "k", locks.Meta(map[string]string{"mine": fmt.Sprint(i)}))
				if err != nil {
					t.Error(err)
				}
				got <- l
			}()
			time.Sleep(time.Second)
		}
		for i := range 3 {
			l := <-held[i]
			time.Sleep(time.Second)
			st, err := c.Client(0).Inspect(t.Context(), "k")
			if err != nil || st.Holders[0].Meta["mine"] != fmt.Sprint(i) {
				t.Errorf("%v: the holder's own meta: %v", err, st.Holders)
			}
			if err := l.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			callers[i].End()
		}
		acquires, holds := r.of("lock.acquire"), r.of("lock.hold")
		if len(acquires) != 3 || len(holds) != 3 {
			t.Fatalf("spans:\n%s", r.all())
		}
		for i := range 3 {
			a, h := acquires[i], holds[i]
			if a.SpanContext.TraceID() != callers[i].SpanContext().TraceID() || h.SpanContext.TraceID() != callers[i].SpanContext().TraceID() {
				t.Errorf("request %d: not in the trace of its caller", i)
			}
			want := map[string]trace.SpanID{toAcquire: a.SpanContext.SpanID()}
			if i > 0 {
				want[toBefore] = acquires[i-1].SpanContext.SpanID()
				if l := links(a); len(l) != 1 || l[toBefore] != want[toBefore] {
					t.Errorf("acquire %d: links %v, want %v", i, l, want[toBefore])
				}
				if value(a, "wardmote.position") != fmt.Sprint(i) || value(a, "wardmote.holder") != fmt.Sprint("client-", i-1) {
					t.Errorf("acquire %d: %v", i, texts(a.Attributes))
				}
				waited, err := strconv.ParseFloat(value(a, "wardmote.waited"), 64)
				if took := a.EndTime.Sub(a.StartTime).Seconds(); err != nil || waited < 1 || waited > took {
					t.Errorf("acquire %d waited %v of %v", i, waited, took)
				}
			}
			if l := links(h); fmt.Sprint(l) != fmt.Sprint(want) {
				t.Errorf("hold %d: links %v, want %v", i, l, want)
			}
		}
		var events []string
		for _, e := range holds[0].Events {
			events = append(events, e.Name)
		}
		if !slices.Equal(events, []string{"contended"}) {
			t.Errorf("events of the first hold: %q", events)
		}
	})
}

func TestSpanOfALostLock(t *testing.T) {
	inCluster(t, 3, func(t *testing.T, c *lockstest.Cluster) {
		r := newRecorder(t)
		l, err := r.client(c, 2).Acquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		c.Isolate(2)
		<-l.Context().Done()
		lost := time.Since(began)
		h := r.one("lock.hold", "wardmote.outcome=lost", "wardmote.reason=quorum unreachable")
		if h.Status.Code != codes.Error || h.Parent.IsValid() {
			t.Errorf("status %v, parent %v", h.Status, h.Parent)
		}
		if held := h.EndTime.Sub(h.StartTime); held < lost || held > lost+time.Second {
			t.Errorf("held for %v, lost %v after the cut", held, lost)
		}
	})
}

func TestSpansOfRequestsThatFail(t *testing.T) {
	inCluster(t, 1, func(t *testing.T, c *lockstest.Cluster) {
		r := newRecorder(t)
		client := r.client(c, 0)
		held, err := c.Client(0).Acquire(t.Context(), "taken")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.TryAcquire(t.Context(), "taken"); !errors.Is(err, locks.ErrHeld) {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if _, err := client.Acquire(ctx, "taken"); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		given, giveUp := context.WithCancel(t.Context())
		giveUp()
		if _, err := client.Acquire(given, "taken"); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if _, err := c.Client(0).Acquire(held.Context(), "taken"); err == nil {
			t.Error("no deadlock")
		}
		for _, want := range []struct {
			call, reason, waited, position string
			status                         codes.Code
		}{
			{"TryAcquire", "held", "0", "", codes.Unset},
			{"Acquire", "timeout", "2", "1", codes.Error},
			{"Acquire", "canceled", "0", "", codes.Unset},
		} {
			a := r.one("lock.acquire", "wardmote.call="+want.call, "wardmote.reason="+want.reason, "wardmote.outcome=failed")
			waited, _ := strconv.ParseFloat(value(a, "wardmote.waited"), 64)
			if fmt.Sprintf("%.0f", waited) != want.waited || value(a, "wardmote.position") != want.position || a.Status.Code != want.status {
				t.Errorf("%s: %v, %v", want.reason, texts(a.Attributes), a.Status)
			}
		}
		if holds := r.of("lock.hold"); len(holds) > 0 {
			t.Errorf("holds:\n%s", r.all())
		}
	})
}

// The terms of an election are spans, each linked to the term before.
func TestSpansOfAnElection(t *testing.T) {
	inCluster(t, 3, func(t *testing.T, c *lockstest.Cluster) {
		r := newRecorder(t)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		for i := range 2 {
			client := r.client(c, i)
			go func() {
				done <- client.Elect(ctx, "leader", func(ctx context.Context, l *locks.Lock) error {
					select {
					case <-time.After(5 * time.Second):
					case <-ctx.Done():
					}
					return nil
				})
			}()
			time.Sleep(time.Second)
		}
		time.Sleep(17 * time.Second)
		cancel()
		<-done
		<-done
		terms := r.of("lock.hold", "wardmote.call=Elect", "wardmote.key=leader")
		if len(terms) < 4 {
			t.Fatalf("%d terms:\n%s", len(terms), r.all())
		}
		for i, term := range terms[1:] {
			if l := links(term); l[toBefore] != links(terms[i])[toAcquire] {
				t.Errorf("term %d: links %v, before it %v", i+1, l, links(terms[i]))
			}
		}
	})
}

func TestSpansWithoutKeysAndWithoutSampling(t *testing.T) {
	inCluster(t, 1, func(t *testing.T, c *lockstest.Cluster) {
		r := newRecorder(t)
		never := newRecorder(t, sdk.WithSampler(sdk.NeverSample()))
		hidden := otelwardmote.Options{Key: func(string) string { return "" }}
		for name, tr := range map[string]*locks.Trace{
			"hidden": otelwardmote.Trace(r.provider, hidden),
			"never":  otelwardmote.Trace(never.provider, otelwardmote.Options{}),
			"noop":   otelwardmote.Trace(noop.NewTracerProvider(), otelwardmote.Options{}),
			"nil":    otelwardmote.Trace(nil, otelwardmote.Options{}),
		} {
			client := c.NewClient(0, locks.Options{Trace: tr})
			err := client.Do(t.Context(), "secret", func(ctx context.Context, l *locks.Lock) error {
				st, err := client.Inspect(ctx, "secret")
				if err != nil || len(st.Holders[0].Meta) > 0 != (name == "hidden") {
					t.Errorf("%s: %v, meta %v", name, err, st.Holders[0].Meta)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		}
		r.one("lock.acquire")
		r.one("lock.hold")
		for _, s := range r.exporter.GetSpans() {
			if value(s, "wardmote.key") != "" {
				t.Errorf("%s: %v", s.Name, texts(s.Attributes))
			}
		}
		if n := len(never.exporter.GetSpans()); n > 0 {
			t.Errorf("%d spans that nobody wanted", n)
		}
	})
}

// A Trace that is added to a client in use tells of requests from the time before.
func TestSpansOfAClientInUse(t *testing.T) {
	inCluster(t, 1, func(t *testing.T, c *lockstest.Cluster) {
		r := newRecorder(t)
		client := c.Client(0)
		before, err := client.Acquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		waits := make(chan *locks.Lock, 1)
		began := time.Now()
		go func() {
			l, err := client.Acquire(t.Context(), "k")
			if err != nil {
				t.Error(err)
			}
			waits <- l
		}()
		time.Sleep(2 * time.Second)
		remove := client.AddTrace(otelwardmote.Trace(r.provider, otelwardmote.Options{}))
		if err := before.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		l := <-waits
		if a := r.one("lock.acquire", "wardmote.outcome=granted"); !a.StartTime.Equal(began) || a.EndTime.Sub(a.StartTime) < 2*time.Second {
			t.Errorf("from %v to %v", a.StartTime, a.EndTime)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		// Its end cannot be told: the hold has no context of Acquiring.
		if holds := r.of("lock.hold"); len(holds) > 0 {
			t.Errorf("spans:\n%s", r.all())
		}
		remove()
	})
}
