package locks

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/wardmote/wardmote/fence"
)

// Shards is a map of the shards of a name of Spread and their owners, for routing. The
// map is kept current by the leader's pushes, and asking the map does no I/O. A map
// may be some milliseconds behind, or as long as no leader can be reached: the owner
// of a shard must check that it still is, with Mine or Lock.Err, and a process that is
// asked for a shard that it does not own names the owner, as examples/router does.
//
// The methods may be called from any goroutine.
type Shards struct {
	c    *Client
	name string

	mu       sync.RWMutex
	owners   []Owner // by shard; Token is 0 if the shard has no owner
	callers  []Caller
	options  GroupOptions
	shards   int
	resizing int // the next number of shards; 0: the number does not change
	version  uint64
	changed  chan struct{}
	err      error // why the map is not kept current any more
}

// Owner is the owner of a shard: the holder of its key.
type Owner struct {
	Client string            `json:"client"`         // its Options.Name
	Node   string            `json:"node"`           // the member on which the client runs
	Addr   string            `json:"addr,omitempty"` // of that member in the cluster, host:port; empty if this member does not see it
	Self   bool              `json:"self,omitempty"` // the client of this map
	Token  fence.Token       `json:"token"`
	Meta   map[string]string `json:"meta,omitempty"` // Options.Meta of the client; not to be changed
}

// Caller is a caller of Spread.
type Caller struct {
	Client string `json:"client"`         // its Options.Name
	Node   string `json:"node"`           // the member on which the client runs
	Addr   string `json:"addr,omitempty"` // like Owner.Addr
	Self   bool   `json:"self,omitempty"` // the client of this map
	Weight int    `json:"weight"`
	Shards int    `json:"shards"` // the number of shards assigned to the caller, which may not own them all yet

	// Succeeds is the name of the client that the caller waits for: see the option
	// Succeeds. It is empty once the caller has taken that caller's place.
	Succeeds string `json:"succeeds,omitempty"`

	// Absent says that the caller has left, and that its shards wait for its return:
	// see the option Grace.
	Absent bool `json:"absent,omitempty"`

	// Next says that the caller named the number of shards to which the name is being
	// resized: see Client.Resize. It owns nothing yet.
	Next bool `json:"next,omitempty"`
}

// GroupOptions are the options in force for all callers of a name: those of the
// caller that enlisted last.
type GroupOptions struct {
	Drain    time.Duration `json:"drain"`
	Grace    time.Duration `json:"grace"`
	MaxMoves int           `json:"maxMoves,omitempty"` // 0: the default
}

// Shards returns a map of the shards of name, and returns once the map is complete. The
// map is kept current until ctx ends or the client is closed. On failure the error is
// the cause of ctx, with cluster.ErrNoQuorum if no leader was found until then;
// ErrClosed; cluster.ErrStopped; cluster.ErrVersion; or a *cluster.ConfigError. A name
// without callers has a map without shards.
func (c *Client) Shards(ctx context.Context, name string) (*Shards, error) {
	if err := c.beginCall(); err != nil {
		return nil, err
	}
	defer c.calls.Done()
	if ctx == nil {
		return nil, configError("ctx", "nil")
	}
	if err := checkGroup(name); err != nil {
		return nil, err
	}
	m := &Shards{c: c, name: name, changed: make(chan struct{})}
	if err := m.follow(ctx); err != nil {
		return nil, callError("read the shards of", name, err)
	}
	return m, nil
}

// Owner returns the owner of a shard; false if there is none now, or if there is no
// such shard.
func (m *Shards) Owner(shard int) (Owner, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if shard < 0 || shard >= min(m.shards, len(m.owners)) || m.owners[shard].Token == 0 {
		return Owner{}, false
	}
	o := m.owners[shard]
	if o.Addr == "" { // the member came into sight later than its lock
		o.Addr = m.c.addrs()[o.Node]
	}
	return o, true
}

// Mine returns the lock of a shard that this client owns, by a work of Spread that
// runs. The lock is held and may be trusted at the moment of the call, whatever the map
// says; the map may name this client a moment before its work begins. Whoever uses the lock outside of the work checks it like the work: see
// Lock.Context and Lock.Require.
func (m *Shards) Mine(shard int) (*Lock, bool) {
	call, ok := m.c.spreads.Load(m.name)
	if !ok {
		return nil, false
	}
	sp := call.(*spreadCall).now.Load()
	if sp == nil {
		return nil, false
	}
	l := sp.lock(shard)
	if l == nil || l.Err() != nil {
		return nil, false
	}
	return l, true
}

// Len returns the number of shards; 0 if the cluster does not know the name.
func (m *Shards) Len() int {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.shards
}

// Resizing returns the number of shards that Client.Resize is changing to; false if
// the number does not change now.
func (m *Shards) Resizing() (to int, ok bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.resizing, m.resizing != 0
}

// Callers returns the callers of Spread, in the order of their coming, absent ones
// included.
func (m *Shards) Callers() []Caller {
	m.mu.RLock()
	defer m.mu.RUnlock()
	callers := slices.Clone(m.callers)
	var addrs map[string]string
	for i := range callers {
		if c := &callers[i]; c.Addr == "" && !c.Absent {
			if addrs == nil {
				addrs = m.c.addrs()
			}
			c.Addr = addrs[c.Node]
		}
	}
	return callers
}

// Options returns the options in force for all callers.
func (m *Shards) Options() GroupOptions {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.options
}

// Version returns the version of the map, which rises with each change of an owner.
// Versions of maps in different processes can be compared: a map of a larger version
// knows every change that a map of a smaller version knows.
func (m *Shards) Version() uint64 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.version
}

// Changed returns a channel that is closed at the next change of the map, or when the
// map is not kept current any more. To miss no change, call Changed before reading
// the map.
func (m *Shards) Changed() <-chan struct{} {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.changed
}

// Err returns nil while the map is kept current, and afterwards the cause of ctx,
// ErrClosed, cluster.ErrStopped or cluster.ErrVersion. The map keeps its last state.
func (m *Shards) Err() error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.err
}
