package locks

import (
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/fence"
)

// Report is everything that a client and its node know by themselves at a moment.
// Client.Report makes one. Like cluster.Report, it is a JSON document that decodes into a
// Report; docs/report.md explains each field.
type Report struct {
	Node    cluster.Report `json:"node"`
	Client  string         `json:"client"`            // Options.Name
	Session *OwnSession    `json:"session,omitempty"` // the present session; nil: there is none

	// Holds are grants of this client in the order of their keys: up to 100 of the
	// number in HoldsTotal. LocalKeys has all.
	Holds      []OwnHold `json:"holds"`
	HoldsTotal int       `json:"holdsTotal"`

	// Kept is the number of keys of the option Sticky that this client keeps without a lock.
	Kept int `json:"kept,omitempty"`

	// Waits are requests of this client without an answer, in the order of their keys:
	// up to 100 of the number in WaitsTotal.
	Waits      []OwnWait `json:"waits"`
	WaitsTotal int       `json:"waitsTotal"`

	Spreads []OwnSpread `json:"spreads"` // the running calls of Spread, by name

	// Losses are the latest losses of this client, the oldest first: up to 64.
	Losses []OwnLoss `json:"losses"`

	// Events are the latest events of this client besides grants and releases, the
	// oldest first: up to 64.
	Events []OwnEvent `json:"events"`

	Counts Counts `json:"counts"` // since the start of the client

	_ struct{}
}

// OwnSession is a client's present session.
type OwnSession struct {
	Ref    string           `json:"ref"` // see Session.Ref
	TTL    cluster.Duration `json:"ttl"`
	Opened time.Time        `json:"opened"`

	// Confirmed is when the last confirmed beat was sent, and Trust is how long the
	// client may rely on its grants without another one.
	Confirmed time.Time        `json:"confirmed"`
	Age       cluster.Duration `json:"age"` // since Confirmed
	Trust     cluster.Duration `json:"trust"`
	Pending   int              `json:"pending"` // beats without an answer
}

// OwnHold is a grant of this client.
type OwnHold struct {
	Key       string           `json:"key"`
	Keys      int              `json:"keys,omitempty"` // the number of keys under the token, if more than 1
	Token     fence.Token      `json:"token"`
	Mode      Mode             `json:"mode"`
	Since     time.Time        `json:"since"`
	Age       cluster.Duration `json:"age"`
	Asked     bool             `json:"asked,omitempty"`     // asked to release the key
	Contended bool             `json:"contended,omitempty"` // another request waits
}

// OwnWait is a request of this client without an answer.
type OwnWait struct {
	Key      string           `json:"key"`
	Keys     int              `json:"keys,omitempty"` // the number of keys wanted at once, if more than 1
	Mode     Mode             `json:"mode"`
	Since    time.Time        `json:"since"`
	Age      cluster.Duration `json:"age"`
	Position int              `json:"position"`         // holders and waiters before the request, by the cluster's last word
	Holder   string           `json:"holder,omitempty"` // a client in the way, by the same word
	Node     string           `json:"node,omitempty"`   // of that client
	Token    fence.Token      `json:"token"`            // of that client's grant; "0" if it waits too, or is not known
	Upgrade  bool             `json:"upgrade,omitempty"`
}

// OwnSpread is a running call of Spread.
type OwnSpread struct {
	Name   string `json:"name"`
	Shards int    `json:"shards"` // of the name
	Mine   []int  `json:"mine"`   // owned by this client, whose work runs; ascending
}

// OwnLoss is a lost grant.
type OwnLoss struct {
	At     time.Time        `json:"at"`
	Key    string           `json:"key"`
	Token  fence.Token      `json:"token"`
	Reason Reason           `json:"reason"`
	Held   cluster.Duration `json:"held"` // since the grant
}

// OwnEvent is an event of a client, as Trace tells it.
type OwnEvent struct {
	At     time.Time        `json:"at"`
	Kind   string           `json:"kind"` // the name of the function of Trace, such as "BeatFailed"
	Key    string           `json:"key,omitempty"`
	Token  fence.Token      `json:"token"` // "0" if there is none
	Took   cluster.Duration `json:"took,omitempty"`
	Detail string           `json:"detail,omitempty"`
}

// Counts counts a client's events, grants of shards included. The metrics of package
// lockshttp have the same counts.
type Counts struct {
	Sessions     uint64 `json:"sessions,string"` // opened
	SessionsLost uint64 `json:"sessionsLost,string"`
	Granted      uint64 `json:"granted,string"`
	Released     uint64 `json:"released,string"`
	Failed       uint64 `json:"failed,string"` // calls for a lock that returned an error
	Lost         uint64 `json:"lost,string"`
	Beats        uint64 `json:"beats,string"` // confirmed
	BeatsFailed  uint64 `json:"beatsFailed,string"`
}

// Source says where a local view comes from.
type Source struct {
	// From is "table" for this member's own copy of the lock table, as a voter has one;
	// and "own" on a thin member, which knows the grants, requests and calls of this
	// client alone.
	From string `json:"from"`

	// Index is the newest entry in the table. Index and Age count for the table; an own
	// view is of now.
	Index uint64           `json:"index,string"`
	At    time.Time        `json:"at"`  // when the view was current for certain
	Age   cluster.Duration `json:"age"` // since At

	// Leads says that this member leads, so Left is known in the view.
	Leads bool `json:"leads,omitempty"`
}

// LocalKeys is a page of keys, from this member alone.
type LocalKeys struct {
	Source Source   `json:"source"`
	Keys   []Status `json:"keys"` // in ascending order
	Next   string   `json:"next,omitempty"`
}

// LocalSessions is a page of sessions, from this member alone.
type LocalSessions struct {
	Source   Source    `json:"source"`
	Sessions []Session `json:"sessions"` // in the order of their Refs
	Next     string    `json:"next,omitempty"`
}

// LocalShards is a page of the shards of a name, from this member alone.
type LocalShards struct {
	Source   Source       `json:"source"`
	Name     string       `json:"name"`
	Shards   int          `json:"shards"`             // 0: the name is not known here
	Resizing int          `json:"resizing,omitempty"` // to so many shards
	Orphans  int          `json:"orphans"`            // assigned to no caller; table only
	Options  GroupOptions `json:"options"`            // table only
	Callers  []Caller     `json:"callers"`
	Owners   []ShardOwner `json:"owners"` // of the shards with an owner, by shard
	Next     int          `json:"next,omitempty"`
}

// ShardOwner is a shard with its owner.
type ShardOwner struct {
	Shard int `json:"shard"`
	Owner
}

// LocalNames lists the names of Spread, from this member alone.
type LocalNames struct {
	Source Source   `json:"source"`
	Names  []string `json:"names"` // in ascending order
	Next   string   `json:"next,omitempty"`
}
