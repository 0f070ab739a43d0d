package gossip

import (
	"context"
	"net"
	"slices"
	"time"

	"github.com/wardmote/wardmote/internal/timing"
)

// addresses lists the addresses at which members may be: the addresses of Join,
// and the addresses known to an earlier process of this member. Names are
// resolved anew when their last look-up is older than timing.Resolved. One
// goroutine at a time may use the list.
type addresses struct {
	cfg    Config
	lookup func(ctx context.Context, host string) ([]string, error)
	known  map[string]resolution // by host
}

// resolution is the result of a look-up. A failed look-up counts too: ips is
// then empty.
type resolution struct {
	ips []string
	at  time.Time
}

func newAddresses(cfg Config) *addresses {
	return &addresses{cfg: cfg, lookup: net.DefaultResolver.LookupHost, known: make(map[string]resolution)}
}

// list returns each address once, this node's own left out: first Join, in
// order, then the peers. It blocks while names are resolved, for timing.Resolve
// at most each.
func (a *addresses) list(ctx context.Context) []string {
	own := a.cfg.Port.Addr() // as bound; it may differ from the advertised address
	var out []string
	add := func(addr string) {
		if addr != a.cfg.Self.Addr && addr != own && !slices.Contains(out, addr) {
			out = append(out, addr)
		}
	}
	for _, addr := range a.cfg.Join {
		host, port, _ := net.SplitHostPort(addr)
		if net.ParseIP(host) != nil {
			add(addr)
			continue
		}
		for _, ip := range a.resolve(ctx, host, addr) {
			add(net.JoinHostPort(ip, port))
		}
	}
	for _, addr := range a.cfg.Peers() {
		add(addr)
	}
	return out
}

// resolve returns the IP addresses of a host, by a look-up or from memory.
func (a *addresses) resolve(ctx context.Context, host, addr string) []string {
	known, ok := a.known[host]
	if ok && time.Since(known.at) <= timing.Resolved {
		return known.ips
	}
	ctx, cancel := context.WithTimeout(ctx, timing.Resolve)
	defer cancel()
	ips, err := a.lookup(ctx, host)
	if err != nil {
		a.cfg.Self.Log.Debug("join address not resolved", "address", addr, "error", err)
	}
	a.known[host] = resolution{ips, time.Now()}
	return ips
}
