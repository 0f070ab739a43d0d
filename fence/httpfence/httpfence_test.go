package httpfence_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/fence/fencetest"
	"github.com/wardmote/wardmote/fence/httpfence"
)

// A service keeps one text for each path, behind Require.
type service struct {
	url   string
	calls sync.Map // contexts of the suite, by their number: the service pauses where they say

	mu     sync.Mutex
	values map[string]string
	lose   atomic.Bool
}

const headerCall = "Test-Call"

func newService(tb testing.TB, guard func(string) httpfence.Guard) *service {
	s := &service{values: make(map[string]string)}
	path := func(r *http.Request) string { return r.URL.Path }
	mux := http.NewServeMux()
	mux.Handle("GET /", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		_, _ = io.WriteString(w, s.values[r.URL.Path])
	}))
	mux.Handle("POST /", httpfence.Require(path, guard, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))) // a claim
	mux.Handle("PUT /", httpfence.Require(path, guard, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		ctx := context.Background()
		if c, ok := s.calls.Load(r.Header.Get(headerCall)); ok {
			ctx = c.(context.Context)
		}
		fencetest.Pause(ctx, "inside the guard")
		s.mu.Lock()
		s.values[r.URL.Path] = string(body)
		s.mu.Unlock()
		fencetest.Pause(ctx, "after the write")
		if s.lose.CompareAndSwap(true, false) {
			panic(http.ErrAbortHandler)
		}
	})))
	server := httptest.NewServer(mux)
	tb.Cleanup(server.Close)
	s.url = server.URL
	return s
}

// A document is a text of a service.
type document struct {
	*service
	path   string
	client *http.Client
}

var numbers atomic.Int64

func (s *service) document() *document {
	return &document{s, fmt.Sprint("/", numbers.Add(1)), &http.Client{Transport: httpfence.Transport(nil)}}
}

func (d *document) call(ctx context.Context, method string, t fence.Token, body string) (string, error) {
	call := strconv.FormatInt(numbers.Add(1), 10)
	d.calls.Store(call, ctx)
	defer d.calls.Delete(call)
	req, err := http.NewRequestWithContext(fence.NewContext(ctx, t), method, d.url+d.path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set(headerCall, call)
	reply, err := d.client.Do(req)
	if err != nil {
		return "", err
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	if refused := httpfence.Err(reply); refused != nil {
		return "", refused
	}
	if err == nil && reply.StatusCode != http.StatusOK {
		err = errors.New(reply.Status + ": " + string(text))
	}
	return string(text), err
}

func (d *document) Claim(ctx context.Context, t fence.Token) error {
	_, err := d.call(ctx, http.MethodPost, t, "")
	return err
}

func (d *document) Write(ctx context.Context, t fence.Token, value string) error {
	fencetest.Pause(ctx, "before the request")
	_, err := d.call(ctx, http.MethodPut, t, value)
	return err
}

func (d *document) Delete(ctx context.Context, t fence.Token) error { return d.Write(ctx, t, "") }

func (d *document) Read(ctx context.Context) (string, error) {
	return d.call(ctx, http.MethodGet, 0, "")
}

func (d *document) LoseAnswer() { d.lose.Store(true) }

func TestMemory(t *testing.T) {
	fencetest.Run(t, func(tb testing.TB) fencetest.Resource {
		return newService(tb, httpfence.NewMemory(10).Guard).document()
	})
}

func TestDurable(t *testing.T) {
	fencetest.Run(t, func(tb testing.TB) fencetest.Resource {
		f, err := fence.OpenFile(filepath.Join(tb.TempDir(), "mark"))
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { _ = f.Close() })
		g := httpfence.Durable(f)
		return newService(tb, func(string) httpfence.Guard { return g }).document()
	})
}

// Memory forgets at a restart: a former holder is admitted until the next request of the
// present holder. Durable does not forget.
func TestMemoryForgetsAtARestart(t *testing.T) {
	serve := func() error { return nil }
	if err := httpfence.NewMemory(1).Guard("r").Do(t.Context(), 2, serve); err != nil {
		t.Fatal(err)
	}
	restarted := httpfence.NewMemory(1)
	if err := restarted.Guard("r").Do(t.Context(), 1, serve); err != nil {
		t.Errorf("the former holder is refused: %v", err)
	}
	if err := restarted.Guard("r").Do(t.Context(), 2, serve); err != nil {
		t.Errorf("the new holder: %v", err)
	}
	if err := restarted.Guard("r").Do(t.Context(), 1, serve); !errors.Is(err, fence.ErrStale) {
		t.Errorf("the former holder, after the new one: %v", err)
	}
}

// A full Memory keeps its marks and refuses new resources.
func TestMemoryRefusesWhatItHasNoPlaceFor(t *testing.T) {
	m := httpfence.NewMemory(2)
	serve := func() error { return nil }
	for _, name := range []string{"a", "b", "a"} {
		if err := m.Guard(name).Do(t.Context(), 2, serve); err != nil {
			t.Fatal(err)
		}
	}
	var full *httpfence.FullError
	if err := m.Guard("c").Do(t.Context(), 9, serve); !errors.As(err, &full) || full.Limit != 2 || m.Len() != 2 {
		t.Errorf("a third resource of two: %v, %d marks", err, m.Len())
	}
	if err := m.Guard("a").Do(t.Context(), 1, serve); !errors.Is(err, fence.ErrStale) {
		t.Errorf("a stale token after the refusal: %v", err)
	}
}

// Requests of one token are served side by side. A request of a higher token waits until
// the lower requests have ended. Lower requests that arrive during the wait are stale.
func TestAHigherTokenWaitsForLowerOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := httpfence.NewMemory(1).Guard("r")
		release := make(chan struct{})
		var served, done []fence.Token
		var mu sync.Mutex
		do := func(ctx context.Context, token fence.Token) {
			err := g.Do(ctx, token, func() error {
				mu.Lock()
				served = append(served, token)
				mu.Unlock()
				<-release
				return nil
			})
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				done = append(done, token)
			}
		}
		state := func() string {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return fmt.Sprint(served, done)
		}
		var all sync.WaitGroup
		start := func(ctx context.Context, token fence.Token) { all.Go(func() { do(ctx, token) }) }
		start(t.Context(), 1)
		start(t.Context(), 1)
		if s := state(); s != "[1 1] []" {
			t.Errorf("two requests of token 1: %s", s)
		}
		start(t.Context(), 3)
		ctx, cancel := context.WithCancel(t.Context())
		synctest.Wait()
		start(ctx, 4) // 3 is stale now
		synctest.Wait()
		cancel() // the mark stays
		synctest.Wait()
		start(t.Context(), 1)
		start(t.Context(), 3)
		start(t.Context(), 5)
		if s := state(); s != "[1 1] []" {
			t.Errorf("while token 1 is served: %s", s)
		}
		release <- struct{}{}
		if s := state(); s != "[1 1] [1]" {
			t.Errorf("while token 1 is served once: %s", s)
		}
		close(release)
		all.Wait()
		if s := state(); s != "[1 1 5] [1 1 5]" {
			t.Errorf("at the end: %s", s)
		}
	})
}

// A handler that panics leaves the guard.
func TestAPanicLeavesTheGuard(t *testing.T) {
	g := httpfence.NewMemory(1).Guard("r")
	func() {
		defer func() { _ = recover() }()
		_ = g.Do(t.Context(), 1, func() error { panic("torn") })
	}()
	if err := g.Do(t.Context(), 2, func() error { return nil }); err != nil {
		t.Error(err)
	}
}

func TestRequestsThatAreRefused(t *testing.T) {
	var token fence.Token
	next := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { token, _ = fence.FromContext(r.Context()) })
	broken := func(string) httpfence.Guard { return failing{} }
	memory := httpfence.NewMemory(1)
	if err := memory.Guard("/r").Do(t.Context(), 5, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	path := func(r *http.Request) string { return r.URL.Path }
	for _, test := range []struct {
		says             string
		resource         func(*http.Request) string
		guard            func(string) httpfence.Guard
		tokens           []string
		name             string
		status           int
		seen, afterwards string
	}{
		{"admitted", path, memory.Guard, []string{"5"}, "", 200, "", "5"},
		{"named too", path, memory.Guard, []string{"6"}, "/r", 200, "", "6"},
		{"named alone", nil, memory.Guard, []string{"7"}, "/r", 200, "", "7"},
		{"no guard", path, nil, []string{"1"}, "", 200, "", "1"},
		{"no token", path, memory.Guard, nil, "", 428, "", "0"},
		{"zero", path, memory.Guard, []string{"0"}, "", 400, "", "0"},
		{"no number", path, memory.Guard, []string{"x"}, "", 400, "", "0"},
		{"two", path, memory.Guard, []string{"8", "9"}, "", 400, "", "0"},
		{"another name", path, memory.Guard, []string{"8"}, "/s", 400, "", "0"},
		{"no name", nil, memory.Guard, []string{"8"}, "", 400, "", "0"},
		{"two names", nil, memory.Guard, []string{"8"}, "/r,/r", 400, "", "0"},
		{"a long name", func(*http.Request) string { return strings.Repeat("a", 1025) }, memory.Guard, []string{"8"}, "", 400, "", "0"},
		{"stale", path, memory.Guard, []string{"4"}, "", 412, "7", "0"},
		{"a broken guard", path, broken, []string{"8"}, "", 503, "", "0"},
		{"no place", func(*http.Request) string { return "/s" }, memory.Guard, []string{"8"}, "", 503, "", "0"},
	} {
		token = 0
		r := httptest.NewRequest(http.MethodPut, "/r", nil)
		for _, text := range test.tokens {
			r.Header.Add(httpfence.HeaderToken, text)
		}
		if test.name != "" {
			r.Header[httpfence.HeaderResource] = strings.Split(test.name, ",")
		}
		w := httptest.NewRecorder()
		httpfence.Require(test.resource, test.guard, next).ServeHTTP(w, r)
		if w.Code != test.status || w.Header().Get(httpfence.HeaderSeen) != test.seen || token.String() != test.afterwards {
			t.Errorf("%s: %d, seen %q, served with token %v: %s", test.says, w.Code, w.Header().Get(httpfence.HeaderSeen), token, w.Body)
		}
		if strings.Contains(w.Body.String(), "secret") {
			t.Errorf("%s: the answer tells the guard's own error: %s", test.says, w.Body)
		}
	}
}

type failing struct{}

func (failing) Do(context.Context, fence.Token, func() error) error {
	return errors.New("a secret path")
}

// A transport changes no request, and sends nothing where there is no token.
func TestTransport(t *testing.T) {
	var got http.Header
	base := roundTripper(func(r *http.Request) (*http.Response, error) {
		got = r.Header
		return &http.Response{StatusCode: 200, Body: http.NoBody, Request: r}, nil
	})
	for _, token := range []fence.Token{0, 7} {
		ctx := httpfence.WithResource(fence.NewContext(t.Context(), token), "a/b")
		r := httptest.NewRequestWithContext(ctx, http.MethodPut, "http://host/", nil)
		if _, err := httpfence.Transport(base).RoundTrip(r); err != nil {
			t.Fatal(err)
		}
		want := ""
		if token != 0 {
			want = token.String() + " a/b"
		}
		if sent := strings.TrimSpace(got.Get(httpfence.HeaderToken) + " " + got.Get(httpfence.HeaderResource)); sent != want || len(r.Header) != 0 {
			t.Errorf("token %d: sent %q, the request has %v", token, sent, r.Header)
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
