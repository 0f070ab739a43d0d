package locks

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/internal/machine"

	"github.com/wardmote/wardmote/internal/term/termtest"
)

func isUpgrade(c machine.Command) bool   { _, ok := c.(machine.Upgrade); return ok }
func isDowngrade(c machine.Command) bool { _, ok := c.(machine.Downgrade); return ok }

// mode returns the mode of a grant in the table.
func (w *world) mode(t *testing.T, key string, token fence.Token) machine.Mode {
	t.Helper()
	for _, h := range w.Status(key).Holders {
		if h.Token == machine.Token(token) {
			return h.Mode
		}
	}
	t.Errorf("token %d does not hold %q: %+v", token, key, w.Status(key).Holders)
	return 99
}

func TestUpgradeWaitsForOtherReadersAndGoesFirst(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		c, _ := w.client(t, "c")
		other := acquire(t, b, "k", Shared())
		l := acquire(t, a, "k", Shared())
		ctx, before := l.Context(), l.Token()
		writer := waiting(t, bg, c, "k")
		up := does(l.Upgrade, bg)
		up.pends(t)
		if l.Token() != before || l.Err() != nil {
			t.Error("the waiting upgrade changed the lock")
		}
		release(t, other)
		up.ok(t)
		writer.pends(t)
		if l.Token() <= before || l.Token() <= other.Token() || ctx.Err() != nil {
			t.Errorf("token %d after %d and %d, context %v", l.Token(), before, other.Token(), ctx.Err())
		}
		if w.mode(t, "k", l.Token()) != machine.Exclusive {
			t.Error("not exclusive")
		}
		if err := l.SetValue(bg, []byte("v")); err != nil {
			t.Error(err)
		}
		release(t, l)
		if v, _ := writer.ok(t).Value(); string(v) != "v" {
			t.Errorf("value %q", v)
		}
	})
}

func TestLoneReaderIsUpgradedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		l := acquire(t, a, "k", Shared())
		began, before := time.Now(), l.Token()
		if err := l.Upgrade(bg); err != nil || time.Since(began) != 0 || l.Token() <= before {
			t.Errorf("%v after %v, token %d after %d", err, time.Since(began), l.Token(), before)
		}
		// Upgrade does nothing to an exclusive lock.
		now := l.Token()
		if err := l.Upgrade(bg); err != nil || l.Token() != now || w.Sent(isUpgrade) != 1 {
			t.Errorf("%v, token %d after %d, %d upgrades", err, l.Token(), now, w.Sent(isUpgrade))
		}
		release(t, l)
		if w.busy() != 0 {
			t.Error("something is left")
		}
	})
}

func TestSecondUpgraderIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		la, lb := acquire(t, a, "k", Shared()), acquire(t, b, "k", Shared())
		up := does(la.Upgrade, bg)
		up.pends(t)
		began := time.Now()
		err := lb.Upgrade(bg)
		wantDeadlock(t, err, "k", Wait{"b", "k", la.Token()}, Wait{"a", "k", lb.Token()})
		if time.Since(began) != 0 || lb.Err() != nil {
			t.Errorf("refused after %v, the lock: %v", time.Since(began), lb.Err())
		}
		up.pends(t)
		release(t, lb)
		up.ok(t)
	})
}

// TestUpgradeIsRefusedAfterALongSearch: thousands wait for locks that somebody else holds, and
// their callers hold the lock to be upgraded.
func TestUpgradeIsRefusedAfterALongSearch(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		la, lb := acquire(t, a, "k", Shared()), acquire(t, b, "k", Shared())
		acquire(t, b, "x")
		acquire(t, b, "y")
		w.SetCheck(false) // to the end: a Check searches for each waiter
		var wait []machine.Command
		for i := range uint64(2 * machine.MaxWaiters * 9 / 10) {
			wait = append(wait, machine.Acquire{
				Session: la.g.s.id, Seq: 1<<40 + i, Key: []string{"x", "y"}[i%2], Under: []machine.Token{machine.Token(la.Token())},
			})
		}
		for chunk := range slices.Chunk(wait, machine.MaxCommands) {
			w.Must(chunk...)
		}
		began, token := time.Now(), la.Token()
		if err := la.Upgrade(bg); !errors.Is(err, ErrTooManyWaiters) || time.Since(began) != 0 {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		if la.Err() != nil || la.Token() != token || w.mode(t, "k", la.Token()) != machine.Shared {
			t.Errorf("the lock: %v, token %d, before %d", la.Err(), la.Token(), token)
		}
		release(t, lb)
		release(t, la)
	})
}

func TestUpgradeIsOfSharedLocksOnly(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		for _, l := range []*Lock{
			acquire(t, a, "permit", Permits(1, 3)),
			acquire(t, a, "mine", Shared(), Reentrant("o")),
		} {
			if err := l.Upgrade(bg); !errors.Is(err, ErrWrongMode) {
				t.Errorf("upgrade of %q: %v", l.Key(), err)
			}
			if err := l.Downgrade(bg); !errors.Is(err, ErrWrongMode) {
				t.Errorf("downgrade of %q: %v", l.Key(), err)
			}
			if l.Err() != nil {
				t.Error(l.Err())
			}
		}
		var zero *Lock
		if zero.Upgrade(bg) == nil || zero.Downgrade(bg) == nil || zero.SetValue(bg, nil) == nil {
			t.Error("a zero lock changes")
		}
		ctx, cancel := context.WithCancel(bg)
		cancel()
		l := acquire(t, a, "k", Shared())
		if err := l.Upgrade(ctx); !errors.Is(err, context.Canceled) || w.Sent(isUpgrade) != 0 {
			t.Errorf("with an ended context: %v", err)
		}
	})
}

func TestCancelledUpgradeLeavesTheLockShared(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		l, other := acquire(t, a, "k", Shared()), acquire(t, b, "k", Shared())
		began := time.Now()
		if err := l.Upgrade(within(time.Second)); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		settle()
		if l.Err() != nil || w.mode(t, "k", l.Token()) != machine.Shared || w.Counts().Waiters != 0 {
			t.Errorf("the lock: %v", l.Err())
		}
		third := acquire(t, b, "k", Shared()) // behind no upgrade
		release(t, third)
		release(t, other)
		if err := l.Upgrade(bg); err != nil { // anew
			t.Error(err)
		}
		release(t, l)
		if w.busy() != 0 {
			t.Error("something is left")
		}
	})
}

// The cluster grants the upgrade, and ctx ends before the client hears of the grant.
func TestUpgradeGrantedAfterItWasCancelledIsUndone(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, m := w.client(t, "a")
		b, _ := w.client(t, "b")
		l, other := acquire(t, a, "k", Shared()), acquire(t, b, "k", Shared())
		before := l.Token()
		up := does(l.Upgrade, within(time.Second))
		up.pends(t)
		m.Isolate()
		release(t, other)
		if _, err := up.ends(t); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("upgrade: %v", err)
		}
		if w.Status("k").Holders[0].Mode != machine.Exclusive {
			t.Error("the upgrade was not granted")
		}
		m.Heal()
		settle()
		if l.Err() != nil || l.Token() <= before {
			t.Errorf("the lock: %v, token %d after %d", l.Err(), l.Token(), before)
		}
		release(t, acquire(t, b, "k", Shared()))
		if w.mode(t, "k", l.Token()) != machine.Shared {
			t.Error("not shared")
		}
		if err := l.SetValue(bg, nil); !errors.Is(err, ErrWrongMode) {
			t.Errorf("set value: %v", err)
		}
		release(t, l)
		if w.busy() != 0 {
			t.Error("something is left")
		}
	})
}

// The same for an upgrade.
func TestUpgradeThatCrossesItsCancelTellsTheNewToken(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, m := w.client(t, "a")
		b, _ := w.client(t, "b")
		l, other := acquire(t, a, "k", Shared()), acquire(t, b, "k", Shared())
		before := l.Token()
		ctx, cancel := context.WithCancel(bg)
		up := does(l.Upgrade, ctx)
		up.pends(t)
		m.SetFaults(termtest.Faults{LosePush: 1})
		release(t, other)
		cancel()
		if _, err := up.ends(t); !errors.Is(err, context.Canceled) {
			t.Errorf("upgrade: %v", err)
		}
		synctest.Wait()
		if _, token := w.Owner("k"); l.Token() != fence.Token(token) || l.Token() <= before || w.mode(t, "k", l.Token()) != machine.Shared {
			t.Errorf("token %d here, %d in the cluster, before it was %d", l.Token(), token, before)
		}
	})
}

// Each lost upgrade raises the token in the table. The table remembers the former
// token of the last upgrade only.
func TestLockAfterLostUpgradesCanBeReleased(t *testing.T) {
	for _, handOver := range []bool{false, true} {
		bubble(t, func(t *testing.T, w *world) {
			a, m := w.client(t, "a")
			l := acquire(t, a, "k", Shared())
			before := l.Token()
			for range 3 {
				m.SetHooks(termtest.Hooks{Proposed: func(c machine.Command) {
					if isUpgrade(c) {
						m.SetFaults(termtest.Faults{LoseAnswer: 1, LosePush: 1})
					}
				}})
				if err := l.Upgrade(within(time.Second)); !errors.Is(err, context.DeadlineExceeded) {
					t.Fatalf("upgrade: %v", err)
				}
				time.Sleep(time.Second) // the withdrawal is heard, but not answered
				m.SetFaults(termtest.Faults{})
				time.Sleep(time.Second)
			}
			if _, token := w.Owner("k"); fence.Token(token) != before+3 || l.Token() != before+2 || l.Err() != nil {
				t.Fatalf("token %d in the cluster, %d here, before it was %d; %v", token, l.Token(), before, l.Err())
			}
			m.SetHooks(termtest.Hooks{})
			if handOver {
				if err := l.HandOver(bg, "nobody"); !errors.Is(err, ErrNoSuccessor) {
					t.Error(err)
				}
			} else {
				release(t, l)
			}
			if w.busy() != 0 {
				t.Error("the key is still taken")
			}
		})
	}
}

func TestUpgradeWithALostAnswerIsGrantedOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, m := w.client(t, "a")
		l := acquire(t, a, "k", Shared())
		m.SetFaults(termtest.Faults{LoseAnswer: 1, Twice: 1})
		up := does(l.Upgrade, bg)
		time.Sleep(time.Second)
		m.SetFaults(termtest.Faults{})
		up.ok(t)
		token := l.Token()
		time.Sleep(time.Minute)
		if l.Token() != token || w.mode(t, "k", token) != machine.Exclusive {
			t.Errorf("token %d, then %d", token, l.Token())
		}
	})
}

func TestUpgradeEndsWithTheLock(t *testing.T) {
	lost := func(reason Reason) func(*testing.T, error) {
		return func(t *testing.T, err error) {
			var l *LostError
			if !errors.As(err, &l) || l.Reason != reason {
				t.Errorf("upgrade: %v, want %v", err, reason)
			}
		}
	}
	for _, test := range []struct {
		claim string
		end   func(*testing.T, *world, *Client, *member, *Lock)
		want  func(*testing.T, error)
	}{
		{"released", func(t *testing.T, _ *world, _ *Client, _ *member, l *Lock) { release(t, l) }, func(t *testing.T, err error) {
			if err != ErrReleased {
				t.Errorf("upgrade: %v", err)
			}
		}},
		{"broken", func(t *testing.T, w *world, c *Client, _ *member, l *Lock) {
			if err := c.Break(bg, "k", l.Token()); err != nil {
				t.Error(err)
			}
		}, lost(Broken)},
		{"expired", func(_ *testing.T, w *world, c *Client, _ *member, _ *Lock) {
			w.Apply(expire(w, c))
		}, lost(SessionExpired)},
		{"cut off", func(_ *testing.T, _ *world, _ *Client, m *member, _ *Lock) { m.Isolate() }, lost(QuorumUnreachable)},
		{"closed", func(t *testing.T, _ *world, c *Client, _ *member, _ *Lock) {
			if err := c.Close(bg); err != nil {
				t.Error(err)
			}
		}, lost(ClientClosed)},
	} {
		t.Run(test.claim, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				a, m := w.client(t, "a")
				b, _ := w.client(t, "b")
				l, other := acquire(t, a, "k", Shared()), acquire(t, b, "k", Shared())
				up := does(l.Upgrade, bg)
				up.pends(t)
				test.end(t, w, a, m, l)
				_, err := up.ends(t)
				test.want(t, err)
				if l.Err() == nil {
					t.Error("the lock is held on")
				}
				_ = other.Release(bg)
				time.Sleep(2 * testTTL)
				if w.busy() != 0 {
					t.Errorf("something is left: %+v", w.Status("k"))
				}
				if test.claim == "cut off" {
					m.Heal()
				}
			})
		})
	}
}

func TestOneChangeAtATime(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		l, other := acquire(t, a, "k", Shared()), acquire(t, b, "k", Shared())
		first := does(l.Upgrade, bg)
		first.pends(t)
		second := does(l.Upgrade, bg)
		third := does(l.Downgrade, within(time.Second))
		second.pends(t)
		if _, err := third.ends(t); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("third: %v", err)
		}
		if n := w.Sent(isUpgrade); n != 1 {
			t.Errorf("%d upgrades were sent", n)
		}
		release(t, other)
		first.ok(t)
		token := l.Token()
		second.ok(t)
		if l.Token() != token || w.Sent(isDowngrade) != 0 {
			t.Error("the others changed something")
		}
	})
}

func TestDowngradeAdmitsReadersAtOnceAndWritersNot(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		c, _ := w.client(t, "c")
		l := acquire(t, a, "k")
		token := l.Token()
		reader := waiting(t, bg, b, "k", Shared())
		writer := waiting(t, bg, c, "k")
		late := waiting(t, bg, b, "k", Shared())
		if err := l.Downgrade(bg); err != nil {
			t.Fatal(err)
		}
		r := reader.ok(t)
		writer.pends(t)
		late.pends(t)
		if l.Err() != nil || l.Token() != token || r.Token() <= token {
			t.Errorf("the lock: %v, tokens %d and %d", l.Err(), l.Token(), r.Token())
		}
		if err := l.Downgrade(bg); err != nil || w.Sent(isDowngrade) != 1 {
			t.Errorf("again: %v", err)
		}
		if _, err := c.TryAcquire(bg, "k"); !errors.Is(err, ErrHeld) {
			t.Errorf("a writer beside readers: %v", err)
		}
		release(t, l)
		writer.pends(t)
		release(t, r)
		release(t, writer.ok(t))
		late.ok(t)
	})
}

func TestDowngradeIsSharedBeforeTheMessageLeaves(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, m := w.client(t, "a")
		l := acquire(t, a, "k")
		sent := false
		m.SetHooks(termtest.Hooks{Proposed: func(cmd machine.Command) {
			if isDowngrade(cmd) {
				sent = true
				l.g.s.mu.Lock()
				defer l.g.s.mu.Unlock()
				if !l.g.downgrading {
					t.Error("exclusive while it is sent")
				}
			}
		}})
		if err := l.Downgrade(bg); err != nil || !sent {
			t.Error(err)
		}
	})
}

func TestDowngradeOfUnknownOutcomeIsSettledByAnother(t *testing.T) {
	for _, f := range []termtest.Faults{{LoseAnswer: 1}, {LoseAsk: 1}} {
		bubble(t, func(t *testing.T, w *world) {
			a, m := w.client(t, "a")
			l := acquire(t, a, "k")
			m.SetFaults(f)
			if err := l.Downgrade(within(time.Second)); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("downgrade: %v", err)
			}
			m.SetFaults(termtest.Faults{})
			if err := l.SetValue(bg, []byte("v")); !errors.Is(err, ErrWrongMode) {
				t.Errorf("set value: %v", err)
			}
			if err := l.Downgrade(bg); err != nil {
				t.Error(err)
			}
			if w.mode(t, "k", l.Token()) != machine.Shared || l.Err() != nil {
				t.Error("not shared")
			}
			if err := l.Upgrade(bg); err != nil || w.mode(t, "k", l.Token()) != machine.Exclusive {
				t.Errorf("upgrade: %v", err)
			}
		})
	}
}

func TestUpgradeSettlesADowngradeOfUnknownOutcomeFirst(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, m := w.client(t, "a")
		l := acquire(t, a, "k")
		m.SetFaults(termtest.Faults{LoseAsk: 1})
		if err := l.Downgrade(within(time.Second)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("downgrade: %v", err)
		}
		m.SetFaults(termtest.Faults{})
		before := l.Token()
		if err := l.Upgrade(bg); err != nil || w.mode(t, "k", l.Token()) != machine.Exclusive {
			t.Errorf("upgrade: %v", err)
		}
		if w.Sent(isDowngrade) != 1 || l.Token() <= before {
			t.Errorf("%d downgrades, token %d after %d", w.Sent(isDowngrade), l.Token(), before)
		}
	})
}

func TestDowngradeThatWasNeverSentLeavesTheLockExclusive(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, m := w.client(t, "a")
		l := acquire(t, a, "k")
		m.Isolate()
		if err := l.Downgrade(within(time.Second)); !errors.Is(err, cluster.ErrNoQuorum) {
			t.Errorf("downgrade: %v", err)
		}
		m.Heal()
		if err := l.SetValue(bg, []byte("v")); err != nil {
			t.Errorf("set value: %v", err)
		}
		if err := l.Downgrade(bg); err != nil || w.mode(t, "k", l.Token()) != machine.Shared {
			t.Errorf("downgrade: %v", err)
		}
	})
}

func TestUpgradeIsTracedAndKnowsItsLineage(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		x, _ := w.client(t, "x")
		y, _ := w.client(t, "y")
		outer := acquire(t, x, "outer")
		l, err := x.Acquire(outer.Context(), "k", Shared())
		if err != nil {
			t.Fatal(err)
		}
		other := acquire(t, y, "k", Shared())
		wait := waiting(t, other.Context(), y, "outer")
		err = l.Upgrade(l.Context())
		wantDeadlock(t, err, "k", Wait{"x", "k", other.Token()}, Wait{"y", "outer", outer.Token()})
		wait.pends(t)
		if l.Err() != nil {
			t.Error(l.Err())
		}
	})
}

func TestChangesNoticeThatTheSessionIsGone(t *testing.T) {
	for _, change := range []func(*Lock) error{
		func(l *Lock) error { return l.Upgrade(bg) },
		func(l *Lock) error { return l.Downgrade(bg) },
		func(l *Lock) error { return l.SetValue(bg, nil) },
	} {
		bubble(t, func(t *testing.T, w *world) {
			a, m := w.client(t, "a")
			for _, l := range []*Lock{acquire(t, a, "r", Shared()), acquire(t, a, "x")} {
				m.SetFaults(termtest.Faults{LosePush: 1})
				w.ExpireNow()
				if err := change(l); err != nil && !errors.Is(err, ErrWrongMode) {
					var lost *LostError
					if !errors.As(err, &lost) || lost.Reason != SessionExpired {
						t.Errorf("%q: %v", l.Key(), err)
					}
				}
			}
			synctest.Wait()
		})
	}
}

// The answer to the first copy has arrived, the second copy is still under way.
func TestLateSecondCopyOfADowngradeDoesNotUndoAnUpgrade(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, m := w.client(t, "a")
		l := acquire(t, a, "k")
		m.SetFaults(termtest.Faults{Twice: 1})
		if err := l.Downgrade(bg); err != nil {
			t.Fatal(err)
		}
		m.SetFaults(termtest.Faults{})
		if err := l.Upgrade(bg); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if n := w.Sent(isDowngrade); n != 2 {
			t.Fatalf("%d copies", n)
		}
		if w.mode(t, "k", l.Token()) != machine.Exclusive {
			t.Error("the upgraded lock is shared")
		}
	})
}
