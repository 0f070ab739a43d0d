package lockshttp

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A page of another site whose name is made to resolve to loopback gets nothing, and
// changes nothing.
func TestAReboundNameIsRefused(t *testing.T) {
	c := local(t)
	l := take(t, c, "k")
	mux := http.NewServeMux()
	mux.Handle("/", Handler(c, Options{Allow: anybody}))
	mux.Handle("/metrics", Metrics(c, Options{}))
	mux.Handle("/livez", Probes(c))
	server := httptest.NewServer(mux)
	defer server.Close()
	ask := func(method, path, host, body string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", "same-origin") // as the browser believes
		r.Header.Set("X-Forwarded-Host", "localhost")
		reply, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer reply.Body.Close()
		text := new(strings.Builder)
		_ = reply.Write(text)
		return reply.StatusCode, text.String()
	}
	for _, path := range []string{"/", "/report.json", "/locks.json", "/events", "/metrics", "/nothing"} {
		if code, text := ask(http.MethodGet, path, "evil.example:8080", ""); code != http.StatusForbidden || !strings.Contains(text, "Options.Hosts") || strings.Contains(text, "\"k\"") {
			t.Errorf("%s: %d %s", path, code, text)
		}
	}
	if code, text := ask(http.MethodPost, "/action", "evil.example", breaking(l).Encode()); code != http.StatusForbidden || !strings.Contains(text, `"code":"host"`) || l.Err() != nil {
		t.Errorf("%d %s, %v", code, text, l.Err())
	}
	for _, host := range []string{"localhost:8080", "127.0.0.1", "[::1]:8080", "10.0.0.7:80"} {
		if code, text := ask(http.MethodGet, "/locks.json", host, ""); code != http.StatusOK {
			t.Errorf("%s: %d %s", host, code, text)
		}
	}
	if code, _ := ask(http.MethodGet, "/livez", "evil.example", ""); code != http.StatusOK {
		t.Errorf("a probe: %d", code)
	}
}

func TestForeignHosts(t *testing.T) {
	const here, there = "127.0.0.1:8080", "10.0.0.7:8080"
	for _, c := range []struct {
		at, host string
		hosts    []string
		ok       bool
	}{
		{here, "localhost", nil, true},
		{here, "LOCALHOST.:80", nil, true},
		{here, "app.localhost:80", nil, true},
		{here, "127.0.0.1:80", nil, true},
		{here, "::1", nil, true},
		{here, "[::1]", nil, true},
		{here, "[fe80::1%eth0]:80", nil, true},
		{here, "", nil, true},
		{here, "evil.example", nil, false},
		{here, "evillocalhost", nil, false},
		{here, "localhost.evil.example", nil, false},
		{here, "127.0.0.1.evil.example", nil, false},
		{here, "127.1", nil, false},
		{here, "0x7f000001", nil, false},
		{here, "evil.example@localhost", nil, false},
		{"[::1]:8080", "evil.example", nil, false},
		{"[::ffff:127.0.0.1]:8080", "evil.example", nil, false},
		{there, "service.namespace:8080", nil, true},
		{here, "locks.example.com:443", []string{"Locks.example.com."}, true},
		{here, "locks.example.com", []string{"other", "locks.example.com:443"}, true},
		{here, "more.locks.example.com", []string{"locks.example.com"}, false},
		{there, "service", []string{"locks.example.com"}, false},
		{there, there, []string{"locks.example.com"}, true},
		{there, "localhost:9", []string{"locks.example.com"}, true},
		{here, "anything", []string{"*"}, true},
		{"", "anything", nil, true}, // no request of a http.Server
		{"", "anything", []string{"x"}, false},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Host = c.host
		if c.at != "" {
			at, err := net.ResolveTCPAddr("tcp", c.at)
			if err != nil {
				t.Fatal(err)
			}
			r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(at)))
		}
		if err := foreignHost(r, c.hosts); (err == nil) != c.ok {
			t.Errorf("Host %q at %q with %q: %v", c.host, c.at, c.hosts, err)
		}
	}
	// A socket of the file system is no address of loopback, and no browser reaches it.
	r := httptest.NewRequest(http.MethodGet, "http://any/", nil)
	if err := foreignHost(r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(&net.UnixAddr{Name: "/run/s", Net: "unix"}))), nil); err != nil {
		t.Error(err)
	}
}
