package member

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/wardmote/wardmote/internal/host"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/meter"
	"github.com/wardmote/wardmote/internal/refused"
	"github.com/wardmote/wardmote/internal/timing"
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
	Refused *refused.Log // counts and tells messages that were refused; may be nil
	Clock   *Clock       // nil: package time; see package host for the readings that take it
	Meter   *meter.Node  // counts for the metrics; a room that may be given nil makes one of its own
	Grid    *timing.Grid // for the looks that the rooms take again and again; nil: each for itself
}

// Clock is the clock of a member's host.
type Clock = host.Clock

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
	Leaving    bool              // for good: the member is to be replaced as a voter
	Ending     bool              // the process ends its node now, for good or for a while
	Thin       bool              // the member never votes
	Zone       string            // the part of the infrastructure that fails as one; "" is a zone of its own
	Leads      uint64            // the term in which the member leads and serves, or 0
	TTL        uint64            // milliseconds
	Format     uint8             // the newest format of log entries that the member reads; 0 means LeastFormat
	Release    string            // of the member's program, such as "v1.2.0", for people to read
	Keys       string            // the IDs of the secrets that the member knows, the newest first: see KeyIDs
	Ahead      int64             // milliseconds by which its wall clock is ahead of its leader's, for people to read; 0 also if that is little, or not known
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

// Contact is a leader's experience with another server of the raft configuration.
type Contact struct {
	Last    time.Time // of the latest answer; zero: none yet
	Failing bool      // the latest exchange failed
	Current bool      // the server's log has come as far as the leader's, but for one exchange
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

// Locate finds the process behind a raft ID: the first of Holders.
func Locate(sightings []Sighting, raftID string) (Process, error) {
	holders, err := Holders(sightings, raftID)
	if err != nil {
		return Process{}, err
	}
	return holders[0], nil
}

// Holders lists the processes that may be behind a raft ID, the likeliest first, at
// least one. A process of that generation goes before every other process of the
// name, a living process before a dead one, and a newer boot before an older one.
func Holders(sightings []Sighting, raftID string) ([]Process, error) {
	name, generation, err := ParseRaftID(raftID)
	if err != nil {
		return nil, err
	}
	if len(sightings) == 1 && sightings[0].Name == name {
		return []Process{sightings[0].Process}, nil // so it is for each message to a member that has not restarted
	}
	var all []Sighting
	for _, s := range sightings {
		if s.Name == name {
			all = append(all, s)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("cluster: no address of member %q is known", name)
	}
	first := func(a, b bool) int {
		switch {
		case a == b:
			return 0
		case a:
			return -1
		}
		return 1
	}
	slices.SortStableFunc(all, func(a, b Sighting) int {
		return cmp.Or(
			first(a.Meta.Generation == generation, b.Meta.Generation == generation),
			first(a.Alive, b.Alive),
			cmp.Compare(b.Boot, a.Boot),
		)
	})
	out := make([]Process, len(all))
	for i, s := range all {
		out[i] = s.Process
	}
	return out, nil
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
