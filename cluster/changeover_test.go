package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/wire"
)

// crashed ends members as kill -9 does, and waits until the others have no leader.
func (b *bubble) crashed(names ...string) {
	for _, name := range names {
		b.crash(name)
	}
	for _, n := range b.nodes {
		b.eventually(n.Name()+" has no leader", time.Minute, func() bool { return n.link.Reached() != nil })
	}
}

// One voter of three and a thin member are left of a cluster in memory. The voter
// founds a successor, and the thin member follows by itself; sessions of the old
// cluster end before anybody is in the new one.
func TestMembersOfADeadClusterChangeOverInPlace(t *testing.T) {
	inBubble(t, func(b *bubble) {
		n1 := b.form()[0]
		n4 := b.join("n4", thin)
		b.hold(n1, 1, "a")
		token, events := b.hold(n4, 2, "b")
		_, own := b.hold(n1, 3, "c")
		stop := b.beat(n4, 2)
		old := n1.founding.Cluster()
		b.crashed("n2", "n3")
		answers := SucceedForTest(t, 9, n1)
		if a := answers[0]; !a.Voter || a.Token < uint64(token) || a.TTL != 2000 || a.LogIndex == 0 || a.LogTerm == 0 {
			t.Errorf("retired with %+v, want at least token %d", a, token)
		}
		if e := b.next(own, time.Millisecond); e.Kind != machine.EventEnded || e.Reason != machine.Moved {
			t.Errorf("the voter's own session was told %+v", e)
		}
		b.eventually("n4 has changed over", time.Minute, func() bool { return n4.founding.Cluster() == machine.ClusterID{9} })
		if e := b.next(events, time.Millisecond); e.Kind != machine.EventEnded || e.Reason != machine.Moved {
			t.Errorf("the thin member's session was told %+v", e)
		}
		stop()
		b.ready(n1, n4)
		if len(b.voters()) == 0 || n1.founding.Cluster() == old {
			t.Error("the old cluster lives on")
		}
		if later, _ := b.hold(n4, 4, "b"); later <= token {
			t.Errorf("token %d after %d", later, token)
		}
		// The next process of a dead voter joins the successor.
		n2 := b.join("n2")
		if n2.founding.Cluster() != n1.founding.Cluster() {
			t.Error("the restarted member is elsewhere")
		}
		b.eventually("three vote", time.Minute, func() bool { return len(b.voters()) == 3 })
	})
}

// The voter that leads, or that could elect a leader, must not retire.
func TestRetireIsRefusedWhileTheMajorityAnswers(t *testing.T) {
	inBubble(t, func(b *bubble) {
		nodes := b.form()
		n4 := b.join("n4", thin)
		refused := func(n *Node, why string) {
			t.Helper()
			a, err := n.retire(context.Background(), n.founding.Cluster())
			if err != nil || !strings.Contains(a.Refused, why) || n.record.Get().RetiredHere() || n.link.Away() {
				t.Errorf("%s retired: %+v, %v; want refusal %q", n.Name(), a, err, why)
			}
		}
		for _, n := range append(nodes, n4) {
			refused(n, "a leader of the cluster answers")
		}
		// Without a leader for a moment: the voters reach each other.
		leader := b.leader()
		followers := b.followers()
		b.crash(leader.Name())
		followers[0].link.Leave()
		if a, err := followers[0].retire(context.Background(), leader.founding.Cluster()); err != nil || !strings.Contains(a.Refused, "2 of 3 voters reach each other") {
			t.Errorf("retired: %+v, %v", a, err)
		}
		followers[0].link.Return()
		b.ready(followers...)
		// The last one cannot come back, and another cluster is none of its business.
		b.crashed(followers[1].Name())
		if a, _ := followers[0].retire(context.Background(), machine.ClusterID{7}); a.Refused == "" {
			t.Error("retired from another cluster")
		}
		for range 2 { // idempotent
			a, err := followers[0].retire(context.Background(), followers[0].founding.Cluster())
			if err != nil || a.Refused != "" || !a.Voter {
				t.Fatalf("not retired: %+v, %v", a, err)
			}
			if name, g, err := member.ParseRaftID(a.Raft); err != nil || name != followers[0].Name() || g != followers[0].record.Get().Generation {
				t.Errorf("raft ID %q", a.Raft)
			}
		}
		if a, err := n4.retire(context.Background(), n4.founding.Cluster()); err != nil || a.Refused != "" || a.Voter || n4.link.Away() {
			t.Errorf("thin: %+v, %v", a, err)
		}
	})
}

// A voter retired although its cluster lives: a partition had kept it from the
// others. It goes on there, and is invited to vote under another raft ID. Invented members, at
// an address where nothing answers, are asked for the cluster's leader last.
func TestARetiredMemberGoesOnWhenItsClusterAnswersAgain(t *testing.T) {
	inBubble(t, func(b *bubble) {
		nodes := b.form()
		n3 := nodes[2]
		promised := n3.seat.Current().ID()
		b.net.Isolate(b.host("n3"))
		b.eventually("n3 has no leader", time.Minute, func() bool { return n3.link.Reached() != nil })
		if a, err := n3.retire(context.Background(), n3.founding.Cluster()); err != nil || a.Refused != "" {
			t.Fatalf("%+v, %v", a, err)
		}
		hole, known := b.addr("hole"), member.Metadata{Cluster: n3.founding.Cluster()}
		stop := b.haunt(50*time.Millisecond, func(i int) (member.Process, member.Metadata) {
			return member.Process{Name: fmt.Sprint("ghost", i), Boot: 5, Addr: hole}, known
		}, n3)
		defer func() { stop() }()
		time.Sleep(5 * time.Second)
		if ghosts := slices.DeleteFunc(n3.gossip.Alive(), func(s member.Sighting) bool { return s.Boot != 5 }); len(ghosts) < 10 {
			t.Fatalf("%d ghosts are listed: the test shows nothing", len(ghosts))
		}
		b.net.Heal()
		b.net.Isolate(b.host("hole"))
		b.eventually("n3 has a leader", 15*time.Second, func() bool { return n3.link.Reached() == nil })
		stop()
		stop = func() {}
		b.hold(n3, 1, "k")
		time.Sleep(time.Minute)
		// A leader of the cluster has invited it, so nobody has ended the cluster.
		if r := n3.seat.Current(); r == nil || r.ID() == promised || len(b.voters()) != 3 {
			t.Errorf("votes %v: %t, voters %q", promised, r != nil, b.voters())
		}
		a, err := n3.retire(context.Background(), n3.founding.Cluster())
		if err != nil || a.Refused == "" {
			t.Errorf("confirmed the promise while the cluster answers: %+v, %v", a, err)
		}
	})
}

// A successor was founded on a false word. Its members go back when a leader of the
// predecessor, confirmed by a majority, is met.
func TestASuccessorOfALivingClusterIsDissolved(t *testing.T) {
	inBubble(t, func(b *bubble) {
		nodes := b.form()
		n3 := nodes[2]
		id := n3.founding.Cluster()
		b.net.Isolate(b.host("n3"))
		b.eventually("n3 has no leader", time.Minute, func() bool { return n3.link.Reached() != nil })
		SucceedForTest(t, 9, n3)
		b.ready(n3)
		_, events := b.hold(n3, 1, "k")
		b.net.Heal()
		b.eventually("n3 is back", time.Minute, func() bool { return n3.founding.Cluster() == id && n3.link.Reached() == nil })
		if e := b.next(events, time.Millisecond); e.Kind != machine.EventEnded || e.Reason != machine.Moved {
			t.Errorf("the session was told %+v", e)
		}
		b.hold(n3, 2, "k")
	})
}

// A cluster without any grant meets an older, granting cluster: the members of the
// former change over, and nothing is granted twice.
func TestAnUngrantedClusterYieldsToOneThatGrants(t *testing.T) {
	inBubble(t, func(b *bubble) {
		n1 := b.join("n1", alone)
		n2 := b.start("n2", alone, ttl(time.Minute), joins(b.addr("n1")))
		b.net.Isolate(b.host("n2"))
		b.eventually("n2 founded beside", time.Minute, func() bool { return n2.currentTerm() != nil })
		if n2.founding.Cluster() == n1.founding.Cluster() {
			t.Fatal("one cluster")
		}
		b.net.Heal()
		b.eventually("n2 has changed over", time.Minute, func() bool { return n2.founding.Cluster() == n1.founding.Cluster() })
		b.ready(n1, n2)
		if b.wasTold("node failed") {
			t.Error("a node failed")
		}
	})
}

// Neither has granted: one rule decides on both sides.
func TestOfTwoUngrantedClustersOneStays(t *testing.T) {
	inBubble(t, func(b *bubble) {
		apart := func(peer string) func(*Config) {
			return func(c *Config) { c.InitialSize, c.Join, c.TTL = 1, []string{b.addr(peer)}, 20*time.Second }
		}
		b.host("n1")
		b.host("n2")
		n1 := b.start("n1", apart("n2"))
		b.net.Isolate(b.host("n1"))
		n2 := b.start("n2", apart("n1"))
		b.eventually("two clusters", time.Minute, func() bool { return n1.currentTerm() != nil && n2.currentTerm() != nil })
		b.net.Heal()
		b.eventually("one cluster", time.Minute, func() bool { return n1.founding.Cluster() == n2.founding.Cluster() })
		b.ready(n1, n2)
	})
}

// Both have granted: nobody moves, and both tell it again and again.
func TestTwoClustersThatHaveGrantedAreToldForEver(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.host("n1")
		b.host("n2")
		n1 := b.start("n1", func(c *Config) { c.InitialSize, c.Join = 1, []string{b.addr("n2")} })
		b.net.Isolate(b.host("n1"))
		n2 := b.start("n2", func(c *Config) { c.InitialSize, c.Join = 1, []string{b.addr("n1")} })
		b.ready(n1, n2)
		b.net.Heal()
		time.Sleep(10 * time.Minute)
		for _, n := range []*Node{n1, n2} {
			b.hold(n, 1, "k")
			told := 0
			for _, e := range b.told() {
				if strings.Contains(e, n.Name()+": conflict") && strings.Contains(e, clusterText(n1.founding.Cluster())) && strings.Contains(e, clusterText(n2.founding.Cluster())) {
					told++
				}
			}
			if told < 10 || told > 20 {
				t.Errorf("%s told it %d times in 10 minutes", n.Name(), told)
			}
			if seen := n.conflictsSeen(); len(seen) != 1 || seen[0].With.Addr == "" {
				t.Errorf("%s: seen %+v", n.Name(), seen)
			}
		}
		if n1.founding.Cluster() == n2.founding.Cluster() {
			t.Error("the clusters merged")
		}
	})
}

func TestSettle(t *testing.T) {
	founded := func(id byte, predecessors ...byte) *wire.Founding {
		v := &wire.Founding{Cluster: machine.ClusterID{id}}
		for _, p := range predecessors {
			v.Predecessors = append(v.Predecessors, machine.ClusterID{p})
		}
		return v
	}
	for _, tt := range []struct {
		own, other               *wire.Founding
		ownGranted, otherGranted bool
		want                     verdictOn
	}{
		{founded(1), founded(1), true, true, pass},
		{founded(1), founded(2, 1), true, false, yield},
		{founded(2, 1), founded(1), true, true, yield},
		{founded(1), founded(2), true, false, pass},
		{founded(1), founded(2), false, true, yield},
		{founded(1), founded(2), false, false, hold},
		{founded(2), founded(1), false, false, yield},
		{founded(1), founded(2), true, true, clash},
		{founded(2, 1), founded(3, 1), true, true, clash},
	} {
		own := wire.LineageOf{Founding: tt.own, Granted: tt.ownGranted}
		other := wire.LineageOf{Founding: tt.other, Granted: tt.otherGranted}
		if got := settle(own, other); got != tt.want {
			t.Errorf("%v: got %d", tt, got)
		}
	}
}
