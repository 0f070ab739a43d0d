package locks

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/term/termtest"
)

func TestHandOverGoesToTheNamedClientFirst(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		c, _ := w.client(t, "c")
		l := acquire(t, a, "k")
		first := waiting(t, bg, b, "k")
		named := waiting(t, bg, c, "k")
		second := waiting(t, bg, c, "k")
		if err := l.HandOver(bg, "c"); err != nil {
			t.Fatal(err)
		}
		n := named.ok(t)
		first.pends(t)
		if n.Token() <= l.Token() || l.Err() != ErrReleased {
			t.Errorf("token %d after %d; %v", n.Token(), l.Token(), l.Err())
		}
		if err := l.HandOver(bg, "c"); err != ErrReleased {
			t.Errorf("again: %v", err)
		}
		release(t, n)
		release(t, first.ok(t)) // passed once only
		second.ok(t)
	})
}

// The lock ends first: if the cluster agrees, the successor runs before the answer
// arrives.
func TestHandOverEndsTheLockBeforeTheMessageLeaves(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, m := w.client(t, "a")
		b, _ := w.client(t, "b")
		l := acquire(t, a, "k")
		ctx := l.Context()
		next := waiting(t, bg, b, "k")
		m.SetHooks(termtest.Hooks{Proposed: func(cmd machine.Command) {
			if r, ok := cmd.(machine.Release); ok && (ctx.Err() == nil || r.To != "b") {
				t.Errorf("held while %+v is sent", r)
			}
		}})
		if err := l.HandOver(bg, "b"); err != nil {
			t.Error(err)
		}
		next.ok(t)
	})
}

func TestHandOverWithoutASuccessorReleases(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		l := acquire(t, a, "k")
		next := waiting(t, bg, b, "k")
		err := l.HandOver(bg, "nobody")
		if !errors.Is(err, ErrNoSuccessor) || l.Err() != ErrReleased {
			t.Errorf("hand over: %v, the lock: %v", err, l.Err())
		}
		next.ok(t)
	})
}

func TestHandOverRefusesBadNames(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		l := acquire(t, a, "k")
		for _, name := range []string{"", "\xff", strings.Repeat("n", 129)} {
			wantConfig(t, l.HandOver(bg, name), "client")
		}
		if l.Err() != nil || w.Sent(isRelease) != 0 {
			t.Error("the lock has ended")
		}
		var zero Lock
		if zero.HandOver(bg, "a") == nil {
			t.Error("a zero lock was handed over")
		}
	})
}

func TestHandOverThatWasNotHeardGoesOn(t *testing.T) {
	for _, successor := range []string{"c", "nobody"} {
		bubble(t, func(t *testing.T, w *world) {
			a, m := w.client(t, "a")
			b, _ := w.client(t, "b")
			c, _ := w.client(t, "c")
			l := acquire(t, a, "k")
			first := waiting(t, bg, b, "k")
			named := waiting(t, bg, c, "k")
			m.Isolate()
			if err := l.HandOver(within(time.Second), successor); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("hand over: %v", err)
			}
			m.Heal()
			if successor == "nobody" {
				first.ok(t)
				return
			}
			named.ok(t)
			first.pends(t)
		})
	}
}

// The cluster tells that there is no such successor, and does not hear the release to the next waiter:
// the key is not released, as an error that matches ErrNoSuccessor would say.
func TestHandOverWithoutASuccessorIsNoReleaseUntilItIsHeard(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, m := w.client(t, "a")
		b, _ := w.client(t, "b")
		l := acquire(t, a, "k")
		next := waiting(t, bg, b, "k")
		m.SetHooks(termtest.Hooks{Proposed: func(c machine.Command) {
			if r, ok := c.(machine.Release); ok && r.To == "" {
				m.Isolate()
			}
		}})
		err := l.HandOver(within(time.Second), "nobody")
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrNoSuccessor) || !strings.Contains(err.Error(), ErrNoSuccessor.Error()) {
			t.Errorf("hand over: %v", err)
		}
		next.pends(t)
		m.SetHooks(termtest.Hooks{})
		m.Heal()
		next.ok(t)
	})
}

// The answer is lost, and the key is the successor's when the second copy arrives.
func TestHandOverSurvivesALostAnswer(t *testing.T) {
	for _, successor := range []string{"b", "nobody"} {
		bubble(t, func(t *testing.T, w *world) {
			a, m := w.client(t, "a")
			b, _ := w.client(t, "b")
			l := acquire(t, a, "k")
			next := waiting(t, bg, b, "k")
			m.SetFaults(termtest.Faults{LoseAnswer: 1})
			call := does(func(ctx context.Context) error { return l.HandOver(ctx, successor) }, bg)
			time.Sleep(time.Second)
			m.SetFaults(termtest.Faults{})
			if _, err := call.ends(t); successor == "b" && err != nil || successor != "b" && !errors.Is(err, ErrNoSuccessor) {
				t.Errorf("hand over: %v", err)
			}
			n := next.ok(t)
			time.Sleep(time.Minute)
			if n.Err() != nil {
				t.Error("the successor was freed")
			}
		})
	}
}

func TestHandOverThatFindsTheSessionGoneIsALoss(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, m := w.client(t, "a")
		l := acquire(t, a, "k")
		m.SetFaults(termtest.Faults{LosePush: 1})
		w.ExpireNow()
		if err := l.HandOver(bg, "b"); !errors.Is(err, ErrLost) {
			t.Errorf("hand over: %v", err)
		}
	})
}

// The end of the session is not reported as the end of the caller's ctx.
func TestReleaseThatTheSessionEndsBefore(t *testing.T) {
	for reason, end := range map[Reason]func(m *member){
		QuorumUnreachable: func(*member) {},
		NodeStopped:       func(m *member) { m.Stop() },
	} {
		t.Run(reason.String(), func(t *testing.T) {
			for range 10 {
				bubble(t, func(t *testing.T, w *world) {
					a, m := w.client(t, "a")
					l := acquire(t, a, "k")
					m.Isolate()
					call := does(l.Release, bg)
					call.pends(t)
					end(m)
					_, err := call.ends(t)
					if !errors.Is(err, ErrSessionLost) && !errors.Is(err, cluster.ErrStopped) || errors.Is(err, context.Canceled) {
						t.Errorf("release: %v", err)
					}
					if l.Err() != ErrReleased {
						t.Errorf("the lock: %v", l.Err())
					}
				})
			}
		})
	}
}

func TestALostLocksReleaseSparesItsOwnClientsNextLock(t *testing.T) {
	for name, lose := range map[string]func(*world, *member, *Lock){
		"cut off": func(_ *world, m *member, l *Lock) {
			m.Isolate()
			<-l.Context().Done()
			m.Heal()
		},
		"expired": func(w *world, _ *member, _ *Lock) { w.ExpireNow(); settle() },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				c, m := w.client(t, "a")
				old := acquire(t, c, "k")
				lose(w, m, old)
				next := acquire(t, c, "k")
				if next.Token() <= old.Token() {
					t.Errorf("token %d after %d", next.Token(), old.Token())
				}
				for range 2 {
					if err := old.Release(bg); !errors.Is(err, ErrLost) {
						t.Errorf("release: %v", err)
					}
				}
				time.Sleep(testTTL)
				if _, token := w.Owner("k"); token != machine.Token(next.Token()) || next.Err() != nil {
					t.Errorf("token %d holds the key, want %d; %v", token, next.Token(), next.Err())
				}
			})
		})
	}
}

// A beat under way during a release does not renew the released lock.
func TestBeatUnderWayDoesNotRenewAReleasedLock(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, m := w.client(t, "a")
		b, _ := w.client(t, "b")
		l, other := acquire(t, a, "k"), acquire(t, a, "other")
		var beats atomic.Int64
		answer := make(chan struct{})
		m.SetHooks(termtest.Hooks{Beat: func(ctx context.Context) (bool, error) {
			beats.Add(1)
			select {
			case <-answer:
				return false, nil
			case <-ctx.Done():
				return true, ctx.Err()
			}
		}})
		time.Sleep(testTTL/beatsPerTTL + time.Second)
		if beats.Load() != 1 {
			t.Fatalf("%d beats are under way", beats.Load())
		}
		release(t, l)
		next := acquire(t, b, "k")
		close(answer)
		time.Sleep(3 * testTTL)
		if l.Err() != ErrReleased || other.Err() != nil || next.Err() != nil {
			t.Errorf("released: %v; the client's other lock: %v; the next holder: %v", l.Err(), other.Err(), next.Err())
		}
		if id, _ := w.Owner("k"); id != b.currentSession().id {
			t.Error("the next holder does not hold the key any more")
		}
	})
}

// The client's own answer to "do I hold the lock?" is no before the message leaves.
func TestReleaseEndsTheLockBeforeTheMessageLeaves(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, m := w.client(t, "a")
		l := acquire(t, c, "k")
		ctx := l.Context()
		seen := false
		m.SetHooks(termtest.Hooks{Proposed: func(cmd machine.Command) {
			if _, ok := cmd.(machine.Release); ok {
				seen = true
				if ctx.Err() == nil || l.Err() != ErrReleased || l.Remaining() != 0 {
					t.Error("held while the release is sent")
				}
			}
		}})
		if err := l.Release(bg); err != nil || !seen {
			t.Fatalf("release: %v, sent %v", err, seen)
		}
		if context.Cause(ctx) != ErrReleased {
			t.Errorf("cause %v", context.Cause(ctx))
		}
	})
}

func TestSecondReleaseHasNoEffect(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, _ := w.client(t, "a")
		l := acquire(t, c, "k")
		if err := l.Release(bg); err != nil {
			t.Fatal(err)
		}
		next := acquire(t, c, "k")
		if err := l.Release(bg); err != ErrReleased {
			t.Errorf("second release: %v", err)
		}
		if err := l.Renew(bg); err != ErrReleased {
			t.Errorf("renew: %v", err)
		}
		if err := l.Require(0); err != ErrReleased {
			t.Errorf("require: %v", err)
		}
		if next.Err() != nil {
			t.Errorf("the successor: %v", next.Err())
		}
		if next.Token() <= l.Token() {
			t.Errorf("token %d after %d", next.Token(), l.Token())
		}
		if n := w.Sent(isRelease); n != 1 {
			t.Errorf("%d releases were sent", n)
		}
	})
}

func TestOneOfManyReleasesIsSent(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, _ := w.client(t, "a")
		const rounds, callers = 100, 8
		for range rounds {
			l := acquire(t, c, "k")
			var released atomic.Int64
			var wg sync.WaitGroup
			c.mu.Lock() // gathers the callers between the first look and the second
			for range callers {
				wg.Go(func() {
					switch err := l.Release(bg); err {
					case nil:
						released.Add(1)
					case ErrReleased:
					default:
						t.Error(err)
					}
				})
			}
			for range 1000 {
				runtime.Gosched()
			}
			c.mu.Unlock()
			wg.Wait()
			if n := released.Load(); n != 1 {
				t.Errorf("%d releases returned nil", n)
			}
		}
		if n := w.Sent(isRelease); n != rounds {
			t.Errorf("%d releases were sent for %d locks", n, rounds)
		}
	})
}

// The release of an expired grant does not touch the successor.
func TestReleaseOfALostLockIsItsLossAndSparesTheSuccessor(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, m := w.client(t, "a")
		b, _ := w.client(t, "b")
		l := acquire(t, a, "k")
		m.Isolate()
		next := acquire(t, b, "k")
		m.Heal()
		wantLost(t, l, QuorumUnreachable)
		var lost *LostError
		if err := l.Release(bg); !errors.As(err, &lost) || !errors.Is(err, ErrLost) {
			t.Errorf("release of a lost lock: %v", err)
		}
		time.Sleep(time.Minute)
		if next.Err() != nil {
			t.Errorf("the successor: %v", next.Err())
		}
	})
}

// The cluster has expired the session, and the holder has not heard yet.
func TestReleaseThatFindsTheSessionGoneIsALoss(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, m := w.client(t, "a")
		l := acquire(t, a, "k")
		m.SetFaults(termtest.Faults{LosePush: 1})
		w.ExpireNow()
		err := l.Release(bg)
		var lost *LostError
		if !errors.As(err, &lost) || lost.Reason != SessionExpired {
			t.Errorf("release: %v", err)
		}
	})
}

// A failed release goes on in the background, beyond the caller's context.
func TestFailedReleaseIsRemembered(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, m := w.client(t, "a")
		l := acquire(t, c, "k")
		m.Isolate()
		err := l.Release(within(time.Second))
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, cluster.ErrNoQuorum) {
			t.Errorf("release: %v", err)
		}
		if l.Err() != ErrReleased {
			t.Errorf("still held: %v", l.Err())
		}
		time.Sleep(time.Second)
		m.Heal()
		time.Sleep(time.Second)
		if _, token := w.Owner("k"); token != 0 {
			t.Error("the key is still taken")
		}
	})
}

func TestReleaseWithEndedContextIsHeardLater(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, _ := w.client(t, "a")
		l := acquire(t, c, "k")
		ctx, cancel := context.WithCancel(bg)
		cancel()
		if err := l.Release(ctx); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "9s") {
			t.Errorf("release: %v", err)
		}
		synctest.Wait()
		if _, token := w.Owner("k"); token != 0 {
			t.Error("the key is still taken")
		}
	})
}

// The release is repeated because its answer was lost. By then the key has another
// holder.
func TestLateSecondCopyOfAReleaseFreesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, m := w.client(t, "a")
		b, _ := w.client(t, "b")
		l := acquire(t, a, "k")
		m.SetFaults(termtest.Faults{LoseAnswer: 1})
		done := make(chan error)
		go func() { done <- l.Release(bg) }()
		next := acquire(t, b, "k")
		m.SetFaults(termtest.Faults{})
		if err := <-done; err != nil {
			t.Errorf("release: %v", err)
		}
		if next.Err() != nil {
			t.Error("the successor was freed")
		}
		if id, _ := w.Owner("k"); id != b.currentSession().id {
			t.Error("the successor does not hold the key any more")
		}
	})
}
