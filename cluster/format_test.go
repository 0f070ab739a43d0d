package cluster

import (
	"crypto/sha256"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
)

// While one voter reads the first format only, nothing of a later one is
// proposed; and nothing is in its way once that voter has been upgraded.
func TestNothingIsProposedThatAVoterDoesNotRead(t *testing.T) {
	inBubble(t, func(b *bubble) {
		nodes := b.form()
		leader := b.leader()
		old := nodes[0]
		if old == leader {
			old = nodes[1]
		}
		thin := b.start("thin", func(c *Config) { c.InitialSize = 0 })
		b.ready(thin)
		b.propose(thin, machine.Open{Session: sid(1), Client: "c", Node: "n", TTL: 2000})
		defer b.beating(thin, 1)()
		shared := func(seq uint64) machine.Acquire {
			return machine.Acquire{Session: sid(1), Seq: seq, Key: "k", Mode: machine.Shared}
		}
		for _, advertised := range []uint8{0, 1} {
			old.gossip.update(func(m *metadata) { m.Format = advertised })
			time.Sleep(10 * time.Second)
			for _, n := range []*Node{thin, leader} {
				_, err := n.link.Propose(b.within(5*time.Second), shared(1))
				var e *replica.Error
				if !errors.Is(err, ErrVersion) || !errors.As(err, &e) || e.Unknown {
					t.Errorf("%s: %v", n.Name(), err)
				}
			}
		}
		if o := b.propose(thin, machine.Acquire{Session: sid(1), Seq: 2, Key: "plain"}); o.Code != machine.Granted {
			t.Errorf("a plain acquire: %+v", o)
		}
		// A thin member's format is nobody's concern.
		thin.gossip.update(func(m *metadata) { m.Format = 1 })
		old.gossip.update(func(m *metadata) { m.Format = machine.MaxFormat })
		time.Sleep(10 * time.Second)
		// Nothing was applied before: the seq is as good as new.
		if o := b.propose(thin, shared(1)); o.Code != machine.Granted {
			t.Errorf("%+v", o)
		}
		// A voter that is not seen is of the first format.
		if f := leader.gossip.format("n9#1"); f != 1 {
			t.Errorf("format %d", f)
		}
	})
}

// The end of a delay is of the second format too. It waits.
func TestADelayWaitsForTheVoterThatDoesNotKnowItsEnd(t *testing.T) {
	inBubble(t, func(b *bubble) {
		nodes := b.form()
		b.propose(nodes[0], machine.Open{Session: sid(1), Client: "c", Node: "n", TTL: 2000})
		b.propose(nodes[0], machine.Acquire{Session: sid(1), Seq: 1, Key: "k", Delay: 1000})
		nodes[0].gossip.update(func(m *metadata) { m.Format = 1 })
		time.Sleep(20 * time.Second)
		held := func() (held int) {
			b.leader().leader.Load().table.view(func(m *machine.State) { held = m.Status("k", 0).Held })
			return held
		}
		if held() != 1 {
			t.Error("the delay was ended")
		}
		nodes[0].gossip.update(func(m *metadata) { m.Format = machine.MaxFormat })
		time.Sleep(10 * time.Second)
		if held() != 0 {
			t.Error("the delay was not ended")
		}
	})
}

// Grants tell the time at which their entry was put in the log, the same on
// every voter, in memory or read again from a disk.
func TestTablesAgreeOnTheTime(t *testing.T) {
	for _, durable := range []bool{false, true} {
		dir := t.TempDir()
		inBubble(t, func(b *bubble) {
			change := func(name string) func(*Config) {
				return func(c *Config) {
					c.TTL = time.Minute
					if durable {
						c.Dir = filepath.Join(dir, name)
					}
				}
			}
			names := []string{"n1", "n2", "n3"}
			for _, name := range names {
				b.start(name, change(name))
			}
			b.readyWithin(2*time.Minute, b.nodes["n1"], b.nodes["n2"], b.nodes["n3"])
			n := b.nodes["n1"]
			b.propose(n, machine.Open{Session: sid(1), Client: "c", Node: "n", TTL: 60_000})
			var asked []time.Time
			for i := range 5 {
				time.Sleep(1234567 * time.Microsecond)
				asked = append(asked, time.Now())
				b.propose(n, machine.Acquire{Session: sid(1), Seq: uint64(i + 1), Key: string(rune('a' + i))})
			}
			check := func() {
				t.Helper()
				time.Sleep(2 * time.Second)
				digests := make(map[[sha256.Size]byte][]string)
				for name, n := range b.nodes {
					n.roles.current().table.view(func(m *machine.State) {
						digests[m.Digest()] = append(digests[m.Digest()], name)
						for i, at := range asked {
							st := m.Status(string(rune('a'+i)), 1)
							if st.Held != 1 {
								t.Fatalf("%s: %+v", name, st)
							}
							if d := time.UnixMilli(int64(st.Holders[0].At)).Sub(at); d < -time.Millisecond || d > 100*time.Millisecond {
								t.Errorf("%s: granted %v after it was asked for", name, d)
							}
						}
					})
				}
				if len(digests) != 1 {
					t.Errorf("the tables differ: %v", digests)
				}
			}
			check()
			if !durable {
				return
			}
			// All at once, so that the tables come from the disks.
			for _, name := range names {
				b.crash(name)
			}
			for _, name := range names {
				b.start(name, change(name))
			}
			b.leader()
			check()
		})
	}
}
