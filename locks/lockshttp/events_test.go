package lockshttp

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/documents"
	"github.com/wardmote/wardmote/locks/lockstest"
)

// reader reads a stream of events from a handler that runs in a goroutine.
type reader struct {
	lines  *bufio.Scanner
	cancel context.CancelFunc
	pipe   *io.PipeReader
	done   chan struct{}
	code   int
}

// pipeWriter is a ResponseWriter whose reader may be slow.
type pipeWriter struct {
	head http.Header
	to   *io.PipeWriter
	code *int
}

func (w *pipeWriter) Header() http.Header         { return w.head }
func (w *pipeWriter) WriteHeader(code int)        { *w.code = code }
func (w *pipeWriter) Write(b []byte) (int, error) { return w.to.Write(b) }
func (w *pipeWriter) FlushError() error           { return nil }

// openStream opens a stream, as a reader that has seen the event id.
func openStream(t testing.TB, h http.Handler, id string) *reader {
	t.Helper()
	return openStreamAt(t, h, "/events", id)
}

func openStreamAt(t testing.TB, h http.Handler, target, id string) *reader {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := httptest.NewRequest(http.MethodGet, target, nil).WithContext(ctx)
	if id != "" {
		r.Header.Set("Last-Event-ID", id)
	}
	from, to := io.Pipe()
	s := &reader{lines: bufio.NewScanner(from), cancel: cancel, pipe: from, done: make(chan struct{}), code: http.StatusOK}
	go func() {
		defer close(s.done)
		h.ServeHTTP(&pipeWriter{head: make(http.Header), to: to, code: &s.code}, r)
		_ = to.Close()
	}()
	return s
}

// message is an event of a stream.
type message struct{ kind, id, data string }

// next returns the next message, and false at the end of the stream.
func (s *reader) next(t testing.TB) (m message, ok bool) {
	t.Helper()
	for s.lines.Scan() {
		name, value, _ := strings.Cut(s.lines.Text(), ": ")
		switch name {
		case "event":
			m.kind = value
		case "id":
			m.id = value
		case "data":
			m.data = value
		case "":
			if m.kind != "" {
				return m, true
			}
		}
	}
	return m, false
}

// beat waits for a sign of life: the stream has looked at the keys by then.
func (s *reader) beat(t testing.TB) {
	t.Helper()
	for {
		if m, ok := s.next(t); m.kind == "beat" {
			return
		} else if !ok {
			t.Fatal("the stream has ended before a beat")
		}
	}
}

// event waits for an event of a kind about a key.
func (s *reader) event(t testing.TB, kind, key string) (documents.Event, message) {
	t.Helper()
	for {
		m, ok := s.next(t)
		if !ok {
			t.Fatalf("the stream has ended before %s of %q", kind, key)
		}
		if m.kind != "event" {
			continue
		}
		var e documents.Event
		if err := json.Unmarshal([]byte(m.data), &e); err != nil {
			t.Fatalf("%v: %s", err, m.data)
		}
		if e.Kind == kind && e.Key == key {
			return e, m
		}
	}
}

// close ends the request, and waits for the handler.
func (s *reader) close() {
	s.cancel()
	_ = s.pipe.Close()
	<-s.done
}

func bubble(t *testing.T, n int, f func(t *testing.T, c *lockstest.Cluster)) {
	t.Helper()
	bubbleWith(t, n, f)
}

// bubbleWith runs f with a cluster of n members in a bubble.
func bubbleWith(t *testing.T, n int, f func(t *testing.T, c *lockstest.Cluster), opts ...lockstest.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, lockstest.New(t, n, opts...)) })
}

func TestEventsTellOfKeys(t *testing.T) {
	bubble(t, 1, func(t *testing.T, cl *lockstest.Cluster) {
		c := cl.Client(0)
		h := Handler(c, Options{})
		s := openStream(t, h, "")
		defer s.close()
		if m, ok := s.next(t); !ok || m.kind != "event" {
			t.Errorf("a new stream begins with the past, not with %+v", m)
		}
		s.beat(t)
		key := "k\nevent: end\ndata: {}\n\n" // cannot end the stream
		l := take(t, c, key)
		e, at := s.event(t, "Granted", key)
		if uint64(e.Token) != uint64(l.Token()) || e.Node != "member-0" || e.At.IsZero() {
			t.Errorf("%+v", e)
		}
		wait(t, cl.NewClient(0, clientOptions("other")), key)
		s.event(t, "Queue", key)
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if e, _ = s.event(t, "Granted", key); e.Client != "other" {
			t.Errorf("%+v", e)
		}
		// A reader that comes back has missed nothing.
		back := openStream(t, h, at.id)
		defer back.close()
		m, _ := back.next(t)
		var first documents.Event
		if err := json.Unmarshal([]byte(m.data), &first); err != nil || m.kind != "event" || first.Kind != "Queue" {
			t.Errorf("after %s: %+v, %v", at.id, m, err)
		}
		// One of another run of the process is told so, and gets the latest events.
		for _, id := range []string{"elsewhere-7", "x", "-", strings.Repeat("9", 100)} {
			other := openStream(t, h, id)
			var told documents.Dropped
			if m, _ := other.next(t); m.kind != "dropped" || json.Unmarshal([]byte(m.data), &told) != nil || told.Dropped != 0 || !strings.Contains(told.Reason, "another process") {
				t.Errorf("Last-Event-ID %q: %+v", id, m)
			}
			if m, ok := other.next(t); !ok || m.kind != "event" {
				t.Errorf("Last-Event-ID %q: %+v", id, m)
			}
			other.close()
		}
	})
}

// A reader whose connection breaks, and who comes back soon, misses no change of a key,
// and gets no event twice.
func TestAReaderThatComesBackMissesNothing(t *testing.T) {
	bubble(t, 1, func(t *testing.T, cl *lockstest.Cluster) {
		c := cl.Client(0)
		h := Handler(c, Options{})
		s := openStream(t, h, "")
		s.beat(t)
		l := take(t, c, "k")
		e, at := s.event(t, "Granted", "k")
		s.close()
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		take(t, c, "other")
		time.Sleep(keepKeys - time.Second)
		// As the page comes back: by the parameter.
		back := openStreamAt(t, h, "/events?last="+at.id, "")
		defer back.close()
		var kinds []string
		for len(kinds) < 2 {
			m, _ := back.next(t)
			var next documents.Event
			if err := json.Unmarshal([]byte(m.data), &next); m.kind != "event" || err != nil || next.Seq <= e.Seq {
				t.Fatalf("after %d: %+v, %v", e.Seq, m, err)
			}
			kinds = append(kinds, next.Kind+" "+next.Key)
		}
		if !slices.Equal(kinds, []string{"Freed k", "Granted other"}) {
			t.Errorf("%q", kinds)
		}
	})
}

// A reader that comes back late is told what cannot be told.
func TestAGapIsTold(t *testing.T) {
	bubble(t, 1, func(t *testing.T, cl *lockstest.Cluster) {
		c := cl.Client(0)
		h := Handler(c, Options{})
		s := openStream(t, h, "")
		s.beat(t)
		take(t, c, "k")
		_, at := s.event(t, "Granted", "k")
		s.close()
		take(t, c, "unseen")
		time.Sleep(keepKeys + time.Second)
		back := openStream(t, h, at.id)
		defer back.close()
		if e, _ := back.event(t, "Gap", ""); !strings.Contains(e.Detail, "nobody followed") {
			t.Errorf("%+v", e)
		}
		back.beat(t)
		take(t, c, "seen")
		back.event(t, "Granted", "seen")
	})
}

// The member keeps its latest events only.
func TestMoreEventsThanAreKeptAreAGap(t *testing.T) {
	bubble(t, 1, func(t *testing.T, cl *lockstest.Cluster) {
		b := newHub(cl.Client(0))
		last := 7
		if got := news(b, []int{6, 7, 8, 9}, &last, "here", time.Now()); !slices.Equal(got, []int{8, 9}) || last != 9 || len(b.events) != 0 {
			t.Errorf("%v, %d, %v", got, last, b.events)
		}
		if got := news(b, []int{11, 12}, &last, "here", time.Now()); !slices.Equal(got, []int{11, 12}) || last != 12 || len(b.events) != 1 || b.events[0].Kind != "Gap" {
			t.Errorf("%v, %d, %v", got, last, b.events)
		}
		if got := news(b, nil, &last, "here", time.Now()); len(got) != 0 || last != 12 || len(b.events) != 1 {
			t.Errorf("%v, %d, %v", got, last, b.events)
		}
	})
}

// A reader that takes nothing holds up nobody, and is told how much it has missed.
func TestASlowReaderIsTold(t *testing.T) {
	bubble(t, 1, func(t *testing.T, cl *lockstest.Cluster) {
		c := cl.Client(0)
		hub := newHub(c)
		_, _, seq := hub.since(0, false)
		for i := range 3 * kept {
			hub.tell(documents.Event{Kind: fmt.Sprint(i), At: time.Now()})
			if len(hub.events) > kept {
				t.Fatalf("%d events are kept", len(hub.events))
			}
		}
		events, dropped, next := hub.since(seq, true)
		if len(events) == 0 || dropped == 0 || uint64(len(events))+dropped != 3*kept || next != seq+3*kept {
			t.Errorf("%d events, %d dropped, next %d after %d", len(events), dropped, next, seq)
		}
		for i, e := range events {
			if e.Seq != events[0].Seq+documents.Number(i) || i == len(events)-1 && uint64(e.Seq) != next {
				t.Fatalf("event %d has Seq %d", i, e.Seq)
			}
		}
		if events, dropped, _ := hub.since(next, true); len(events) != 0 || dropped != 0 {
			t.Errorf("%d events and %d dropped after the latest", len(events), dropped)
		}
		h := &handler{c: c, hub: hub}
		s := openStream(t, h, fmt.Sprintf("%s-%d", runOf(c), seq))
		defer s.close()
		m, _ := s.next(t)
		var told struct{ Dropped uint64 }
		if err := json.Unmarshal([]byte(m.data), &told); m.kind != "dropped" || err != nil || told.Dropped != dropped {
			t.Errorf("%+v, %v", m, err)
		}
	})
}

// A stream without news says that it lives.
func TestAnIdleStreamBeats(t *testing.T) {
	bubble(t, 1, func(t *testing.T, cl *lockstest.Cluster) {
		s := openStream(t, Handler(cl.Client(0), Options{}), "")
		defer s.close()
		beats := 0
		began := time.Now()
		for beats < 4 {
			m, ok := s.next(t)
			if !ok {
				t.Fatal("the stream has ended")
			}
			if m.kind == "beat" {
				beats++
				var head documents.Head
				if err := json.Unmarshal([]byte(m.data), &head); err != nil || !head.Quorum || head.Node != "member-0" {
					t.Errorf("%v, %+v", err, head)
				}
			}
		}
		if d := time.Since(began); d > 4*beatEvery {
			t.Errorf("four beats in %v", d)
		}
	})
}

// A stream ends with the request, with the client and with the node.
func TestStreamsEnd(t *testing.T) {
	bubble(t, 1, func(t *testing.T, cl *lockstest.Cluster) {
		c := cl.NewClient(0, clientOptions("short"))
		byRequest := openStream(t, Handler(cl.Client(0), Options{}), "")
		byClient := openStream(t, Handler(c, Options{}), "")
		byNode := openStream(t, Handler(cl.Client(0), Options{}), "")
		for _, s := range []*reader{byRequest, byClient, byNode} {
			s.next(t)
		}
		byRequest.close()
		closeClient(t, c)
		last := func(s *reader) (m message) {
			for {
				next, ok := s.next(t)
				if !ok {
					<-s.done
					return m
				}
				m = next
			}
		}
		if m := last(byClient); m.kind != "end" || !strings.Contains(m.data, "closed") {
			t.Errorf("%+v", m)
		}
		stopped := make(chan error, 1)
		go func() { stopped <- cl.Node(0).Stop() }()
		if m := last(byNode); m.kind != "end" || !strings.Contains(m.data, "stopped") {
			t.Errorf("%+v", m)
		}
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
}

func TestTooManyStreamsAreRefused(t *testing.T) {
	bubble(t, 1, func(t *testing.T, cl *lockstest.Cluster) {
		h := Handler(cl.Client(0), Options{})
		var open []*reader
		for range maxStreams {
			s := openStream(t, h, "")
			s.next(t)
			open = append(open, s)
		}
		w := visit(h, "/events")
		if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
			t.Errorf("%d %s", w.Code, w.Header())
		}
		open[0].close()
		s := openStream(t, h, "")
		if m, ok := s.next(t); !ok || m.kind == "" {
			t.Errorf("after one has ended: %+v", m)
		}
		for _, s := range append(open[1:], s) {
			s.close()
		}
	})
}

// Over a connection: a reader that takes nothing is given up, and its goroutine ends.
func TestADeadReaderIsGivenUp(t *testing.T) {
	c := local(t)
	hub := newHub(c)
	served := make(chan struct{})
	h := &handler{c: c, hub: hub}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(served)
		h.ServeHTTP(&stuck{ResponseWriter: w}, r)
	}))
	defer server.Close()
	reply, err := http.Get(server.URL + "/events")
	if err != nil {
		t.Fatal(err)
	}
	<-served
	_ = reply.Body.Close()
}

// stuck fails its second write, as a connection does after its deadline.
type stuck struct {
	http.ResponseWriter
	writes int
}

func (w *stuck) Write(b []byte) (int, error) {
	if w.writes++; w.writes > 1 {
		return 0, errors.New("i/o timeout")
	}
	return w.ResponseWriter.Write(b)
}
func (w *stuck) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// After many changes at once the hub counts what it does not list.
func TestManyChangesAreCounted(t *testing.T) {
	bubble(t, 1, func(t *testing.T, cl *lockstest.Cluster) {
		c := cl.Client(0)
		hub := newHub(c)
		hub.since(0, false)
		var keys []string
		for i := range 1000 {
			keys = append(keys, fmt.Sprintf("%04d", i))
		}
		if _, err := c.AcquireAll(t.Context(), keys); err != nil {
			t.Fatal(err)
		}
		time.Sleep(lookEvery)
		events, _, _ := hub.since(hub.last, true)
		events = slices.DeleteFunc(events, func(e documents.Event) bool { return e.Kind != "Granted" && e.Kind != "KeysChanged" })
		if len(events) != mostNews+1 || events[mostNews].Kind != "KeysChanged" || events[mostNews].Detail != "744 more keys have changed" {
			t.Errorf("%d events, the last is %+v", len(events), events[len(events)-1])
		}
	})
}
