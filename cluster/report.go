package cluster

import (
	"fmt"
	"strconv"
	"time"
)

// Report is everything that a member knows by itself at a moment: of itself for
// certain, and of its cluster as it was told last, each part with its age. Node.Report
// makes one.
//
// A Report is a JSON document, and the document decodes into a Report. The names of its
// fields stay. docs/report.md explains each of them. Times are RFC 3339 by this host's
// clock, durations are text as Go writes them ("1.5s"), numbers of 64 bits are text, and
// enumerations are words. A part that does not apply is left out. No secret is in a
// Report, but names, addresses and file names are.
type Report struct {
	// At is the moment. Every age counts up to it.
	At time.Time `json:"at"`

	Own    OwnReport    `json:"own"`            // this member
	Config ConfigReport `json:"config"`         // its configuration, without secrets
	Join   JoinReport   `json:"join"`           // the ways to other members, and the answers there
	Leader LeaderReport `json:"leader"`         // the way to the leader
	Raft   *RaftReport  `json:"raft,omitempty"` // this member's part in the quorum; nil on a thin member

	// Streams counts the connections with other members by kind and direction.
	Streams []StreamsReport `json:"streams"`

	// Health is the state of the cluster as this member knows it without asking.
	Health HealthReport `json:"health"`

	// Summary counts what the lock table has, with its source and its age. Nil: this
	// member has not heard of a table.
	Summary *Summary `json:"summary,omitempty"`

	// Members are the members that this member knows of, by name, this one included;
	// the dead stay for a while.
	Members []MemberReport `json:"members"`

	// Events are the latest events, the oldest first: up to 128.
	Events []EventReport `json:"events"`

	_ struct{}
}

// OwnReport describes this member.
type OwnReport struct {
	Name      string        `json:"name"`
	Addr      string        `json:"addr"` // host:port as told to others
	Boot      uint64        `json:"boot,string"`
	Cluster   string        `json:"cluster"`             // the cluster's name
	ClusterID string        `json:"clusterID,omitempty"` // in hex; "" while this member is in no cluster
	Role      string        `json:"role"`                // "leader", "voter" or "thin"
	Started   time.Time     `json:"started"`
	Up        Duration      `json:"up"` // since Started
	Leaving   bool          `json:"leaving,omitempty"`
	Ended     string        `json:"ended,omitempty"` // why the node has ended; "" while it runs
	Version   VersionReport `json:"version"`
}

// VersionReport says which program runs.
type VersionReport struct {
	Module   string `json:"module"` // of this library, such as "v1.2.0", or "(devel)"
	Go       string `json:"go"`     // such as "go1.26.1"
	Platform string `json:"platform"`
	Protocol int    `json:"protocol"`         // of the messages between members
	Format   int    `json:"format"`           // the newest format of log entries that the program reads
	Commit   string `json:"commit,omitempty"` // of the program's source, if the program was built with it
}

// ConfigReport is a Config without its secrets and functions.
type ConfigReport struct {
	Bind           string   `json:"bind"`
	Advertise      string   `json:"advertise,omitempty"`
	Join           []string `json:"join,omitempty"`
	Resolver       bool     `json:"resolver,omitempty"` // one is set
	Founders       []string `json:"founders,omitempty"`
	InitialSize    int      `json:"initialSize,omitempty"`
	TTL            Duration `json:"ttl"`
	Dir            string   `json:"dir,omitempty"`
	Secrets        int      `json:"secrets,omitempty"`   // how many are known
	SecretIDs      []string `json:"secretIDs,omitempty"` // their public names, the newest first
	TLS            bool     `json:"tls,omitempty"`
	Identity       bool     `json:"identity,omitempty"`
	Authorize      bool     `json:"authorize,omitempty"`
	Insecure       bool     `json:"insecure,omitempty"`
	Voters         int      `json:"voters,omitempty"` // 0: the default
	Thin           bool     `json:"thin,omitempty"`
	Zone           string   `json:"zone,omitempty"`
	Sync           string   `json:"sync,omitempty"` // with a Dir
	Log            string   `json:"log,omitempty"`  // with a Dir
	JoinIsComplete bool     `json:"joinIsComplete,omitempty"`
	AssumeGone     Duration `json:"assumeGone,omitempty"`
	TokenFloor     bool     `json:"tokenFloor,omitempty"`
}

// JoinReport says where this member looks for others.
type JoinReport struct {
	// Names are the entries of Join that are names, with their latest look-ups.
	Names []LookupReport `json:"names,omitempty"`

	// Tries are the addresses tried, with the latest answers: up to 256.
	Tries []TryReport `json:"tries,omitempty"`

	// Progress tells how far the founding has come while this member is in no cluster.
	Progress string `json:"progress,omitempty"`
}

// LookupReport is the latest look-up of a name.
type LookupReport struct {
	Entry string    `json:"entry"` // of Config.Join
	Found []string  `json:"found,omitempty"`
	Error string    `json:"error,omitempty"`
	At    time.Time `json:"at,omitzero"` // zero: not looked up yet
	Age   Duration  `json:"age,omitempty"`
}

// TryReport is the latest try to join at an address.
type TryReport struct {
	Addr   string    `json:"addr"`
	Joined bool      `json:"joined"`           // a member of this cluster's name has answered and exchanged its list
	Answer string    `json:"answer,omitempty"` // why not, in words
	At     time.Time `json:"at"`
	Age    Duration  `json:"age"`
	Tries  uint64    `json:"tries,string"` // since the start
}

// LeaderReport is this member's way to the leader.
type LeaderReport struct {
	Reached bool      `json:"reached"`         // a leader serves this member now
	Name    string    `json:"name,omitempty"`  // of the leader
	Addr    string    `json:"addr,omitempty"`  // of the leader
	Self    bool      `json:"self,omitempty"`  // this member leads
	Via     string    `json:"via,omitempty"`   // the address of the voter that carries the stream; "" if there is none between
	Term    uint64    `json:"term,string"`     // the highest term of a leader that has served this member
	Since   time.Time `json:"since,omitzero"`  // when the leader was reached, or lost
	For     Duration  `json:"for,omitempty"`   // since Since
	Bound   Duration  `json:"bound,omitempty"` // of session TTLs
}

// RaftReport is this member's part in the replicated log.
type RaftReport struct {
	ID       string   `json:"id"`    // name#generation
	State    string   `json:"state"` // "leader", "follower", "candidate" or "shutdown"
	Votes    bool     `json:"votes"` // listed as a voter
	Voters   []string `json:"voters"`
	Term     uint64   `json:"term,string"`
	Leader   string   `json:"leader,omitempty"` // the raft ID that is followed
	Last     uint64   `json:"last,string"`      // index of the newest entry in the log
	Commit   uint64   `json:"commit,string"`    // index of the newest entry known to be committed
	Applied  uint64   `json:"applied,string"`   // index of the newest entry in the table
	Snapshot uint64   `json:"snapshot,string"`  // index of the newest snapshot
	Lag      uint64   `json:"lag,string"`       // entries committed and not applied yet

	// Contact is when a leader was last heard by a follower: zero on the leader.
	Contact    time.Time `json:"contact,omitzero"`
	ContactAge Duration  `json:"contactAge,omitempty"`

	Elections uint64 `json:"elections,string"` // won by this process

	// Commits and Rounds are of the leader: how long the latest entries took from their
	// proposal to their application, and how long the latest rounds took by which a
	// majority of the voters confirmed the leader.
	Commits Quantiles `json:"commits"`
	Rounds  Quantiles `json:"rounds"`

	// Store is about the log on disk, or in memory.
	Store StoreReport `json:"store"`
}

// StoreReport is about the store of the log.
type StoreReport struct {
	Durable bool      `json:"durable"`
	Writes  Quantiles `json:"writes"`            // how long the latest writes took, flush to disk included
	Stalled Duration  `json:"stalled,omitempty"` // how long the running write has been running
	Failed  string    `json:"failed,omitempty"`  // why the store takes no more writes
}

// Quantiles describe the latest durations of a kind: some hundreds of them.
type Quantiles struct {
	Count uint64   `json:"count,string"` // since the start
	P50   Duration `json:"p50"`
	P90   Duration `json:"p90"`
	P99   Duration `json:"p99"`
	Max   Duration `json:"max"`
}

// StreamsReport counts connections of one kind.
type StreamsReport struct {
	Kind     string `json:"kind"`     // "gossip", "raft", "member", "control", "packets" or "relay"
	Dialled  int    `json:"dialled"`  // by this member
	Accepted int    `json:"accepted"` // by this member
}

// HealthReport is a Health without asking: the words are of now, as far as this member
// knows, and Confirmed tells when a majority of the voters has last answered.
type HealthReport struct {
	Health

	// Confirmed is when this member last got an answer that a majority of the voters
	// had confirmed. Quorum says that a leader is reached now and has been confirmed
	// within the last TTL. Zero: never.
	Confirmed time.Time `json:"confirmed,omitzero"`
	Age       Duration  `json:"age,omitempty"` // since Confirmed
}

// Summary counts what a lock table has.
type Summary struct {
	// Source is "table" for this member's own copy of the table, or "leader" for the
	// leader's last word.
	Source string `json:"source"`

	At  time.Time `json:"at"`  // when the table was in this state, or when the word came
	Age Duration  `json:"age"` // since At

	Index    uint64 `json:"index,string,omitempty"` // an own table has every entry up to this one; 0 for a word
	Term     uint64 `json:"term,string,omitempty"`  // of the leader with the word; 0 for an own table
	Commands uint64 `json:"commands,string"`        // applied to the table since its founding
	Granting bool   `json:"granting"`               // the founding wait is over

	Keys     int `json:"keys"`     // held or waited for
	Grants   int `json:"grants"`   // of keys to sessions
	Waits    int `json:"waits"`    // requests in queues
	Sessions int `json:"sessions"` // open
	Groups   int `json:"groups"`   // of shards, with callers
	Shards   int `json:"shards"`   // of all groups
	Values   int `json:"values"`   // keys with a value
	Members  int `json:"members"`  // attached to the leader; 0 for a follower's own table
}

// MemberReport is another member, or this one, as this member knows it.
type MemberReport struct {
	Name   string `json:"name"`
	Addr   string `json:"addr"`
	Boot   uint64 `json:"boot,string"`
	Self   bool   `json:"self,omitempty"`
	Leader bool   `json:"leader,omitempty"`
	Voter  bool   `json:"voter,omitempty"`
	Thin   bool   `json:"thin,omitempty"` // never votes
	Zone   string `json:"zone,omitempty"`

	// Reach says how this member reaches the other one: "self"; "reached" if a message
	// came within the last seconds; "seen" if gossip counts the member as alive and no
	// message came lately; "lost" if gossip counts it as dead; "ended" if its process
	// has ended for certain.
	Reach string    `json:"reach"`
	Heard time.Time `json:"heard,omitzero"` // when a message last came from it; zero: never
	Age   Duration  `json:"age,omitempty"`  // since Heard
	Since time.Time `json:"since,omitzero"` // when gossip began to count it as alive, or as dead
	Alive bool      `json:"alive"`          // by gossip

	// The leader's word on a voter.
	Reached bool `json:"reached,omitempty"` // the leader reaches it
	Current bool `json:"current,omitempty"` // it has caught up with the log
	Leaving bool `json:"leaving,omitempty"`

	Durable bool     `json:"durable,omitempty"` // it has a Dir
	Version string   `json:"version,omitempty"` // of its module
	Format  int      `json:"format,omitempty"`  // the newest format of log entries that it reads
	TTL     Duration `json:"ttl,omitempty"`     // its Config.TTL
	Foreign bool     `json:"foreign,omitempty"` // of another cluster, or of none yet

	// Clock is how far the member's wall clock is ahead of this host's, negative if it is
	// behind: by the leader's last summary, and for other living members by what they have told
	// about their clocks and the leader's. nil without a leader's word. ClockError bounds
	// the error of the reading, unless a clock was set since the member's last word.
	Clock      *Duration `json:"clock,omitempty"`
	ClockError Duration  `json:"clockError,omitempty"`
}

// EventReport is an Event of the past.
type EventReport struct {
	At     time.Time `json:"at"`
	Kind   string    `json:"kind"`
	Member string    `json:"member,omitempty"`
	Addr   string    `json:"addr,omitempty"`
	Term   uint64    `json:"term,string,omitempty"`
	Detail string    `json:"detail,omitempty"`
	Next   string    `json:"next,omitempty"`
}

// Duration is a time.Duration that is text in JSON, as time.Duration.String writes it.
type Duration time.Duration

// String returns the duration as time.Duration does.
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText returns the text of String. The error is always nil.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText parses the text of MarshalText. On an error d is unchanged.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("cluster: %s is not a duration", strconv.Quote(string(text[:min(len(text), 32)])))
	}
	*d = Duration(v)
	return nil
}
