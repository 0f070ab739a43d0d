package locks

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/machine"

	"github.com/wardmote/wardmote/internal/term/termtest"
)

func TestNobodyStandsAgainBeforeLeadHasReturned(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, m := w.client(t, "a")
		b, _ := w.client(t, "b")
		var asked, terms atomic.Int64
		m.SetHooks(termtest.Hooks{Proposed: func(c machine.Command) {
			if isAcquire(c) {
				asked.Add(1)
			}
		}})
		ctx, cancel := context.WithCancel(bg)
		elect := does(func(ctx context.Context) error {
			return a.Elect(ctx, "k", func(ctx context.Context, l *Lock) error {
				if terms.Add(1) > 1 {
					<-ctx.Done()
					return nil
				}
				<-ctx.Done()
				if !errors.Is(context.Cause(ctx), ErrLost) {
					t.Errorf("cause %v", context.Cause(ctx))
				}
				time.Sleep(10 * testTTL) // it is slow to end, and reachable
				if n := asked.Load(); n != 1 {
					t.Errorf("%d requests before lead has returned", n)
				}
				return nil
			})
		}, ctx)
		elect.pends(t)
		m.Isolate()
		next := acquire(t, b, "k")
		m.Heal()
		time.Sleep(5 * testTTL)
		if n := w.Status("k").Queue; n != 0 {
			t.Errorf("%d wait while the first lead goes on", n)
		}
		release(t, next)
		time.Sleep(5 * testTTL)
		if terms.Load() != 2 {
			t.Errorf("%d terms", terms.Load())
		}
		cancel()
		elect.ends(t)
	})
}

func TestACandidateWhoseWaitIsTakenAwayQueuesAgain(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		l := acquire(t, a, "k")
		led := make(chan time.Time, 1)
		elect := does(func(ctx context.Context) error {
			return b.Elect(ctx, "k", func(context.Context, *Lock) error { led <- time.Now(); return errWork })
		}, bg)
		elect.pends(t)
		for range 3 {
			w.Apply(expire(w, b))
			time.Sleep(5 * time.Second)
			elect.pends(t)
			if n := w.Status("k").Queue; n != 1 {
				t.Errorf("%d wait", n)
			}
		}
		released := time.Now()
		release(t, l)
		if _, err := elect.ends(t); err != errWork {
			t.Error(err)
		}
		if d := (<-led).Sub(released); d > time.Second {
			t.Errorf("elected after %v", d)
		}
		if !w.free("k") || w.busy() != 0 {
			t.Error("something is left")
		}
	})
}

// Two who depose a leader at once, by whatever means, cost it one term.
func TestDeposedTwiceAtOnceItIsElectedOnce(t *testing.T) {
	for name, depose := range map[string]func(*world, *Client, *Client, *Lock) error{
		"broken": func(_ *world, _, op *Client, l *Lock) error { return op.Break(bg, "k", l.Token()) },
		"expired": func(w *world, leader, _ *Client, l *Lock) error {
			w.Apply(machine.Expire{Session: l.g.s.id, Term: w.TermNumber()})
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				a, _ := w.client(t, "a")
				op, _ := w.client(t, "op")
				acquire(t, op, "other")
				var mu sync.Mutex
				var terms []*Lock
				ctx, cancel := context.WithCancel(bg)
				elect := does(func(ctx context.Context) error {
					return a.Elect(ctx, "k", func(ctx context.Context, l *Lock) error {
						mu.Lock()
						terms = append(terms, l)
						mu.Unlock()
						<-ctx.Done()
						return context.Cause(ctx)
					})
				}, ctx)
				elect.pends(t)
				mu.Lock()
				l := terms[0]
				mu.Unlock()
				var wg sync.WaitGroup
				for range 2 {
					wg.Go(func() {
						// The second may find that the first has done it.
						if err := depose(w, a, op, l); err != nil && !errors.Is(err, ErrNotHeld) && !errors.Is(err, ErrHeld) {
							t.Error(err)
						}
					})
				}
				wg.Wait()
				time.Sleep(time.Minute)
				mu.Lock()
				if len(terms) != 2 || terms[0].Err() == nil || terms[1].Err() != nil || terms[1].Token() != l.Token()+1 {
					t.Errorf("%d terms", len(terms))
				}
				mu.Unlock()
				cancel()
				elect.ends(t)
			})
		})
	}
}

func TestElectThatNeverReachedTheClusterEndsWithItsClient(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, m := w.client(t, "a")
		m.Isolate()
		elect := does(func(ctx context.Context) error {
			return c.Elect(ctx, "k", func(context.Context, *Lock) error { t.Error("elected"); return nil })
		}, bg)
		elect.pends(t)
		began := time.Now()
		if err := c.Close(bg); err != nil || time.Since(began) > time.Second {
			t.Errorf("close: %v after %v", err, time.Since(began))
		}
		if _, err := elect.ends(t); err != ErrClosed {
			t.Errorf("elect: %v", err)
		}
		m.Heal()
		time.Sleep(time.Minute)
		if w.Sent(isAcquire) != 0 || w.Counts().Sessions != 0 {
			t.Errorf("something began later: %+v", w.Counts())
		}
	})
}

// A watcher that was cut off learns who leads from a leader whose table came from
// a snapshot, and goes on from there.
func TestObserversComeBackToALeaderThatHasForgotten(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		o, m := w.client(t, "o")
		ctx, cancel := context.WithCancel(bg)
		var mu sync.Mutex
		var told []string
		var wg sync.WaitGroup
		wg.Go(func() {
			for e, err := range o.Observe(ctx, "k") {
				if err == nil {
					mu.Lock()
					told = append(told, fmt.Sprintf("%s %d", e.Client, e.Token))
					mu.Unlock()
				}
			}
		})
		last := func() string {
			time.Sleep(time.Second)
			mu.Lock()
			defer mu.Unlock()
			return told[len(told)-1]
		}
		l := acquire(t, a, "k")
		if got, want := last(), fmt.Sprint("a ", l.Token()); got != want {
			t.Errorf("told %q, want %q", got, want)
		}
		m.Isolate()
		release(t, l)
		l = acquire(t, b, "k")
		w.LeadFromSnapshot()
		w.Lead()
		m.Heal()
		if got, want := last(), fmt.Sprint("b ", l.Token()); got != want {
			t.Errorf("told %q, want %q", got, want)
		}
		w.LeadFromSnapshot()
		release(t, l)
		if got := last(); got != " 0" {
			t.Errorf("told %q of a vacant key", got)
		}
		cancel()
		wg.Wait()
	})
}
