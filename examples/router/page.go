package main

import (
	"context"
	"net/http"
	"net/netip"
	"strings"

	"github.com/wardmote/wardmote/locks"
	"github.com/wardmote/wardmote/locks/lockshttp"
)

// pagePrefix is where the page, the probes and the metrics stand. Keys that begin so are
// not counted.
const pagePrefix = "/wardmote/"

// withPage serves the page about the cluster, the probes and the metrics beside the keys.
// Nobody is asked for a password, so only this host may see them: a program that serves
// them to others puts its own authentication here. The requests end with ctx.
func withPage(ctx context.Context, client *locks.Client, keys http.Handler) http.Handler {
	options := lockshttp.Options{} // no Allow: the page changes nothing
	probes := lockshttp.Probes(client)
	mux := http.NewServeMux()
	mux.Handle(pagePrefix, lockshttp.Handler(client, options))
	mux.Handle(pagePrefix+"livez", probes)
	mux.Handle(pagePrefix+"readyz", probes)
	mux.Handle(pagePrefix+"metrics", lockshttp.Metrics(client, options))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !strings.HasPrefix(r.URL.Path, pagePrefix):
			keys.ServeHTTP(w, r)
		case !onLoopback(r.RemoteAddr):
			http.Error(w, "for browsers on this host", http.StatusForbidden)
		default:
			ending, end := context.WithCancel(r.Context())
			defer end()
			defer context.AfterFunc(ctx, end)()
			mux.ServeHTTP(w, r.WithContext(ending))
		}
	})
}

// onLoopback reports whether the address of a request's sender is of this host's loopback.
func onLoopback(sender string) bool {
	addr, err := netip.ParseAddrPort(sender)
	return err == nil && addr.Addr().Unmap().IsLoopback()
}
