package locks

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/term/termtest"
)

// The next Acquire of the client, of any key, takes a lazy release along: one command in a
// cycle.
func TestLazyReleaseGoesWithTheNextAcquire(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, m := w.client(t, "a")
		b, _ := w.client(t, "b")
		l := acquire(t, a, "k", Lazy())
		m.SetHooks(termtest.Hooks{Proposed: func(cmd machine.Command) {
			if c, ok := cmd.(machine.Acquire); ok && len(c.Freed) > 0 && l.Context().Err() == nil {
				t.Error("held while its release is sent")
			}
		}})
		before := w.Sent(isAcquire)
		for i := range 10 {
			if err := l.Release(bg); err != nil || l.Err() != ErrReleased || l.Context().Err() == nil {
				t.Fatalf("release: %v; %v", err, l.Err())
			}
			l = acquire(t, a, fmt.Sprint("k", i), Lazy())
		}
		if n := w.Sent(isAcquire) - before; n != 10 || w.Sent(isRelease) != 0 {
			t.Errorf("%d acquires and %d releases were sent", n, w.Sent(isRelease))
		}
		release(t, acquire(t, b, "k8")) // the last but one is free
		if n := w.busy(); n != 1 {
			t.Errorf("the table has %d grants", n)
		}
	})
}

// Without a next request the release goes after a millisecond, and Release waits for
// nothing.
func TestLazyReleaseIsSentAfterAMillisecond(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, m := w.client(t, "a")
		b, _ := w.client(t, "b")
		for range 3 {
			l := acquire(t, a, "k", Lazy())
			sent := w.Sent(isRelease)
			m.SetFaults(termtest.Faults{Latency: 10 * time.Second})
			began := time.Now()
			release(t, l)
			if took := time.Since(began); took != 0 {
				t.Errorf("Release took %v", took)
			}
			m.SetFaults(termtest.Faults{})
			time.Sleep(lazyWait - 1)
			if n := w.Sent(isRelease) - sent; n != 0 {
				t.Errorf("%d releases too early", n)
			}
			settle()
			if n := w.Sent(isRelease) - sent; n != 1 || w.busy() != 0 {
				t.Errorf("%d releases, %d grants", n, w.busy())
			}
			release(t, acquire(t, b, "k"))
			time.Sleep(testTTL / 7)
		}
	})
}

// Each release has a millisecond of its own, however many came before.
func TestEachLazyReleaseHasItsOwnTime(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		var all []*Lock
		for i := range 20 {
			all = append(all, acquire(t, a, fmt.Sprint("k", i), Lazy()))
		}
		for i, l := range all {
			release(t, l)
			time.Sleep(lazyWait / 4)
			if sent := w.Sent(isRelease); sent > max(0, i-2) || sent < i-5 {
				t.Errorf("%d of %d sent", sent, i+1)
			}
		}
		settle()
		settle()
		if w.busy() != 0 || w.Sent(isRelease) != len(all) {
			t.Errorf("%d grants, %d releases", w.busy(), w.Sent(isRelease))
		}
	})
}

// Where another request waits, or somebody has asked, the release goes at once.
func TestLazyReleaseOfAWantedKeyIsSentAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, m := w.client(t, "b")
		release(t, acquire(t, b, "other")) // its session is open
		for name, want := range map[string]func(l *Lock) *call[*Lock]{
			"a waiter": func(*Lock) *call[*Lock] { return waiting(t, bg, b, "k") },
			"an ask":   func(*Lock) *call[*Lock] { _ = b.Ask(bg, "k"); settle(); return nil },
			"a late waiter": func(*Lock) *call[*Lock] {
				m.SetFaults(termtest.Faults{Latency: lazyWait / 2})
				return start(func() (*Lock, error) { return b.Acquire(bg, "k") })
			},
		} {
			l := acquire(t, a, "k", Lazy())
			next := want(l)
			began := time.Now()
			release(t, l)
			if next != nil {
				n := next.ok(t)
				if took := time.Since(began); took >= lazyWait+lazyWait/10 || took > 0 && name == "a waiter" {
					t.Errorf("%s: the next holder waited for %v", name, took)
				}
				if n.Token() <= l.Token() {
					t.Errorf("token %d after %d", n.Token(), l.Token())
				}
				release(t, n)
			}
			m.SetFaults(termtest.Faults{})
			sleepless(t)
			if w.busy() != 0 {
				t.Errorf("%s: the key is held", name)
			}
		}
	})
}

// sleepless lets all goroutines run, in no time.
func sleepless(t *testing.T) {
	t.Helper()
	time.Sleep(time.Nanosecond)
}

// The same key again: a try succeeds, and the waiters of others come first.
func TestLazyReleaseOfTheSameKey(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		l := acquire(t, a, "k", Lazy())
		for range 5 {
			release(t, l)
			next, err := a.TryAcquire(bg, "k", Lazy())
			if err != nil || next.Token() <= l.Token() {
				t.Fatalf("%v: %v", next, err)
			}
			l = next
		}
		if n := w.Sent(isRelease); n != 0 {
			t.Errorf("%d releases", n)
		}
		other := waiting(t, bg, b, "k")
		release(t, l)
		again := start(func() (*Lock, error) { return a.Acquire(bg, "k") })
		again.pends(t)
		release(t, other.ok(t))
		again.ok(t)
	})
}

// A request whose answer is lost, or that is refused, has taken a release along all the
// same: the key becomes free.
func TestLazyReleaseOutlivesItsRequest(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, m := w.client(t, "a")
		b, _ := w.client(t, "b")
		held := acquire(t, b, "held")
		l := acquire(t, a, "k", Lazy())
		release(t, l)
		if _, err := a.TryAcquire(bg, "held"); !errors.Is(err, ErrHeld) {
			t.Error(err)
		}
		if w.Sent(isRelease) != 0 {
			t.Error("the release was sent again")
		}
		release(t, acquire(t, b, "k"))

		for name, faults := range map[string]termtest.Faults{
			"question": {LoseAsk: 1},
			"answer":   {LoseAnswer: 1},
		} {
			l = acquire(t, a, "k", Lazy())
			m.SetFaults(faults)
			release(t, l)
			if _, err := a.Acquire(within(time.Second), "other"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("lost %s: %v", name, err)
			}
			m.SetFaults(termtest.Faults{})
			time.Sleep(testTTL / 2)
			if n := w.busy(); n != 1 { // b's held
				t.Errorf("lost %s: the table has %d grants", name, n)
			}
		}
		release(t, held)
	})
}

// A wait takes a release along, and the key is free while the wait goes on.
func TestLazyReleaseGoesWithAWait(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		held := acquire(t, b, "held")
		release(t, acquire(t, a, "k", Lazy()))
		wait := waiting(t, bg, a, "held")
		release(t, acquire(t, b, "k"))
		release(t, held)
		wait.ok(t)
	})
}

// Close, loss, Break and the end of the process between Release and the message: the key
// becomes free as if it were held, and nothing is left.
func TestEndsBetweenLazyReleaseAndItsMessage(t *testing.T) {
	for name, tt := range map[string]struct {
		end  func(t *testing.T, w *world, a, b *Client, m *member, l *Lock)
		free time.Duration // how long the key may stay taken
	}{
		"close": {end: func(t *testing.T, w *world, a, b *Client, m *member, l *Lock) { shutdown(t, a) }},
		"expiry": {end: func(t *testing.T, w *world, a, b *Client, m *member, l *Lock) {
			w.Must(expire(w, a))
			settle()
		}},
		"break": {end: func(t *testing.T, w *world, a, b *Client, m *member, l *Lock) {
			if err := b.Break(bg, "k", l.Token()); err != nil {
				t.Error(err)
			}
		}},
		"stop of the node": {end: func(t *testing.T, w *world, a, b *Client, m *member, l *Lock) { m.BeginStop()(bg) }},
		"isolation":        {end: func(t *testing.T, w *world, a, b *Client, m *member, l *Lock) { m.Isolate() }, free: 2 * testTTL},
		"a new leader":     {end: func(t *testing.T, w *world, a, b *Client, m *member, l *Lock) { w.Lead() }, free: testTTL},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				a, m := w.client(t, "a")
				b, _ := w.client(t, "b")
				l := acquire(t, a, "k", Lazy())
				release(t, l)
				tt.end(t, w, a, b, m, l)
				began := time.Now()
				next := acquire(t, b, "k")
				if took := time.Since(began); took > tt.free+2*lazyWait {
					t.Errorf("the key was taken for %v", took)
				}
				if next.Token() <= l.Token() || l.Err() != ErrReleased {
					t.Errorf("token %d after %d, %v", next.Token(), l.Token(), l.Err())
				}
				release(t, next)
				if name == "isolation" {
					m.Heal()
				}
				time.Sleep(2 * testTTL)
				if n := w.busy(); n != 0 {
					t.Errorf("the table has %d grants", n)
				}
			})
		})
	}
}

// Sets, readers, permits, owners and Do release lazily too; a value goes before.
func TestLazyWithOtherOptions(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		set, err := a.AcquireAll(bg, []string{"x", "y"}, Lazy())
		if err != nil {
			t.Fatal(err)
		}
		release(t, set)
		release(t, acquire(t, a, "s", Shared(), Lazy()))
		release(t, acquire(t, a, "p", Permits(1, 2), Lazy()))
		release(t, acquire(t, a, "t", Tree(), Lazy()))
		outer := acquire(t, a, "r", Reentrant("o"), Lazy())
		release(t, acquire(t, a, "r", Reentrant("o"), Lazy()))
		if _, err := b.TryAcquire(bg, "r"); !errors.Is(err, ErrHeld) {
			t.Errorf("freed by an inner release: %v", err)
		}
		release(t, outer)
		if err := a.Do(bg, "d", func(context.Context, *Lock) error { return nil }, Lazy()); err != nil {
			t.Error(err)
		}
		last := acquire(t, a, "last", Lazy())
		if n := w.Sent(isRelease); n != 0 {
			t.Errorf("%d releases were sent", n)
		}
		if n := w.busy(); n != 1 {
			t.Errorf("the table has %d grants", n)
		}
		named := waiting(t, bg, b, "last")
		if err := last.HandOver(bg, "b"); err != nil {
			t.Error(err)
		}
		release(t, named.ok(t))
		wantConfig(t, a.Elect(bg, "e", func(context.Context, *Lock) error { return nil }, Lazy()), "Lazy")
	})
}

// A request has room for so many releases. The rest goes by itself, and the request waits
// for those of its own keys.
func TestMoreLazyReleasesThanARequestCanTake(t *testing.T) {
	var cl cleanups
	cl.byKey = make(map[string]map[*cleanup]struct{})
	keys := make([]string, machine.MaxKeys)
	for i := range keys {
		keys[i] = fmt.Sprint("s", i)
	}
	add := func(keys ...string) {
		cl.note(&cleanup{keys: keys, token: 1})
	}
	add("old")
	add(keys...)
	add(keys...)
	for range machine.MaxFreed {
		add("k")
	}
	if cl.canTake([]string{"s1"}) != true || cl.canTake([]string{"k"}) != true || cl.canTake([]string{"k", "old"}) {
		t.Error("what fits is wrong")
	}
	take := func(key string) []*cleanup {
		load := new(freedLoad)
		return cl.takeLazy(cl.chooseLazy([]string{key}, load), load)
	}
	taken := take("s7")
	if len(taken) != 2 || len(taken[0].keys)+len(taken[1].keys) != machine.MaxFreedKeys {
		t.Errorf("%d taken", len(taken))
	}
	if taken = take("k"); len(taken) != machine.MaxFreed || taken[0].keys[0] != "k" || len(cl.lazy) != 1 {
		t.Errorf("%d taken, %d left", len(taken), len(cl.lazy))
	}
	if taken = take("none"); len(taken) != 1 || taken[0].keys[0] != "old" {
		t.Errorf("%d taken", len(taken))
	}
}

// A request for a key does not wait for a release that another call's request has taken
// along: it takes the release along too, since it could overtake the other one. The first
// answer settles the release, and the failure of all requests sends it.
func TestALazyReleaseGoesWithTwoRequests(t *testing.T) {
	for name, errs := range map[string][2]error{
		"both": {}, "the first": {nil, errLostForTest}, "the second": {errLostForTest, nil}, "none": {errLostForTest, errLostForTest},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				a, _ := w.client(t, "a")
				release(t, acquire(t, a, "k", Lazy()))
				s := a.currentSession()
				sent := w.Sent(isRelease)
				var waiters []*waiter
				var lists [][]*cleanup
				for _, key := range []string{"other", "k"} {
					w := newWaiter(bg, bg, acquireRequest{key: key, began: time.Now()})
					freed, err := s.register(w, []string{key})
					if err != nil || len(freed) != 1 || freed[0].keys[0] != "k" {
						t.Fatalf("%s takes %d releases along, %v", key, len(freed), err)
					}
					waiters, lists = append(waiters, w), append(lists, freed)
				}
				if lists[0][0] != lists[1][0] {
					t.Error("two releases of one grant")
				}
				for i, list := range lists {
					s.noteFreed(list, machine.Outcome{Code: machine.Granted}, errs[i])
					s.removeWaiter(waiters[i], machine.Outcome{}, &replica.Error{Err: errLostForTest})
				}
				settle()
				want := 0
				if name == "none" {
					want = 1
				}
				if n := w.Sent(isRelease) - sent; n != want || len(s.cleanups.byKey) != 0 {
					t.Errorf("%d releases sent, want %d; %d keys to clean up", n, want, len(s.cleanups.byKey))
				}
			})
		})
	}
}

var errLostForTest = errors.New("not sent")
