package goosewardmote_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pressly/goose/v3/lock"
	"github.com/pressly/goose/v3/lock/locktesting"

	goosewardmote "github.com/wardmote/wardmote/contrib/goose"
	"github.com/wardmote/wardmote/locks"
	"github.com/wardmote/wardmote/locks/lockstest"
)

// goose's own test of a Locker: one of five callers at a time holds the lock. Unlock gets an ended context.
func TestOfFiveLockersOneHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := lockstest.New(t, 5)
		n := 0
		locktesting.TestConcurrentLocking(t, nil, func(*testing.T) lock.Locker {
			n++
			return goosewardmote.New(c.Client(n-1), "migrations", goosewardmote.Options{})
		}, 500*time.Millisecond)
		time.Sleep(time.Second)
		if _, _, ok := c.Holder("migrations"); ok {
			t.Error("the key is held at the end")
		}
	})
}

// Lock and SessionLock exclude each other, on one process and on two.
func TestBothKindsShareTheKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, c := t.Context(), lockstest.New(t, 3)
		k := goosewardmote.New(c.Client(0), "migrations", goosewardmote.Options{})
		if err := k.SessionLock(ctx, nil); err != nil {
			t.Fatal(err)
		}
		for i := range 2 {
			short, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			err := goosewardmote.New(c.Client(i), "migrations", goosewardmote.Options{}).Lock(short, nil)
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a second holder, on member %d: %v", i, err)
			}
		}
		if err := k.SessionUnlock(ctx, nil); err != nil {
			t.Error(err)
		}
		if err := k.Unlock(ctx, nil); !errors.Is(err, goosewardmote.ErrNotHeld) {
			t.Errorf("a second Unlock: %v", err)
		}
	})
}

// The holder is killed: OnLost is told, Unlock reports the loss, and the next process has
// waited for the TTL.
func TestAKilledMigrationIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, c := t.Context(), lockstest.New(t, 4, lockstest.TTL(3*time.Second))
		lost := make(chan *locks.LostError, 1)
		k := goosewardmote.New(c.Client(0), "migrations", goosewardmote.Options{OnLost: func(err *locks.LostError) { lost <- err }})
		if err := k.Lock(ctx, nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		c.Kill(0)
		killed := time.Now()
		next := goosewardmote.New(c.Client(1), "migrations", goosewardmote.Options{})
		if err := next.Lock(ctx, nil); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(killed); took < time.Second || took > 6*time.Second {
			t.Errorf("the next process was granted the key after %v, with a TTL of 3s", took)
		}
		if err := <-lost; err.Key != "migrations" {
			t.Errorf("OnLost was told of %v", err)
		}
		if err := k.Unlock(ctx, nil); !errors.Is(err, locks.ErrLost) {
			t.Errorf("Unlock after the kill: %v", err)
		}
		if err := next.Unlock(ctx, nil); err != nil {
			t.Error(err)
		}
	})
}
