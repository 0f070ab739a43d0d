package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/identity"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/simnet"
	"github.com/wardmote/wardmote/internal/testrounds"
)

func TestThreeMembersFoundAndGrant(t *testing.T) {
	inBubble(t, func(b *bubble) {
		for i, n := range b.form() {
			id := byte(i + 1)
			if token, _ := b.hold(n, id, n.Name()); token == 0 {
				t.Errorf("%s is not granted a free key", n.Name())
			}
			if err := n.link.Beat(b.within(time.Second), sid(id)); err != nil {
				t.Errorf("beat: %v", err)
			}
		}
	})
}

// The third founder is missing: two found after a while, with two voters, and the
// third votes as soon as it is there. Earlier the absence of one founder kept all
// others from founding for ever.
func TestFoundersFoundTogether(t *testing.T) {
	inBubble(t, func(b *bubble) {
		named := founders("n1", "n2", "n3")
		n4 := b.start("n4", named)
		n1 := b.start("n1", named)
		err := n1.Ready(b.within(20 * time.Second))
		if !errors.Is(err, ErrNoQuorum) || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("one of three founders: %v", err)
		}
		for _, text := range []string{"1 of 3 founders seen (n1 at " + b.addr("n1") + ")", "missing n2, n3"} {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("the error does not tell %q: %v", text, err)
			}
		}
		n2 := b.start("n2", named)
		b.ready(n1, n2, n4)
		if v := n1.founding.Value().Voters; len(v) != 2 {
			t.Errorf("founded by two founders with the voters %v", v)
		}
		b.ready(b.start("n3", named))
		b.eventually("three founders vote", 20*time.Second, func() bool { return len(b.voters()) == 3 })
	})
}

// A bare majority of named founders with a Dir founds, with an odd number of voters;
// in memory three of five never do.
func TestABareMajorityOfFoundersWithADirFounds(t *testing.T) {
	t.Parallel() // waits for the disk
	for _, tt := range []struct{ present, declared, voters int }{{2, 3, 1}, {3, 5, 3}} {
		inBubble(t, func(b *bubble) {
			dir := t.TempDir()
			named := founders(numbered(tt.declared)...)
			for _, name := range numbered(tt.present) {
				b.start(name, named, inDir(dir))
			}
			b.together(time.Minute)
			if v := b.nodes["n1"].founding.Value().Voters; len(v) != tt.voters {
				t.Errorf("%d of %d founders: voters %v", tt.present, tt.declared, v)
			}
		})
	}
	inBubble(t, func(b *bubble) {
		for _, name := range numbered(3) {
			b.start(name, founders(numbered(5)...))
		}
		if err := b.nodes["n1"].Ready(b.within(time.Minute)); err == nil || !strings.Contains(err.Error(), "missing n4, n5") {
			t.Errorf("three of five founders in memory: %v", err)
		}
	})
}

func TestAMemberAloneFoundsAndOthersBecomeVoters(t *testing.T) {
	inBubble(t, func(b *bubble) {
		n1 := b.join("n1", alone)
		b.hold(n1, 1, "k")
		n2 := b.join("n2", thin)
		time.Sleep(20 * time.Second)
		if v := b.voters(); len(v) != 1 {
			t.Errorf("two members have the voters %v: two voters bear no loss either", v)
		}
		n3, n4 := b.start("n3", thin), b.start("n4", thin)
		b.ready(n3, n4)
		b.eventually("three members vote", 20*time.Second, func() bool { return len(b.voters()) == 3 })
		b.crash("n1")
		b.ready(n2)
		b.hold(n4, 2, "other")
	})
}

// The joining member's first question about the cluster is lost, and gossip
// tells nothing new afterwards.
func TestAJoinerThatWasNotAnsweredAsksAgain(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.join("n1", alone)
		time.Sleep(20 * time.Second)
		n := b.start("n4", thin, joins(b.addr("n1")))
		for len(n.gossip.Alive()) < 2 {
			time.Sleep(100 * time.Microsecond)
		}
		b.net.Partition([]string{b.host("n4")}, []string{b.host("n1")})
		time.Sleep(2500 * time.Millisecond)
		b.net.Heal()
		b.eventually("n4 joins", 5*time.Minute, func() bool { return n.founding.Value() != nil })
	})
}

// A process dies while founding, and another process takes its address before
// gossip has given up the first.
func TestAnAddressReusedWhileFoundingCountsOnce(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.start("n2")
		b.hosts["n1-x"] = b.host("n1")
		b.hosts["n1-y"] = b.host("n1")
		b.start("n1-x")
		time.Sleep(2 * time.Second)
		b.crash("n1-x")
		b.start("n1-y")
		time.Sleep(5 * time.Second)
		b.ready(b.start("n3"))
	})
}

// Three to seven members found while links are cut, messages are lost, and a
// single member restarts without memory: all end in the same cluster.
func TestFoundingUnderFaultsMakesOneCluster(t *testing.T) {
	for round := range testrounds.Rounds(2, 60) {
		inBubble(t, func(b *bubble) { foundUnderFaults(b, uint64(round)) })
		if t.Failed() {
			t.Fatalf("round %d", round)
		}
	}
}

func foundUnderFaults(b *bubble, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	m := 3 + r.IntN(5)
	var names, hosts []string
	for i := range m {
		names = append(names, fmt.Sprint("n", i+1))
		hosts = append(hosts, b.host(names[i]))
	}
	declared := founders(names...)
	if r.IntN(2) == 0 {
		declared = func(c *Config) { c.InitialSize = m }
	}
	b.net.SetDefault(simnet.Link{
		Loss:   r.Float64() * 0.1,
		Delay:  time.Duration(1+r.IntN(20)) * time.Millisecond,
		Jitter: time.Duration(r.IntN(20)) * time.Millisecond,
	})
	start := func(name string) {
		b.start(name, declared, func(c *Config) {
			// Differing views: each member knows only some others.
			c.Join = []string{b.addr(names[0])}
			for _, other := range names[1:] {
				if r.IntN(2) == 0 {
					c.Join = append(c.Join, b.addr(other))
				}
			}
		})
	}
	for _, name := range names {
		start(name)
		time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond)
	}
	forgot := false
	for range 6 {
		time.Sleep(time.Duration(r.IntN(800)) * time.Millisecond)
		switch r.IntN(4) {
		case 0:
			cut := 1 + r.IntN(m-1)
			r.Shuffle(m, func(i, j int) { hosts[i], hosts[j] = hosts[j], hosts[i] })
			b.net.Partition(hosts[:cut], hosts[cut:])
		case 1:
			b.net.Cut(hosts[r.IntN(m)], hosts[r.IntN(m)])
		case 2:
			b.net.Heal()
		case 3:
			// Only a single member forgets: a cluster whose majority is lost ends
			// only when all of its members have restarted.
			if !forgot {
				forgot = true
				name := names[r.IntN(m)]
				b.crash(name)
				start(name)
			}
		}
	}
	b.net.Heal()
	// A few founders may have founded with two voters, and lost one of the two.
	for _, name := range names {
		if b.nodes[name].Ready(b.within(time.Minute)) != nil && b.nodes[name].founding.Value() != nil {
			b.crash(name)
			start(name)
		}
	}
	first := b.nodes[names[0]]
	for _, name := range names {
		n := b.nodes[name]
		b.ready(n)
		if n.founding.Cluster() != first.founding.Cluster() {
			b.t.Errorf("two clusters: %v and %v", n.founding.Cluster(), first.founding.Cluster())
		}
	}
}

// Two processes run under the same name, and do not reach each other. If two
// clusters are founded, at most one of the two processes is ready.
func TestTwoOfOneNameFoundOneCluster(t *testing.T) {
	step := testrounds.Rounds(17, 1) // delays differ in a few rounds too
	for round := range testrounds.Rounds(2, 60) {
		seed := step * round
		inBubble(t, func(b *bubble) {
			b.net.SetDefault(simnet.Link{Delay: 5 * time.Millisecond, Jitter: time.Duration(seed%10) * 2 * time.Millisecond})
			b.net.Cut(b.host("n3"), b.host("twin"))
			n1, n2 := b.start("n1"), b.start("n2")
			time.Sleep(2 * time.Second)
			others := joins(b.addr("n1"), b.addr("n2"))
			n3 := b.start("n3", others)
			time.Sleep(time.Nanosecond * time.Duration(1+(seed%40)*500_000))
			twin := b.start("twin", others, func(c *Config) { c.Name = "n3" })
			time.Sleep(30 * time.Second)
			clusters := make(map[machine.ClusterID]bool)
			for _, n := range []*Node{n1, n2, n3, twin} {
				clusters[n.founding.Cluster()] = true
			}
			ready := 0
			for _, n := range []*Node{n3, twin} {
				if n.Ready(b.within(time.Second)) == nil {
					ready++
				}
			}
			if len(clusters) > 1 && ready == 2 {
				t.Errorf("seed %d: two living clusters", seed)
			}
		})
		if t.Failed() {
			return
		}
	}
}

// A cluster founded anew, after the loss of the whole former cluster, begins
// above all tokens of the former cluster, and above the tokens that a founder
// remembers.
func TestTokensRiseOverAFoundingAnew(t *testing.T) {
	inBubble(t, func(b *bubble) {
		var last machine.Token
		seen := make(map[machine.ClusterID]bool)
		for round, ahead := range []time.Duration{0, 0, 20 * time.Hour} {
			n2, remembered := b.start("n2"), machine.Token(0)
			if ahead > 0 {
				remembered = machine.Token(time.Now().Add(ahead).Unix() << 21)
			}
			if err := n2.record.Update(func(r *identity.Record) { r.Token = uint64(remembered) }); err != nil {
				t.Fatal(err)
			}
			n1, n3 := b.start("n1"), b.start("n3")
			b.ready(n1, n2, n3)
			if seen[n1.founding.Cluster()] {
				t.Error("not founded anew")
			}
			seen[n1.founding.Cluster()] = true
			for i := range 3 {
				token, _ := b.hold(n1, byte(10*round+i+1), fmt.Sprint("k", i))
				if token <= last || token <= remembered || token > machine.MaxToken {
					t.Errorf("founding %d: token %d after %d, %d was remembered", round, token, last, remembered)
				}
				last = token
			}
			for _, name := range []string{"n1", "n2", "n3"} {
				b.crash(name)
			}
		}
	})
}

// The founder of a cluster for itself alone restarts without memory. The founder
// meets the former cluster before granting anything.
func TestALoneFounderThatForgetsGrantsNothing(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.start("n1", alone)
		n2, n3 := b.start("n2", thin), b.start("n3", thin)
		b.ready(b.nodes["n1"], n2, n3)
		time.Sleep(30 * time.Second)
		b.crash("n1")
		time.Sleep(time.Second)
		n1 := b.start("n1", alone)
		time.Sleep(time.Minute)
		b.notBoth(n1, n2)
	})
}

// The three first members are replaced in turn, and come back together without
// memory.
func TestFirstMembersThatComeBackTogetherGrantNothing(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.form()
		b.ready(b.start("n4"), b.start("n5"), b.start("n6"))
		time.Sleep(10 * time.Second)
		for _, name := range []string{"n1", "n2", "n3"} {
			b.leave(name)
			time.Sleep(5 * time.Second)
		}
		time.Sleep(20 * time.Second)
		for _, name := range []string{"n1", "n2", "n3"} {
			b.start(name)
		}
		time.Sleep(30 * time.Second)
		b.notBoth(b.nodes["n1"], b.nodes["n4"])
	})
}

// notBoth fails the test if two nodes are ready in different clusters.
func (b *bubble) notBoth(x, y *Node) {
	b.t.Helper()
	one, other := x.Ready(b.within(5*time.Second)), y.Ready(b.within(5*time.Second))
	if one == nil && other == nil && x.founding.Cluster() != y.founding.Cluster() {
		b.t.Error("two living clusters")
	}
}
