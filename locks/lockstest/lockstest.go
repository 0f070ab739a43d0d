// Package lockstest gives tests a whole wardmote cluster: several members in
// this process, on a network in memory, with the faults that locks must
// survive.
//
//	func TestMySchedulerMovesOn(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			c := lockstest.New(t, 3)
//			go runScheduler(c.Client(0))
//			go runScheduler(c.Client(1))
//			time.Sleep(time.Minute) // an hour would do: time is the bubble's
//			c.Kill(0)
//			...
//		})
//	}
//
// Use the package inside a testing/synctest bubble. There, time is fake: a
// minute of beats, expiries and elections passes in milliseconds. Outside a
// bubble the cluster runs in real time. In both cases the cluster opens no
// port, so tests may run side by side.
//
// All members share this process, so the code of a killed or paused member goes
// on running. The member is only cut off, for good or for a while, and its
// clients see the effects of a cut network. Code that must survive being
// stopped needs a test with real processes; see examples/quickstart.
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
	"github.com/wardmote/wardmote/internal/simnet"
	"github.com/wardmote/wardmote/locks"
	"github.com/wardmote/wardmote/transport"
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
// starts. f may change the configuration, for example to receive its events.
func Config(f func(i int, cfg *cluster.Config)) Option { return func(c *Cluster) { c.change = f } }

// Cluster is a running cluster of members 0 to n-1. The first three found the
// cluster and vote. If a method cannot do its work, it fails the test. The
// methods may be called from any goroutine of the test.
type Cluster struct {
	t      testing.TB
	ttl    time.Duration
	change func(int, *cluster.Config)
	net    *simnet.Network

	mu      sync.Mutex
	members []*member
	past    []*member // killed members
	stops   sync.WaitGroup
	events  []string // logged if the test fails
}

type member struct {
	i       int
	node    *cluster.Node
	clients []*locks.Client
	client  *locks.Client // returned by Cluster.Client
}

// New starts a cluster of n members, and returns when each member can take
// locks. If that fails, the test fails. The end of the test stops the cluster;
// if the test has failed, New's cluster logs the events of its members.
func New(t testing.TB, n int, opts ...Option) *Cluster {
	t.Helper()
	if n < 1 || n > maxMembers {
		t.Fatalf("lockstest: %d members is not within 1 and %d", n, maxMembers)
	}
	c := &Cluster{t: t, ttl: defaultTTL, net: simnet.New(1), members: make([]*member, n)}
	for _, o := range opts {
		o(c)
	}
	c.net.SetDefault(simnet.Link{Delay: time.Millisecond})
	t.Cleanup(c.stop)
	for i := range n {
		c.startMember(i, min(n, 3))
	}
	for i := range n {
		c.waitReady(i)
	}
	return c
}

func host(i int) string       { return fmt.Sprintf("10.0.0.%d", i+1) }
func memberName(i int) string { return fmt.Sprint("member-", i) }

// startMember starts member i. If i is below founders, the member is one of
// that number of founders.
func (c *Cluster) startMember(i, founders int) {
	c.t.Helper()
	if i >= founders {
		founders = 0
	}
	cfg := cluster.Config{
		Name: memberName(i), Bind: host(i) + ":7000", TTL: c.ttl,
		InitialSize: founders,
		Network:     simnet.HostOf[transport.Endpoint](c.net, host(i)),
	}
	for j := range min(len(c.members), 5) {
		if j != i {
			cfg.Join = append(cfg.Join, host(j)+":7000")
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
	cfg.Events = func(e cluster.Event) {
		c.mu.Lock()
		if len(c.events) < maxEvents {
			c.events = append(c.events, fmt.Sprintf("%s %s: %v", time.Now().Format("15:04:05.000"), cfg.Name, e))
		}
		c.mu.Unlock()
		if theirs != nil {
			theirs(e)
		}
	}
	node, err := cluster.Start(context.Background(), cfg)
	if err != nil {
		c.t.Fatalf("lockstest: member %d: %v", i, err)
	}
	c.mu.Lock()
	c.members[i] = &member{i: i, node: node}
	c.mu.Unlock()
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
	c.mu.Lock()
	defer c.mu.Unlock()
	if i < 0 || i >= len(c.members) || c.members[i] == nil {
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
	leader := -1
	found := poll(100*time.Millisecond, func(ctx context.Context) bool {
		for _, m := range c.running() {
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
	if !found {
		c.t.Fatal("lockstest: no member leads")
	}
	return leader
}

// Settle waits until three of the running members vote, or all if there are
// fewer, so that the next Kill costs no quorum. Call Heal first.
func (c *Cluster) Settle() {
	c.t.Helper()
	var voters, alive int
	settled := poll(250*time.Millisecond, func(context.Context) bool {
		voters, alive = c.countVoters(c.Leader())
		return voters >= min(alive, 3)
	})
	if !settled {
		c.t.Fatalf("lockstest: only %d of %d members vote", voters, alive)
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
// end too.
func (c *Cluster) Kill(i int) {
	c.t.Helper()
	m := c.member(i)
	c.net.Crash(host(i))
	c.mu.Lock()
	c.members[i] = nil
	c.past = append(c.past, m)
	c.mu.Unlock()
	c.stops.Go(func() { c.stopMember(m) })
}

// Restart starts member i again after Kill, as a new process of the same name,
// and waits until the member can take locks.
func (c *Cluster) Restart(i int) {
	c.t.Helper()
	c.startMember(i, 0)
	c.waitReady(i)
}

// Pause cuts member i off as SIGSTOP does: no message enters or leaves the
// member. No message is lost; messages on their way arrive after Resume.
func (c *Cluster) Pause(i int) { c.net.Freeze(host(i)) }

// Resume undoes Pause.
func (c *Cluster) Resume(i int) { c.net.Thaw(host(i)) }

// Isolate cuts each of the members off from all other members, in both
// directions.
func (c *Cluster) Isolate(members ...int) {
	for _, i := range members {
		c.net.Isolate(host(i))
	}
}

// Partition cuts the network into groups of members. A member in no group still
// reaches all others.
func (c *Cluster) Partition(groups ...[]int) {
	var hosts [][]string
	for _, g := range groups {
		var hs []string
		for _, i := range g {
			hs = append(hs, host(i))
		}
		hosts = append(hosts, hs)
	}
	c.net.Partition(hosts...)
}

// Cut cuts one direction: messages of from do not reach to.
func (c *Cluster) Cut(from, to int) { c.net.Cut(host(from), host(to)) }

// Heal undoes every Pause, Isolate, Partition and Cut.
func (c *Cluster) Heal() { c.net.Heal() }

// SetLink sets the loss and the delay of one direction: from one member to
// another. The network starts with a delay of 1 ms and without loss.
func (c *Cluster) SetLink(from, to int, l transport.Link) {
	c.net.SetLink(host(from), host(to), simnet.Link(l))
}

// stop closes the clients that the cluster made and stops the nodes.
func (c *Cluster) stop() {
	c.net.Heal()
	for _, m := range c.running() {
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
