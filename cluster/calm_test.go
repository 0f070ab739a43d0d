package cluster

import (
	"strings"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/founding"
)

// Five members in memory are founded, live and lose a leader that hands over. Nobody
// misses a quorum, and each change of leader is told once on each member.
func TestAHealthyLifeTellsEachLeaderOnce(t *testing.T) {
	inBubble(t, func(b *bubble) {
		five := func(c *Config) { c.InitialSize = 5 }
		for _, name := range numbered(5) {
			b.start(name, five)
		}
		b.together(time.Minute)
		time.Sleep(20 * time.Second)
		b.leave(b.leader().Name())
		time.Sleep(20 * time.Second)
		if b.wasTold("quorum lost") {
			t.Error("a quorum was lost")
		}
		for name := range b.nodes {
			last := ""
			for _, e := range b.told() {
				_, leader, ok := strings.Cut(e, name+": leader changed: ")
				if ok && leader == last {
					t.Errorf("%s: told again: %s", name, e)
				}
				if ok {
					last = leader
				}
			}
			if last == "" {
				t.Errorf("%s was told of no leader", name)
			}
		}
	})
}

// Two operators name the two lost voters on two members at the same moment: one
// successor.
func TestTwoOperatorsMakeOneSuccessor(t *testing.T) {
	inBubble(t, func(b *bubble) {
		n1 := b.form(wants(3))[0]
		n4 := b.join("n4", thin, wants(3))
		old := *n1.founding.Value()
		b.crashed("n2", "n3")
		b.eventually("the dead are not seen", time.Minute, func() bool { return len(n1.gossip.Alive()) == 2 && len(n4.gossip.Alive()) == 2 })
		done := make(chan error)
		for _, n := range []*Node{n1, n4} {
			go func() { done <- n.Recover(b.within(2*time.Minute), RecoverOptions{Gone: []string{"n2", "n3"}}) }()
		}
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		b.ready(n1, n4)
		if n1.founding.Cluster() != n4.founding.Cluster() || founding.Kin(old, *n1.founding.Value()) != founding.Successor {
			t.Errorf("in %+v and %+v", n1.founding.Value(), n4.founding.Value())
		}
	})
}

// The documented trade of AssumeGone: the majority was cut off for longer, and not
// dead. Its leader lives, so the survivors' successor is dissolved as soon as the two
// meet, and one cluster is left.
func TestASuccessorOnSilenceEndsWhenTheMajorityComesBack(t *testing.T) {
	inBubble(t, func(b *bubble) {
		gone := func(c *Config) { c.Recovery.AssumeGone = 2 * time.Minute }
		one := func(c *Config) { c.InitialSize, c.Join = 0, []string{b.addr("n1"), b.addr("n2"), b.addr("n3")} }
		nodes := b.form(gone, wants(3))
		n4, n5 := b.join("n4", gone, wants(3), one), b.join("n5", gone, wants(3), one)
		n1 := nodes[0]
		id := n1.founding.Cluster()
		b.net.Partition([]string{b.host("n1"), b.host("n4"), b.host("n5")}, []string{b.host("n2"), b.host("n3")})
		time.Sleep(90 * time.Second)
		if n1.founding.Cluster() != id {
			t.Error("succeeded before the silence was long enough")
		}
		b.eventually("a successor", 10*time.Minute, func() bool {
			return n1.founding.Cluster() != id && n4.founding.Cluster() == n1.founding.Cluster()
		})
		b.net.Heal()
		b.eventually("one cluster", 2*time.Minute, func() bool {
			return n1.founding.Cluster() == id && n4.founding.Cluster() == id && n5.founding.Cluster() == id && n1.link.Reached() == nil && n4.link.Reached() == nil
		})
		b.hold(n4, 1, "k")
	})
}
