package cluster

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
)

// Five voters bear the loss of any two at once, and seven of three; one more, and
// what is left grants nothing.
func TestSoManyVotersBearSoManyLosses(t *testing.T) {
	for _, voters := range []int{5, 7} {
		t.Run(fmt.Sprint(voters), func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				var names []string
				for i := range voters {
					name := fmt.Sprint("n", i+1)
					names = append(names, name)
					b.start(name, func(c *Config) { c.Voters, c.TTL = voters, time.Minute })
				}
				for _, name := range names {
					b.readyWithin(3*time.Minute, b.nodes[name])
				}
				for began := time.Now(); len(b.leader().leader.Load().raft.voters()) < voters; time.Sleep(time.Second) {
					if time.Since(began) > 5*time.Minute {
						t.Fatalf("%v vote", b.leader().leader.Load().raft.voters())
					}
				}
				last := b.nodes[names[voters-1]]
				b.propose(last, machine.Open{Session: sid(1), Client: "c", Node: "n", TTL: 60_000})
				before := b.propose(last, machine.Acquire{Session: sid(1), Seq: 1, Key: "k"}).Token
				for _, name := range names[:voters/2] {
					b.net.Isolate(b.host(name)) // all in one moment
				}
				o := b.propose(last, machine.Acquire{Session: sid(1), Seq: 2, Key: "l"})
				if o.Code != machine.Granted || o.Token <= before {
					t.Errorf("after %d losses: %+v", voters/2, o)
				}
				b.net.Isolate(b.host(names[voters/2]))
				time.Sleep(40 * time.Second) // the stream to a leader that was cut off is given up
				_, err := last.link.Propose(b.within(3*time.Second), machine.Acquire{Session: sid(1), Seq: 3, Key: "m"})
				if !errors.Is(err, ErrNoQuorum) {
					t.Errorf("after %d losses: %v", voters/2+1, err)
				}
				b.net.Heal()
				b.ready(last)
				next := b.propose(last, machine.Acquire{Session: sid(1), Seq: 4, Key: "m"})
				if next.Code != machine.Granted || next.Token != o.Token+1 {
					t.Errorf("healed: %+v after %+v", next, o)
				}
			})
		})
	}
}
