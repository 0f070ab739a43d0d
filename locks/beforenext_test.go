package locks

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/term/termtest"
)

// Whatever ends the lock without its holder's request, the function of BeforeNext has
// returned before another client has the key.
func TestBeforeNextReturnsBeforeTheNextGrant(t *testing.T) {
	const takes = 50 * time.Millisecond // of the function; less than the margin
	for name, end := range map[string]func(t *testing.T, m *member, a, b *Client, l *Lock) error{
		"break": func(t *testing.T, m *member, a, b *Client, l *Lock) error { return b.Break(bg, "k", l.Token()) },
		"end of the session": func(t *testing.T, m *member, a, b *Client, l *Lock) error {
			for s, err := range b.Sessions(bg) {
				if err != nil {
					return err
				}
				if s.Client == "a" {
					return b.EndSession(bg, s.Ref)
				}
			}
			return errors.New("no session")
		},
		"close": func(t *testing.T, m *member, a, b *Client, l *Lock) error { return a.Close(bg) },
		"break during close": func(t *testing.T, m *member, a, b *Client, l *Lock) error {
			gate, working := make(chan struct{}), make(chan struct{})
			work := start(func() (int, error) {
				return 0, a.Do(bg, "other", func(context.Context, *Lock) error {
					close(working)
					<-gate
					return nil
				})
			})
			<-working
			closing := start(func() (int, error) { return 0, a.Close(bg) })
			synctest.Wait() // the lock is lost, and Close waits for the work
			err := b.Break(bg, "k", l.Token())
			close(gate)
			<-work.done
			<-closing.done
			return errors.Join(err, closing.err)
		},
		"end of trust": func(t *testing.T, m *member, a, b *Client, l *Lock) error {
			m.Isolate()
			t.Cleanup(m.Heal)
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				a, m := w.client(t, "a")
				b, _ := w.client(t, "b")
				l := acquire(t, a, "k")
				ctx := l.Context()
				var calls, returned atomic.Int32
				if err := l.BeforeNext(func() {
					calls.Add(1)
					if ctx.Err() == nil {
						t.Error("called before the context had ended")
					}
					time.Sleep(takes)
					returned.Add(1)
				}); err != nil {
					t.Fatal(err)
				}
				next := waiting(t, bg, b, "k")
				m.SetHooks(termtest.Hooks{Proposed: func(cmd machine.Command) {
					if _, closes := cmd.(machine.Close); (closes || isRelease(cmd)) && returned.Load() == 0 {
						t.Error("the key was freed before the function had returned")
					}
				}})
				if err := end(t, m, a, b, l); err != nil {
					t.Error(err)
				}
				next.ok(t)
				if calls.Load() != 1 || returned.Load() != 1 {
					t.Errorf("%d calls, %d returned", calls.Load(), returned.Load())
				}
			})
		})
	}
}

// A second Break, or a repeated event, does not free the key either.
func TestASecondBreakWaitsForTheFunctionToo(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		l := acquire(t, a, "k")
		release := make(chan struct{})
		if err := l.BeforeNext(func() { <-release }); err != nil {
			t.Fatal(err)
		}
		first := start(func() (int, error) { return 0, b.Break(bg, "k", l.Token()) })
		synctest.Wait()
		second := start(func() (int, error) { return 0, b.Break(bg, "k", l.Token()) })
		time.Sleep(time.Second)
		if _, token := w.Owner("k"); token == 0 {
			t.Error("the key is free while the function runs")
		}
		close(release)
		<-first.done
		<-second.done
		if first.err != nil || second.err != nil {
			t.Error(first.err, second.err)
		}
	})
}

// A function that hangs delays a Break, but not for ever; the other locks of the session
// notice nothing.
func TestAFunctionThatHangsDelaysBreakForAWhile(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		l, other := acquire(t, a, "k"), acquire(t, a, "other")
		hangs := make(chan struct{})
		defer close(hangs)
		if err := l.BeforeNext(func() { <-hangs }); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := b.Break(bg, "k", l.Token()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < grace(testTTL) || took > grace(testTTL)+time.Second {
			t.Errorf("Break took %v", took)
		}
		if err := other.Err(); err != nil {
			t.Error(err)
		}
		began = time.Now()
		release(t, other)
		if took := time.Since(began); took > time.Second {
			t.Errorf("the release of another lock took %v", took)
		}
	})
}

func TestBeforeNextIsNotForTheRelease(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		l := acquire(t, a, "k")
		if err := l.BeforeNext(func() { t.Error("called") }); err != nil {
			t.Fatal(err)
		}
		var bad *cluster.ConfigError
		if err := l.BeforeNext(nil); !errors.As(err, &bad) {
			t.Error(err)
		}
		release(t, l)
		if err := l.BeforeNext(func() { t.Error("called after the release") }); !errors.Is(err, ErrReleased) {
			t.Error(err)
		}
		if err := new(Lock).BeforeNext(func() {}); err == nil {
			t.Error("a zero Lock takes a function")
		}
		// One of the owner's locks is released, the other one is lost.
		one, two := acquire(t, a, "k", Reentrant("o")), acquire(t, a, "k", Reentrant("o"))
		called := 0
		if err := errors.Join(one.BeforeNext(func() { t.Error("called for a released lock") }), two.BeforeNext(func() { called++ })); err != nil {
			t.Fatal(err)
		}
		release(t, one)
		began := time.Now()
		if err := a.Break(bg, "k", two.Token()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("Break took %v, and waited for a function that is not called", took)
		}
		if called != 1 {
			t.Errorf("%d calls for a lost lock", called)
		}
	})
}

// A session that lives for long keeps nothing of the functions that have returned.
func TestTheSessionForgetsFunctionsThatHaveReturned(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		for range 20 {
			l := acquire(t, a, "k")
			for range 10 {
				if err := l.BeforeNext(func() {}); err != nil {
					t.Fatal(err)
				}
			}
			if err := b.Break(bg, "k", l.Token()); err != nil {
				t.Fatal(err)
			}
			s := a.currentSession()
			s.mu.Lock()
			n := len(s.hooks) + len(l.g.rare().hooks)
			s.mu.Unlock()
			if n != 0 {
				t.Fatalf("%d functions are kept", n)
			}
		}
	})
}
