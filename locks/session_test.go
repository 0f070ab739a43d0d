package locks

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/internal/term/termtest"
)

func TestSessionIsOpenedByTheFirstCallThatNeedsOne(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, _ := w.client(t, "a")
		if _, err := c.Inspect(bg, "k"); err != nil {
			t.Fatal(err)
		}
		if n := w.Sent(isOpen); n != 0 {
			t.Fatal("Inspect opened a session")
		}
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() { acquire(t, c, string(rune('a'+i))) })
		}
		wg.Wait()
		if n := w.Sent(isOpen); n != 1 {
			t.Errorf("%d sessions were opened", n)
		}
	})
}

// The first trust counts from the first attempt to open the session.
func TestFirstTrustCountsFromTheFirstAttemptToOpen(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, m := w.client(t, "a")
		m.SetFaults(termtest.Faults{LoseAnswer: 1})
		m.SetHooks(termtest.Hooks{Beat: func(ctx context.Context) (bool, error) { <-ctx.Done(); return true, ctx.Err() }})
		time.AfterFunc(2*time.Second, func() { m.SetFaults(termtest.Faults{}) })
		began := time.Now()
		l := acquire(t, c, "k")
		if d := time.Since(began); d < 2*time.Second {
			t.Fatalf("granted after %v", d)
		}
		if want := testTTL - margin(testTTL) - time.Since(began); l.Remaining() != want {
			t.Errorf("%v remain, want %v", l.Remaining(), want)
		}
	})
}

func TestSessionThatTookTooLongToOpenIsReplaced(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, m := w.client(t, "a")
		m.SetFaults(termtest.Faults{LoseAnswer: 1})
		time.AfterFunc(12*time.Second, func() { m.SetFaults(termtest.Faults{}) })
		l := acquire(t, c, "k")
		if l.Err() != nil || l.Remaining() < testTTL/2 {
			t.Errorf("%v, %v remain", l.Err(), l.Remaining())
		}
		time.Sleep(time.Minute)
		if n := w.Counts().Sessions; n != 1 {
			t.Errorf("%d sessions are open", n)
		}
	})
}

func TestExpiredSessionIsLostAtTheNextBeat(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, m := w.client(t, "a")
		l := acquire(t, c, "k")
		m.SetFaults(termtest.Faults{LosePush: 1})
		w.ExpireNow()
		time.Sleep(testTTL/3 + time.Second)
		wantLost(t, l, SessionExpired)
		if w.Counts().Sessions != 0 || w.Counts().Grants != 0 {
			t.Error("a beat brought the session back")
		}
	})
}

func TestExpiryIsPushed(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, _ := w.client(t, "a")
		l := acquire(t, c, "k")
		w.ExpireNow()
		synctest.Wait()
		wantLost(t, l, SessionExpired)
	})
}

// Every other end of a session is outlived: see TestAWaitOutlivesItsSession.
func TestWaitEndsWithItsNode(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, m := w.client(t, "b")
		acquire(t, a, "k")
		call := waiting(t, bg, b, "k")
		m.Stop()
		_, err := call.ends(t)
		var ended *SessionError
		if !errors.As(err, &ended) || *ended != (SessionError{"k", NodeStopped}) || !errors.Is(err, ErrSessionLost) || !errors.Is(err, cluster.ErrStopped) {
			t.Errorf("acquire: %v", err)
		}
		if errors.Is(err, context.Canceled) || errors.Is(err, ErrLost) {
			t.Errorf("%v matches too much", err)
		}
	})
}

func TestLockThatIsLostBeforeItIsReturnedShowsIt(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, m := w.client(t, "a")
		acquire(t, c, "other")
		// The answer is slower than the trust is long, from here on.
		m.SetHooks(termtest.Hooks{Beat: func(ctx context.Context) (bool, error) { <-ctx.Done(); return true, ctx.Err() }})
		time.Sleep(8700 * time.Millisecond)
		m.SetFaults(termtest.Faults{Latency: time.Second})
		l, err := c.currentSession().acquire(bg, bg, newAcquireRequest(CallAcquire, "k", nil))
		if err == nil {
			err = l.Err()
		}
		if !errors.Is(err, ErrLost) && !errors.Is(err, ErrSessionLost) {
			t.Errorf("%v", err)
		}
	})
}

func TestStoppedNodeEndsEverything(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, m := w.client(t, "a")
		l := acquire(t, c, "k")
		m.Stop()
		synctest.Wait()
		wantLost(t, l, NodeStopped)
		if !errors.Is(l.Err(), cluster.ErrStopped) {
			t.Error("the loss does not say that the node stopped")
		}
		if _, err := c.Acquire(bg, "k"); !errors.Is(err, cluster.ErrStopped) {
			t.Errorf("acquire: %v", err)
		}
		if _, err := c.Inspect(bg, "k"); !errors.Is(err, cluster.ErrStopped) {
			t.Errorf("inspect: %v", err)
		}
		if err := l.Release(bg); !errors.Is(err, ErrLost) {
			t.Errorf("release: %v", err)
		}
	})
}

// A stopping node ends all locks first, then waits for the work under the locks,
// and only then frees the keys.
func TestAStoppingNodeFreesItsKeysAfterTheWork(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, m := w.client(t, "a")
		other, _ := w.client(t, "b")
		l := acquire(t, c, "held")
		ended := make(chan time.Time, 1)
		work := start(func() (struct{}, error) {
			return struct{}{}, c.Do(bg, "worked", func(ctx context.Context, _ *Lock) error {
				<-ctx.Done()
				time.Sleep(300 * time.Millisecond)
				ended <- time.Now()
				return nil
			})
		})
		work.pends(t)
		held, worked := waiting(t, bg, other, "held"), waiting(t, bg, other, "worked")
		began := time.Now()
		await := m.BeginStop()
		wantLost(t, l, NodeStopped) // already now: BeginStop has waited for it
		await(within(time.Second))
		synctest.Wait()
		if took := time.Since(began); took > 400*time.Millisecond {
			t.Errorf("the sessions took %v to end", took)
		}
		held.ok(t)
		if granted := worked.ok(t); granted.g.since.Before(<-ended) {
			t.Error("the key was granted before the work had returned")
		}
		if _, err := work.ends(t); !errors.Is(err, cluster.ErrStopped) {
			t.Errorf("Do: %v", err)
		}
		if n := w.Counts(); n.Sessions != 1 {
			t.Errorf("the table keeps %d sessions", n.Sessions)
		}
		if err := c.Close(within(time.Second)); err != nil {
			t.Errorf("close after the node's stop: %v", err)
		}
		if _, err := c.Acquire(bg, "k"); !errors.Is(err, cluster.ErrStopped) && !errors.Is(err, ErrClosed) {
			t.Errorf("acquire: %v", err)
		}
	})
}

// Work that does not return keeps its keys, until the TTL has passed.
func TestAStoppingNodeDoesNotFreeKeysUnderWork(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, m := w.client(t, "a")
		stuck := make(chan struct{})
		work := start(func() (struct{}, error) {
			return struct{}{}, c.Do(bg, "k", func(context.Context, *Lock) error { <-stuck; return nil })
		})
		work.pends(t)
		began := time.Now()
		m.BeginStop()(within(time.Second))
		if took := time.Since(began); took != time.Second {
			t.Errorf("the node waited for %v", took)
		}
		if n := w.Counts(); n.Sessions != 1 || n.Grants != 1 {
			t.Errorf("the keys are free under the work: %+v", n)
		}
		m.Stop()
		close(stuck)
		work.ends(t)
	})
}

func TestFailedAcquireLeaksNothing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, m := w.client(t, "a")
		m.Isolate()
		for range 5 {
			if _, err := c.Acquire(within(time.Second), "k"); err == nil {
				t.Fatal("granted")
			}
		}
		if c.opening != nil {
			t.Error("a session is being opened for nobody")
		}
		m.Heal()
		time.Sleep(time.Minute)
		if n := w.Counts(); n.Sessions != 0 || w.busy() != 0 {
			t.Errorf("the table keeps %+v", n)
		}
	})
}

// A request in an expired session changes nothing, and is repeated in a new session.
func TestAcquireReplacesAnExpiredSession(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, m := w.client(t, "a")
		l := acquire(t, c, "k")
		m.SetFaults(termtest.Faults{LosePush: 1})
		w.ExpireNow()
		next := acquire(t, c, "k")
		wantLost(t, l, SessionExpired)
		if next.Err() != nil {
			t.Error(next.Err())
		}
	})
}

// Two clients of the same name, or a restarted process, have different sessions.
func TestRestartedClientDoesNotOwnItsFormerLocks(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		m := w.join("n")
		old := m.client(Options{Name: "same"})
		acquire(t, old, "k")
		fresh := m.client(Options{Name: "same"})
		defer shutdown(t, fresh)
		if _, err := fresh.TryAcquire(bg, "k"); !errors.Is(err, ErrHeld) {
			t.Errorf("try: %v", err)
		}
		shutdown(t, old)
		if _, err := fresh.TryAcquire(bg, "k"); err != nil {
			t.Errorf("try: %v", err)
		}
	})
}

// A waiter is granted the key in the step that ends the holder's session.
func TestWaiterIsGrantedAtOnceAfterAnExpiry(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var clients []*Client
		var calls []*call[*Lock]
		for i := range 4 {
			c, _ := w.client(t, fmt.Sprint("c", i))
			clients = append(clients, c)
			calls = append(calls, start(func() (*Lock, error) { return c.Acquire(bg, "k") }))
			settle()
		}
		for i, c := range calls {
			if !closed(c.done) {
				t.Fatalf("%d still waits", i)
			}
			l := c.ok(t)
			w.Apply(expire(w, clients[i]))
			settle()
			wantLost(t, l, SessionExpired)
		}
	})
}
