package lockshttp

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// A page of another site may read what stands on a port of loopback: its host name is
// made to resolve to 127.0.0.1, and then the browser takes both for one site. Such a
// request has the other site's name in its Host. An IP address in Host is no such name,
// and neither is localhost, which browsers resolve by themselves.
//
// Not taken: to believe X-Forwarded-Host, or to spare requests that seem to come through
// a proxy. The page of the other site can set every header but Host.

// foreignHost returns an error if the Host of r is a name that hosts, Options.Hosts, does
// not permit: a request to loopback has a name of hosts, and so has every request if there
// are hosts.
func foreignHost(r *http.Request, hosts []string) error {
	host := hostName(r.Host)
	switch {
	case host == "": // no browser sends that
		return nil
	case host == "localhost", strings.HasSuffix(host, ".localhost"):
		return nil
	case len(hosts) == 0 && !toLoopback(r):
		return nil
	case slices.ContainsFunc(hosts, func(h string) bool { return h == "*" || hostName(h) == host }):
		return nil
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return nil
	}
	return fmt.Errorf("the Host %.100q is no name of this page: use an IP address or localhost, or add the name to Options.Hosts", host)
}

// hostName returns the host of host:port in small letters, without brackets and without a
// dot at the end.
func hostName(hostport string) string {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(hostport, "["), "]")
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// toLoopback reports whether r has come to an address of loopback.
func toLoopback(r *http.Request) bool {
	at, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok { // no request of a http.Server
		return false
	}
	addr, err := netip.ParseAddrPort(at.String())
	return err == nil && addr.Addr().Unmap().IsLoopback()
}
