package lockstest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/locks"
	"github.com/wardmote/wardmote/locks/lockstest"
)

// locksWithin acquires and releases a key on member i.
func locksWithin(t *testing.T, c *lockstest.Cluster, i int, key string, limit time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if err := c.Client(i).Do(ctx, key, func(context.Context, *locks.Lock) error { return nil }); err != nil {
		t.Errorf("member %d cannot lock: %v", i, err)
	}
}

// A store that hangs costs the leadership, and no lock, in memory and on a disk.
func TestAStoreHangs(t *testing.T) {
	for _, durable := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := lockstest.New(t, 4, lockstest.TTL(10*time.Second), lockstest.Config(func(i int, cfg *cluster.Config) {
				if durable {
					cfg.Dir = t.TempDir()
				}
			}))
			sick := c.Leader()
			l, err := c.Client(sick).Acquire(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			c.HangStore(sick)
			locksWithin(t, c, (sick+1)%4, "other", 9*time.Second)
			if now := c.Leader(); now == sick {
				t.Error("a member without a store leads")
			}
			locksWithin(t, c, sick, "third", 9*time.Second)
			c.HealStore(sick)
			time.Sleep(15 * time.Second)
			if err := l.Err(); err != nil {
				t.Errorf("a lock was lost: %v", err)
			}
			c.HangStore(c.Leader()) // the end of the test heals it
			_, _ = c.Client(0).TryAcquire(t.Context(), "k")
		})
	}
}

// A store that fails costs the vote, until the next process.
func TestAStoreFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := lockstest.New(t, 3)
		c.Settle()
		sick := (c.Leader() + 1) % 3
		c.FailStore(sick, errors.New("input/output error"))
		locksWithin(t, c, sick, "k", time.Second)
		c.HealStore(sick)
		time.Sleep(30 * time.Second)
		if h := c.Node(sick).Health(t.Context()); h.Voter {
			t.Errorf("a member with a failed store votes: %+v", h)
		}
		locksWithin(t, c, sick, "k", time.Second)
		c.Kill(sick)
		c.Restart(sick)
		c.Settle()
		if h := c.Node(sick).Health(t.Context()); !h.Voter {
			t.Errorf("the next process does not vote: %+v", h)
		}
	})
}

// A member with a hanging store can be killed, and the next process has a sound store.
func TestAMemberWithAHangingStoreIsKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := lockstest.New(t, 3)
		c.Settle()
		sick := c.Leader()
		c.HangStore(sick)
		locksWithin(t, c, (sick+1)%3, "k", 9*time.Second)
		c.Kill(sick)
		c.Restart(sick)
		c.Settle()
		locksWithin(t, c, sick, "k", time.Second)
	})
}
