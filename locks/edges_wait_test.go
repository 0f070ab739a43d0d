package locks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/term/termtest"
)

// An observer that wrote into a yielded value made Watch and Observe
// repeat themselves, or skip a change.
func TestAnObserversWritesStayItsOwn(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		l := acquire(t, a, "k", Meta(map[string]string{"at": "1"}))
		if err := l.SetValue(bg, []byte("one")); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(bg)
		defer cancel()
		var mu sync.Mutex
		var states, terms []string
		var running sync.WaitGroup
		running.Go(func() {
			for st, err := range b.Watch(ctx, "k") {
				if err != nil {
					return
				}
				mu.Lock()
				states = append(states, st.Holders[0].Meta["at"])
				mu.Unlock()
				st.Holders[0].Meta["at"], st.Holders[0].Client = "overwritten", "nobody"
			}
		})
		running.Go(func() {
			for e, err := range b.Observe(ctx, "k") {
				if err != nil {
					return
				}
				mu.Lock()
				terms = append(terms, e.Meta["at"]+" "+string(e.Value))
				mu.Unlock()
				e.Meta["at"], e.Value[0] = "overwritten", 'X'
			}
		})
		settle()
		waiter, stop := context.WithCancel(bg)
		call := waiting(t, waiter, b, "k") // a change of the queue alone
		settle()
		stop()
		<-call.done
		settle()
		if err := l.SetValue(bg, []byte("two")); err != nil { // a change of the value alone
			t.Fatal(err)
		}
		settle()
		cancel()
		running.Wait()
		if got := strings.Join(states, ","); got != "1,1,1" {
			t.Errorf("Watch yielded %s", got)
		}
		if got := strings.Join(terms, ","); got != "1 one,1 two" {
			t.Errorf("Observe yielded %s", got)
		}
	})
}

// A token of another cluster was taken for the latest of all.
func TestIfTokenOfTheFutureIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		release(t, acquire(t, a, "k"))
		last := acquire(t, a, "other").Token()
		for _, acquire := range []func(context.Context, string, ...Option) (*Lock, error){a.Acquire, a.TryAcquire} {
			_, err := acquire(bg, "k", IfToken(last+1))
			var future *FutureTokenError
			if !errors.As(err, &future) || *future != (FutureTokenError{Key: "k", Token: last + 1, Last: last}) || !errors.Is(err, ErrFutureToken) {
				t.Errorf("%v", err)
			}
		}
		if _, err := a.Acquire(bg, "k", IfToken(last)); err != nil {
			t.Error(err)
		}
	})
}

// A lead that returned at once ran 1,249 terms in 10 s.
func TestElectRunsTenTermsASecondAtMost(t *testing.T) {
	for name, lead := range map[string]Work{
		"nil":    func(context.Context, *Lock) error { return nil },
		"resign": func(context.Context, *Lock) error { return Resign("") },
		"lost": func(_ context.Context, l *Lock) error {
			l.g.s.loseGrant(l.g.seq, l.Key(), machine.Token(l.Token()), Broken)
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				a, _ := w.client(t, "a")
				terms := 0
				err := a.Elect(within(10*time.Second), "k", func(ctx context.Context, l *Lock) error {
					terms++
					return lead(ctx, l)
				})
				if !errors.Is(err, context.DeadlineExceeded) || terms > 101 || terms < 5 {
					t.Errorf("%v after %d terms", err, terms)
				}
			})
		})
	}
}

// One ordinary error of lead ended the candidacy. It is told, and tried
// again after pauses that double up to the TTL.
func TestElectOutlivesTheErrorsOfItsLead(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		m := w.join("node-a")
		var mu sync.Mutex
		retried := 0
		a := m.client(Options{Name: "a", Trace: &Trace{Retrying: func(_ context.Context, e LockEvent) {
			mu.Lock()
			defer mu.Unlock()
			if !errors.Is(e.Err, errWork) || e.Key != "k" || e.Token == 0 {
				t.Errorf("%+v", e)
			}
			retried++
		}}})
		var lines bytes.Buffer
		m.SetLog(slog.New(slog.NewTextHandler(&lines, nil)))
		var began []time.Time
		err := a.Elect(bg, "k", func(ctx context.Context, l *Lock) error {
			began = append(began, time.Now())
			switch len(began) {
			case 10: // a long term: the pauses begin anew
				time.Sleep(testTTL + time.Second)
			case 12:
				return Final(nil)
			}
			return errWork
		})
		if err != nil {
			t.Error(err)
		}
		shutdown(t, a)
		if retried != 11 {
			t.Errorf("%d errors told to Trace", retried)
		}
		if n := strings.Count(lines.String(), "level=WARN msg=\"work failed\" key=k"); n < failureBurst || n > failureBurst+2 {
			t.Errorf("%d lines:\n%s", n, &lines)
		}
		gap := func(i int) time.Duration { return began[i].Sub(began[i-1]) }
		if gap(1) < 100*time.Millisecond || gap(1) > 250*time.Millisecond || gap(9) < testTTL/2 || gap(9) > testTTL {
			t.Errorf("first pause %v, ninth %v", gap(1), gap(9))
		}
		if g := gap(10) - testTTL - time.Second; g > 250*time.Millisecond {
			t.Errorf("pause after a long term: %v", g)
		}
	})
}

// A shutdown in the same moment as a grant, and a lead that made a call while its
// client closed, were warned of as failures of work, which the operator can do
// nothing about.
func TestTheEndOfTheClientIsNoFailureOfWork(t *testing.T) {
	ends := map[string]func(t *testing.T, c *Client, m *member){
		"close": func(t *testing.T, c *Client, _ *member) { shutdown(t, c) },
		"stop":  func(_ *testing.T, _ *Client, m *member) { m.BeginStop()(bg) },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				m := w.join("node-a")
				var lines bytes.Buffer
				m.SetLog(slog.New(slog.NewTextHandler(&lines, nil)))
				a := m.client(Options{Name: "a"})
				defer shutdown(t, a)
				early := acquire(t, a, "early")
				var elected sync.WaitGroup
				elected.Go(func() {
					_ = a.Elect(bg, "k", func(ctx context.Context, l *Lock) error {
						<-ctx.Done()
						_, err := a.Acquire(bg, "other")
						return fmt.Errorf("while leading: %w", err)
					})
				})
				settle()
				end(t, a, m)
				lost, err := a.runWork(early, func(context.Context, *Lock) error { return errWork }, nil)
				if lost == nil || err == nil || workError(early, err) != nil {
					t.Errorf("lost before work: %v, %v", lost, err)
				}
				for _, failed := range []error{errWork, errors.Join(errWork, err), fmt.Errorf("work: %w", errors.Join(err, errWork))} {
					if workError(early, failed) == nil {
						t.Errorf("%v is taken for the end of the client", failed)
					}
				}
				if both := errors.Join(err, fmt.Errorf("while working: %w", lost)); workError(early, both) != nil {
					t.Errorf("%v is no end of the client", both)
				}
				shutdown(t, a)
				elected.Wait()
				if strings.Contains(lines.String(), "work failed") {
					t.Error(lines.String())
				}
			})
		})
	}
}

func TestFinalEndsElectUnwrapped(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		for _, want := range []error{errWork, nil, context.Canceled} {
			err := a.Elect(bg, "k", func(context.Context, *Lock) error { return Final(want) })
			if err != want {
				t.Errorf("Elect: %v, want %v", err, want)
			}
			if !w.free("k") {
				t.Error("the key is taken")
			}
		}
		// An error of lead's own beside the end of ctx is not swallowed.
		ctx, cancel := context.WithCancel(bg)
		err := a.Elect(ctx, "k", func(context.Context, *Lock) error { cancel(); return errWork })
		if !errors.Is(err, context.Canceled) || !errors.Is(err, errWork) {
			t.Errorf("Elect: %v", err)
		}
	})
}

// Every caller wrote the same loop on ErrSessionLost.
func TestAWaitOutlivesItsSession(t *testing.T) {
	for name, lose := range map[string]func(w *world, c *Client, m *member){
		"expired": func(w *world, c *Client, _ *member) { w.Must(expire(w, c)) },
		"cut off": func(_ *world, _ *Client, m *member) { m.Isolate(); time.Sleep(2 * testTTL); m.Heal() },
		"slept":   func(_ *world, _ *Client, m *member) { m.doze(2 * testTTL); time.Sleep(time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				a, _ := w.client(t, "a")
				b, m := w.client(t, "b")
				ctx, stop := context.WithTimeout(bg, 10*testTTL)
				defer stop()
				l := acquire(t, a, "k")
				ran := 0
				calls := []*call[struct{}]{
					does(func(ctx context.Context) error { _, err := b.Acquire(ctx, "k", Shared()); return err }, ctx),
					does(func(ctx context.Context) error {
						return b.Do(ctx, "k", func(context.Context, *Lock) error { ran++; return nil }, Shared())
					}, ctx),
				}
				for _, call := range calls {
					call.pends(t)
				}
				lose(w, b, m)
				settle()
				for _, call := range calls {
					call.pends(t)
				}
				release(t, l)
				for _, call := range calls {
					call.ok(t)
				}
				if ran != 1 {
					t.Errorf("the work of Do ran %d times", ran)
				}
			})
		})
	}
}

// A grant lost with its session before the work began is no reason to give up, and a
// begun work is not repeated.
func TestDoAsksAgainUntilItsWorkHasBegun(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		ran := 0
		if err := a.Do(losing{bg, a, new(sync.Once)}, "k", func(context.Context, *Lock) error { ran++; return nil }); err != nil || ran != 1 {
			t.Errorf("%v, ran %d times", err, ran)
		}
		ran = 0
		err := a.Do(bg, "k", func(context.Context, *Lock) error { ran++; a.currentSession().lose(SessionExpired); return nil })
		if !errors.Is(err, ErrLost) || ran != 1 {
			t.Errorf("%v, ran %d times", err, ran)
		}
	})
}

// losing is a context that ends the session of c as soon as there is a lock whose
// context is being made.
type losing struct {
	context.Context
	c    *Client
	once *sync.Once
}

func (x losing) Value(key any) any {
	if s := x.c.currentSession(); s != nil {
		if _, locks := s.sizes(); locks > 0 {
			x.once.Do(func() { s.lose(SessionExpired) })
		}
	}
	return x.Context.Value(key)
}

// A wait that timed out said neither who held the key nor where it stood.
func TestAWaitThatTimedOutNamesHolderAndPosition(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		c, m := w.client(t, "c")
		l := acquire(t, a, "k")
		waiting(t, within(time.Hour), b, "k")
		for name, call := range map[string]func(ctx context.Context) error{
			"Acquire": func(ctx context.Context) error { _, err := c.Acquire(ctx, "k"); return err },
			"Do":      func(ctx context.Context) error { return c.Do(ctx, "k", noWork) },
			"Elect":   func(ctx context.Context) error { return c.Elect(ctx, "k", noWork) },
			"Update":  func(ctx context.Context) error { return c.Cell("k").Update(ctx, func(b []byte) []byte { return b }) },
			"All":     func(ctx context.Context) error { _, err := c.AcquireAll(ctx, []string{"k"}); return err },
		} {
			ctx, cancel := context.WithTimeoutCause(bg, time.Second, errWork)
			end := time.Now().Add(time.Second)
			err := call(ctx)
			wantPrompt(t, name, end)
			var wait *WaitError
			if !errors.As(err, &wait) || wait.Key != "k" || wait.Position != 2 || wait.Client != "a" || wait.Node != "node-a" || wait.Token != l.Token() {
				t.Errorf("%s: %+v (%v)", name, wait, err)
			}
			if !errors.Is(err, errWork) || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrHeld) {
				t.Errorf("%s: %v", name, err)
			}
			if name != "All" && !strings.Contains(err.Error(), `waited behind 2: "k" is held by a on node-a (token`) {
				t.Errorf("%s: %v", name, err)
			}
			cancel()
		}
		// A tree's holder is at another key; and a cut-off member asks nobody.
		acquire(t, a, "tree", Tree())
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		call := waiting(t, ctx, c, "tree/leaf")
		m.Isolate()
		_, err := call.ends(t)
		var wait *WaitError
		if !errors.As(err, &wait) || wait.Conflict != "tree" || wait.Position != 0 {
			t.Errorf("%+v (%v)", wait, err)
		}
	})
}

func noWork(context.Context, *Lock) error { return nil }

// After 5,000 cancelled waits the client's next Acquire of the key took
// 1,266 ms, since each wait was withdrawn by a command of its own.
func TestCancelledWaitsAreWithdrawnTogether(t *testing.T) {
	const waits = 400
	bubble(t, func(t *testing.T, w *world) {
		w.SetCheck(false)
		a, _ := w.client(t, "a")
		b, m := w.client(t, "b")
		m.SetFaults(termtest.Faults{Latency: time.Millisecond})
		l := acquire(t, a, "k")
		ctx, cancel := context.WithCancel(bg)
		var calls sync.WaitGroup
		for range waits {
			calls.Go(func() {
				if _, err := b.Acquire(ctx, "k"); !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
		}
		time.Sleep(time.Second)
		cancel()
		calls.Wait()
		release(t, l)
		acquire(t, b, "k")
		if n := w.Sent(isWithdraw); n > 10 {
			t.Errorf("%d withdrawals for %d waits", n, waits)
		}
		if w.busy() != 1 {
			t.Errorf("%d grants and waiters, want 1", w.busy())
		}
	})
}

// Positions of others' requests were nowhere to be seen.
func TestStatusShowsEachWaitersPosition(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		acquire(t, a, "k", Shared())
		acquire(t, b, "k", Shared())
		waiting(t, within(time.Hour), b, "k")
		waiting(t, within(time.Hour), a, "k", Shared())
		st, err := b.Inspect(bg, "k")
		if err != nil || len(st.Waiters) != 2 || st.Waiters[0].Position != 2 || st.Waiters[1].Position != 3 {
			t.Fatalf("%+v, %v", st.Waiters, err)
		}
		if !st.Waiters[0].Self || st.Waiters[1].Self || st.Holders[0].Self || !st.Holders[1].Self {
			t.Errorf("Self is wrong: %+v", st)
		}
	})
}

// A wait in a cluster that grants nothing yet names nobody, and says why.
func TestAWaitInAYoungClusterSaysSo(t *testing.T) {
	young := &WaitError{Key: "k", err: context.DeadlineExceeded}
	if text := young.Error(); text != `locks: acquire "k": context deadline exceeded; waited first in the queue: a new cluster grants nothing for a TTL` {
		t.Error(text)
	}
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		acquire(t, a, "k2")
		_, err := b.AcquireAll(within(time.Second), []string{"k1", "k2"})
		if err == nil || strings.Contains(err.Error(), "new cluster") {
			t.Errorf("behind the holder of another key: %v", err)
		}
		acquire(t, a, "p", Permits(2, 2))
		_, err = b.Acquire(within(time.Second), "p", Permits(1, 2))
		if err == nil || strings.Contains(err.Error(), "new cluster") {
			t.Errorf("permits: %v", err)
		}
	})
}
