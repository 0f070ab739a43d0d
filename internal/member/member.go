package member

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/wardmote/wardmote/internal/machine"
)

// MaxName is the limit of a member's name and of a cluster's name, in bytes.
const MaxName = 64

// Self describes this node to the rooms of the node.
type Self struct {
	Name    string
	Boot    uint64 // new at each start of the process
	Addr    string // host:port as advertised to other members
	Cluster string // the cluster's name
	Log     *slog.Logger
}

// Process returns this node's own process.
func (s Self) Process() Process { return Process{Name: s.Name, Boot: s.Boot, Addr: s.Addr} }

// Is reports whether p is this node: same name and same boot.
func (s Self) Is(p Process) bool { return p.Name == s.Name && p.Boot == s.Boot }

// Process is one run of a member, and its address. Boot 0 stands for any run
// of the name; an empty Name stands for any member at the address. An address
// may pass to another process, hence the name and the boot beside it.
type Process struct {
	Name string
	Boot uint64
	Addr string // host:port
}

// LogValue names the member and its address.
func (p Process) LogValue() slog.Value { return slog.StringValue(p.Name + " at " + p.Addr) }

// Metadata is a member's description, spread by gossip. The encoding must not
// exceed memberlist's limit of 512 bytes.
type Metadata struct {
	Version    uint8             // ProtocolVersion of the sender
	Cluster    machine.ClusterID // zero: the member is in no cluster yet
	Generation uint64            // of its raft ID; 0 if it has no store
	Voter      bool              // the member's raft configuration lists it as a voter
	Founder    bool              // the member takes part in founding
	Durable    bool              // the member has a Dir
	Leaving    bool
	Leads      uint64 // the term in which the member leads and serves, or 0
	TTL        uint64 // milliseconds
	Format     uint8  // the newest format of log entries that the member reads; 0 means LeastFormat
}

// ProtocolVersion is the version of this program's messages.
// Members of another version never become voters together.
const ProtocolVersion = 1

// LeastFormat is the format of log entries read by every member.
const LeastFormat = 1

// ReadsFormat returns the newest format of log entries read by the member.
func (m Metadata) ReadsFormat() int { return max(int(m.Format), LeastFormat) }

// InCluster reports whether the member belongs to a cluster.
func (m Metadata) InCluster() bool { return m.Cluster != (machine.ClusterID{}) }

// Sighting is gossip's latest knowledge of one process of a member.
type Sighting struct {
	Process
	Meta  Metadata
	Alive bool
	Since time.Time // when Alive last changed, on this host's clock
}

// Compare orders sightings by name, then by boot.
func Compare(a, b Sighting) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Boot, b.Boot))
}

// Server is a line of a raft configuration.
type Server struct {
	ID    string // a raft ID
	Voter bool
}

// RaftID returns a member's raft ID. A generation is new with every empty store:
// votes and acknowledgements of a lost store never count for the next store.
func RaftID(name string, generation uint64) string {
	return name + "#" + strconv.FormatUint(generation, 36)
}

// ParseRaftID splits a raft ID, and refuses an ID without a valid name or
// generation.
func ParseRaftID(id string) (name string, generation uint64, err error) {
	name, digits, ok := strings.Cut(id, "#")
	if ok {
		generation, err = strconv.ParseUint(digits, 36, 64)
	}
	if !ok || err != nil || generation == 0 || CheckName(name) != nil {
		return "", 0, fmt.Errorf("cluster: %q is not a raft ID", id)
	}
	return name, generation, nil
}

// Locate finds the process behind a raft ID. A process of that generation
// goes before every other process of the name, a living process before a dead
// one, and a newer boot before an older one.
func Locate(sightings []Sighting, raftID string) (Process, error) {
	name, generation, err := ParseRaftID(raftID)
	if err != nil {
		return Process{}, err
	}
	exact := func(s *Sighting) bool { return s.Meta.Generation == generation }
	var best *Sighting
	for i := range sightings {
		s := &sightings[i]
		better := false
		switch {
		case s.Name != name:
		case best == nil:
			better = true
		case exact(s) != exact(best):
			better = exact(s)
		case s.Alive != best.Alive:
			better = s.Alive
		default:
			better = s.Boot > best.Boot
		}
		if better {
			best = s
		}
	}
	if best == nil {
		return Process{}, fmt.Errorf("cluster: no address of member %q is known", name)
	}
	return best.Process, nil
}

// FormatOf returns the newest format of log entries that the holder of a raft
// ID reads, by the description of the newest process of that generation. A dead
// process counts too, since the process may come back unchanged. An unknown holder reads
// LeastFormat.
func FormatOf(sightings []Sighting, raftID string) int {
	name, generation, err := ParseRaftID(raftID)
	if err != nil {
		return LeastFormat
	}
	format, boot := LeastFormat, uint64(0)
	for _, s := range sightings {
		if s.Name == name && s.Meta.Generation == generation && s.Boot >= boot {
			boot, format = s.Boot, s.Meta.ReadsFormat()
		}
	}
	return format
}

// CheckName returns why name cannot be the name of a member or a cluster, or
// nil: 1 to MaxName bytes of letters, digits, '-', '_' and '.'.
func CheckName(name string) error {
	switch {
	case name == "":
		return errors.New("empty")
	case len(name) > MaxName:
		return fmt.Errorf("%d bytes exceed the limit of %d", len(name), MaxName)
	case !utf8.ValidString(name):
		return errors.New("not valid UTF-8")
	}
	for _, c := range name {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("-_.", c) {
			return fmt.Errorf("%q contains %q; letters, digits, '-', '_' and '.' are allowed", name, c)
		}
	}
	return nil
}

// SplitAddr splits host:port and checks the number of the port.
func SplitAddr(addr string) (host string, port int, err error) {
	host, digits, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, fmt.Errorf("%q is not host:port", addr)
	}
	port, err = strconv.Atoi(digits)
	if err != nil || port < 0 || port > 65535 {
		return "", 0, fmt.Errorf("%q has no valid port", addr)
	}
	return host, port, nil
}
