package leaderhttp_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/examples/recipes/leaderhttp"
	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/locks"
	"github.com/wardmote/wardmote/locks/lockstest"
)

// get asks a handler, and returns its answer.
func get(h http.Handler) *http.Response {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/orders?id=7", nil))
	return w.Result()
}

// One of two processes serves, and the other redirects to it. The leader is killed in the
// middle of a request, whose context ends, and the other one serves.
func TestTheLeaderServesAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := lockstest.New(t, 4)
		ctx, stop := context.WithCancel(t.Context())
		urls := []string{"http://zero.test", "http://one.test"}
		tokens, ends := make(chan fence.Token, 9), make(chan error, 9)
		var handlers []http.Handler
		for i, url := range urls {
			h := leaderhttp.New(c.Client(i), "orders", url)
			if code := get(h.Handler(nil)).StatusCode; code != http.StatusServiceUnavailable {
				t.Errorf("before Run: %d", code)
			}
			go func() { ends <- h.Run(ctx) }()
			handlers = append(handlers, h.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				token, _ := fence.FromContext(r.Context())
				if tokens <- token; i == 0 {
					<-r.Context().Done()
					ends <- context.Cause(r.Context())
				}
			})))
			c.WaitHeld("orders")
		}
		time.Sleep(time.Second)
		answer := get(handlers[1])
		if to := answer.Header.Get("Location"); answer.StatusCode != http.StatusTemporaryRedirect || to != "http://zero.test/orders?id=7" {
			t.Errorf("not the leader: %s to %q", answer.Status, to)
		}
		served := make(chan struct{})
		go func() { get(handlers[0]); close(served) }()
		first := <-tokens
		c.Kill(0)
		if err := <-ends; !errors.Is(err, locks.ErrLost) {
			t.Errorf("the context of the request ended by %v", err)
		}
		<-served
		if err := <-ends; err == nil {
			t.Error("Run ended without an error on the killed member")
		}
		if i, _ := c.WaitHeld("orders"); i != 1 {
			t.Fatalf("member %d leads", i)
		}
		time.Sleep(time.Second)
		if code := get(handlers[1]).StatusCode; code != http.StatusOK {
			t.Errorf("the next leader: %d", code)
		}
		if second := <-tokens; second <= first {
			t.Errorf("token %d after token %d", second, first)
		}
		stop()
		if err := <-ends; !errors.Is(err, context.Canceled) {
			t.Errorf("Run ended by %v", err)
		}
	})
}
