package cluster

import (
	"errors"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/member"
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
		if !b.wasTold(`n1: conflict: x: connection with cluster "", id 00000000`) {
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
		if !b.wasTold("n2: conflict: n1: it expects 2 first members and 3 voters, this member 3 and 3") {
			t.Error("nobody was told")
		}
	})
}

func TestConflictsAreToldOnceAndBounded(t *testing.T) {
	inBubble(t, func(b *bubble) {
		n := b.start("n1")
		for boot := range uint64(10_000) {
			for range 2 {
				n.conflict(member.Process{Name: "x", Boot: boot}, "test")
			}
		}
		time.Sleep(time.Second)
		if n := len(b.told()); n != maxConflicts {
			t.Errorf("%d told", n)
		}
	})
}
