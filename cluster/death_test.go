package cluster

import (
	"fmt"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/testrounds"
)

// This file plays the deaths of a cluster in memory: everyday operations that cost
// a majority of the voters. In each, the cluster must grant again without an
// operator: at once where Join is complete, and else after the restart of the last
// member that remembers the dead cluster.

// completeJoin promises that the named members are all there are.
func (b *bubble) completeJoin(names ...string) func(*Config) {
	var addrs []string
	for _, name := range names {
		addrs = append(addrs, b.addr(name))
	}
	return func(c *Config) {
		c.Join = addrs
		c.Recovery.JoinIsComplete = true
	}
}

func numbered(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprint("n", i+1))
	}
	return names
}

// together fails the test unless all running nodes grant in one cluster within
// the limit.
func (b *bubble) together(limit time.Duration) machine.ClusterID {
	b.t.Helper()
	var id machine.ClusterID
	began := time.Now()
	for name, n := range b.nodes {
		if err := n.Ready(b.within(limit - time.Since(began))); err != nil {
			for other, n := range b.nodes {
				b.t.Logf("%s in %v: %s", other, clusterText(n.founding.Cluster()), n.founding.Progress())
			}
			b.t.Fatalf("%s is not ready after %v: %v", name, limit, err)
		}
		if id == (machine.ClusterID{}) {
			id = n.founding.Cluster()
		} else if n.founding.Cluster() != id {
			b.t.Fatalf("two clusters: %s is in %v, another in %v", name, n.founding.Cluster(), id)
		}
	}
	b.t.Logf("granting after %v", time.Since(began).Round(time.Millisecond))
	return id
}

// restart crashes a member and starts the next process at the same address.
func (b *bubble) restart(name string, change ...func(*Config)) {
	b.t.Helper()
	b.crash(name)
	b.start(name, change...)
}

// restartTheLost restarts the members of a cluster without a leader, as an operator
// does without knowing anything about voters.
func (b *bubble) restartTheLost(change ...func(*Config)) {
	b.t.Helper()
	var lost []string
	for name, n := range b.nodes {
		if n.Ready(b.within(time.Second)) != nil && n.founding.Value() != nil {
			lost = append(lost, name)
		}
	}
	for _, name := range lost {
		b.restart(name, change...)
	}
}

// Two of three voters are killed, and restarted.
func TestTwoOfThreeVotersKilledWithACompleteJoin(t *testing.T) {
	inBubble(t, func(b *bubble) {
		all := b.completeJoin(numbered(3)...)
		nodes := b.form(all)
		token, _ := b.hold(nodes[2], 1, "k")
		b.crash("n1")
		b.crash("n2")
		b.start("n1", all)
		b.start("n2", all)
		before := nodes[2].founding.Cluster()
		if b.together(time.Minute) == before {
			t.Error("still in the dead cluster")
		}
		if again, _ := b.hold(b.nodes["n1"], 2, "k"); again <= token {
			t.Errorf("token %d after %d", again, token)
		}
		if b.nodes["n3"] != nodes[2] {
			t.Error("n3 was restarted")
		}
	})
}

// Two of three voters are killed, then every process is restarted, one by one. No
// word is given. Earlier each newcomer adopted the dead founding from an older one.
func TestTwoOfThreeVotersKilledThenAllRestartedOneByOne(t *testing.T) {
	pauses := []time.Duration{100 * time.Millisecond, 3 * time.Second, 20 * time.Second}
	for _, pause := range pauses[:testrounds.Rounds(2, 3)] {
		inBubble(t, func(b *bubble) {
			b.form()
			b.crash("n1")
			b.crash("n2")
			b.start("n1")
			time.Sleep(pause)
			b.start("n2")
			time.Sleep(pause)
			for _, name := range numbered(3) {
				b.restart(name)
				time.Sleep(pause)
			}
			b.together(2 * time.Minute)
		})
	}
}

// Three pods each crash once, soon after the start.
func TestACrashLoopAtTheStart(t *testing.T) {
	for _, complete := range []bool{true, false} {
		inBubble(t, func(b *bubble) {
			word := func(*Config) {}
			if complete {
				word = b.completeJoin(numbered(3)...)
			}
			for _, name := range numbered(3) {
				b.start(name, word)
			}
			began := time.Now()
			for i, at := range []time.Duration{400 * time.Millisecond, time.Second, 3 * time.Second} {
				time.Sleep(time.Until(began.Add(at)))
				b.restart(fmt.Sprint("n", i+1), word)
			}
			if !complete {
				// A member taken into the cluster between two crashes remembers the
				// cluster until its own restart.
				time.Sleep(30 * time.Second)
				b.restartTheLost(word)
			}
			b.together(2 * time.Minute)
		})
	}
}

// All three are stopped while three new ones start: a deploy in one go.
func TestAllAreStoppedWhileNewOnesStart(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.form()
		seeds := joins(b.addr("n1"), b.addr("n2"), b.addr("n3"), b.addr("n4"), b.addr("n5"), b.addr("n6"))
		for _, name := range []string{"n4", "n5", "n6"} {
			b.start(name, seeds)
			time.Sleep(100 * time.Millisecond)
		}
		for _, name := range numbered(3) {
			n := b.nodes[name]
			delete(b.nodes, name)
			if err := n.Stop(); err != nil {
				t.Errorf("stop: %v", err)
			}
		}
		// The new ones were thin members when their voters went.
		time.Sleep(20 * time.Second)
		b.restartTheLost(seeds)
		b.together(2 * time.Minute)
	})
}

// Of nine members, two voters are killed, 31 s apart, and do not come back for a
// while. The voters of the silence between are replaced, if there are three.
func TestNineMembersWithTwoVotersKilled(t *testing.T) {
	inBubble(t, func(b *bubble) {
		names := numbered(9)
		all := b.completeJoin(names...)
		for _, name := range names {
			b.start(name, all)
		}
		b.together(time.Minute)
		victims := b.voters()[:2]
		for _, name := range victims {
			b.crash(name)
			time.Sleep(31 * time.Second)
		}
		for _, name := range victims {
			b.start(name, all)
		}
		b.together(2 * time.Minute)
	})
}
