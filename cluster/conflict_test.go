package cluster

import (
	"crypto/x509"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/timing"
)

func TestASecondMemberOfOneNameIsRefused(t *testing.T) {
	inBubble(t, func(b *bubble) {
		nodes := b.form()
		twin := b.start("twin", thin, func(c *Config) { c.Name = "n2" })
		twin.Ready(b.within(10 * time.Second))
		time.Sleep(2 * time.Second)
		err := twin.Ready(b.within(10 * time.Second))
		var bad *ConfigError
		if !errors.As(err, &bad) || bad.Field != "Config.Name" {
			t.Errorf("the twin got %v", err)
		}
		b.ready(nodes...)
		if v := b.voters(); len(v) != 3 {
			t.Errorf("voters: %v", v)
		}
		if !b.wasTold("conflict: n2: two running members of one name") {
			t.Error("nobody was told")
		}
	})
}

// Founders of different TTLs found together. The difference is told, and is no reason
// any more once they have.
func TestADifferenceOfFoundersIsSettledByTheirFounding(t *testing.T) {
	inBubble(t, func(b *bubble) {
		var nodes []*Node
		for i, name := range []string{"n1", "n2", "n3"} {
			nodes = append(nodes, b.start(name, func(c *Config) { c.TTL = time.Duration(2+5*i) * time.Second }))
		}
		b.eventually("all are in a cluster", time.Minute, func() bool {
			for _, n := range nodes {
				if !n.Health(b.within(time.Second)).Quorum {
					return false
				}
			}
			return true
		})
		if !b.wasTold("its TTL is") {
			t.Error("the difference is not told")
		}
		for _, n := range nodes {
			if h := n.Health(b.within(time.Second)); len(h.Conflicts) > 0 || strings.Contains(h.Reason, "conflict") {
				t.Errorf("%s: %q, %q", n.Name(), h.Conflicts, h.Reason)
			}
		}
		b.ready(nodes...)
	})
}

// A member with two clusters in Join enters either, and the clusters stay apart.
func TestTwoClustersOfOneNameNeverMix(t *testing.T) {
	inBubble(t, func(b *bubble) {
		n1, n2 := b.join("n1", alone), b.join("n2", alone)
		b.join("n3", thin, joins(b.addr("n1"), b.addr("n2")))
		time.Sleep(time.Minute)
		if n1.founding.Cluster() == n2.founding.Cluster() {
			t.Fatal("the clusters merged")
		}
		b.hold(n1, 1, "k")
		b.hold(n2, 1, "k")
		if !b.wasTold("conflict") {
			t.Error("nobody was told")
		}
	})
}

func TestAMemberOfAnotherClusterIsRefusedLoudly(t *testing.T) {
	inBubble(t, func(b *bubble) {
		n1 := b.form()[0]
		before := len(n1.Members())
		n := b.start("x", thin, func(c *Config) { c.Cluster = "other" })
		if err := n.Ready(b.within(5 * time.Second)); !errors.Is(err, ErrNoQuorum) {
			t.Errorf("Ready returned %v", err)
		}
		if m := n1.Members(); len(m) != before {
			t.Errorf("members: %v", m)
		}
		if !b.wasTold("n1: conflict: x: connection with a cluster of another name") {
			t.Error("nobody was told")
		}
	})
}

// Founders with different numbers found nothing, and tell both numbers.
func TestDifferentFirstMembersAreAConflict(t *testing.T) {
	inBubble(t, func(b *bubble) {
		n1 := b.start("n1", func(c *Config) { c.InitialSize = 2 })
		b.start("n2")
		b.start("n3")
		if err := n1.Ready(b.within(time.Minute)); err == nil {
			t.Error("founded")
		}
		// Both sides are told, whoever asks.
		for _, text := range []string{
			"n2: conflict: n1: it expects 2 first members, this member 3", "n1: conflict: n2: it expects 3 first members, this member 2",
		} {
			if !b.wasTold(text) {
				t.Errorf("nobody was told %q", text)
			}
		}
	})
}

// A flood of forged conflicts costs few lines and little memory, and silences no
// conflict that lasts, for however long the flood goes on.
func TestForgedConflictsSilenceNoOther(t *testing.T) {
	inBubble(t, func(b *bubble) {
		n := b.start("n1")
		boot := uint64(0)
		flood := func(d time.Duration, sign func()) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
				for range 50 {
					boot++
					n.conflict(member.Process{Name: "x", Boot: boot}, "forged")
				}
				sign()
			}
		}
		flood(time.Minute, func() {})
		if n := len(b.told()); n > maxFresh+12 {
			t.Errorf("%d told in a minute", n)
		}
		flood(2*timing.ConflictAgain, func() { n.conflict(member.Process{Name: "y", Boot: 1}, "lasts") })
		if !b.wasTold("n1: conflict: y: lasts") {
			t.Error("the conflict that lasts was not told")
		}
		if seen := n.conflictsSeen(); len(seen) > maxConflicts || seen[len(seen)-1].Detail != "lasts" {
			t.Errorf("%d conflicts seen, the last %+v", len(seen), seen[len(seen)-1])
		}
	})
}

// Calls in parallel are bounded, and have returned with inParallel.
func TestCallsInParallelAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var now, most, all atomic.Int32
		inParallel(4, make([]int, 10), func(int) {
			for n := now.Add(1); ; {
				if old := most.Load(); n <= old || most.CompareAndSwap(old, n) {
					break
				}
			}
			time.Sleep(time.Second)
			now.Add(-1)
			all.Add(1)
		})
		if took := time.Since(began); all.Load() != 10 || most.Load() != 4 || took != 3*time.Second {
			t.Errorf("%d calls, %d at a time, in %v", all.Load(), most.Load(), took)
		}
	})
}

// The question to a namesake can be lost, while gossip goes around by others. It is asked
// until it is answered, and both sides tell: the one that stays, by its Health. Invented
// namesakes, at addresses where nothing answers, delay no answer.
func TestANamesakeIsAskedUntilItAnswers(t *testing.T) {
	for _, ghosts := range []int{0, 12} {
		inBubble(t, func(b *bubble) {
			n2 := b.form()[1]
			cut := func() {
				b.net.Cut(b.host("twin"), b.host("n2"))
				b.net.Cut(b.host("n2"), b.host("twin"))
				b.net.Isolate(b.host("hole"))
			}
			cut()
			twin := b.start("twin", thin, func(c *Config) { c.Name = "n2" })
			if ghosts > 0 {
				hole := b.addr("hole")
				defer b.haunt(50*time.Millisecond, func(i int) (member.Process, member.Metadata) {
					return member.Process{Name: "n2", Boot: 5 + uint64(i%ghosts), Addr: hole}, member.Metadata{Cluster: n2.founding.Cluster()}
				}, twin)()
			}
			time.Sleep(5 * time.Second) // of the first question and more
			if twin.Err() != nil || len(n2.Health(b.within(time.Second)).Conflicts) > 0 {
				t.Fatalf("they have met: %v", twin.Err())
			}
			if n := len(twin.namesakes()); n < ghosts/2 {
				t.Fatalf("%d namesakes are listed: the test shows nothing", n)
			}
			b.net.Heal()
			b.net.Isolate(b.host("hole"))
			time.Sleep(2 * timing.ConflictAgain)
			var bad *ConfigError
			if err := twin.Err(); !errors.As(err, &bad) || bad.Field != "Config.Name" {
				t.Errorf("with %d ghosts the twin got %v", ghosts, err)
			}
			h := n2.Health(b.within(time.Second))
			if !strings.Contains(strings.Join(h.Conflicts, "\n"), "two running members of one name") {
				t.Errorf("%q, %q", h.Conflicts, h.Reason)
			}
			b.ready(n2)
		})
	}
}

// Where members share certificates, a process without the voter role can claim any name. It
// stops no voter of the name that starts; an elder voter does.
func TestAMereNamesakeStopsNobody(t *testing.T) {
	for _, c := range []struct{ elderVotes, votes, stops bool }{{false, true, false}, {false, false, false}, {true, true, true}} {
		inBubble(t, func(b *bubble) {
			ca := newCertifier(b.t)
			shared := func(voter bool) func(*Config) {
				return func(c *Config) {
					suffix := ""
					if !voter {
						suffix = "?role=member"
					}
					ca.certified(suffix)(c)
					c.Security.Identity = func(leaf *x509.Certificate) (string, Role, error) {
						if leaf.URIs[0].RawQuery != "" {
							return "", RoleMember, nil
						}
						return "", RoleVoter, nil
					}
					c.Voting.Thin = !voter
				}
			}
			b.form(shared(true))
			b.join("elder", thin, shared(c.elderVotes), func(c *Config) { c.Name = "x" })
			x := b.start("x", thin, shared(c.votes))
			time.Sleep(10 * time.Second)
			var bad *ConfigError
			if err := x.Err(); errors.As(err, &bad) != c.stops {
				t.Errorf("%+v: the member that starts got %v", c, err)
			}
		})
	}
}
