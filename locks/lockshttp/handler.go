package lockshttp

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/wardmote/wardmote/internal/documents"
	"github.com/wardmote/wardmote/locks"
)

// Handler returns a handler of the page, its documents, its events and its actions:
//
//	(a path that ends with a slash)  the page
//	report.json                      what the member and its client know: a locks.Report
//	locks.json?prefix=&after=&limit= the keys, their holders and their waiters
//	why.json?key=                    why a key is stuck: the graph of waits
//	sessions.json?after=&limit=      the open sessions
//	shards.json?name=                the names of Spread, and the owners of the shards
//	events                           a stream of events, as text/event-stream
//	action                           POST: an action, if Options.Allow permits it
//
// The documents ask the leader for 100 ms at most. Without an answer, and with
// view=local, they have what this member knows by itself, and tell its source and its
// age. So they answer without a quorum, and at once if the member knows that there is
// none.
//
// A stream of events lasts until the request or the client ends. A server that is to
// shut down while streams are open ends the contexts of its requests: by
// http.Server.BaseContext, for example.
func Handler(c *locks.Client, o Options) http.Handler {
	return &handler{c: c, o: o, hub: newHub(c), acting: make(chan struct{}, maxActions)}
}

// handler serves everything about one client. Its methods may run at the same time.
type handler struct {
	c       *locks.Client
	o       Options
	hub     *hub
	foreign http.CrossOriginProtection // refuses what a page of another site sends
	acting  chan struct{}              // has an element for each running action
}

// askPatience bounds the wait of a document for the leader.
const askPatience = 100 * time.Millisecond

// ServeHTTP looks at the last element of the path alone: the elements before are the
// business of whoever mounted the handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	guard(w)
	if err := foreignHost(r, h.o.Hosts); err != nil {
		writeFailure(w, http.StatusForbidden, documents.CodeHost, err.Error())
		return
	}
	last := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	if last == "action" {
		h.serveAction(w, r)
		return
	}
	serve, ok := map[string]func(http.ResponseWriter, *http.Request) error{
		"":              h.servePage,
		"report.json":   h.serveReport,
		"locks.json":    h.serveLocks,
		"why.json":      h.serveWhy,
		"sessions.json": h.serveSessions,
		"shards.json":   h.serveShards,
		"events":        h.serveEvents,
	}[last]
	switch {
	case !ok:
		writeFailure(w, http.StatusNotFound, documents.CodeInput, "no such page")
		return
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		writeFailure(w, http.StatusMethodNotAllowed, documents.CodeInput, "only GET and HEAD")
		return
	}
	if err := serve(w, r); err != nil {
		status, code := http.StatusInternalServerError, documents.CodeFailed
		if errors.As(err, new(*inputError)) {
			status, code = http.StatusBadRequest, documents.CodeInput
		}
		writeFailure(w, status, code, err.Error())
	}
}

// guard sets the headers that every answer has: it is of this moment, is what its type
// says, and is shown in no frame of another page.
func guard(w http.ResponseWriter) {
	head := w.Header()
	head.Set("Cache-Control", "no-store")
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("X-Frame-Options", "DENY")
	head.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	head.Set("Referrer-Policy", "no-referrer")
	head.Set("Cross-Origin-Resource-Policy", "same-origin")
}

func writeJSON(w http.ResponseWriter, status int, document any) error {
	b, err := json.Marshal(document)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	// A reader that has gone is not told that it has.
	_, _ = w.Write(append(b, '\n'))
	return nil
}

func writeFailure(w http.ResponseWriter, status int, code, text string) {
	_ = writeJSON(w, status, documents.Failure{Error: text, Code: code}) // text is text: it has an encoding
}

// ask calls f with a context for a question to the leader, unless this member knows that
// it reaches none, or the request wants the local view. The result is false if nobody has
// answered in time.
func (h *handler) ask(r *http.Request, view string, f func(ctx context.Context) error) bool {
	if view == viewLocal || !h.c.Node().Report().Health.Quorum {
		return false
	}
	ctx, cancel := context.WithTimeout(r.Context(), askPatience)
	defer cancel()
	return f(ctx) == nil
}
