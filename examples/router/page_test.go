package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/wardmote/wardmote"
)

// The page, the probes and the metrics are for this host alone, and keys are not theirs.
func TestThePageIsForThisHost(t *testing.T) {
	client, err := wardmote.Local(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Node().Stop()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	counted := ""
	h := withPage(ctx, client, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { counted = r.URL.Path }))
	visit := func(path, from, host string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.RemoteAddr, r.Host = from, host
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	const own, here = "127.0.0.1:5000", "localhost:8080"
	for path, want := range map[string]string{"": "<!doctype html>", "locks.json": `"keys"`, "livez": "ok", "metrics": "wardmote_"} {
		if w := visit(pagePrefix+path, own, here); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d", path, w.Code)
		}
		for _, other := range [][2]string{{"10.0.0.5:5000", here}, {"", here}} {
			if w := visit(pagePrefix+path, other[0], other[1]); w.Code != http.StatusForbidden {
				t.Errorf("%s from %q: %d", path, other, w.Code)
			}
		}
	}
	if w := visit(pagePrefix+"locks.json", "[::1]:5000", "[::1]:8080"); w.Code != http.StatusOK {
		t.Errorf("over IPv6: %d", w.Code)
	}
	if visit("/a//b/../key", "10.0.0.5:5000", "any"); counted != "/a//b/../key" {
		t.Errorf("the key is %q", counted)
	}
	// A stream ends with the server.
	done := make(chan struct{})
	go func() {
		defer close(done)
		visit(pagePrefix+"events", own, here)
	}()
	cancel()
	<-done
}
