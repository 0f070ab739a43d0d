package lockstest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/internal/host"
	"github.com/wardmote/wardmote/internal/simnet"
	"github.com/wardmote/wardmote/internal/wakeup"
	"github.com/wardmote/wardmote/locks"
)

// Defaults for tests.
const (
	defaultTTL = 2 * time.Second
	formLimit  = time.Minute // the test fails if the cluster has not formed by then
	maxMembers = 200
	maxEvents  = 10_000
)

// Option changes the cluster that New starts.
type Option func(*Cluster)

// TTL sets the cluster's TTL; the default is 2 s.
func TTL(d time.Duration) Option { return func(c *Cluster) { c.ttl = d } }

// Config calls f with each member's number and configuration before the member
// starts, and before each Restart. f may change the configuration, for example to receive
// the member's events, or to give the member a Dir. A member with another Network is
// beyond the reach of all faults but Kill.
func Config(f func(i int, cfg *cluster.Config)) Option { return func(c *Cluster) { c.change = f } }

// Cluster is a running cluster of members 0 to n-1. The first three found the
// cluster and vote. If a method cannot do its work, it fails the test. The
// methods may be called from any goroutine of the test.
type Cluster struct {
	t      testing.TB
	ttl    time.Duration
	change func(int, *cluster.Config)
	net    *simnet.Network

	hosts   []*site
	changed wakeup.All // a member began or ended, or a fault of a whole member
	stops   sync.WaitGroup

	mu      sync.Mutex
	members []*member
	past    []*member // killed members
	events  []string  // logged if the test fails
}

type member struct {
	i       int
	node    *cluster.Node
	disk    *host.Disk
	started time.Time

	observer *locks.Client // see Cluster.observer
	clients  []*locks.Client
	client   *locks.Client // returned by Cluster.Client
}

// New starts a cluster of n members, and returns when each member can take
// locks. If that fails, the test fails. The end of the test stops the cluster;
// if the test has failed, New's cluster logs the events of its members and the faults.
func New(t testing.TB, n int, opts ...Option) *Cluster {
	t.Helper()
	if n < 1 || n > maxMembers {
		t.Fatalf("lockstest: %d members is not within 1 and %d", n, maxMembers)
	}
	c := &Cluster{t: t, ttl: defaultTTL, net: simnet.New(1), members: make([]*member, n)}
	for i := range n {
		c.hosts = append(c.hosts, newSite(c.net, i))
	}
	for _, o := range opts {
		o(c)
	}
	c.net.SetDefault(simnet.Link{Delay: time.Millisecond})
	if c.change != nil {
		t.TempDir() // so that a Dir which change makes by TempDir is removed after stop
	}
	t.Cleanup(c.stop)
	for i := range n {
		c.startMember(i, min(n, 3))
	}
	for i := range n {
		c.waitReady(i)
	}
	return c
}

func ip(i int) string         { return fmt.Sprintf("10.0.0.%d", i+1) }
func memberName(i int) string { return fmt.Sprint("member-", i) }

// startMember starts member i. If i is below founders, the member is one of
// that number of founders.
func (c *Cluster) startMember(i, founders int) {
	c.t.Helper()
	if i >= founders {
		founders = 0
	}
	disk := &host.Disk{}
	started := time.Now()
	cfg := cluster.Config{
		Name: memberName(i), Bind: ip(i) + ":7000", TTL: c.ttl,
		InitialSize: founders,
		Network:     process{c.hosts[i].network, host.Host{Clock: c.hosts[i].clock, Disk: disk}},
	}
	for j := range min(len(c.members), 5) {
		if j != i {
			cfg.Join = append(cfg.Join, ip(j)+":7000")
		}
	}
	if founders == 0 && len(cfg.Join) == 0 {
		// The only member restarts: there is no member to join.
		cfg.InitialSize = 1
	}
	if c.change != nil {
		c.change(i, &cfg)
	}
	theirs := cfg.Events
	cfg.Events = func(ctx context.Context, e cluster.Event) {
		c.note("%s: %v", cfg.Name, e)
		if theirs != nil {
			c.hosts[i].clock.Await()
			theirs(ctx, e)
		}
	}
	node, err := cluster.Start(context.Background(), cfg)
	if err != nil {
		c.t.Fatalf("lockstest: member %d: %v", i, err)
	}
	c.mu.Lock()
	c.hosts[i].name = node.Name()
	c.members[i] = &member{i: i, node: node, disk: disk, started: started}
	c.mu.Unlock()
	c.changed.Wake()
}

func (c *Cluster) waitReady(i int) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), formLimit+c.ttl) // a founding waits one TTL
	defer cancel()
	if err := c.member(i).node.Ready(ctx); err != nil {
		c.t.Fatalf("lockstest: member %d is not ready: %v", i, err)
	}
}

func (c *Cluster) member(i int) *member {
	c.t.Helper()
	c.site(i)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.members[i] == nil {
		c.t.Fatalf("lockstest: member %d does not run", i)
	}
	return c.members[i]
}

// Node returns member i's node.
func (c *Cluster) Node(i int) *cluster.Node {
	c.t.Helper()
	return c.member(i).node
}

// Client returns a client on member i. Until the member is killed, each call
// returns the same client. The end of the test closes the client.
func (c *Cluster) Client(i int) *locks.Client {
	c.t.Helper()
	m := c.member(i)
	c.mu.Lock()
	defer c.mu.Unlock()
	if m.client == nil {
		m.client = locks.New(m.node, locks.Options{})
		m.clients = append(m.clients, m.client)
	}
	return m.client
}

// NewClient returns a new client on member i. The end of the test closes the
// client.
func (c *Cluster) NewClient(i int, opts locks.Options) *locks.Client {
	c.t.Helper()
	m := c.member(i)
	client := locks.New(m.node, opts)
	c.mu.Lock()
	defer c.mu.Unlock()
	m.clients = append(m.clients, client)
	return client
}

// running returns the members that run.
func (c *Cluster) running() []*member {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.members), func(m *member) bool { return m == nil })
}

// awake returns the members that run and are not frozen. A call of a frozen member would
// not return.
func (c *Cluster) awake() []*member {
	return slices.DeleteFunc(c.running(), func(m *member) bool { return c.hosts[m.i].clock.Frozen() })
}

// poll calls done, with pauses, until it returns true. If that takes too long,
// the result is false.
func poll(pause time.Duration, done func(context.Context) bool) bool {
	ctx, cancel := context.WithTimeout(context.Background(), formLimit)
	defer cancel()
	for !done(ctx) {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// Leader waits until a reachable member leads, and returns the member's number.
func (c *Cluster) Leader() int {
	c.t.Helper()
	leader, found := c.leading()
	if !found {
		c.t.Fatalf("lockstest: no member leads:%s", c.states())
	}
	return leader
}

// leading waits like Leader, and does not fail.
func (c *Cluster) leading() (leader int, found bool) {
	found = poll(100*time.Millisecond, func(ctx context.Context) bool {
		for _, m := range c.awake() {
			// If two members believe that they lead, only the true leader
			// reports so here, since a majority confirms Health.
			ask, cancel := context.WithTimeout(ctx, time.Second)
			h := m.node.Health(ask)
			cancel()
			if h.Quorum && h.Leader == m.node.Name() {
				leader = m.i
				return true
			}
		}
		return false
	})
	return leader, found
}

// Settle waits until three of the running members vote, or all if there are
// fewer, so that the next Kill costs no quorum. Call Heal first. A member that votes no
// more because of its store runs, and needs Kill and Restart.
func (c *Cluster) Settle() {
	c.t.Helper()
	var voters, alive int
	settled := poll(250*time.Millisecond, func(context.Context) bool {
		leader, found := c.leading()
		voters, alive = c.countVoters(leader)
		return found && voters >= min(alive, 3)
	})
	if !settled {
		c.t.Fatalf("lockstest: only %d of %d members vote:%s", voters, alive, c.states())
	}
}

// countVoters returns the numbers of voters and of all members that run.
func (c *Cluster) countVoters(leader int) (voters, alive int) {
	type incarnation struct {
		name string
		boot uint64
	}
	votes := make(map[incarnation]bool) // by the leader's list of members
	members := c.running()
	for _, m := range members {
		if m.i != leader {
			continue
		}
		for _, seen := range m.node.Members() {
			votes[incarnation{seen.Name, seen.Boot}] = seen.Voter
		}
	}
	for _, m := range members {
		// The member itself must know of its vote. Otherwise the member would
		// not vote for the next leader.
		for _, seen := range m.node.Members() {
			if seen.Self && seen.Voter && votes[incarnation{seen.Name, seen.Boot}] {
				voters++
			}
		}
	}
	return voters, len(members)
}

// Kill ends member i as kill -9 ends a process: the member sends nothing more,
// its connections are reset, and its port is closed. The locks of its clients
// end too. A frozen or paused member is neither after Restart, and the next process has a
// sound store; the clock of the host stays as it is.
func (c *Cluster) Kill(i int) {
	c.t.Helper()
	m := c.member(i)
	c.note("the test kills member %d", i)
	c.net.Crash(ip(i))
	c.hosts[i].clock.Thaw() // the calls of the member return, and fail
	m.disk.Heal()
	c.mu.Lock()
	c.hosts[i].paused = false
	c.members[i] = nil
	c.past = append(c.past, m)
	c.mu.Unlock()
	c.changed.Wake()
	c.stops.Go(func() { c.stopMember(m) })
}

// Restart starts member i again after Kill, as a new process of the same name,
// and waits until the member can take locks.
func (c *Cluster) Restart(i int) {
	c.t.Helper()
	c.site(i)
	c.mu.Lock()
	runs := c.members[i] != nil
	c.mu.Unlock()
	if runs {
		c.t.Fatalf("lockstest: member %d runs: Restart comes after Kill", i)
	}
	c.note("the test restarts member %d", i)
	c.startMember(i, 0)
	c.waitReady(i)
}

// stop closes the clients that the cluster made and stops the nodes.
func (c *Cluster) stop() {
	c.note("the test has ended, and stops all members")
	c.Heal()
	for _, m := range c.running() {
		m.disk.Heal()
		c.stops.Go(func() {
			c.closeClients(m)
			c.stopMember(m)
		})
	}
	c.stops.Wait()
	c.mu.Lock()
	past := c.past
	c.mu.Unlock()
	for _, m := range past {
		c.closeClients(m)
	}
	if c.t.Failed() {
		for _, e := range c.events {
			c.t.Log(e)
		}
	}
	if bubbled() {
		// Goroutines of third parties end some time after they were told to
		// stop, and the bubble must not end before.
		<-time.After(time.Minute)
	}
}

func (c *Cluster) closeClients(m *member) {
	c.mu.Lock()
	clients := m.clients
	c.mu.Unlock()
	for _, client := range clients {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		// The test may have left locks held. The test does not depend on
		// whether the cluster heard of their end.
		_ = client.Close(ctx)
		cancel()
	}
}

func (c *Cluster) stopMember(m *member) {
	// A crashed host has closed the endpoint already.
	if err := m.node.Stop(); err != nil && !errors.Is(err, net.ErrClosed) {
		c.t.Errorf("lockstest: stop member %d: %v", m.i, err)
	}
}

// bubbled reports whether this runs in a synctest bubble. Outside, Wait panics.
func bubbled() (in bool) {
	defer func() { in = recover() == nil }()
	synctest.Wait()
	return true
}
