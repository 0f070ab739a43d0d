package cluster

import (
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/member"
)

// A process that has answered to a raft ID is found although gossip knows nothing of it,
// until it has ended.
func TestAVoterIsFoundWithoutGossip(t *testing.T) {
	inBubble(t, func(b *bubble) {
		n := b.start("n1", alone)
		b.ready(n)
		home := member.Process{Name: "voter", Boot: 7, Addr: "10.0.0.9:7000"}
		id := member.RaftID(home.Name, 1)
		if _, err := n.locate(id); err == nil {
			t.Fatal("an unknown voter is found: the test shows nothing")
		}
		n.homes.note(id, home)
		if p, err := n.locate(id); p != home {
			t.Errorf("found %v, %v", p, err)
		}
		n.proof.Goodbye(home.Name, home.Boot)
		if p, err := n.locate(id); err == nil {
			t.Errorf("an ended process is found at %v", p)
		}
	})
}

// What gossip says of a living process's address takes nothing from the address at which it has
// answered to its raft ID: that one is dialled first.
func TestGossipTakesNoVoterAway(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.form()
		n, other := b.leader(), b.followers()[0]
		b.eventually("the follower votes", time.Minute, func() bool { return other.RaftID() != "" })
		id := other.RaftID()
		home := member.Process{Name: other.Name(), Boot: other.self.Boot, Addr: "10.0.0.9:7000"}
		n.homes.note(id, home)
		all, err := n.holders(id)
		if err != nil || len(all) != 2 || all[0] != home || all[1].Addr != other.self.Addr {
			t.Errorf("%v, %v", all, err)
		}
	})
}
