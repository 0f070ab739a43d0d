package cluster

import (
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/simnet"
	"github.com/wardmote/wardmote/internal/wire"
)

// What becomes of an entry is told as it is: that of a leader which lost its lead
// meanwhile may be committed yet, that of a node which does not lead is in no log.
func TestTheFateOfAnEntryIsTold(t *testing.T) {
	for _, heard := range []bool{false, true} {
		inBubble(t, func(b *bubble) {
			long := func(c *Config) { c.TTL = time.Minute }
			b.readyWithin(2*time.Minute, b.start("n1", long), b.start("n2", long), b.start("n3", long))
			old := b.leader()
			b.propose(old, machine.Open{Session: sid(1), Client: "c", Node: "n", TTL: 60_000})
			r := old.roles.current()
			entry := machine.EncodeEntry([]machine.Command{machine.Acquire{Session: sid(1), Seq: 1, Key: "k"}})
			for _, n := range b.nodes {
				if n != old {
					if _, c := n.roles.current().commit(entry); c != wire.CodeNotLeader {
						t.Errorf("%s, which follows: %v", n.Name(), c)
					}
					if heard {
						// The entry goes out, and no answer comes back in time.
						b.net.SetLink(b.host(n.Name()), b.host(old.Name()), simnet.Link{Delay: time.Minute})
					} else {
						b.net.Cut(b.host(old.Name()), b.host(n.Name()))
					}
				}
			}
			began := time.Now()
			if _, c := r.commit(entry); c != wire.CodeUnknown {
				t.Errorf("the leader that was cut off: %v", c)
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("told after %v", took)
			}
			if _, c := r.commit(entry); c != wire.CodeNotLeader {
				t.Errorf("when it leads no more: %v", c)
			}
			time.Sleep(5 * time.Second) // the others have another leader
			for name, n := range b.nodes {
				if n == old {
					continue
				}
				n.roles.current().table.view(func(m *machine.State) {
					if _, token := m.Owner("k"); (token != 0) != heard {
						t.Errorf("%s: token %d, the entry was heard: %v", name, token, heard)
					}
				})
			}
		})
	}
}
