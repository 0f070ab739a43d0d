package lockstest

import (
	"fmt"
	"math"
	"time"

	"github.com/wardmote/wardmote/internal/host"
	"github.com/wardmote/wardmote/internal/simnet"
	"github.com/wardmote/wardmote/transport"
)

// network is one host's view of the simulated network.
type network = simnet.Host[transport.Endpoint]

// A site is a host of the simulated network, with a clock.
type site struct {
	network
	clock *host.Clock

	// Guarded by Cluster.mu.
	name     string // of the member
	paused   bool
	isolated bool
}

// origin is how far the monotonic clocks of two neighbouring members are apart: the hosts
// were not booted at one time.
const origin = 1000 * time.Hour

func newSite(net *simnet.Network, i int) *site {
	return &site{network: simnet.HostOf[transport.Endpoint](net, ip(i)), clock: host.NewClock(time.Duration(i+1) * origin)}
}

// A process is the network of one process at a site. Package cluster finds the clock and
// the disk there.
type process struct {
	network
	at host.Host
}

// Host is for package cluster: see host.Of.
func (p process) Host() host.Host { return p.at }

// site returns the host of member i, which need not run.
func (c *Cluster) site(i int) *site {
	c.t.Helper()
	if i < 0 || i >= len(c.hosts) {
		c.t.Fatalf("lockstest: member %d is not within 0 and %d", i, len(c.hosts)-1)
	}
	return c.hosts[i]
}

// note keeps a line for the log of a failed test.
func (c *Cluster) note(format string, args ...any) {
	line := time.Now().Format("15:04:05.000 ") + fmt.Sprintf(format, args...)
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.events) < maxEvents {
		c.events = append(c.events, line)
	}
}

// set changes the booleans of the member's site.
func (c *Cluster) set(i int, change func(*site)) {
	c.t.Helper()
	s := c.site(i)
	c.mu.Lock()
	change(s)
	c.mu.Unlock()
	c.changed.Wake()
}

// Pause stops member i's network: no message enters or leaves the member, and no message
// is lost; messages on their way arrive after Resume. The member's clock runs on, so its
// clients lose their locks by themselves. See Freeze for a member that stands still.
func (c *Cluster) Pause(i int) {
	c.t.Helper()
	c.note("the test pauses member %d", i)
	c.set(i, func(s *site) { s.paused = true })
	c.net.Freeze(ip(i))
}

// Resume undoes Pause.
func (c *Cluster) Resume(i int) {
	c.t.Helper()
	c.note("the test resumes member %d", i)
	c.set(i, func(s *site) { s.paused = false })
	c.thawNetwork(i)
}

// Freeze stops member i as SIGSTOP, a long collection of garbage, or a starved host does,
// until Thaw, Heal or Kill. Meanwhile:
//
//   - no message enters or leaves the member, and none is lost, as by Pause;
//   - the member's clock stands still, and so do the timers of its sessions and of its
//     leadership: no beat is sent, no lock is lost, no context of a lock ends, no session
//     of another member expires by this member's word;
//   - calls into the library block, in the member's Node and in all clients and locks on
//     it, whatever happens to their ctx, and calls under way do not return. Excepted are
//     methods that only read a field: Lock.Key, Token, Value, Asked, Contended, and
//     Context.Err of a Context that the caller has already; Node.Name, Addr, Members,
//     Leader; and the map of Shards;
//   - the functions of a Trace, Config.Events and Config.Commits are not called.
//
// On Thaw the clock jumps to the present, as after SIGCONT. The others have granted the
// member's keys meanwhile if the freeze was longer than a TTL. Lock.Err is right at once,
// with the reason ProcessPaused or QuorumUnreachable, and the context of a lost lock ends
// a moment later.
//
// All members share this process, hence the differences to SIGSTOP. The test's own code
// on the member runs on, and its own contexts end: a write that it makes with a token
// during the freeze stands for a write which left the host before, or leaves after. The
// timers of raft and gossip, and those of the search for the leader, run on, with nobody
// to reach: a frozen leader has given up its leadership by itself before Thaw, and a
// thawed member must find the leader anew. The only member of a cluster leads on.
func (c *Cluster) Freeze(i int) {
	c.t.Helper()
	c.note("the test freezes member %d", i)
	clock := c.hosts[c.member(i).i].clock
	c.net.Freeze(ip(i))
	clock.Freeze()
	c.changed.Wake()
}

// Thaw undoes Freeze.
func (c *Cluster) Thaw(i int) {
	c.t.Helper()
	c.note("the test thaws member %d", i)
	// The clock first: a message must not be judged by the time of the freeze.
	c.site(i).clock.Thaw()
	c.thawNetwork(i)
	c.changed.Wake()
}

// thawNetwork thaws member i's network, unless the member is paused or frozen.
func (c *Cluster) thawNetwork(i int) {
	c.mu.Lock()
	paused := c.hosts[i].paused
	c.mu.Unlock()
	if !paused && !c.hosts[i].clock.Frozen() {
		c.net.Thaw(ip(i))
	}
}

// Isolate cuts each of the members off from all other members, in both
// directions.
func (c *Cluster) Isolate(members ...int) {
	c.t.Helper()
	c.note("the test isolates members %v", members)
	for _, i := range members {
		c.set(i, func(s *site) { s.isolated = true })
		c.net.Isolate(ip(i))
	}
}

// Partition cuts the network into groups of members. A member in no group still
// reaches all others.
func (c *Cluster) Partition(groups ...[]int) {
	c.t.Helper()
	c.note("the test partitions the network: %v", groups)
	var hosts [][]string
	for _, g := range groups {
		var hs []string
		for _, i := range g {
			c.site(i)
			hs = append(hs, ip(i))
		}
		hosts = append(hosts, hs)
	}
	c.net.Partition(hosts...)
}

// Cut cuts one direction: messages of from do not reach to.
func (c *Cluster) Cut(from, to int) {
	c.t.Helper()
	c.site(from)
	c.site(to)
	c.note("the test cuts the network from member %d to member %d", from, to)
	c.net.Cut(ip(from), ip(to))
}

// Heal undoes every Pause, Freeze, Isolate, Partition and Cut. Clocks, stores and links
// stay as they are.
func (c *Cluster) Heal() {
	c.note("the test heals the network, and thaws all members")
	for _, s := range c.hosts {
		s.clock.Thaw()
	}
	c.mu.Lock()
	for _, s := range c.hosts {
		s.paused, s.isolated = false, false
	}
	c.mu.Unlock()
	c.net.Heal()
	c.changed.Wake()
}

// SetLink sets the loss and the delay of one direction: from one member to
// another. The network starts with a delay of 1 ms and without loss.
func (c *Cluster) SetLink(from, to int, l transport.Link) {
	c.t.Helper()
	c.site(from)
	c.site(to)
	c.note("the test gives the link from member %d to member %d: %+v", from, to, l)
	c.net.SetLink(ip(from), ip(to), simnet.Link(l))
}

// A Clock says how the clock of a member's host runs. The zero Clock runs as the test's.
type Clock struct {
	// Rate is how many seconds pass by this clock in a second of the test, from 0.01
	// to 100; 0 stands for 1. The members' clocks need not agree, but must run at
	// about one rate: no two clients hold a key as long as the leader's clock is not
	// faster than a holder's clock by more than 1 %. With a TTL T, in a bubble, where
	// no timer is late, the bound is 1 % + 100 ms / T, and a third for a T of 400 ms or
	// less. See "Two clocks" in package locks.
	Rate float64

	// Offset is how far the wall clock is ahead; it may be negative. The promises about
	// locks do not depend on wall clocks. The number of a process does: a process without a
	// Dir that starts by a clock behind the clock of the member's earlier process is in
	// conflict with the earlier process, and is not Ready. So does the first token of a
	// cluster that is founded after the loss of an earlier cluster.
	Offset time.Duration
}

// check returns the rate.
func (c *Cluster) check(k Clock) (rate float64) {
	c.t.Helper()
	if k.Rate == 0 {
		return 1
	}
	if math.IsNaN(k.Rate) || k.Rate < 0.01 || k.Rate > 100 {
		c.t.Fatalf("lockstest: a clock of rate %v is not within 0.01 and 100", k.Rate)
	}
	return k.Rate
}

// Clocks gives each member a clock from the start.
func Clocks(f func(i int) Clock) Option {
	return func(c *Cluster) {
		c.t.Helper()
		for i := range c.hosts {
			c.SetClock(i, f(i))
		}
	}
}

// SetClock sets the clock of member i's host, which keeps the clock across Kill and
// Restart. A new rate counts from now on. A new Offset is a step of the wall clock, and
// the monotonic clock does not jump.
//
// A member reads its clock for the trust in its locks and for its beats; as the leader for
// the expiry of sessions and delays, and for a new cluster's first grant; for the number
// of its process at the start; and for the first token of a cluster that it founds. All
// other durations are limits of calls and pauses, which decide nothing about who holds a
// key: they run by the test's clock, and so do the timers of raft and memberlist, and the
// reading of certificates. A host that sleeps is not simulated; Freeze comes close.
func (c *Cluster) SetClock(i int, k Clock) {
	c.t.Helper()
	c.note("the test gives member %d the clock %+v", i, k)
	s := c.site(i)
	s.clock.Set(c.check(k), k.Offset)
}

// HangStore makes every write of member i's raft store hang, in memory or in a Dir, until
// HealStore or Kill. A member that does not vote has no such store. Three seconds after
// the first write that hangs a leader gives up its leadership; after ten a voter is
// replaced, and votes no more in this process. Its clients keep their locks throughout.
// A cluster in which no lock is taken or freed writes nothing, and notices nothing.
func (c *Cluster) HangStore(i int) {
	c.t.Helper()
	c.note("the test hangs the store of member %d", i)
	c.member(i).disk.Hang()
}

// FailStore makes every write of member i's raft store fail with err, those that hang too.
// After the first failure the member votes no more in this process, HealStore or not.
func (c *Cluster) FailStore(i int, err error) {
	c.t.Helper()
	c.note("the test fails the store of member %d: %v", i, err)
	if err == nil {
		c.t.Fatal("lockstest: FailStore without an error")
	}
	c.member(i).disk.Fail(err)
}

// HealStore undoes HangStore and FailStore: writes that hang go on.
func (c *Cluster) HealStore(i int) {
	c.t.Helper()
	c.note("the test heals the store of member %d", i)
	c.member(i).disk.Heal()
}
