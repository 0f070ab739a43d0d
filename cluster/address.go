package cluster

import (
	"net"
	"slices"

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
		if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
			return badConfig("Advertise", "%q is not an IP address others can reach", host)
		}
		if port == 0 && bindPort != 0 {
			return badConfig("Advertise", "%q has no port", cfg.Advertise)
		}
	}
	cfg.Join = slices.Clone(cfg.Join)
	for i, addr := range cfg.Join {
		host, port, err := member.SplitAddr(addr)
		if err != nil {
			return badConfig("Join", "address %d: %v", i, err)
		}
		if host == "" || port == 0 {
			return badConfig("Join", "address %d: %q needs a host and a port", i, addr)
		}
	}
	return nil
}

// checkPlainText refuses plain text beyond loopback, unless Insecure allows it.
// On a network in memory the bytes stay in this process.
func (cfg *Config) checkPlainText() error {
	cfg.Secret = slices.Clone(cfg.Secret)
	if n := len(cfg.Secret); n > 0 && n < minSecret {
		return badConfig("Secret", "%d bytes are below the least, %d", n, minSecret)
	}
	_, inMemory := cfg.Network.(interface{ InMemory() })
	if inMemory || cfg.TLS != nil || len(cfg.Secret) > 0 || cfg.Insecure {
		return nil
	}
	const refusal = "%q is beyond loopback: set TLS or Secret, or Insecure to send plain text"
	host, _, _ := member.SplitAddr(cfg.Bind)
	if host == "" {
		return badConfig("Bind", refusal, cfg.Bind)
	}
	if !isLoopback(host) {
		return badConfig("Bind", refusal, host)
	}
	if cfg.Advertise != "" {
		if host, _, _ := member.SplitAddr(cfg.Advertise); !isLoopback(host) {
			return badConfig("Bind", refusal, host)
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

// advertise chooses the address that others are told, once the bound port is
// known.
func (cfg Config) advertise(bound string) (string, error) {
	boundHost, boundPort, err := net.SplitHostPort(bound)
	if err != nil {
		return "", err
	}
	if cfg.Advertise != "" {
		host, port, _ := net.SplitHostPort(cfg.Advertise)
		if port == "0" {
			port = boundPort
		}
		return net.JoinHostPort(host, port), nil
	}
	if ip := net.ParseIP(boundHost); ip != nil && !ip.IsUnspecified() {
		return bound, nil
	}
	// A wildcard: take the address that a packet to the first member would
	// leave from. Connecting a UDP socket sends nothing.
	for _, addr := range cfg.Join {
		c, err := net.Dial("udp", addr)
		if err != nil {
			continue
		}
		host, _, _ := net.SplitHostPort(c.LocalAddr().String())
		c.Close()
		return net.JoinHostPort(host, boundPort), nil
	}
	return "", badConfig("Advertise", "cannot be guessed from Bind %q and Join %q: set it", cfg.Bind, cfg.Join)
}
