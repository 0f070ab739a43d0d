package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

// One address leads to a page of a member that runs, and each member has a path.
func TestFrontPageFollowsTheMembers(t *testing.T) {
	b := boardAfter()
	for _, name := range names {
		page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, name+" "+r.URL.Path)
		}))
		t.Cleanup(page.Close)
		b.apply(event{Kind: serving, Member: name, Detail: page.Listener.Addr().String()}, at(0))
	}
	f, err := newFrontPage()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.server.Close() })
	get := func(path, want string) {
		t.Helper()
		resp, err := http.Get("http://" + f.addr + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != http.StatusOK {
			body = []byte(resp.Status)
		}
		if string(body) != want {
			t.Errorf("%s: %q, want %q", path, body, want)
		}
	}
	get("/", "503 Service Unavailable")
	f.follow(b)
	get("/", "ann /")
	get("/report.json", "ann /report.json")
	get("/ben/", "ben /")
	get("/ben/events", "ben /events")
	get("/ben", "ben /")
	b.row("ann").state = cutOff
	b.row("ben").state = paused
	f.follow(b)
	get("/", "cid /")
	get("/ann/", "ann /")
	get("/ben/", "503 Service Unavailable")
	b.apply(event{Kind: exited, Member: "cid"}, at(0))
	f.follow(b)
	get("/", "ann /")
}
