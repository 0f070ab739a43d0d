package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/simnet"
	"github.com/wardmote/wardmote/transport"
)

// A bubble is a whole cluster on an in-memory network, in fake time.
type bubble struct {
	t     *testing.T
	net   *simnet.Network
	nodes map[string]*Node // running, by name
	hosts map[string]string

	mu     sync.Mutex
	events []string
}

// inBubble runs f in a synctest bubble with no node yet, and stops those that
// are left.
func inBubble(t *testing.T, f func(b *bubble)) {
	t.Helper()
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
			time.Sleep(time.Minute) // what third parties leave running ends
			if t.Failed() {
				b.mu.Lock()
				defer b.mu.Unlock()
				for _, e := range b.events {
					t.Log(e)
				}
			}
		}()
		f(b)
	})
}

func (b *bubble) host(name string) string {
	if b.hosts[name] == "" {
		b.hosts[name] = fmt.Sprintf("10.0.%d.%d", len(b.hosts)/200, len(b.hosts)%200+1)
	}
	return b.hosts[name]
}

// networkOf is the network as seen from the host of the member with this name.
func (b *bubble) networkOf(name string) transport.Network {
	return simnet.HostOf[transport.Endpoint](b.net, b.host(name))
}

func (b *bubble) addr(name string) string { return b.host(name) + ":7000" }

// config is that of a member of a cluster which three members found.
func (b *bubble) config(name string) Config {
	cfg := Config{
		Name: name, Cluster: "test", Bind: b.addr(name), InitialSize: 3, TTL: 2 * time.Second,
		Join:    []string{b.addr("n1"), b.addr("n2"), b.addr("n3")},
		Network: b.networkOf(name),
		Events: func(e Event) {
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

func (b *bubble) start(name string, change ...func(*Config)) *Node {
	b.t.Helper()
	cfg := b.config(name)
	for _, c := range change {
		c(&cfg)
	}
	n, err := Start(context.Background(), cfg)
	if err != nil {
		b.t.Fatalf("start %s: %v", name, err)
	}
	b.nodes[name] = n
	return n
}

// form starts n1 to n3 and waits until each is ready.
func (b *bubble) form() []*Node {
	b.t.Helper()
	nodes := []*Node{b.start("n1"), b.start("n2"), b.start("n3")}
	b.ready(nodes...)
	return nodes
}

func (b *bubble) ready(nodes ...*Node) {
	b.t.Helper()
	b.readyWithin(30*time.Second, nodes...)
}

func (b *bubble) readyWithin(d time.Duration, nodes ...*Node) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	for _, n := range nodes {
		if err := n.Ready(ctx); err != nil {
			b.t.Fatalf("%s is not ready: %v", n.Name(), err)
		}
	}
}

// crash kills a member as kill -9 does: the network forgets it, and it does not
// say good-bye.
func (b *bubble) crash(name string) {
	b.net.Crash(b.host(name))
	n := b.nodes[name]
	delete(b.nodes, name)
	// Its endpoint is gone already.
	if err := n.Stop(); err != nil && !errors.Is(err, net.ErrClosed) {
		b.t.Errorf("stop %s: %v", name, err)
	}
}

// leaderOf returns the node that leads.
func (b *bubble) leader() *Node {
	b.t.Helper()
	for range 200 {
		for _, n := range b.nodes {
			if n.leader.Load() != nil {
				return n
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	b.t.Fatal("no leader")
	return nil
}

func (b *bubble) within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	b.t.Cleanup(cancel)
	return ctx
}

func sid(n byte) machine.SessionID { return machine.SessionID{n} }

// propose runs one command through n and fails the test on an error.
func (b *bubble) propose(n *Node, c machine.Command) machine.Outcome {
	b.t.Helper()
	o, err := n.link.Propose(b.within(20*time.Second), c)
	if err != nil {
		b.t.Fatalf("%s: %#v: %v", n.Name(), c, err)
	}
	return o
}

func TestThreeMembersFormAndGrant(t *testing.T) {
	inBubble(t, func(b *bubble) {
		start := time.Now()
		nodes := b.form()
		t.Logf("formed in %v", time.Since(start))
		for i, n := range nodes {
			id := sid(byte(i + 1))
			if o := b.propose(n, machine.Open{Session: id, Client: n.Name(), Node: n.Name(), TTL: 2000}); o.Code != machine.OK {
				t.Fatalf("open: %+v", o)
			}
			if o := b.propose(n, machine.Acquire{Session: id, Seq: 1, Key: n.Name()}); o.Code != machine.Granted {
				t.Fatalf("acquire: %+v", o)
			}
			if err := n.link.Beat(b.within(time.Second), id); err != nil {
				t.Fatalf("beat: %v", err)
			}
		}
	})
}

// transportLink is a link of random quality.
func transportLink(r *rand.Rand) simnet.Link {
	return simnet.Link{
		Loss:   r.Float64() * 0.1,
		Delay:  time.Duration(1+r.IntN(20)) * time.Millisecond,
		Jitter: time.Duration(r.IntN(20)) * time.Millisecond,
	}
}
