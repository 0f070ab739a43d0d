package cluster

import (
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/founding"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/testrounds"
)

func complete(c *Config) { c.Recovery.JoinIsComplete = true }

// Two of three voters in memory are killed and restarted at their addresses, all at
// once or one by one: nobody else can live, and the members found a successor.
func TestADeadClusterWithACompleteListGrantsAgain(t *testing.T) {
	for _, pause := range []time.Duration{0, 7 * time.Second} {
		inBubble(t, func(b *bubble) {
			n1 := b.form(complete)[0]
			token, events := b.hold(n1, 1, "k")
			stop := b.beat(n1, 1)
			old := *n1.founding.Value()
			b.crash("n2")
			b.crash("n3")
			n2 := b.start("n2", complete)
			time.Sleep(pause)
			n3 := b.start("n3", complete)
			b.ready(n1, n2, n3)
			stop()
			for _, n := range []*Node{n1, n2, n3} {
				if v := n.founding.Value(); founding.Kin(old, *v) != founding.Successor {
					t.Errorf("%s is in %+v", n.Name(), v)
				}
			}
			if e := b.next(events, time.Millisecond); e.Kind != machine.EventEnded {
				t.Errorf("told %+v", e)
			}
			if later, _ := b.hold(n1, 2, "k"); later <= token {
				t.Errorf("token %d after %d", later, token)
			}
			b.eventually("three vote", time.Minute, func() bool { return len(b.voters()) == 3 })
		})
	}
}

// The successor dies as its predecessor did.
func TestASuccessorIsSucceeded(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.form(complete)
		last := machine.Token(0)
		lives := testrounds.Rounds(2, 4)
		for i := range byte(lives) {
			survivor := b.followers()[0]
			var restarted []*Node
			for _, name := range []string{"n1", "n2", "n3"} {
				if name != survivor.Name() {
					b.crash(name)
				}
			}
			for _, name := range []string{"n1", "n2", "n3"} {
				if name != survivor.Name() {
					restarted = append(restarted, b.start(name, complete))
				}
			}
			b.ready(append(restarted, survivor)...)
			token, _ := b.hold(survivor, i+1, "k")
			if token <= last {
				t.Errorf("token %d after %d", token, last)
			}
			last = token
			b.eventually("three vote", time.Minute, func() bool { return len(b.voters()) == 3 })
		}
		if v := b.leader().founding.Value(); len(v.Predecessors) != lives {
			t.Errorf("predecessors: %d", len(v.Predecessors))
		}
	})
}
