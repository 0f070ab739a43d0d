package cluster

import (
	"testing"

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
