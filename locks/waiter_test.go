package locks

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/wardmote/wardmote/fence"
)

func TestATryIsAnsweredAtOnceAndLeavesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		acquire(t, b, "other")
		l := acquire(t, a, "k")
		began, token := time.Now(), l.Token()
		for _, try := range []struct {
			c   *Client
			ctx context.Context
		}{
			{b, bg},
			{a, bg},          // the holder itself, without an owner
			{a, l.Context()}, // nor under its lock
		} {
			_, err := try.c.TryAcquire(try.ctx, "k")
			var held *HeldError
			if !errors.As(err, &held) || held.Client != "a" || held.Token != token {
				t.Errorf("%s: %v", try.c.name(), err)
			}
		}
		if time.Since(began) != 0 {
			t.Errorf("answered after %v", time.Since(began))
		}
		if l.Err() != nil || l.Token() != token || l.Depth() != 1 {
			t.Errorf("the holder: %v, token %d, depth %d", l.Err(), l.Token(), l.Depth())
		}
		for _, c := range []*Client{a, b} {
			if waiters, locks := c.currentSession().sizes(); waiters != 0 || locks != 1 {
				t.Errorf("%s: the session keeps %d waiters and %d locks", c.name(), waiters, locks)
			}
		}
		if w.Counts().Waiters != 0 {
			t.Error("a try waits")
		}
	})
}

func TestATrySucceedsOnceTheWaiterBeforeHasGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		c, _ := w.client(t, "c")
		l := acquire(t, a, "k")
		time.AfterFunc(time.Second, func() { release(t, l) })
		if _, err := b.Acquire(within(200*time.Millisecond), "k"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("acquire: %v", err)
		}
		time.Sleep(time.Second)
		if _, err := c.TryAcquire(bg, "k"); err != nil {
			t.Errorf("try: %v", err)
		}
	})
}

func TestWaitMayBeBoundedByCenturies(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		l := acquire(t, a, "k")
		next := waiting(t, within(math.MaxInt64), b, "k")
		time.Sleep(10 * time.Minute)
		next.pends(t)
		release(t, l)
		next.ok(t)
	})
}

func TestAWaitFreedOfItsParentContextOutlivesIt(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		parent, end := context.WithCancel(bg)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(parent), time.Minute)
		defer cancel()
		l := acquire(t, a, "k")
		next := waiting(t, ctx, b, "k")
		end()
		next.pends(t)
		release(t, l)
		if err := next.ok(t).Err(); err != nil {
			t.Error(err)
		}
		if _, err := b.Acquire(ctx, "l"); err != nil {
			t.Error(err)
		}
	})
}

func TestAWaiterCutOffForAMomentKeepsItsPlace(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, m := w.client(t, "b")
		c, _ := w.client(t, "c")
		l := acquire(t, a, "k")
		first := waiting(t, bg, b, "k")
		second := waiting(t, bg, c, "k")
		for range 3 {
			m.Isolate()
			time.Sleep(5 * time.Second)
			if n := w.Counts().Waiters; n != 2 {
				t.Errorf("%d wait", n)
			}
			m.Heal()
			time.Sleep(4 * time.Second)
		}
		m.Isolate()
		release(t, l) // granted while unreachable
		second.pends(t)
		m.Heal()
		l = first.ok(t)
		second.pends(t)
		release(t, l)
		second.ok(t)
	})
}

func TestLockersComeAndGoAndTokensRiseOn(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var last fence.Token
		for range 3 {
			for i := range 10 {
				c, _ := w.client(t, fmt.Sprint("c", i))
				l := acquire(t, c, "k")
				if l.Token() <= last {
					t.Errorf("token %d after %d", l.Token(), last)
				}
				last = l.Token()
				release(t, l)
				if err := c.Close(bg); err != nil {
					t.Error(err)
				}
			}
			if n := w.Counts(); n.Grants != 0 || n.Waiters != 0 || n.Sessions != 0 || n.Answers != 0 {
				t.Errorf("the table keeps %+v", n)
			}
			c, _ := w.client(t, "reader")
			if keys := list(t, c, ""); len(keys) != 0 {
				t.Errorf("%q are listed", keys)
			}
		}
	})
}
