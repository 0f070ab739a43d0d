package gossip

import (
	"context"
	"net"
	"slices"
	"time"

	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/timing"
)

// addresses lists the addresses at which members may be: the addresses of Join,
// and the addresses known to an earlier process of this member. Names are
// resolved anew when their last look-up is older than timing.Resolved. One
// goroutine at a time may use the list.
type addresses struct {
	self   member.Self
	join   []string
	own    string // the port's address as bound; it may differ from the advertised one
	peers  func() []string
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
	return &addresses{
		self: cfg.Self, join: cfg.Join, own: cfg.Port.Addr(), peers: cfg.Peers,
		lookup: net.DefaultResolver.LookupHost,
		known:  make(map[string]resolution),
	}
}

// list returns each address once, this node's own left out: first Join, in
// order, then the peers. It blocks while names are resolved, for timing.Resolve
// at most each.
func (a *addresses) list(ctx context.Context) []string {
	var out []string
	add := func(addr string) {
		if addr != a.self.Addr && addr != a.own && !slices.Contains(out, addr) {
			out = append(out, addr)
		}
	}
	for _, addr := range a.join {
		host, port, _ := net.SplitHostPort(addr)
		if net.ParseIP(host) != nil {
			add(addr)
			continue
		}
		for _, ip := range a.resolve(ctx, host, addr) {
			add(net.JoinHostPort(ip, port))
		}
	}
	for _, addr := range a.peers() {
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
		a.self.Log.Debug("join address not resolved", "address", addr, "error", err)
	}
	a.known[host] = resolution{ips, time.Now()}
	return ips
}
