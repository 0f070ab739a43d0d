package locks_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/testrounds"
	"github.com/wardmote/wardmote/locks"
	"github.com/wardmote/wardmote/locks/lockstest"
)

// refOf returns the Ref of the session of a client, by its name.
func refOf(t *testing.T, c *locks.Client, client string) string {
	t.Helper()
	for s, err := range c.Sessions(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if s.Client == client {
			return s.Ref
		}
	}
	t.Fatalf("no session of %q", client)
	return ""
}

// A session is ended in a whole cluster while its leader is killed, at moments before,
// within and after the order; the holder is well, cut off for good, cut off for a while,
// or at the leader. The order is carried out, and the next holder begins after the
// former has ended.
func TestEndSessionWhileTheLeaderDies(t *testing.T) {
	const ttl = 2 * time.Second
	holders := []string{"well", "cut off", "back soon", "at the leader"}
	kills := []time.Duration{2 * time.Millisecond, 3 * time.Millisecond, time.Millisecond, 0, 5 * time.Millisecond, 50 * time.Millisecond}
	for i := range testrounds.Rounds(2, len(holders)*len(kills)) {
		holder, kill := holders[i%len(holders)], kills[(i/len(holders)+i)%len(kills)]
		t.Run(fmt.Sprintf("%s/%v", holder, kill), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := lockstest.New(t, 5, lockstest.TTL(ttl))
				c.Settle()
				leader := c.Leader()
				at := (leader + 1) % 5
				if holder == "at the leader" {
					at = leader
				}
				a := c.NewClient(at, locks.Options{Name: "a"})
				b := c.NewClient((leader+2)%5, locks.Options{Name: "b"})
				op := c.Client((leader + 3) % 5)
				l, err := a.Acquire(t.Context(), "k")
				if err != nil {
					t.Fatal(err)
				}
				next := make(chan *locks.Lock, 1)
				go func() {
					l, err := b.Acquire(t.Context(), "k")
					if err != nil {
						t.Error(err)
					}
					next <- l
				}()
				ref := refOf(t, op, "a")
				time.Sleep(ttl)
				began := time.Now()
				switch holder {
				case "cut off":
					c.Isolate(at)
				case "back soon":
					c.Isolate(at)
					time.AfterFunc(ttl/2, c.Heal)
				}
				time.AfterFunc(kill, func() { c.Kill(leader) })
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				if err := op.EndSession(ctx, ref); err != nil && !errors.Is(err, locks.ErrNoSuchSession) {
					t.Fatal(err)
				}
				// ErrNoSuchSession: it died with the leader's process before the order.
				took := time.Since(began)
				n := <-next
				if n == nil {
					return
				}
				if l.Err() == nil || l.Remaining() > 0 {
					t.Errorf("k is held under token %d while token %d is trusted", n.Token(), l.Token())
				}
				if most := 3*ttl + 2*time.Second; took > most {
					t.Errorf("it took %v", took)
				}
				var lost *locks.LostError
				if errors.As(l.Err(), &lost) && holder == "well" && lost.Reason != locks.SessionEnded {
					t.Errorf("lost for %v", lost.Reason)
				}
				if err := op.EndSession(ctx, ref); !errors.Is(err, locks.ErrNoSuchSession) {
					t.Errorf("again: %v", err)
				}
			})
		})
	}
}
