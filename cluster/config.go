package cluster

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/internal/identity"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/raftstore"
	"github.com/wardmote/wardmote/internal/wire"
	"github.com/wardmote/wardmote/transport"
)

// Config names this member and its ways to the other members. The zero values
// are sound, but a member needs a way into a cluster: Join, Founders or
// InitialSize. Start copies the Config and leaves the original unchanged.
type Config struct {
	// Name of this member, unique in the cluster: 1 to 64 bytes of letters,
	// digits, '-', '_' and '.'. A process that restarts should take its name
	// again: the others then know at once that the earlier process is gone.
	// Default: the name in Dir, or else, if Bind names a port, the advertised
	// host and port, with '-' for every other character, such as
	// "10.0.0.7-7000"; with port 0 the host's name and a random suffix.
	Name string

	// Cluster is the cluster's name; members of another name are refused.
	// Default "wardmote"; the limits of Name hold.
	Cluster string

	// Bind is the host:port to listen on, for TCP and UDP both. Default
	// "127.0.0.1:0", any free port on loopback.
	Bind string

	// Advertise is the host:port at which others reach this member. The host
	// must be an IP address. Default: Bind. For a wildcard host in Bind, such
	// as ":7000", the default is the first of these that there is:
	// the address that leads to the first address of Join; the address of the
	// default route; any address of an interface. Loopback is advertised only
	// by a host without another address whose Join is all loopback. Names in
	// Join need not resolve yet; Start waits for them up to two seconds.
	Advertise string

	// Join lists addresses of any members: host:port, or a name that begins
	// with '_', such as "_wardmote._tcp.example.com", whose SRV records have
	// the hosts and ports. Names are looked up again at each attempt, and
	// attempts never end.
	Join []string

	// Resolver looks up the names in Join in place of the host's resolver, SRV
	// names included. It gets the name without the port, and returns IP
	// addresses, which take the entry's port, or host:port with an IP address
	// as host. With a Resolver an entry of Join needs no port. Resolver is
	// called again and again, from several goroutines, and must return when
	// ctx ends, after two seconds.
	Resolver func(ctx context.Context, host string) ([]string, error)

	// Founders names the members that found the cluster; all members have the
	// same list. A majority founds, after a wait of 5 s for the others. Safest
	// together with Dir: a founder then remembers its promises, and a bare majority
	// is enough; in memory two of three, or four of five. A member without its name
	// in the list only joins.
	Founders []string

	// InitialSize is how many members are started first and found the cluster
	// together, once all of them are seen; start no more than these until one is
	// Ready. 1 founds a
	// cluster of this member alone. Not to be combined with Founders. A member
	// with neither only joins.
	InitialSize int

	// TTL bounds every session's TTL, and is the time after which a dead
	// holder's locks are free. Default 10 s; at least 300 ms, at most 24 h, in
	// whole milliseconds. Short TTLs lose locks to short pauses of the process
	// or its host; below 1 s a crash of the leader may end the locks of living
	// holders, below 3 s a leader that falls silent may, and a line in the log
	// says so at the start. Members may be redeployed with another value: a larger
	// value of a process with the voter role takes effect once the leader has
	// committed it, a smaller value once every member advertises it. After the loss of a whole cluster found
	// the next one with a TTL no smaller: for so long the founding waits for
	// survivors to lose their locks.
	TTL time.Duration

	// Dir keeps this member's part of the cluster on disk, across restarts.
	// "" keeps it in memory, and lets it die with the process.
	Dir string

	// Security keeps strangers out. Beyond loopback Security is required.
	Security Security

	// Voting is this member's part in the quorum.
	Voting Voting

	// Recovery says which sources are believed about dead members, so that
	// survivors of a lost majority may found a successor of their cluster.
	Recovery Recovery

	// Network replaces the host's TCP and UDP, for tests. See transport.Memory.
	Network transport.Network

	// Logger receives the records meant for operators. nil: silent.
	Logger *slog.Logger

	// Events is called with each event, and Commits with each commit of a leader: see
	// Hooks, also for the contract of both.
	Events  func(ctx context.Context, e Event)
	Commits func(ctx context.Context, c Commit)

	engine   raftstore.Engine // tests: the store of an in-memory member's raft
	hostBoot func() string    // tests: in place of identity.HostBoot
	age      time.Duration    // tests: in place of timing.StreamAge
	signer   *wire.KeySigner  // tests: in place of a fresh one
	alone    bool             // see replica.Alone

	_ struct{}
}

// Voting is a member's part in the quorum.
type Voting struct {
	// Voters is how many members replicate the lock table: 1, 3, 5 or 7. All
	// further members are thin. All members must agree. Default: 3, and 5 in a
	// cluster in memory for as long as five members live that may vote. Where fewer
	// members live, the next smaller odd number vote.
	Voters int

	// Thin keeps this member from ever voting. A thin member is no founder.
	Thin bool

	// Sync says when this member's writes to Dir are flushed: SyncAlways, the default,
	// or SyncBoot. It needs a Dir. Members may differ.
	Sync Sync

	// Log is the kind of log in Dir: LogSegments, the default, or LogBolt. A Dir keeps its
	// kind: Start refuses the other one with a ConfigError that names the way out. It needs
	// a Dir. Members may differ.
	Log Log

	// Zone names the part of the infrastructure that fails as one: an
	// availability zone, a rack, a host. Voters are spread over as many zones as
	// possible. At most 64 bytes of letters, digits, '-', '_' and '.'; "" is a
	// zone of its own.
	Zone string

	_ struct{}
}

// Sync says when writes to a Dir are flushed to the disk.
type Sync uint8

const (
	// SyncAlways flushes each write before it counts: nothing acknowledged is lost as long
	// as the disks of a majority of the voters live.
	SyncAlways Sync = iota

	// SyncBoot leaves the flush to the operating system until the member stops. A crash of
	// the process loses nothing. A crash of the host loses the vote of this member: it
	// joins as a new voter and is brought up to date, as if its disk had been replaced. So
	// nothing acknowledged is lost as long as a majority of the voters has hosts that do
	// not go down at the same time: spread them, with Zone, over separate power. If a
	// majority does go down at once, the lock table is lost, and Node.Recover begins anew.
	// SyncBoot needs the kernel's boot ID, which Linux alone has.
	SyncBoot
)

func (s Sync) String() string { return nameOf(uint8(s), "SyncAlways", "SyncBoot") }

// Log is a kind of log in a Dir.
type Log uint8

const (
	// LogSegments is a log of preallocated files with one flush for each batch of entries.
	LogSegments Log = iota

	// LogBolt keeps the log in the bolt file that has the votes, by the library
	// raft-boltdb: two flushes for each batch, and years of use in other products.
	LogBolt
)

func (l Log) String() string { return nameOf(uint8(l), "LogSegments", "LogBolt") }

// nameOf names a value.
func nameOf(v uint8, names ...string) string {
	if int(v) < len(names) {
		return names[v]
	}
	return strconv.Itoa(int(v))
}

// Recovery says which sources this member believes about dead members. The zero
// value believes nobody but an operator.
type Recovery struct {
	// JoinIsComplete promises that Join lists every address at which a member of
	// the cluster may live, this member's own included: IP addresses, or a name
	// that resolves to all members, as a headless service with
	// publishNotReadyAddresses does. In memory only. The promise must hold at all
	// times: with a list that leaves a living member out, two clusters may grant
	// one lock. A name's list is believed after three complete answers over a
	// minute, each with this member's own address.
	JoinIsComplete bool

	// AssumeGone takes members for dead that were silent for so long, even if
	// they may live behind a partition: after a partition that lasts longer, two
	// clusters may grant one lock. 0, the default, means never. In memory only.
	AssumeGone time.Duration

	// TokenFloor, if set, tells the highest token that the protected resources have
	// seen, so that tokens rise although every process and every Dir was lost and the
	// founders' clocks are wrong. fence.File.Highest is one, sqlfence.Guard.Highest
	// nearly. Set TokenFloor on every member that may found.
	//
	// TokenFloor is asked before a cluster is founded, succeeded or recovered, by each
	// member that takes part. The first token is above all results, and never waits for
	// a clock. Where a clock is behind the result, the first token is above by 2^32, since
	// a former holder may have a token that it has not shown yet.
	//
	// While TokenFloor fails or does not return, this member takes no part in a founding:
	// Health says so, a line in the log warns, and TokenFloor is called again, within 15 s
	// at the latest. Each call has a ctx of 5 s and must return when ctx ends: Stop waits
	// for it. A result more than a day ahead of this host's clock and of the tokens that
	// this member has seen itself counts as a failure, since no later founding could give
	// the skipped tokens back.
	TokenFloor func(ctx context.Context) (fence.Token, error)

	_ struct{}
}

// Limits of a Config. Fields name further limits in their comments.
const (
	maxFounding = 64 // members in the founding group

	defaultTTL     = 10 * time.Second
	defaultBind    = "127.0.0.1:0"
	defaultCluster = "wardmote"
)

func badConfig(field, format string, args ...any) error {
	return &ConfigError{"Config." + field, fmt.Sprintf(format, args...)}
}

// withDefaults returns a checked copy of cfg with its defaults filled in.
func (cfg Config) withDefaults() (Config, error) {
	if cfg.Name != "" { // the default is chosen later: see setName
		if err := member.CheckName(cfg.Name); err != nil {
			return Config{}, badConfig("Name", "%v", err)
		}
	}
	if cfg.Cluster == "" {
		cfg.Cluster = defaultCluster
	}
	if err := member.CheckName(cfg.Cluster); err != nil {
		return Config{}, badConfig("Cluster", "%v", err)
	}
	if cfg.hostBoot == nil {
		cfg.hostBoot = identity.HostBoot
	}
	if cfg.Network == nil {
		cfg.Network = transport.TCP()
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	for _, check := range []func(*Config) error{
		(*Config).checkAddresses, (*Config).checkFirstMembers, (*Config).checkVoting, (*Config).checkTTL, (*Config).checkSecurity,
	} {
		if err := check(&cfg); err != nil {
			return Config{}, err
		}
	}
	return cfg, nil
}

// checkFirstMembers checks Founders and InitialSize.
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
	return nil
}

// checkVoting checks Voting and Recovery.
func (cfg *Config) checkVoting() error {
	switch cfg.Voting.Voters {
	case 0, 1, 3, 5, 7:
	default:
		return badConfig("Voting.Voters", "%d is not 1, 3, 5 or 7", cfg.Voting.Voters)
	}
	switch {
	case cfg.Voting.Thin && slices.Contains(cfg.Founders, cfg.Name):
		return badConfig("Voting.Thin", "%q is named in Founders, and a thin member founds nothing", cfg.Name)
	case cfg.Voting.Thin && cfg.InitialSize == 1:
		return badConfig("Voting.Thin", "a cluster of one thin member has no voter")
	case cfg.Voting.Thin && len(cfg.Join) == 0:
		return badConfig("Voting.Thin", "Join is empty, and a thin member founds nothing")
	case cfg.Voting.Sync > SyncBoot:
		return badConfig("Voting.Sync", "%d is not SyncAlways or SyncBoot", cfg.Voting.Sync)
	case cfg.Voting.Sync != SyncAlways && cfg.Dir == "":
		return badConfig("Voting.Sync", "%v without a Dir: there is nothing to flush", cfg.Voting.Sync)
	case cfg.Voting.Sync == SyncBoot && cfg.hostBoot() == "":
		return badConfig("Voting.Sync", "SyncBoot needs the kernel's boot ID, and this system has none")
	case cfg.Voting.Log > LogBolt:
		return badConfig("Voting.Log", "%d is not LogSegments or LogBolt", cfg.Voting.Log)
	case cfg.Voting.Log != LogSegments && cfg.Dir == "":
		return badConfig("Voting.Log", "%v without a Dir: the log is in memory", cfg.Voting.Log)
	case cfg.Recovery.AssumeGone < 0:
		return badConfig("Recovery.AssumeGone", "%v is negative", cfg.Recovery.AssumeGone)
	case cfg.Recovery.JoinIsComplete && len(cfg.Join) == 0:
		return badConfig("Recovery.JoinIsComplete", "Join is empty")
	}
	if zone := cfg.Voting.Zone; zone != "" {
		if err := member.CheckName(zone); err != nil {
			return badConfig("Voting.Zone", "%v", err)
		}
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

// String prints no secret.
func (cfg Config) String() string {
	return fmt.Sprintf("cluster.Config{Name: %q, Cluster: %q, Bind: %q, Advertise: %q, Join: %q, Founders: %q, InitialSize: %d, Voters: %d, Thin: %t, Zone: %q, Sync: %v, Log: %v, JoinIsComplete: %t, AssumeGone: %v, TTL: %v, Dir: %q, Security: %v}",
		cfg.Name, cfg.Cluster, cfg.Bind, cfg.Advertise, cfg.Join, cfg.Founders, cfg.InitialSize, cfg.Voting.Voters, cfg.Voting.Thin, cfg.Voting.Zone, cfg.Voting.Sync, cfg.Voting.Log, cfg.Recovery.JoinIsComplete, cfg.Recovery.AssumeGone, cfg.TTL, cfg.Dir, cfg.Security)
}

// GoString is String, so that %#v prints no secret either.
func (cfg Config) GoString() string { return cfg.String() }

// setName chooses the default name. A member on a port of its own choice is named
// by the address it advertises, which setName then sets in cfg: the port is bound
// later, under the name.
func (cfg *Config) setName(ctx context.Context, at surroundings) error {
	if cfg.Name != "" {
		return nil
	}
	if _, port, _ := member.SplitAddr(cfg.Bind); port == 0 {
		cfg.Name = defaultName()
		return nil
	}
	addr, err := cfg.advertise(ctx, cfg.Bind, at)
	if err != nil {
		return err
	}
	cfg.Name = nameAt(addr)
	if host, _, _ := net.SplitHostPort(addr); net.ParseIP(host) != nil {
		cfg.Advertise = addr
	}
	return cfg.checkVoting()
}

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
