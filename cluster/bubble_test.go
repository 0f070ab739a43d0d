package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/refused"
	"github.com/wardmote/wardmote/internal/simnet"
	"github.com/wardmote/wardmote/internal/term"
	"github.com/wardmote/wardmote/internal/wire"
	"github.com/wardmote/wardmote/transport"
)

// A bubble is a whole cluster on a simulated network, in fake time. Members n1 to
// n3 found the cluster. With WARDMOTE_TEST_LOG set, the nodes log to standard
// error.
type bubble struct {
	t     *testing.T
	net   *simnet.Network
	nodes map[string]*Node  // running, by name
	hosts map[string]string // IP addresses by member name

	started []*Node // all so far
	thieves bool    // the test acts for sessions of other processes
	thiefs  int     // ports opened by thief

	holderKeys map[int]machine.SessionKey // of the sessions opened by holders

	mu     sync.Mutex
	events []string // of all nodes, in order
}

// inBubble runs f in a synctest bubble without nodes, and then stops the running
// nodes. The events of a failed test are logged.
func inBubble(t *testing.T, f func(b *bubble)) {
	t.Helper()
	outer := t
	synctest.Test(t, func(t *testing.T) {
		b := &bubble{t: t, net: simnet.New(1), nodes: make(map[string]*Node), hosts: make(map[string]string)}
		b.net.SetDefault(simnet.Link{Delay: time.Millisecond})
		defer func() {
			b.net.Heal()
			for _, n := range b.nodes {
				if err := n.Stop(); err != nil {
					t.Errorf("stop: %v", err)
				}
			}
			time.Sleep(time.Minute) // the libraries' last goroutines end
			for _, n := range b.started {
				if c := n.self.Refused.Counts()[refused.Session]; c > 0 && !b.thieves {
					t.Errorf("%s refused %d requests of honest members for their sessions", n.Name(), c)
				}
			}
			if t.Failed() || outer.Failed() {
				for _, e := range b.told() {
					t.Log(e)
				}
			}
		}()
		f(b)
	})
}

// host returns the IP address of a member's host.
func (b *bubble) host(name string) string {
	if b.hosts[name] == "" {
		b.hosts[name] = fmt.Sprintf("10.0.%d.%d", len(b.hosts)/200, len(b.hosts)%200+1)
	}
	return b.hosts[name]
}

// networkOf returns the network as seen from a member's host.
func (b *bubble) networkOf(name string) transport.Network {
	return simnet.HostOf[transport.Endpoint](b.net, b.host(name))
}

func (b *bubble) addr(name string) string { return b.host(name) + ":7000" }

// config returns the configuration of a member of a cluster founded by three.
func (b *bubble) config(name string) Config {
	cfg := Config{
		Name: name, Cluster: "test", Bind: b.addr(name), InitialSize: 3, TTL: 2 * time.Second,
		Join:    []string{b.addr("n1"), b.addr("n2"), b.addr("n3")},
		Network: b.networkOf(name),
		Events: func(_ context.Context, e Event) {
			b.mu.Lock()
			b.events = append(b.events, fmt.Sprintf("%s %s: %v", time.Now().Format("04:05.000"), name, e))
			b.mu.Unlock()
		},
	}
	if os.Getenv("WARDMOTE_TEST_LOG") != "" {
		cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	return cfg
}

// Changes of a configuration.

func thin(c *Config)                      { c.InitialSize = 0 }              // only joins
func alone(c *Config)                     { c.InitialSize, c.Join = 1, nil } // founds a cluster of its own
func ttl(d time.Duration) func(*Config)   { return func(c *Config) { c.TTL = d } }
func joins(addrs ...string) func(*Config) { return func(c *Config) { c.Join = addrs } }
func founders(names ...string) func(*Config) {
	return func(c *Config) { c.InitialSize, c.Founders = 0, names }
}
func wants(n int) func(*Config) { return func(c *Config) { c.Voting.Voters = n } }
func inDir(dir string) func(*Config) {
	return func(c *Config) { c.Dir = filepath.Join(dir, c.Name) }
}

// start starts a member and does not wait for anything.
func (b *bubble) start(name string, change ...func(*Config)) *Node {
	b.t.Helper()
	cfg := b.config(name)
	cfg.signer = signer
	for _, c := range change {
		c(&cfg)
	}
	n, err := Start(context.Background(), cfg)
	if err != nil {
		b.t.Fatalf("start %s: %v", name, err)
	}
	b.started = append(b.started, n)
	b.nodes[name] = n
	return n
}

// join starts a member and waits until the member is ready.
func (b *bubble) join(name string, change ...func(*Config)) *Node {
	b.t.Helper()
	n := b.start(name, change...)
	b.ready(n)
	return n
}

// form starts n1 to n3 and waits until all are ready.
func (b *bubble) form(change ...func(*Config)) []*Node {
	b.t.Helper()
	nodes := []*Node{b.start("n1", change...), b.start("n2", change...), b.start("n3", change...)}
	b.ready(nodes...)
	return nodes
}

// ready waits until the nodes are ready, for three minutes at most.
func (b *bubble) ready(nodes ...*Node) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	for _, n := range nodes {
		if err := n.Ready(ctx); err != nil {
			b.t.Fatalf("%s is not ready: %v", n.Name(), err)
		}
	}
}

// crash ends a member as kill -9 does, without a farewell.
func (b *bubble) crash(name string) {
	b.t.Helper()
	b.net.Crash(b.host(name))
	n := b.nodes[name]
	delete(b.nodes, name)
	n.cancel(errors.New("killed")) // it tells nobody anything, and waits for nothing
	// The endpoint is closed already.
	if err := n.Stop(); err != nil && !errors.Is(err, net.ErrClosed) {
		b.t.Errorf("stop %s: %v", name, err)
	}
}

// leave takes a member out of the cluster, and fails the test if the member is
// not replaced in a minute.
func (b *bubble) leave(name string) {
	b.t.Helper()
	n := b.nodes[name]
	delete(b.nodes, name)
	if err := n.Leave(b.within(time.Minute)); err != nil {
		b.t.Fatalf("%s: leave: %v", name, err)
	}
}

// eventually waits until ok returns true, for a limited time.
func (b *bubble) eventually(claim string, limit time.Duration, ok func() bool) {
	b.t.Helper()
	for began := time.Now(); !ok(); time.Sleep(100 * time.Millisecond) {
		if time.Since(began) > limit {
			b.t.Fatalf("not within %v: %s", limit, claim)
		}
	}
}

// leader waits until a node leads, and returns the node.
func (b *bubble) leader() (leader *Node) {
	b.t.Helper()
	b.eventually("a node leads", 20*time.Second, func() bool {
		for _, n := range b.nodes {
			if n.leading.Load() != nil {
				leader = n
				return true
			}
		}
		return false
	})
	return leader
}

// followers returns the running voters except the leader, by name.
func (b *bubble) followers() (nodes []*Node) {
	b.t.Helper()
	leader := b.leader()
	for _, n := range b.nodes {
		if n != leader && n.seat.Current() != nil {
			nodes = append(nodes, n)
		}
	}
	slices.SortFunc(nodes, func(x, y *Node) int { return strings.Compare(x.Name(), y.Name()) })
	return nodes
}

// voters returns the names of the voters, as configured on the leader.
func (b *bubble) voters() (names []string) {
	b.t.Helper()
	for _, id := range b.leader().seat.Current().Voters() {
		name, _, _ := member.ParseRaftID(id)
		names = append(names, name)
	}
	return names
}

// servers counts the servers of the leader's configuration, with the non-voters.
func (b *bubble) servers() int { return len(b.leader().seat.Current().Servers()) }

// tableOf returns a voter's lock table.
func tableOf(n *Node) *term.Table { return n.seat.Current().Table().(*term.Table) }

// tables runs f on the table of each voter.
func (b *bubble) tables(f func(name string, m *machine.State)) {
	for name, n := range b.nodes {
		if n.seat.Current() != nil {
			tableOf(n).View(func(m *machine.State) { f(name, m) })
		}
	}
}

// told returns the events of all nodes so far.
func (b *bubble) told() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.events)
}

// wasTold reports whether a node told an event with this text.
func (b *bubble) wasTold(text string) bool {
	return slices.ContainsFunc(b.told(), func(e string) bool { return strings.Contains(e, text) })
}

func (b *bubble) within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	b.t.Cleanup(cancel)
	return ctx
}

// signer seals the keys of all nodes in tests, so that a test knows a session's ID ahead.
var signer = wire.NewKeySigner()

func key(n byte) machine.SessionKey { return signer.Key([16]byte{n}) }

func sid(n byte) machine.SessionID { return key(n).ID() }

// propose runs a command through n and fails the test on an error.
func (b *bubble) propose(n *Node, c machine.Command) machine.Outcome {
	b.t.Helper()
	o, err := n.link.Propose(b.within(20*time.Second), c)
	if err != nil {
		b.t.Fatalf("%s: %#v: %v", n.Name(), c, err)
	}
	return o
}

// open opens a session on n, with the TTL of n's configuration.
func (b *bubble) open(n *Node, id byte) {
	b.t.Helper()
	n.link.Claim(key(id))
	o := b.propose(n, opening(n, id))
	if o.Code != machine.OK {
		b.t.Fatalf("open: %+v", o)
	}
}

// opening returns the Open of a session on n, with the TTL of n's configuration.
func opening(n *Node, id byte) machine.Open {
	return machine.Open{Session: sid(id), Client: fmt.Sprint("c", id), Node: n.Name(), Boot: n.self.Boot, Dir: n.link.Dir(), TTL: uint64(n.cfg.TTL.Milliseconds())}
}

// acquire asks for a key by a session on n. The token is 0 if the session waits.
func (b *bubble) acquire(n *Node, id byte, seq uint64, key string) machine.Token {
	b.t.Helper()
	return b.acquireAs(n, sid(id), seq, key)
}

func (b *bubble) acquireAs(n *Node, id machine.SessionID, seq uint64, key string) machine.Token {
	b.t.Helper()
	o := b.propose(n, machine.Acquire{Session: id, Seq: seq, Key: key})
	if o.Code != machine.Granted && o.Code != machine.Queued {
		b.t.Fatalf("acquire: %+v", o)
	}
	return o.Token
}

// delayed asks for a key. The key stays taken for delay after the session expired.
func delayed(id byte, seq uint64, key string, delay time.Duration) machine.Command {
	return machine.Acquire{Session: sid(id), Seq: seq, Key: key, Spec: machine.Spec{Delay: uint64(delay.Milliseconds())}}
}

// shared asks for a key to hold together with others.
func shared(id byte, seq uint64, key, meta string) machine.Command {
	return machine.Acquire{Session: sid(id), Seq: seq, Key: key, Spec: machine.Spec{Mode: machine.Shared, Meta: meta}}
}

// hold opens a session on n that asks for key, with seq 1. The session's events
// go to the returned channel.
func (b *bubble) hold(n *Node, id byte, key string) (machine.Token, <-chan machine.Event) {
	b.t.Helper()
	events := make(chan machine.Event, 64)
	b.open(n, id)
	n.link.Attach(sid(id), func(e machine.Event) { events <- e })
	return b.acquire(n, id, 1, key), events
}

// beat beats for a session until stop is called. stop returns the first failure.
func (b *bubble) beat(n *Node, id byte) (stop func() error) { return b.beatAs(n, sid(id)) }

func (b *bubble) beatAs(n *Node, id machine.SessionID) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	var err error
	wg.Go(func() {
		for ctx.Err() == nil {
			if e := n.link.Beat(ctx, id); e != nil && ctx.Err() == nil {
				err = e
				return
			}
			select {
			case <-time.After(600 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	})
	return func() error { cancel(); wg.Wait(); return err }
}

// next waits for an event.
func (b *bubble) next(events <-chan machine.Event, within time.Duration) machine.Event {
	b.t.Helper()
	select {
	case e := <-events:
		return e
	case <-time.After(within):
		b.t.Fatalf("no event within %v", within)
		return machine.Event{}
	}
}
