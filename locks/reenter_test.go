package locks

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/internal/term/termtest"
)

func TestOwnerEntersAgainUnderTheSameToken(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		before := acquire(t, b, "k")
		if err := before.SetValue(bg, []byte("v")); err != nil {
			t.Fatal(err)
		}
		release(t, before)
		outer := acquire(t, a, "k", Reentrant("o"))
		type key struct{}
		inner, err := a.Acquire(context.WithValue(bg, key{}, 1), "k", Reentrant("o"))
		if err != nil {
			t.Fatal(err)
		}
		third, err := a.TryAcquire(bg, "k", Reentrant("o"))
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range []*Lock{outer, inner, third} {
			v, clean := l.Value()
			if l.Token() != outer.Token() || string(v) != "v" || !clean || l.Depth() != 3 || l.Err() != nil || l.Remaining() <= 0 {
				t.Errorf("token %d, value %q, depth %d, %v", l.Token(), v, l.Depth(), l.Err())
			}
			if token, _ := fence.FromContext(l.Context()); token != outer.Token() {
				t.Errorf("the context carries %d", token)
			}
		}
		if inner.Context().Value(key{}) != 1 || outer.Context().Value(key{}) != nil {
			t.Error("the contexts are not each lock's own")
		}
		if n := w.Sent(isAcquire); n != 2 {
			t.Errorf("%d requests were sent", n)
		}
		time.Sleep(10 * testTTL)
		release(t, outer) // in any order
		if outer.Err() != ErrReleased || context.Cause(outer.Context()) != ErrReleased || inner.Err() != nil || inner.Context().Err() != nil {
			t.Errorf("outer: %v, inner: %v", outer.Err(), inner.Err())
		}
		release(t, third)
		if outer.Depth() != 2 || third.Depth() != 1 || inner.Depth() != 1 {
			t.Errorf("depths %d, %d, %d", outer.Depth(), third.Depth(), inner.Depth())
		}
		if _, err := b.TryAcquire(bg, "k"); !errors.Is(err, ErrHeld) {
			t.Errorf("freed by an inner release: %v", err)
		}
		if n := w.Sent(isRelease); n != 1 {
			t.Errorf("%d releases were sent", n)
		}
		release(t, inner)
		if inner.Depth() != 0 || w.busy() != 0 {
			t.Errorf("depth %d, %d left", inner.Depth(), w.busy())
		}
		if err := inner.Release(bg); err != ErrReleased {
			t.Errorf("again: %v", err)
		}
		// A new Acquire is another grant.
		again := acquire(t, a, "k", Reentrant("o"))
		if again.Token() <= outer.Token() || again.Depth() != 1 {
			t.Errorf("token %d after %d", again.Token(), outer.Token())
		}
	})
}

func TestPlainLockIsOneDeep(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		l := acquire(t, a, "k")
		if l.Depth() != 1 {
			t.Error(l.Depth())
		}
		release(t, l)
		if l.Depth() != 0 || (*Lock)(nil).Depth() != 0 {
			t.Error(l.Depth())
		}
	})
}

func TestOtherOwnersContend(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		outer := acquire(t, a, "k", Reentrant("o"))
		inner := acquire(t, a, "k", Reentrant("o"))
		calls := []*call[*Lock]{
			waiting(t, bg, a, "k", Reentrant("p")),
			waiting(t, bg, a, "k"),
			waiting(t, bg, b, "k", Reentrant("o")), // another client's
		}
		release(t, outer)
		for _, c := range calls {
			c.pends(t)
		}
		release(t, inner)
		for _, c := range calls {
			release(t, c.ok(t))
		}
	})
}

func TestFirstEntriesOfOneOwnerShareARequest(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		other := acquire(t, b, "k")
		asked := w.Sent(isAcquire)
		var calls []*call[*Lock]
		for range 5 {
			calls = append(calls, waiting(t, bg, a, "k", Reentrant("o")))
		}
		_, err := a.TryAcquire(bg, "k", Reentrant("o"))
		var held *HeldError
		if want := (HeldError{Key: "k", Client: "a", Node: "node-a"}); !errors.As(err, &held) || *held != want {
			t.Errorf("try: %v", err)
		}
		if n := w.Sent(isAcquire) - asked; n != 1 {
			t.Errorf("%d requests were sent", n)
		}
		release(t, other)
		settle()
		for _, c := range calls {
			if !closed(c.done) {
				t.Error("who shares a request waits for more than its answer")
			}
			if l := c.ok(t); l.Token() != calls[0].value.Token() {
				t.Error("another token")
			}
		}
		for i, c := range calls {
			release(t, c.value)
			if c.value.Depth() != 4-i {
				t.Errorf("depth %d after %d releases", c.value.Depth(), i+1)
			}
		}
		if w.busy() != 0 {
			t.Error("something is left")
		}
	})
}

func TestAnotherTakesOverWhenTheFirstEntryIsCancelled(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		other := acquire(t, b, "k")
		ctx, cancel := context.WithCancel(bg)
		first := waiting(t, ctx, a, "k", Reentrant("o"))
		second := waiting(t, bg, a, "k", Reentrant("o"))
		third := waiting(t, within(time.Second), a, "k", Reentrant("o"))
		cancel()
		if _, err := first.ends(t); !errors.Is(err, context.Canceled) {
			t.Errorf("first: %v", err)
		}
		if _, err := third.ends(t); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("third: %v", err)
		}
		second.pends(t)
		if n := w.Counts().Waiters; n != 1 {
			t.Errorf("%d wait", n)
		}
		release(t, other)
		l := second.ok(t)
		if l.Depth() != 1 {
			t.Errorf("depth %d", l.Depth())
		}
		release(t, l)
		if w.busy() != 0 {
			t.Error("something is left")
		}
	})
}

func TestModesOfAnOwnerMustAgree(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		l := acquire(t, a, "k", Shared(), Reentrant("o"))
		for _, opts := range [][]Option{{}, {Permits(1, 2)}, {Shared(), Tree()}} {
			_, err := a.Acquire(bg, "k", append(opts, Reentrant("o"))...)
			wantConfig(t, err, "Reentrant")
		}
		release(t, acquire(t, a, "k", Shared(), Reentrant("o"), MaxWaiters(3), Priority(5)))
		release(t, l)
		acquire(t, a, "k", Reentrant("o"))
		acquire(t, a, "p", Permits(2, 4), Reentrant("o"))
		acquire(t, a, "p", Permits(2, 4), Reentrant("o"))
		for _, opts := range [][]Option{{Permits(1, 4)}, {Permits(2, 0)}} {
			_, err := a.Acquire(bg, "p", append(opts, Reentrant("o"))...)
			wantConfig(t, err, "Reentrant")
		}
	})
}

func TestAllLocksOfAnOwnerAreLostTogether(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, m := w.client(t, "a")
		b, _ := w.client(t, "b")
		outer, inner := acquire(t, a, "k", Reentrant("o")), acquire(t, a, "k", Reentrant("o"))
		ctx := inner.Context()
		m.Isolate()
		next := acquire(t, b, "k")
		m.Heal()
		wantLost(t, outer, QuorumUnreachable)
		wantLost(t, inner, QuorumUnreachable)
		if ctx.Err() == nil || inner.Depth() != 0 {
			t.Error("the inner lock is held on")
		}
		if _, err := a.Acquire(ctx, "k", Reentrant("o")); !errors.Is(err, ErrLost) {
			t.Errorf("re-entry under the lost lock: %v", err)
		}
		for _, l := range []*Lock{inner, outer} {
			if err := l.Release(bg); !errors.Is(err, ErrLost) {
				t.Errorf("release: %v", err)
			}
		}
		anew := waiting(t, bg, a, "k", Reentrant("o"))
		release(t, next)
		l := anew.ok(t)
		if l.Depth() != 1 {
			t.Errorf("depth %d", l.Depth())
		}
		// The same by Break.
		second := acquire(t, a, "k", Reentrant("o"))
		if err := b.Break(bg, "k", l.Token()); err != nil {
			t.Error(err)
		}
		wantLost(t, l, Broken)
		wantLost(t, second, Broken)
		release(t, acquire(t, a, "k", Reentrant("o")))
	})
}

func TestDoNestsForAnOwner(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		depth := 0
		var nest func(ctx context.Context) error
		nest = func(ctx context.Context) error {
			return a.Do(ctx, "k", func(ctx context.Context, l *Lock) error {
				depth++
				if l.Depth() != depth || l.Err() != nil {
					t.Errorf("depth %d, %v, want %d", l.Depth(), l.Err(), depth)
				}
				if depth == 5 {
					return errWork
				}
				err := nest(ctx)
				if l.Err() != nil || w.free("k") {
					t.Error("the inner end freed the key")
				}
				return err
			}, Reentrant("o"))
		}
		if err := nest(bg); err != errWork || depth != 5 {
			t.Errorf("%v, depth %d", err, depth)
		}
		if !w.free("k") {
			t.Error("the key is taken")
		}
	})
}

func TestOwnersLockIsHandedOverByTheLastOnly(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		outer, inner := acquire(t, a, "k", Reentrant("o")), acquire(t, a, "k", Reentrant("o"))
		next := waiting(t, bg, b, "k")
		if err := inner.HandOver(bg, "b"); !errors.Is(err, ErrWrongMode) || inner.Err() != nil {
			t.Errorf("hand over: %v, %v", err, inner.Err())
		}
		release(t, inner)
		if err := outer.HandOver(bg, "b"); err != nil {
			t.Error(err)
		}
		next.ok(t)
	})
}

func TestOwnersReleaseIsRepeatedUntilHeard(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, m := w.client(t, "a")
		outer, inner := acquire(t, a, "k", Reentrant("o")), acquire(t, a, "k", Reentrant("o"))
		m.Isolate()
		release(t, inner) // without the cluster
		if err := outer.Release(within(time.Second)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("release: %v", err)
		}
		again := waiting(t, bg, a, "k", Reentrant("o"))
		m.Heal()
		if l := again.ok(t); l.Token() <= outer.Token() || l.Depth() != 1 {
			t.Errorf("token %d after %d", l.Token(), outer.Token())
		}
	})
}

func TestClosedClientEndsItsOwners(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		other := acquire(t, b, "busy")
		outer, inner := acquire(t, a, "k", Reentrant("o")), acquire(t, a, "k", Reentrant("o"))
		first := waiting(t, bg, a, "busy", Reentrant("o"))
		second := waiting(t, bg, a, "busy", Reentrant("o"))
		if err := a.Close(bg); err != nil {
			t.Fatal(err)
		}
		for _, c := range []*call[*Lock]{first, second} {
			if _, err := c.ends(t); !errors.Is(err, ErrClosed) {
				t.Errorf("wait: %v", err)
			}
		}
		if !errors.Is(outer.Err(), ErrClosed) || !errors.Is(inner.Err(), ErrClosed) {
			t.Errorf("%v, %v", outer.Err(), inner.Err())
		}
		if err := inner.Release(bg); !errors.Is(err, ErrClosed) {
			t.Errorf("release: %v", err)
		}
		release(t, other)
		if w.busy() != 0 {
			t.Error("something is left")
		}
	})
}

func TestWaitingOwnersFollowToTheNextSession(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, m := w.client(t, "a")
		b, _ := w.client(t, "b")
		other := acquire(t, b, "k")
		var calls []*call[*Lock]
		for range 3 {
			calls = append(calls, waiting(t, bg, a, "k", Reentrant("o")))
		}
		w.Apply(expire(w, a))
		for _, c := range calls {
			c.pends(t)
		}
		release(t, other)
		for _, c := range calls {
			c.ok(t)
		}
		time.Sleep(time.Second)
		m.Reconnect()
		if n := w.Counts().Grants; n != 1 {
			t.Errorf("%d grants", n)
		}
	})
}

func TestDepthIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		var locks []*Lock
		for range MaxDepth {
			l, err := a.Acquire(bg, "k", Reentrant("o"))
			if err != nil {
				t.Fatal(err)
			}
			locks = append(locks, l)
		}
		_, err := a.Acquire(bg, "k", Reentrant("o"))
		wantConfig(t, err, "Reentrant")
		if first, last := locks[0], locks[MaxDepth-1]; last.Depth() != MaxDepth || last.Err() != nil || last.Token() != first.Token() {
			t.Errorf("after the refusal: depth %d, %v, token %d", last.Depth(), last.Err(), last.Token())
		}
		for _, l := range locks {
			release(t, l)
		}
		if w.Sent(isAcquire) != 1 || w.Sent(isRelease) != 1 || w.busy() != 0 {
			t.Error("more than one grant")
		}
	})
}

// Many goroutines of many owners, at random.
func TestOwnersUnderContention(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.SetCheck(false)
		var mu sync.Mutex
		holder, inside := "", 0
		var wg sync.WaitGroup
		for i := range 3 {
			c, _ := w.client(t, fmt.Sprint("c", i))
			for j := range 6 {
				name := fmt.Sprint("o", j%2)
				id := fmt.Sprint(i, name)
				wg.Go(func() {
					for n := range 30 {
						ctx, cancel := context.WithTimeout(bg, time.Duration(1+(n*7+j)%5)*time.Second)
						l, err := c.Acquire(ctx, "k", Reentrant(name))
						cancel()
						if err != nil {
							continue
						}
						mu.Lock()
						if inside > 0 && holder != id {
							t.Errorf("%s beside %s", id, holder)
						}
						holder, inside = id, inside+1
						mu.Unlock()
						time.Sleep(time.Duration(n%4) * 300 * time.Millisecond)
						mu.Lock()
						inside--
						mu.Unlock()
						release(t, l)
					}
				})
			}
		}
		wg.Wait()
		time.Sleep(testTTL)
		if w.busy() != 0 {
			t.Errorf("%d left", w.busy())
		}
	})
}

func TestInnerEntriesDoNotChangeTheTrust(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		outer := acquire(t, a, "k", Reentrant("o"))
		for depth := range 5 {
			time.Sleep(1900 * time.Millisecond) // never when a beat is due
			before := outer.Remaining()
			inner := acquire(t, a, "k", Reentrant("o"))
			if inner.Remaining() != before || outer.Remaining() != before {
				t.Errorf("entry %d: %v and %v remain, before it were %v", depth, inner.Remaining(), outer.Remaining(), before)
			}
			release(t, inner)
			if outer.Remaining() != before || outer.Err() != nil {
				t.Errorf("after the inner release %v remain, before it were %v; %v", outer.Remaining(), before, outer.Err())
			}
			if err := outer.Renew(bg); err != nil || outer.Remaining() != testTTL-margin(testTTL) {
				t.Errorf("renewed: %v, %v remain", err, outer.Remaining())
			}
		}
	})
}

func TestNextOwnerIsKeptAlive(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		outer, inner := acquire(t, a, "k", Reentrant("o")), acquire(t, a, "k", Reentrant("o"))
		next := waiting(t, bg, a, "k", Reentrant("p"))
		release(t, inner)
		release(t, outer)
		l := next.ok(t)
		for range 100 {
			time.Sleep(testTTL / 10)
			if left := l.Remaining(); l.Err() != nil || left < testTTL/2 {
				t.Fatalf("%v, %v remain", l.Err(), left)
			}
		}
	})
}

func TestFirstEntryWithALostAnswerIsASingleEntry(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, m := w.client(t, "a")
		acquire(t, c, "other")
		m.SetFaults(termtest.Faults{LoseAnswer: 1, Twice: 1})
		time.AfterFunc(2*time.Second, func() { m.SetFaults(termtest.Faults{}) })
		l := acquire(t, c, "k", Reentrant("o"))
		if w.Sent(isAcquire) < 3 {
			t.Fatal("the request was not repeated")
		}
		if l.Depth() != 1 {
			t.Errorf("entered %d times", l.Depth())
		}
		release(t, l)
		if !w.free("k") {
			t.Error("one release did not free the key")
		}
		time.Sleep(time.Minute) // late copies
		if !w.free("k") {
			t.Error("a late copy took the key")
		}
	})
}

// slowly gives ctx so many children that their cancel takes a while.
func slowly(ctx context.Context) {
	for range 300_000 {
		_, cancel := context.WithCancel(ctx)
		_ = cancel
	}
}

// The last Release of an owner frees the key only after the contexts of the owner's
// other locks have ended, even if another goroutine ends them.
func TestLastReleaseWaitsForTheContextsOfTheOthers(t *testing.T) {
	w := newWorld(t)
	a, _ := w.client(t, "a")
	b, _ := w.client(t, "b")
	enter := func() *Lock {
		l, err := a.Acquire(bg, "k", Reentrant("o"))
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	first, second := enter(), enter()
	slowly(first.Context())
	last, stop := context.WithCancel(first.Context()) // the contexts end in no order
	defer stop()
	released := make(chan error, 1)
	go func() { released <- first.Release(bg) }()
	for first.Err() == nil {
	}
	if err := second.Release(bg); err != nil {
		t.Fatal(err)
	}
	next, err := b.Acquire(bg, "k")
	if err != nil {
		t.Fatal(err)
	}
	if last.Err() == nil {
		t.Errorf("token %d was granted while a context of the holder before lives", next.Token())
	}
	if err := <-released; err != nil {
		t.Fatal(err)
	}
}
