package cluster

import (
	"context"
	"net"
	"net/netip"
	"strings"

	"github.com/wardmote/wardmote/internal/gossip"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/timing"
)

// surroundings is the host as far as the choice of an address depends on it.
type surroundings struct {
	lookup func(ctx context.Context, entry string) ([]string, error) // host:port addresses of an entry of Join

	// route returns the address that a packet to the given address would leave
	// from.
	route      func(to netip.Addr) (from netip.Addr, ok bool)
	interfaces func() []netip.Addr
}

// host returns the surroundings of this process.
func (cfg *Config) host() surroundings {
	return surroundings{
		lookup:     gossip.Lookup{User: cfg.Resolver}.Addresses,
		route:      routeTo,
		interfaces: interfaceAddrs,
	}
}

// routeTo asks the kernel for a route. Connecting a UDP socket sends nothing.
func routeTo(to netip.Addr) (from netip.Addr, ok bool) {
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, 9)))
	if err != nil {
		return from, false
	}
	defer c.Close()
	at, err := netip.ParseAddrPort(c.LocalAddr().String())
	return at.Addr(), err == nil
}

func interfaceAddrs() (out []netip.Addr) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			out = append(out, p.Addr())
		}
	}
	return out
}

// Addresses behind the default route: nobody has them, and nothing is sent there.
var anywhere = []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}

// advertise chooses the address that others are told, from the address as bound.
// The first of these that there is:
//
//  1. Advertise;
//  2. the bound address, unless it is a wildcard;
//  3. the address that leads to the first address of Join beyond loopback;
//  4. the address of the default route, and then of any interface;
//  5. loopback, if every address of Join is loopback.
//
// Names of Join that do not resolve are passed over, and never waited for longer
// than timing.Resolve in all: the first process of a deployment starts before its
// name has an address. Loopback comes last and for loopback alone, because others
// would dial themselves.
func (cfg *Config) advertise(ctx context.Context, bound string, at surroundings) (string, error) {
	boundHost, boundPort, err := net.SplitHostPort(bound)
	if err != nil {
		return "", err
	}
	if cfg.Advertise != "" {
		return withPort(cfg.Advertise, boundPort), nil
	}
	if boundHost != "" {
		if ip := net.ParseIP(boundHost); ip == nil || !ip.IsUnspecified() {
			return bound, nil
		}
	}
	ip, err := cfg.ownIP(ctx, at)
	return net.JoinHostPort(ip.String(), boundPort), err
}

// withPort returns a host:port with the port of the bound address in place of 0.
func withPort(addr, bound string) string {
	host, port, _ := net.SplitHostPort(addr)
	if port == "0" {
		port = bound
	}
	return net.JoinHostPort(host, port)
}

// ownIP chooses an IP address of this host for a wildcard Bind.
func (cfg *Config) ownIP(ctx context.Context, at surroundings) (netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, timing.Resolve)
	defer cancel()
	local := true // every entry of Join is loopback
	for _, entry := range cfg.Join {
		found, err := at.lookup(ctx, entry)
		local = local && err == nil && len(found) > 0
		for _, addr := range found {
			to, err := netip.ParseAddrPort(addr)
			if err != nil || to.Addr().IsLoopback() {
				continue
			}
			local = false
			if from, ok := at.route(to.Addr().Unmap()); ok && reachable(from) {
				return from.Unmap(), nil
			}
		}
	}
	for _, to := range anywhere {
		if from, ok := at.route(to); ok && reachable(from) {
			return from.Unmap(), nil
		}
	}
	own := at.interfaces()
	for _, v4 := range []bool{true, false} {
		for _, ip := range own {
			if ip.Unmap().Is4() == v4 && reachable(ip) {
				return ip.Unmap(), nil
			}
		}
	}
	if local {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1}), nil
	}
	return netip.Addr{}, badConfig("Advertise", "this host has no address but loopback, and Join %q names other hosts: set it", cfg.Join)
}

// reachable reports whether other hosts may reach an address.
func reachable(ip netip.Addr) bool { return ip.IsGlobalUnicast() && ip.Zone() == "" }

// nameAt is the default name of the member at an address: a process that restarts
// there is known as the same member. No two addresses have the same name.
func nameAt(addr string) string {
	host, port, _ := net.SplitHostPort(addr)
	name := strings.Map(func(c rune) rune {
		if member.CheckName(string(c)) != nil {
			return '-'
		}
		return c
	}, host)
	return name[:min(len(name), member.MaxName-1-len(port))] + "-" + port
}
