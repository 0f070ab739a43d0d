package lockshttp

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wardmote/wardmote"
	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/internal/testrounds"
	"github.com/wardmote/wardmote/locks"
)

// TestMain runs the tests on one thread: see the same function of locks/lockstest.
func TestMain(m *testing.M) {
	runtime.GOMAXPROCS(1)
	testrounds.CollectRarely()
	goleak.VerifyTestMain(m)
}

// local returns a client of a cluster of this process alone.
func local(t testing.TB) *locks.Client {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	c, err := wardmote.Local(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		<-c.Node().Done()
		_ = c.Node().Stop()
	})
	return c
}

// another returns another client of c's node.
func another(t testing.TB, c *locks.Client, name string) *locks.Client {
	t.Helper()
	o := locks.New(c.Node(), locks.Options{Name: name, Meta: map[string]string{"of": name}})
	t.Cleanup(func() { closeClient(t, o) })
	return o
}

func closeClient(t testing.TB, c *locks.Client) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := c.Close(ctx); err != nil {
		t.Error(err)
	}
}

func take(t testing.TB, c *locks.Client, key string, opts ...locks.Option) *locks.Lock {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	l, err := c.Acquire(ctx, key, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// wait has c wait for a key, and returns when the request is in the queue.
func wait(t testing.TB, c *locks.Client, key string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	queued := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for st, err := range c.Watch(ctx, key) {
			if err != nil {
				return
			}
			for _, w := range st.Waiters {
				if w.Self {
					close(queued)
					return
				}
			}
		}
	}()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = c.Acquire(ctx, key)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		<-ended
	})
	<-queued
}

func clientOptions(name string) locks.Options { return locks.Options{Name: name} }

// anybody allows every action.
func anybody(*http.Request, cluster.Verb, string) error { return nil }

// visit returns a handler's answer to a GET.
func visit(h http.Handler, target string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
	return w
}

// document reads a document.
func document[D any](t testing.TB, h http.Handler, target string) (doc D) {
	t.Helper()
	w := visit(h, target)
	if w.Code != http.StatusOK {
		t.Fatalf("%s: %d %s", target, w.Code, w.Body)
	}
	decode(t, w.Body, &doc)
	return doc
}

func decode(t testing.TB, from io.Reader, into any) {
	t.Helper()
	d := json.NewDecoder(from)
	if err := d.Decode(into); err != nil {
		t.Fatal(err)
	}
}

// fields makes a form of pairs of a field and its value.
func fields(pairs ...string) url.Values {
	values := make(url.Values)
	for i := 0; i < len(pairs); i += 2 {
		values.Add(pairs[i], pairs[i+1])
	}
	return values
}

// post returns a handler's answer to a form.
func post(h http.Handler, form url.Values, change ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/wardmote/action", strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for _, f := range change {
		f(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}
