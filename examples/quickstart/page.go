package main

import (
	"context"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/wardmote/wardmote/locks"
	"github.com/wardmote/wardmote/locks/lockshttp"
)

// servePage serves the member's live page on this computer until ctx ends. The page only
// shows: without Options.Allow nobody can change anything.
func (m *member) servePage(ctx context.Context, client *locks.Client) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: lockshttp.Handler(client, lockshttp.Options{})}
	defer context.AfterFunc(ctx, func() { server.Close() })()
	m.send(event{Kind: serving, Detail: listener.Addr().String()})
	return server.Serve(listener)
}

// frontPage is the parent's part of the live page. One address stays, while members
// come and go: / is the page of a member that runs, and /ben/ is the page of ben.
type frontPage struct {
	server *http.Server
	addr   string

	mu    sync.Mutex
	pages map[string]string // addresses by member, of processes that answer
	best  string            // the address of a member that reaches the others, or of another
}

func newFrontPage() (*frontPage, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	f := &frontPage{addr: listener.Addr().String(), pages: make(map[string]string)}
	f.server = &http.Server{Handler: f}
	go f.server.Serve(listener)
	return f, nil
}

// follow takes the addresses of the pages from the board.
func (f *frontPage) follow(b *board) {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.pages)
	f.best = ""
	bestRuns := false
	for _, r := range b.rows {
		if r.page == "" || r.state == paused || r.state == dead {
			continue
		}
		f.pages[r.name] = r.page
		if f.best == "" || !bestRuns && r.state == running {
			f.best, bestRuns = r.page, r.state == running
		}
	}
}

func (f *frontPage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if slices.Contains(names, strings.TrimPrefix(r.URL.Path, "/")) {
		http.Redirect(w, r, r.URL.Path+"/", http.StatusMovedPermanently)
		return
	}
	member, prefix := f.choose(r.URL.Path)
	if member == "" {
		http.Error(w, "this member has no page now: it is dead, stopped or not started yet", http.StatusServiceUnavailable)
		return
	}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(&url.URL{Scheme: "http", Host: member})
		r.Out.Host = r.In.Host // which the member looks at
	}}
	http.StripPrefix(prefix, proxy).ServeHTTP(w, r)
}

// choose returns the address of the page for a path, and the part of the path that names
// the member.
func (f *frontPage) choose(path string) (addr, prefix string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range names {
		if strings.HasPrefix(path, "/"+name+"/") {
			return f.pages[name], "/" + name
		}
	}
	return f.best, ""
}
