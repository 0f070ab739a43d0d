// Package leaderhttp serves HTTP requests on one of several processes, the leader. The
// others redirect to it.
//
// If the term ends during a request, the context of the request ends. Another process leads
// after the request has been served. If the lock was lost, the next leader may serve
// at the same time; a fence in the written resource refuses the former leader.
// The context of a request has the token, for fence.FromContext.
package leaderhttp

import (
	"context"
	"net/http"
	"sync"

	"github.com/wardmote/wardmote/locks"
)

// Leader is a candidate, with its handlers.
type Leader struct {
	client   *locks.Client
	key, url string

	mu   sync.Mutex
	term *term  // nil: this process does not lead
	next string // the URL of the leader, as far as known; "" if there is none
}

type term struct {
	lock     *locks.Lock
	requests sync.WaitGroup
}

// New returns a candidate for key. Others redirect to url while this process leads.
func New(client *locks.Client, key, url string) *Leader {
	return &Leader{client: client, key: key, url: url}
}

// Run stands for election until ctx ends, and follows who leads. It returns an error like
// locks.Client.Elect.
func (h *Leader) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		for leader, err := range h.client.Observe(ctx, h.key) {
			if err != nil {
				return // Elect has the same error
			}
			h.mu.Lock()
			h.next = leader.Meta["url"]
			h.mu.Unlock()
		}
	}()
	err := h.client.Elect(ctx, h.key, h.lead, locks.Meta(map[string]string{"url": h.url}))
	cancel()
	<-followed
	return err
}

func (h *Leader) lead(ctx context.Context, l *locks.Lock) error {
	t := &term{lock: l}
	h.mu.Lock()
	h.term = t
	h.mu.Unlock()
	<-ctx.Done()
	h.mu.Lock()
	h.term = nil
	h.mu.Unlock()
	t.requests.Wait()
	return nil
}

// Handler serves by handler while this process leads. Otherwise it redirects to the leader
// with status 307, or answers 503 if no leader is known.
func (h *Leader) Handler(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		t, next := h.term, h.next
		if t != nil {
			t.requests.Add(1)
			defer t.requests.Done()
		}
		h.mu.Unlock()
		switch {
		case t != nil && t.lock.Err() == nil: // right also after a pause of the process
			ctx, cancel := context.WithCancelCause(t.lock.Context())
			defer cancel(nil)
			defer context.AfterFunc(r.Context(), func() { cancel(context.Cause(r.Context())) })()
			handler.ServeHTTP(w, r.WithContext(ctx))
		case next != "" && next != h.url:
			http.Redirect(w, r, next+r.URL.RequestURI(), http.StatusTemporaryRedirect)
		default:
			w.Header().Set("Retry-After", "1")
			http.Error(w, "no leader", http.StatusServiceUnavailable)
		}
	})
}
