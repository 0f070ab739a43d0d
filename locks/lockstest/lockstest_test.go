package lockstest_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/locks"
	"github.com/wardmote/wardmote/locks/lockstest"
)

func TestEveryFaultAndItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := lockstest.New(t, 4)
		reaches := func(i int) bool {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			return c.Node(i).Health(ctx).Quorum
		}
		for name, fault := range map[string]struct{ begin, end func(i int) }{
			"pause":     {c.Pause, c.Resume},
			"isolate":   {func(i int) { c.Isolate(i) }, func(int) { c.Heal() }},
			"partition": {func(i int) { c.Partition([]int{i}, []int{(i + 1) % 4, (i + 2) % 4, (i + 3) % 4}) }, func(int) { c.Heal() }},
			"kill":      {c.Kill, c.Restart},
		} {
			c.Settle()
			leader := c.Leader()
			victim := (leader + 1) % 4
			fault.begin(victim)
			time.Sleep(time.Second)
			if name != "kill" && reaches(victim) {
				t.Errorf("%s: member %d still reaches the leader", name, victim)
			}
			if !reaches(leader) {
				t.Errorf("%s: the others are without a quorum", name)
			}
			fault.end(victim)
			time.Sleep(10 * time.Second)
			if !reaches(victim) {
				t.Errorf("%s: member %d did not come back", name, victim)
			}
		}
		old := c.Leader()
		c.Settle()
		c.Kill(old)
		if next := c.Leader(); next == old {
			t.Error("a killed member leads")
		}
	})
}

func TestKilledMembersLocksEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events atomic.Int64
		c := lockstest.New(t, 3, lockstest.TTL(time.Second), lockstest.Config(func(i int, cfg *cluster.Config) {
			if i == 0 {
				cfg.Events = func(context.Context, cluster.Event) { events.Add(1) }
			}
		}))
		l, err := c.Client(1).Acquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		c.Kill(1)
		<-l.Context().Done()
		if !errors.Is(l.Err(), locks.ErrLost) {
			t.Error(l.Err())
		}
		if _, err := c.NewClient(2, locks.Options{Name: "other"}).Acquire(t.Context(), "k"); err != nil {
			t.Error(err)
		}
		c.Restart(1)
		if c.Client(1) == nil || events.Load() == 0 {
			t.Error("no client, or no events")
		}
	})
}

// Outside of a bubble the same cluster lives in real time.
func TestOutsideOfABubble(t *testing.T) {
	c := lockstest.New(t, 3, lockstest.TTL(500*time.Millisecond))
	l, err := c.Client(2).Acquire(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	c.SetClock(1, lockstest.Clock{Rate: 1.001})
	c.Freeze(2)
	go func() { _, _ = c.Client(1).Acquire(context.Background(), "k") }()
	if i, h := c.WaitHeld("k"); i != 1 || h.Token <= l.Token() {
		t.Errorf("held by %d, token %d after %d", i, h.Token, l.Token())
	}
	c.Thaw(2)
	if !errors.Is(l.Err(), locks.ErrLost) {
		t.Error(l.Err())
	}
}

func TestOneMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := lockstest.New(t, 1)
		if _, err := c.Client(0).Acquire(t.Context(), "k"); err != nil {
			t.Error(err)
		}
		c.Kill(0)
		c.Restart(0) // all is lost: it founds anew
		if _, err := c.Client(0).Acquire(t.Context(), "k"); err != nil {
			t.Error(err)
		}
	})
}
