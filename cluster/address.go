package cluster

import (
	"net"
	"slices"

	"github.com/wardmote/wardmote/internal/gossip"
	"github.com/wardmote/wardmote/internal/member"
)

// checkAddresses checks Bind, Advertise and Join.
func (cfg *Config) checkAddresses() error {
	if cfg.Bind == "" {
		cfg.Bind = defaultBind
	}
	_, bindPort, err := member.SplitAddr(cfg.Bind)
	if err != nil {
		return badConfig("Bind", "%v", err)
	}
	if cfg.Advertise != "" {
		host, port, err := member.SplitAddr(cfg.Advertise)
		if err != nil {
			return badConfig("Advertise", "%v", err)
		}
		if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() || ip.IsMulticast() {
			return badConfig("Advertise", "%q is not an IP address others can reach", host)
		}
		if port == 0 && bindPort != 0 {
			return badConfig("Advertise", "%q has no port", cfg.Advertise)
		}
	}
	cfg.Join = slices.Clone(cfg.Join)
	for i, addr := range cfg.Join {
		if err := gossip.CheckEntry(addr, cfg.Resolver != nil); err != nil {
			return badConfig("Join", "address %d: %v", i, err)
		}
	}
	return nil
}

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
