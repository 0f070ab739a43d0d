package locks

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/internal/term/termtest"
)

var errWork = errors.New("work failed")

// free waits a moment and reports whether key has no holder.
func (w *world) free(key string) bool {
	time.Sleep(time.Millisecond)
	_, token := w.Owner(key)
	return token == 0
}

func TestDoReleasesHoweverWorkEnds(t *testing.T) {
	for _, test := range []struct {
		claim string
		end   func() error
		want  error
		panic any
	}{
		{"nil", func() error { return nil }, nil, nil},
		{"an error", func() error { return errWork }, errWork, nil},
		{"a panic", func() error { panic("boom") }, nil, "boom"},
		{"Goexit", func() error { runtime.Goexit(); return nil }, nil, nil},
	} {
		bubble(t, func(t *testing.T, w *world) {
			c, _ := w.client(t, "a")
			runs := 0
			var err error
			var caught any
			done := make(chan struct{})
			go func() {
				defer close(done)
				defer func() { caught = recover() }()
				err = c.Do(bg, "k", func(ctx context.Context, l *Lock) error {
					runs++
					if token, _ := fence.FromContext(ctx); token != l.Token() || l.Err() != nil {
						t.Error("work has no lock")
					}
					return test.end()
				})
			}()
			<-done
			if err != test.want || caught != test.panic || runs != 1 {
				t.Errorf("%s: error %v, panic %v, %d runs", test.claim, err, caught, runs)
			}
			if !w.free("k") {
				t.Errorf("%s: the key is still taken", test.claim)
			}
		})
	}
}

// The caller's context ends the work. The key is freed when the work has ended.
func TestDoJoinsTheWorkBeforeTheKeyIsFreed(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		ctx, cancel := context.WithCancelCause(bg)
		reason := errors.New("enough")
		var working atomic.Bool
		done := make(chan error, 1)
		go func() {
			done <- a.Do(ctx, "k", func(ctx context.Context, l *Lock) error {
				working.Store(true)
				defer working.Store(false)
				<-ctx.Done()
				if context.Cause(ctx) != reason || l.Err() != nil {
					t.Errorf("cause %v, lock %v", context.Cause(ctx), l.Err())
				}
				time.Sleep(time.Minute) // a slow end; the session is beaten for
				if l.Err() != nil {
					t.Error(l.Err())
				}
				return context.Cause(ctx)
			})
		}()
		synctest.Wait()
		cancel(reason)
		acquire(t, b, "other")
		l, err := b.Acquire(bg, "k")
		if err != nil || working.Load() {
			t.Errorf("acquired: %v, the work still ran: %v", err, working.Load())
		}
		if err := <-done; err != reason {
			t.Errorf("Do: %v", err)
		}
		_ = l
	})
}

func TestDoReportsTheLossAndTheError(t *testing.T) {
	for _, werr := range []error{nil, errWork, ErrLost} {
		bubble(t, func(t *testing.T, w *world) {
			c, m := w.client(t, "a")
			err := c.Do(bg, "k", func(ctx context.Context, l *Lock) error {
				m.Isolate()
				<-ctx.Done()
				if !errors.Is(context.Cause(ctx), ErrLost) {
					t.Errorf("cause %v", context.Cause(ctx))
				}
				if werr == ErrLost {
					return context.Cause(ctx)
				}
				return werr
			})
			var lost *LostError
			if !errors.As(err, &lost) || lost.Reason != QuorumUnreachable {
				t.Errorf("Do: %v", err)
			}
			if werr != nil && !errors.Is(err, werr) {
				t.Errorf("Do: %v, without the work's error", err)
			}
			if werr == ErrLost && err != error(lost) {
				t.Errorf("the loss is told Twice: %v", err)
			}
		})
	}
}

func TestDoWithoutTheKeyDoesNotWork(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		acquire(t, a, "k")
		work := func(context.Context, *Lock) error { t.Error("work ran"); return nil }
		if err := b.Do(within(time.Second), "k", work); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Do: %v", err)
		}
		ctx, cancel := context.WithCancel(bg)
		cancel()
		if err := b.Do(ctx, "free", work); !errors.Is(err, context.Canceled) {
			t.Errorf("Do: %v", err)
		}
	})
}

// The release has a bound of its own besides the caller's, and a failed release is
// no error.
func TestDoReleasesWithItsOwnBound(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, m := w.client(t, "a")
		ctx, cancel := context.WithCancel(bg)
		began := time.Now()
		err := c.Do(ctx, "k", func(context.Context, *Lock) error {
			cancel()
			m.Isolate()
			return errWork
		})
		if err != errWork || time.Since(began) > closeGrace {
			t.Errorf("Do: %v after %v", err, time.Since(began))
		}
		m.Heal()
		time.Sleep(time.Second)
		if !w.free("k") {
			t.Error("the key is still taken")
		}
	})
}

func TestCloseJoinsWorkBeforeTheKeysAreFreed(t *testing.T) {
	for _, elect := range []bool{false, true} {
		bubble(t, func(t *testing.T, w *world) {
			a, _ := w.client(t, "a")
			b, _ := w.client(t, "b")
			var working atomic.Bool
			work := func(ctx context.Context, l *Lock) error {
				working.Store(true)
				<-ctx.Done()
				if !errors.Is(context.Cause(ctx), ErrClosed) || !errors.Is(l.Err(), ErrLost) {
					t.Errorf("cause %v, lock %v", context.Cause(ctx), l.Err())
				}
				time.Sleep(time.Minute)
				working.Store(false)
				return nil
			}
			done := make(chan error, 1)
			go func() {
				if elect {
					done <- a.Elect(bg, "k", work)
				} else {
					done <- a.Do(bg, "k", work)
				}
			}()
			synctest.Wait()
			got := make(chan struct{})
			go func() {
				_, err := b.Acquire(bg, "k")
				if err != nil || working.Load() {
					t.Errorf("acquired: %v, the work still ran: %v", err, working.Load())
				}
				close(got)
			}()
			synctest.Wait()
			if err := a.Close(within(time.Second)); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("close: %v", err)
			}
			if err := a.Close(bg); err != nil || working.Load() {
				t.Errorf("close: %v, the work still ran: %v", err, working.Load())
			}
			if err := <-done; !errors.Is(err, ErrClosed) {
				t.Errorf("the call: %v", err)
			}
			<-got
		})
	}
}

func TestWorkThatDoesNotStopIsReportedStuck(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		stuck := make(chan LockEvent, 1)
		c := w.join("n").client(Options{Trace: &Trace{Stuck: func(_ context.Context, e LockEvent) { stuck <- e }}})
		defer shutdown(t, c)
		ctx, cancel := context.WithCancel(bg)
		err := c.Do(ctx, "k", func(ctx context.Context, l *Lock) error {
			cancel()
			select {
			case e := <-stuck:
				if e.Key != "k" || e.Token != l.Token() || !errors.Is(e.Err, context.Canceled) {
					t.Errorf("%+v", e)
				}
			case <-time.After(time.Hour):
				t.Error("not reported")
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// The end of the caller's ctx ends the work's context, but not the lock: until the
// work returns, the work may still change its lock.
func TestWorkMayChangeItsLockAfterTheCallersEnd(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, m := w.client(t, "a")
		m.SetFaults(termtest.Faults{Latency: 50 * time.Millisecond})
		ctx, cancel := context.WithCancel(bg)
		err := a.Do(ctx, "k", func(ctx context.Context, l *Lock) error {
			cancel()
			<-ctx.Done()
			if err := l.SetValue(bg, []byte("last words")); err != nil {
				t.Errorf("set value: %v", err)
			}
			if err := l.Downgrade(bg); err != nil {
				t.Errorf("downgrade: %v", err)
			}
			if err := l.Upgrade(bg); err != nil {
				t.Errorf("upgrade: %v", err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		if v, clean := acquire(t, a, "k").Value(); string(v) != "last words" || !clean {
			t.Errorf("value %q, clean %v", v, clean)
		}
	})
}

// A change that waits for its turn ends too, and no change outlives its own lock.
func TestChangeThatWaitsEndsWithItsLockOnly(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		other := acquire(t, b, "k", Shared())
		ctx, cancel := context.WithCancel(bg)
		err := a.Do(ctx, "k", func(ctx context.Context, l *Lock) error {
			up := does(l.Upgrade, bg)
			up.pends(t)
			second := does(l.Downgrade, bg)
			cancel()
			up.pends(t)
			second.pends(t)
			release(t, l)
			for _, call := range []*call[struct{}]{up, second} {
				if _, err := call.ends(t); err != ErrReleased {
					t.Errorf("after the release: %v", err)
				}
			}
			if n := len(l.g.rare().changes); n != 0 {
				t.Errorf("%d changes are kept", n)
			}
			return nil
		}, Shared())
		if err != nil {
			t.Error(err)
		}
		release(t, other)
	})
}

// A call without a function to run is refused before anything is sent.
func TestWorkMustBeGiven(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, _ := w.client(t, "a")
		// A panic becomes an error, so that the test goes on.
		call := func(f func() error) (err error) {
			defer func() {
				if p := recover(); p != nil {
					err = fmt.Errorf("panic: %v", p)
				}
			}()
			return f()
		}
		wantConfig(t, call(func() error { return c.Do(bg, "k", nil) }), "work")
		wantConfig(t, call(func() error { return c.Elect(bg, "k", nil) }), "lead")
		if t.Failed() {
			t.FailNow() // a shard's work runs in a goroutine where nobody recovers
		}
		wantConfig(t, c.Spread(bg, "k", 2, nil), "work")
		wantConfig(t, c.Cell("k").Update(bg, nil), "change")
		_, err := c.Once(bg, "k", nil)
		wantConfig(t, err, "fn")
		if n := w.Sent(isOpen); n != 0 {
			t.Error("a session was opened")
		}
		if err := c.Do(bg, "k", func(context.Context, *Lock) error { return nil }); err != nil {
			t.Error(err)
		}
	})
}
