package locks

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/term/termtest"
)

func isBreak(c machine.Command) bool { _, ok := c.(machine.Break); return ok }

func TestBrokenHolderIsToldBeforeTheKeyIsFree(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, m := w.client(t, "a")
		b, _ := w.client(t, "b")
		l, other := acquire(t, a, "k"), acquire(t, a, "other")
		ctx := l.Context()
		next := waiting(t, bg, b, "k")
		m.SetHooks(termtest.Hooks{Proposed: func(cmd machine.Command) {
			if isRelease(cmd) && ctx.Err() == nil {
				t.Error("the key was freed under a holder who did not know")
			}
		}})
		if err := b.Break(within(time.Second), "k", l.Token()); err != nil {
			t.Fatal(err)
		}
		wantLost(t, l, Broken)
		if n := next.ok(t); n.Token() <= l.Token() {
			t.Errorf("token %d after %d", n.Token(), l.Token())
		} else if _, clean := n.Value(); clean {
			t.Error("the broken holder is said to have released")
		}
		if other.Err() != nil {
			t.Errorf("the session's other lock: %v", other.Err())
		}
		if err := l.Release(bg); !errors.Is(err, ErrLost) {
			t.Errorf("release: %v", err)
		}
		// The client may acquire the key again.
		release(t, next.value)
		acquire(t, a, "k")
	})
}

func TestBreakOfAStoppedHolderWaitsForItsTrustToEnd(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, m := w.client(t, "a")
		b, _ := w.client(t, "b")
		l := acquire(t, a, "k")
		began := time.Now()
		m.Isolate()
		if err := b.Break(within(time.Second), "k", l.Token()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("break: %v", err)
		}
		if l.Err() != nil {
			t.Error(l.Err())
		}
		if _, token := w.Owner("k"); token == 0 {
			t.Error("the key is free though its holder does not know")
		}
		if err := b.Break(bg, "k", l.Token()); err != nil { // again, to the end
			t.Error(err)
		}
		if l.Err() == nil || time.Since(began) < testTTL-time.Second || time.Since(began) > testTTL {
			t.Errorf("%v after %v", l.Err(), time.Since(began))
		}
		m.Heal()
	})
}

// The break goes on after its caller has given up.
func TestBreakReachesAHolderThatComesBack(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, m := w.client(t, "a")
		b, _ := w.client(t, "b")
		l := acquire(t, a, "k")
		m.Isolate()
		if err := b.Break(within(time.Second), "k", l.Token()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("break: %v", err)
		}
		m.Heal()
		settle()
		wantLost(t, l, Broken)
		if !w.free("k") {
			t.Error("the key is still taken")
		}
	})
}

func TestBreakOfAnotherGrantChangesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		if err := b.Break(bg, "k", 7); !errors.Is(err, ErrNotHeld) {
			t.Errorf("a free key: %v", err)
		}
		l := acquire(t, a, "k")
		err := b.Break(bg, "k", l.Token()+1)
		var held *HeldError
		if want := (HeldError{Key: "k", Client: "a", Node: "node-a", Token: l.Token()}); !errors.As(err, &held) || *held != want {
			t.Errorf("another token: %v", err)
		}
		if l.Err() != nil || w.Sent(isBreak) != 0 {
			t.Error("something was changed")
		}
		release(t, l)
		if err := b.Break(bg, "k", l.Token()); !errors.Is(err, ErrNotHeld) {
			t.Errorf("a released grant: %v", err)
		}
	})
}

func TestBreakIsOfOneGrantOnly(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		r1, r2 := acquire(t, a, "k", Shared()), acquire(t, a, "k", Shared())
		s := acquireAll(t, a, []string{"x", "y"})
		if err := b.Break(bg, "k", r2.Token()); err != nil {
			t.Error(err)
		}
		if err := b.Break(bg, "y", s.Token()); err != nil {
			t.Error(err)
		}
		wantLost(t, r2, Broken)
		if r1.Err() != nil || !matches(s.Err(), LostError{"x", s.Token(), Broken}) {
			t.Errorf("%v, %v", r1.Err(), s.Err())
		}
		if !w.free("x") || !w.free("y") {
			t.Error("the set is still held")
		}
	})
}

func TestBreakEndsADelay(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, m := w.client(t, "a")
		b, _ := w.client(t, "b")
		l := acquire(t, a, "k", Delay(time.Hour))
		m.Isolate()
		time.Sleep(2 * testTTL)
		next := waiting(t, bg, b, "k")
		if err := b.Break(bg, "k", l.Token()); err != nil {
			t.Error(err)
		}
		next.ok(t)
		m.Heal()
	})
}

func TestBreakSurvivesALostAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, m := w.client(t, "b")
		l := acquire(t, a, "k")
		release(t, acquire(t, b, "other"))
		m.SetHooks(termtest.Hooks{Proposed: func(machine.Command) { m.SetFaults(termtest.Faults{LoseAnswer: 1}) }})
		call := does(func(ctx context.Context) error { return b.Break(ctx, "k", l.Token()) }, bg)
		time.Sleep(time.Second)
		m.SetHooks(termtest.Hooks{})
		m.SetFaults(termtest.Faults{})
		// The second copy finds the grant gone: the first copy was heard.
		call.ok(t)
		wantLost(t, l, Broken)
	})
}

func TestBreakEndsWithItsClient(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, m := w.client(t, "a")
		b, _ := w.client(t, "b")
		l := acquire(t, a, "k")
		m.Isolate()
		call := does(func(ctx context.Context) error { return b.Break(ctx, "k", l.Token()) }, bg)
		call.pends(t)
		if err := b.Close(bg); err != nil {
			t.Error(err)
		}
		if _, err := call.ends(t); !errors.Is(err, ErrClosed) {
			t.Errorf("break: %v", err)
		}
		m.Heal()
		b2, m2 := w.client(t, "b2")
		m2.Isolate()
		if err := b2.Break(within(time.Second), "k", 1); !errors.Is(err, cluster.ErrNoQuorum) {
			t.Errorf("break: %v", err)
		}
		m2.Heal()
	})
}

// Break waits for the key, not for the work.
func TestBreakDoesNotWaitForTheWork(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		var l *Lock
		ended := make(chan time.Time, 1)
		work := does(func(ctx context.Context) error {
			return a.Do(ctx, "k", func(ctx context.Context, held *Lock) error {
				l = held
				<-ctx.Done()
				ended <- time.Now()
				time.Sleep(time.Minute / 2) // the work ignores the end
				return nil
			})
		}, bg)
		work.pends(t)
		began := time.Now()
		next := waiting(t, bg, b, "k")
		if err := b.Break(bg, "k", l.Token()); err != nil {
			t.Error(err)
		}
		n := next.ok(t)
		if time.Since(began) > time.Second || (<-ended).After(began.Add(time.Second)) {
			t.Errorf("it took %v", time.Since(began))
		}
		if _, err := work.ends(t); !errors.Is(err, ErrLost) {
			t.Errorf("do: %v", err)
		}
		if n.Err() != nil {
			t.Error("the end of the work freed the successor")
		}
	})
}

func TestElectedStandsAgainAfterABreak(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		var terms atomic.Int64
		ctx, cancel := context.WithCancel(bg)
		var held atomic.Pointer[Lock]
		elect := does(func(ctx context.Context) error {
			return a.Elect(ctx, "k", func(ctx context.Context, l *Lock) error {
				held.Store(l)
				terms.Add(1)
				<-ctx.Done()
				return context.Cause(ctx)
			})
		}, ctx)
		for want := range int64(3) {
			elect.pends(t)
			if n := terms.Load(); n != want+1 {
				t.Fatalf("%d terms, want %d", n, want+1)
			}
			if err := b.Break(bg, "k", held.Load().Token()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		cancel()
		elect.ends(t)
	})
}

// Break frees a grant that Close has ended already: the client trusts the grant no
// more.
func TestBreakWhileTheClientCloses(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		var token atomic.Uint64
		stop := make(chan struct{})
		work := does(func(ctx context.Context) error {
			return a.Do(ctx, "k", func(ctx context.Context, l *Lock) error {
				token.Store(uint64(l.Token()))
				<-stop
				return nil
			})
		}, bg)
		work.pends(t)
		if err := a.Close(within(time.Second)); err == nil {
			t.Error("closed under the work")
		}
		held := w.Status("k").Holders
		if len(held) != 1 {
			t.Fatalf("held by %+v", held)
		}
		if err := b.Break(within(time.Second), "k", fence.Token(token.Load())); err != nil {
			t.Errorf("break: %v", err)
		}
		close(stop)
		work.ends(t)
	})
}

// A read lists a bounded number of holders, and Break finds the others too.
func TestBreakOfOneOfVeryManyHolders(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.SetCheck(false)
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		var last *Lock
		for range 1100 {
			last = acquire(t, a, "k", Permits(1, 2000))
		}
		if err := b.Break(bg, "k", last.Token()); err != nil {
			t.Error(err)
		}
		wantLost(t, last, Broken)
		if n := w.Status("k").Held; n != 1099 {
			t.Errorf("%d hold", n)
		}
	})
}

// A change that finds its grant broken reports nothing more, because the break ends
// the lock. The client's other locks must not end with it.
func TestBreakBesideAChangeEndsOneLockOnly(t *testing.T) {
	for range 30 {
		bubble(t, func(t *testing.T, w *world) {
			a, m := w.client(t, "a")
			b, _ := w.client(t, "b")
			l, other := acquire(t, a, "k"), acquire(t, a, "other")
			acquire(t, b, "x")
			id := b.currentSession().id
			m.SetHooks(termtest.Hooks{Proposed: func(c machine.Command) {
				if _, ok := c.(machine.SetValue); ok {
					w.Apply(machine.Break{Session: id, Key: "k", Token: machine.Token(l.Token())})
				}
			}})
			if err := l.SetValue(bg, []byte("v")); !errors.Is(err, ErrLost) {
				t.Errorf("SetValue: %v", err)
			}
			a.currentSession().loseGrant(l.g.seq, l.g.key, 0, Broken) // the same verdict, late
			time.Sleep(time.Second)
			if err := other.Err(); err != nil {
				t.Errorf("another lock of the client: %v", err)
			}
		})
	}
}

// A Break of a token that an upgrade replaces meanwhile breaks nothing, and reports
// the new token.
func TestBreakReportsAnUpgradeMeanwhile(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, m := w.client(t, "b")
		l := acquire(t, a, "k", Shared())
		before := l.Token()
		acquire(t, b, "x")
		once := false
		m.SetHooks(termtest.Hooks{Proposed: func(c machine.Command) {
			if _, ok := c.(machine.Break); ok && !once {
				once = true
				w.Apply(machine.Upgrade{Session: a.currentSession().id, Seq: 99, Token: machine.Token(before)})
			}
		}})
		var held *HeldError
		if err := b.Break(bg, "k", before); !errors.As(err, &held) || held.Token <= before {
			t.Errorf("break of token %d: %v", before, err)
		}
	})
}
