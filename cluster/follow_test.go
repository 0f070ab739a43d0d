package cluster

import (
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/founding"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/testrounds"
	"github.com/wardmote/wardmote/internal/wire"
)

// n1 is left of a cluster whose other voters have restarted and founded another one,
// which does not descend from the first. Whichever of the two has granted, and
// whichever has the lower ID, n1 follows, and the living cluster grants.
func TestAMemberOfADeadClusterFollowsAStranger(t *testing.T) {
	for _, tt := range []struct {
		claim             string
		granted, stranger bool // has granted before they meet
	}{{"both have granted", true, true}, {"the dead one has", true, false}, {"the living one has", false, true}, {"neither has", false, false}} {
		for _, lower := range []bool{false, true} { // the dead cluster's ID
			if lower != tt.stranger && !testrounds.Full() {
				continue
			}
			inBubble(t, func(b *bubble) {
				slow, fast := ttl(40*time.Second), ttl(time.Second)
				change := fast
				if !tt.granted {
					change = slow
				}
				n1 := b.start("n1", change)
				b.start("n2", change)
				b.start("n3", change)
				if tt.granted {
					b.ready(n1)
				} else {
					b.eventually("n1 is in a cluster", 20*time.Second, func() bool { return n1.link.Reached() == nil })
				}
				dead := n1.founding.Cluster()
				b.net.Isolate(b.host("n1"))
				b.crash("n2")
				b.crash("n3")
				change = fast
				if !tt.stranger {
					change = slow
				}
				two := func(c *Config) { c.InitialSize = 2 }
				var n2 *Node
				for n2 == nil || (string(dead[:]) < string(clusterID(n2))) != lower {
					if n2 != nil {
						b.crash("n2")
						b.crash("n3")
					}
					n2 = b.start("n2", change, two)
					n3 := b.start("n3", change, two)
					b.eventually("another cluster", time.Minute, func() bool { return n2.link.Reached() == nil && n3.link.Reached() == nil })
				}
				if tt.stranger {
					b.ready(n2)
				}
				b.net.Heal()
				b.eventually("n1 follows", time.Minute, func() bool { return n1.founding.Cluster() == n2.founding.Cluster() })
				b.ready(n2, n1)
			})
			if t.Failed() {
				t.Fatalf("%s, the dead one's ID is lower: %t", tt.claim, lower)
			}
		}
	}
}

func clusterID(n *Node) []byte { id := n.founding.Cluster(); return id[:] }

// The rules for members of two clusters that can answer, as the model of meetings
// has them.
func TestSettleAsModelled(t *testing.T) {
	v := func(id byte, predecessors ...machine.ClusterID) *wire.Founding {
		return &wire.Founding{Cluster: machine.ClusterID{id}, Predecessors: predecessors}
	}
	for _, own := range []byte{2, 4} {
		for _, kin := range []founding.Kinship{founding.Stranger, founding.Successor, founding.Predecessor} {
			for grants := range 4 {
				a := wire.LineageOf{Founding: v(own), Granted: grants&1 != 0}
				b := wire.LineageOf{Founding: v(3), Granted: grants&2 != 0}
				switch kin {
				case founding.Successor:
					b.Founding = v(3, machine.ClusterID{own})
				case founding.Predecessor:
					a.Founding = v(own, machine.ClusterID{3})
				}
				// A silent cluster yields to a predecessor, to any that has granted, and to a
				// silent one with a lower ID that does not descend from it.
				dissolves := !a.Granted && (kin == founding.Predecessor || b.Granted || kin == founding.Stranger && own > 3)
				got := settle(a, b)
				if dissolves && got != yield {
					t.Errorf("own %d, kin %d, granted %t and %t: %d, want yield", own, kin, a.Granted, b.Granted, got)
				}
				if !a.Granted && got == pass {
					t.Errorf("own %d, kin %d: a silent cluster does not hold", own, kin)
				}
				// Two that can answer never both move.
				if got == yield && settle(b, a) == yield && kin == founding.Stranger {
					t.Errorf("own %d, granted %t and %t: both move", own, a.Granted, b.Granted)
				}
			}
		}
	}
}

// A cluster that has granted nothing does not grant while its successor is near: one
// of the two must go first, and the successor's members do.
func TestASilentClusterHoldsBesideItsSuccessor(t *testing.T) {
	inBubble(t, func(b *bubble) {
		nodes := []*Node{b.start("n1", ttl(40*time.Second)), b.start("n2", ttl(40*time.Second)), b.start("n3", ttl(40*time.Second))}
		for _, n := range nodes {
			b.eventually("in a cluster", 20*time.Second, func() bool { return n.link.Reached() == nil })
		}
		own := wire.LineageOf{Founding: nodes[0].founding.Value()}
		other := wire.LineageOf{Founding: &wire.Founding{Cluster: machine.ClusterID{9}, Predecessors: []machine.ClusterID{own.Founding.Cluster}}}
		if got := nodes[0].yieldTo(nodes[1].self.Process(), own, other); got != hold {
			t.Errorf("silent, beside a successor: %d, want hold", got)
		}
		own.Granted = true
		if got := nodes[0].yieldTo(nodes[1].self.Process(), own, other); got != follow {
			t.Errorf("granting, beside a successor: %d, want follow", got)
		}
	})
}
