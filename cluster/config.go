package cluster

import (
	"crypto/rand"
	"crypto/tls"
	"encoding/base32"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/raftstore"
	"github.com/wardmote/wardmote/transport"
)

// Config names this member and its ways to the other members. The zero values
// are sound, but a member needs a way into a cluster: Join, Founders or
// InitialSize. Start copies the Config and leaves the original unchanged.
type Config struct {
	// Name of this member, unique in the cluster: 1 to 64 bytes of letters,
	// digits, '-', '_' and '.'. A process that restarts may take its name
	// again. Default: the host's name and a random suffix.
	Name string

	// Cluster is the cluster's name; members of another name are refused.
	// Default "wardmote"; the limits of Name hold.
	Cluster string

	// Bind is the host:port to listen on, for TCP and UDP both. Default
	// "127.0.0.1:0", any free port on loopback.
	Bind string

	// Advertise is the host:port at which others reach this member. Default:
	// Bind, with a wildcard host replaced by the address that leads to the
	// first of Join. The host must be an IP address.
	Advertise string

	// Join lists host:port addresses of any members. Names are resolved again
	// at each attempt, and attempts never end.
	Join []string

	// Founders names the members that found the cluster; all members have the
	// same list. Safest together with Dir: a founder then remembers its
	// promises. A member without its name in the list only joins.
	Founders []string

	// InitialSize is how many members are started first and found the cluster
	// together; start no more than these until one is Ready. 1 founds a
	// cluster of this member alone. Not to be combined with Founders. A member
	// with neither only joins.
	InitialSize int

	// Voters is how many members replicate the lock table: 1, 3 (the default),
	// 5 or 7. All further members are thin. All members must agree.
	Voters int

	// TTL bounds every session's TTL, and is the time after which a dead
	// holder's locks are free. Default 10 s; at least 300 ms, at most 24 h, in
	// whole milliseconds. Short TTLs lose locks to short pauses of the process
	// or its host. Members may be redeployed with another value: a larger
	// value takes effect once the leader has committed it, a smaller value
	// once every member advertises it. After the loss of a whole cluster found
	// the next one with a TTL no smaller: for so long the founding waits for
	// survivors to lose their locks.
	TTL time.Duration

	// Dir keeps this member's part of the cluster on disk, across restarts.
	// "" keeps it in memory, and lets it die with the process.
	Dir string

	// TLS makes every stream TLS 1.3 with certificates verified on both sides.
	// Gossip's packets are encrypted by Secret.
	TLS *tls.Config

	// Secret encrypts gossip, and only gossip: it hides which members there
	// are and keeps strangers' packets out, but streams are plain text without
	// TLS. All members need the same secret; at least 16 bytes.
	Secret []byte

	// Insecure allows plain text beyond loopback.
	Insecure bool

	// Network replaces the host's TCP and UDP, for tests. See transport.Memory.
	Network transport.Network

	// Logger receives the records meant for operators. nil: silent.
	Logger *slog.Logger

	// Events is called with each event, one at a time, in order. Events must
	// not block, nor call into the Node.
	Events func(Event)

	engine raftstore.Engine // tests: the store of an in-memory member's raft

	_ struct{}
}

// Limits of a Config. Fields name further limits in their comments.
const (
	minSecret   = 16
	maxFounding = 64 // members in the founding group

	defaultTTL     = 10 * time.Second
	defaultVoters  = 3
	defaultBind    = "127.0.0.1:0"
	defaultCluster = "wardmote"
)

func badConfig(field, format string, args ...any) error {
	return &ConfigError{"Config." + field, fmt.Sprintf(format, args...)}
}

// withDefaults returns a checked copy of cfg with its defaults filled in.
func (cfg Config) withDefaults() (Config, error) {
	if cfg.Name == "" {
		cfg.Name = defaultName()
	}
	if err := member.CheckName(cfg.Name); err != nil {
		return Config{}, badConfig("Name", "%v", err)
	}
	if cfg.Cluster == "" {
		cfg.Cluster = defaultCluster
	}
	if err := member.CheckName(cfg.Cluster); err != nil {
		return Config{}, badConfig("Cluster", "%v", err)
	}
	if cfg.Network == nil {
		cfg.Network = transport.TCP()
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	for _, check := range []func(*Config) error{
		(*Config).checkAddresses, (*Config).checkFirstMembers, (*Config).checkTTL, (*Config).checkPlainText,
	} {
		if err := check(&cfg); err != nil {
			return Config{}, err
		}
	}
	return cfg, nil
}

// checkFirstMembers checks Founders, InitialSize and Voters.
func (cfg *Config) checkFirstMembers() error {
	cfg.Founders = slices.Clone(cfg.Founders)
	switch {
	case len(cfg.Founders) > 0 && cfg.InitialSize != 0:
		return badConfig("Founders", "given together with InitialSize; give only one of them")
	case cfg.InitialSize < 0 || cfg.InitialSize > maxFounding:
		return badConfig("InitialSize", "%d is not in 0 to %d", cfg.InitialSize, maxFounding)
	case len(cfg.Founders) > maxFounding:
		return badConfig("Founders", "%d names exceed the limit of %d", len(cfg.Founders), maxFounding)
	case len(cfg.Founders) == 0 && cfg.InitialSize == 0 && len(cfg.Join) == 0:
		return badConfig("Join", "empty, and neither Founders nor InitialSize is set: this member could never be in a cluster")
	}
	slices.Sort(cfg.Founders)
	for i, name := range cfg.Founders {
		if err := member.CheckName(name); err != nil {
			return badConfig("Founders", "%q: %v", name, err)
		}
		if i > 0 && cfg.Founders[i-1] == name {
			return badConfig("Founders", "%q is named twice", name)
		}
	}
	switch cfg.Voters {
	case 0:
		cfg.Voters = defaultVoters
	case 1, 3, 5, 7:
	default:
		return badConfig("Voters", "%d is not 1, 3, 5 or 7", cfg.Voters)
	}
	return nil
}

func (cfg *Config) checkTTL() error {
	if cfg.TTL == 0 {
		cfg.TTL = defaultTTL
	}
	const least, most = machine.MinTTL * time.Millisecond, machine.MaxTTL * time.Millisecond
	switch {
	case cfg.TTL < least:
		return badConfig("TTL", "%v is below the least, %v", cfg.TTL, least)
	case cfg.TTL > most:
		return badConfig("TTL", "%v is above the most, %v", cfg.TTL, most)
	case cfg.TTL%time.Millisecond != 0:
		return badConfig("TTL", "%v is not a whole number of milliseconds", cfg.TTL)
	}
	return nil
}

// String leaves out the secret and the TLS configuration.
func (cfg Config) String() string {
	return fmt.Sprintf("cluster.Config{Name: %q, Cluster: %q, Bind: %q, Advertise: %q, Join: %q, Founders: %q, InitialSize: %d, Voters: %d, TTL: %v, Dir: %q, TLS: %t, Secret: %t, Insecure: %t}",
		cfg.Name, cfg.Cluster, cfg.Bind, cfg.Advertise, cfg.Join, cfg.Founders, cfg.InitialSize, cfg.Voters, cfg.TTL, cfg.Dir, cfg.TLS != nil, len(cfg.Secret) > 0, cfg.Insecure)
}

// GoString is String, so that %#v does not print the secret either.
func (cfg Config) GoString() string { return cfg.String() }

// defaultName is the host's name, as far as a member's name allows its letters,
// and a random suffix.
func defaultName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "member"
	}
	host = strings.Map(func(c rune) rune {
		if member.CheckName(string(c)) != nil {
			return '-'
		}
		return c
	}, host)
	host = host[:min(len(host), member.MaxName-8)]
	var suffix [4]byte
	rand.Read(suffix[:])
	return host + "-" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(suffix[:]))
}
