package locks

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"
)

func TestResignedLeaderStandsAgainBehindItsSuccessor(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var mu sync.Mutex
		var terms []string
		var retries []LockEvent
		leading := false
		ctx, cancel := context.WithCancel(bg)
		var calls []*call[struct{}]
		elect := func(name string, successor func(n int) error) {
			m := w.join("node-" + name)
			c := m.client(Options{Name: name, Trace: &Trace{Retrying: func(e LockEvent) {
				mu.Lock()
				defer mu.Unlock()
				retries = append(retries, e)
			}}})
			t.Cleanup(func() { shutdown(t, c) })
			n := 0
			call := does(func(ctx context.Context) error {
				return c.Elect(ctx, "k", func(ctx context.Context, l *Lock) error {
					mu.Lock()
					if leading {
						t.Error("two lead")
					}
					leading = true
					terms = append(terms, name)
					n++
					n := n
					mu.Unlock()
					defer func() { mu.Lock(); leading = false; mu.Unlock() }()
					select {
					case <-time.After(time.Second):
						return successor(n)
					case <-ctx.Done():
						return ctx.Err()
					}
				})
			}, ctx)
			calls = append(calls, call)
			call.pends(t)
		}
		elect("a", func(n int) error {
			switch n {
			case 1:
				return fmt.Errorf("enough: %w", Resign("c"))
			case 2:
				return Resign("nobody")
			}
			return Resign("")
		})
		elect("b", func(int) error { return nil })
		elect("c", func(int) error { return Resign("") })
		time.Sleep(6500 * time.Millisecond)
		cancel()
		for _, c := range calls {
			if _, err := c.ends(t); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		if want := "[a c b a c b a]"; fmt.Sprint(terms) != want {
			t.Errorf("led: %v, want %s", terms, want)
		}
		if len(retries) != 1 || !errors.Is(retries[0].Err, ErrNoSuccessor) || retries[0].Key != "k" || retries[0].Token == 0 {
			t.Errorf("retries: %+v", retries)
		}
		if !w.free("k") {
			t.Error("the key is taken")
		}
	})
}

func TestResignationFreesTheKeyOnlyAfterLeadHasReturned(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		ctx, cancel := context.WithCancel(bg)
		var returned time.Time
		elect := does(func(ctx context.Context) error {
			return a.Elect(ctx, "k", func(ctx context.Context, l *Lock) error {
				if !returned.IsZero() {
					<-ctx.Done()
					return nil
				}
				<-l.Asked()
				time.Sleep(3 * testTTL) // the session is beaten for meanwhile
				if l.Err() != nil {
					t.Error(l.Err())
				}
				returned = time.Now()
				return Resign("b")
			})
		}, ctx)
		elect.pends(t)
		next := waiting(t, bg, b, "k")
		if err := b.Ask(bg, "k"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * testTTL)
		next.pends(t)
		next.ok(t)
		if d := time.Since(returned); d < 0 || d > time.Second {
			t.Errorf("granted %v after lead returned", d)
		}
		cancel()
		elect.ends(t)
	})
}

func TestResignationForNobodyThatCanBeNamedIsARelease(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		ctx, cancel := context.WithCancel(bg)
		elect := does(func(ctx context.Context) error {
			return a.Elect(ctx, "k", func(ctx context.Context, l *Lock) error {
				select {
				case <-time.After(time.Second):
				case <-ctx.Done():
				}
				return Resign("\xff")
			})
		}, ctx)
		elect.pends(t)
		release(t, acquire(t, b, "k"))
		cancel()
		elect.ends(t)
	})
}

func TestElectPassesItsOptionsOn(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		l := acquire(t, b, "k")
		plain := waiting(t, bg, b, "k")
		led := make(chan struct{})
		elect := does(func(ctx context.Context) error {
			return a.Elect(ctx, "k", func(context.Context, *Lock) error { close(led); return errWork },
				Priority(9), Delay(time.Minute), Meta(map[string]string{"m": "x"}))
		}, bg)
		elect.pends(t)
		release(t, l)
		<-led
		if _, err := elect.ends(t); err != errWork {
			t.Error(err)
		}
		plain.ok(t)
	})
}
