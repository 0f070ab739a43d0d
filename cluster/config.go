package cluster

import (
	"crypto/rand"
	"crypto/tls"
	"encoding/base32"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/transport"
)

// Config says who this member is and how it finds the others. The zero values
// are sound, but a member needs one way into a cluster: Join, Founders or
// InitialSize. Start copies it and never changes it.
type Config struct {
	// Name of this member, unique in the cluster: 1 to 64 bytes of letters,
	// digits, '-', '_' and '.'. A process that restarts may take its name
	// again. Default: the host's name and a random suffix.
	Name string

	// Cluster is the cluster's name; members of another name are refused.
	// Default "wardmote"; the limits of Name hold.
	Cluster string

	// Bind is the host:port to listen on, TCP and UDP both. Default
	// "127.0.0.1:0", any free port on loopback.
	Bind string

	// Advertise is the host:port others reach this member at. Default: Bind,
	// with a wildcard host replaced by the address that leads to the first of
	// Join. The host must be an IP address.
	Advertise string

	// Join lists host:port addresses of any members. Names are resolved again
	// at each attempt, and attempts never end.
	Join []string

	// Founders names the members that found the cluster, all the same list.
	// Safest together with Dir: a founder then remembers what it promised.
	// A member not named only joins.
	Founders []string

	// InitialSize is how many members are started first, and found the cluster
	// together; start no more than these until one is Ready. 1 founds a
	// cluster of this member alone. Not to be combined with Founders. A member
	// with neither only joins.
	InitialSize int

	// Voters is how many members replicate the lock table: 1, 3 (the default),
	// 5 or 7. All further members are thin. All members must agree.
	Voters int

	// TTL bounds every session's TTL, and sets the time after which a dead
	// holder's locks are free. Default 10 s; at least 300 ms, at most 24 h,
	// in whole milliseconds. Short TTLs lose locks to short pauses of the
	// process or its host. Members may be redeployed with another value: a
	// larger one takes effect once the leader has committed it, a smaller one
	// once every member advertises it. After the loss of a whole cluster found
	// the next with a TTL no smaller: it is how long the founding waits for
	// survivors to lose their locks.
	TTL time.Duration

	// Dir keeps this member's part of the cluster on disk, across restarts.
	// "" keeps it in memory, and lets it die with the process.
	Dir string

	// TLS makes every stream TLS 1.3 with certificates verified on both sides.
	// Gossip's packets are encrypted by Secret.
	TLS *tls.Config

	// Secret encrypts gossip, and only that: it hides who is there, and keeps
	// strangers' packets out, but streams go in the clear without TLS. All
	// members need the same one; at least 16 bytes.
	Secret []byte

	// Insecure allows plain text beyond loopback.
	Insecure bool

	// Network replaces the host's TCP and UDP, for tests. See transport.Memory.
	Network transport.Network

	// Logger gets what an operator wants to know. nil: silent.
	Logger *slog.Logger

	// Events is called with each event, one at a time, in order. It must not
	// block, nor call into the Node.
	Events func(Event)

	engine storeEngine // tests: what an in-memory member's raft is stored in

	_ struct{}
}

// Limits of a Config, beside those named in its fields' comments.
const (
	maxMemberName = 64
	minSecret     = 16
	maxFounding   = 64 // members in the founding group

	defaultTTL     = 10 * time.Second
	defaultVoters  = 3
	defaultBind    = "127.0.0.1:0"
	defaultCluster = "wardmote"
)

// withDefaults returns a checked copy of cfg with its defaults filled in.
func (cfg Config) withDefaults() (Config, error) {
	bad := func(field, format string, args ...any) (Config, error) {
		return Config{}, &ConfigError{"Config." + field, fmt.Sprintf(format, args...)}
	}
	if cfg.Name == "" {
		cfg.Name = defaultName()
	}
	if reason := checkName(cfg.Name); reason != "" {
		return bad("Name", "%s", reason)
	}
	if cfg.Cluster == "" {
		cfg.Cluster = defaultCluster
	}
	if reason := checkName(cfg.Cluster); reason != "" {
		return bad("Cluster", "%s", reason)
	}
	if cfg.Bind == "" {
		cfg.Bind = defaultBind
	}
	host, port, err := splitHostPort(cfg.Bind)
	if err != nil {
		return bad("Bind", "%v", err)
	}
	advertised := ""
	if cfg.Advertise != "" {
		ahost, aport, err := splitHostPort(cfg.Advertise)
		if err != nil {
			return bad("Advertise", "%v", err)
		}
		if ip := net.ParseIP(ahost); ip == nil || ip.IsUnspecified() {
			return bad("Advertise", "%q is not an IP address others can reach", ahost)
		}
		if aport == 0 && port != 0 {
			return bad("Advertise", "%q has no port", cfg.Advertise)
		}
		advertised = ahost
	}
	cfg.Join = slices.Clone(cfg.Join)
	for i, addr := range cfg.Join {
		h, p, err := splitHostPort(addr)
		if err != nil {
			return bad("Join", "address %d: %v", i, err)
		}
		if h == "" || p == 0 {
			return bad("Join", "address %d: %q needs a host and a port", i, addr)
		}
	}
	cfg.Founders = slices.Clone(cfg.Founders)
	switch {
	case len(cfg.Founders) > 0 && cfg.InitialSize != 0:
		return bad("Founders", "given together with InitialSize; give one of them")
	case cfg.InitialSize < 0 || cfg.InitialSize > maxFounding:
		return bad("InitialSize", "%d is not in 0 to %d", cfg.InitialSize, maxFounding)
	case len(cfg.Founders) > maxFounding:
		return bad("Founders", "%d names exceed the limit of %d", len(cfg.Founders), maxFounding)
	case len(cfg.Founders) == 0 && cfg.InitialSize == 0 && len(cfg.Join) == 0:
		return bad("Join", "empty, and neither Founders nor InitialSize is set: this member could never be in a cluster")
	}
	slices.Sort(cfg.Founders)
	for i, name := range cfg.Founders {
		if reason := checkName(name); reason != "" {
			return bad("Founders", "%q: %s", name, reason)
		}
		if i > 0 && cfg.Founders[i-1] == name {
			return bad("Founders", "%q is named twice", name)
		}
	}
	switch cfg.Voters {
	case 0:
		cfg.Voters = defaultVoters
	case 1, 3, 5, 7:
	default:
		return bad("Voters", "%d is not 1, 3, 5 or 7", cfg.Voters)
	}
	if cfg.TTL == 0 {
		cfg.TTL = defaultTTL
	}
	const least, most = machine.MinTTL * time.Millisecond, machine.MaxTTL * time.Millisecond
	switch {
	case cfg.TTL < least:
		return bad("TTL", "%v is below the least, %v", cfg.TTL, least)
	case cfg.TTL > most:
		return bad("TTL", "%v is above the most, %v", cfg.TTL, most)
	case cfg.TTL%time.Millisecond != 0:
		return bad("TTL", "%v is not a whole number of milliseconds", cfg.TTL)
	}
	cfg.Secret = slices.Clone(cfg.Secret)
	if n := len(cfg.Secret); n > 0 && n < minSecret {
		return bad("Secret", "%d bytes are below the least, %d", n, minSecret)
	}
	if cfg.Network == nil {
		cfg.Network = transport.TCP()
	}
	if _, wired := cfg.Network.(interface{ InMemory() }); !wired && cfg.TLS == nil && len(cfg.Secret) == 0 && !cfg.Insecure {
		for _, h := range []string{host, advertised} {
			if h != "" && !isLoopback(h) {
				return bad("Bind", "%q is beyond loopback: set TLS or Secret, or Insecure to send plain text", h)
			}
		}
		if host == "" {
			return bad("Bind", "%q is beyond loopback: set TLS or Secret, or Insecure to send plain text", cfg.Bind)
		}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return cfg, nil
}

// String leaves out what must not be logged.
func (cfg Config) String() string {
	return fmt.Sprintf("cluster.Config{Name: %q, Cluster: %q, Bind: %q, Advertise: %q, Join: %q, Founders: %q, InitialSize: %d, Voters: %d, TTL: %v, Dir: %q, TLS: %t, Secret: %t, Insecure: %t}",
		cfg.Name, cfg.Cluster, cfg.Bind, cfg.Advertise, cfg.Join, cfg.Founders, cfg.InitialSize, cfg.Voters, cfg.TTL, cfg.Dir, cfg.TLS != nil, len(cfg.Secret) > 0, cfg.Insecure)
}

// GoString is String, so that %#v does not print the secret either.
func (cfg Config) GoString() string { return cfg.String() }

func checkName(name string) string {
	switch {
	case name == "":
		return "empty"
	case len(name) > maxMemberName:
		return fmt.Sprintf("%d bytes exceed the limit of %d", len(name), maxMemberName)
	case !utf8.ValidString(name):
		return "not valid UTF-8"
	}
	for _, c := range name {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("-_.", c) {
			return fmt.Sprintf("%q holds %q; letters, digits, '-', '_' and '.' are allowed", name, c)
		}
	}
	return ""
}

func splitHostPort(addr string) (host string, port int, err error) {
	host, p, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, fmt.Errorf("%q is not host:port", addr)
	}
	port, err = strconv.Atoi(p)
	if err != nil || port < 0 || port > 65535 {
		return "", 0, fmt.Errorf("%q has no valid port", addr)
	}
	return host, port, nil
}

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

func defaultName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "member"
	}
	host = strings.Map(func(c rune) rune {
		if checkName(string(c)) != "" {
			return '-'
		}
		return c
	}, host)
	host = host[:min(len(host), maxMemberName-8)]
	var suffix [4]byte
	rand.Read(suffix[:])
	return host + "-" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(suffix[:]))
}

// advertise chooses the address that others are told, once the port is known.
func (cfg Config) advertise(bound string) (string, error) {
	bhost, bport, err := net.SplitHostPort(bound)
	if err != nil {
		return "", err
	}
	if cfg.Advertise != "" {
		host, port, _ := net.SplitHostPort(cfg.Advertise)
		if port == "0" {
			port = bport
		}
		return net.JoinHostPort(host, port), nil
	}
	if ip := net.ParseIP(bhost); ip != nil && !ip.IsUnspecified() {
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
		return net.JoinHostPort(host, bport), nil
	}
	return "", &ConfigError{"Config.Advertise", fmt.Sprintf("cannot be guessed from Bind %q and Join %q: set it", cfg.Bind, cfg.Join)}
}
