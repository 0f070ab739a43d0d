package locks

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/term/termtest"
)

// A closed client does not end the locks of another client of the same name.
func TestClosingAClientSparesItsNamesake(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		m := w.join("n")
		old, fresh := m.client(Options{Name: "same"}), m.client(Options{Name: "same"})
		defer shutdown(t, fresh)
		l := acquire(t, old, "k")
		kept := acquire(t, fresh, "kept")
		next := waiting(t, bg, fresh, "k")
		select {
		case <-old.Done():
			t.Error("Done before Close")
		default:
		}
		if err := old.Close(bg); err != nil {
			t.Fatal(err)
		}
		<-old.Done()
		n := next.ok(t)
		if err := l.Release(bg); !errors.Is(err, ErrClosed) {
			t.Errorf("release: %v", err)
		}
		time.Sleep(3 * testTTL)
		if kept.Err() != nil || n.Err() != nil || w.Counts().Grants != 2 {
			t.Errorf("%v, %v; the table keeps %+v", kept.Err(), n.Err(), w.Counts())
		}
	})
}

func TestAClosedClientBeatsNoMore(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, m := w.client(t, "a")
		release(t, acquire(t, c, "k"))
		acquire(t, c, "k")
		time.Sleep(testTTL)
		if err := c.Close(bg); err != nil {
			t.Fatal(err)
		}
		m.SetHooks(termtest.Hooks{Beat: func(context.Context) (bool, error) {
			t.Error("a beat after Close")
			return false, nil
		}})
		time.Sleep(10 * testTTL)
	})
}

// Close ends all contexts below a lock at once, with or without the cluster and
// however slow the work is.
func TestContextsBelowALockEndAsItsClientCloses(t *testing.T) {
	for _, cut := range []bool{false, true} {
		bubble(t, func(t *testing.T, w *world) {
			c, m := w.client(t, "a")
			l := acquire(t, c, "k")
			child, cancel := context.WithTimeout(l.Context(), time.Hour)
			defer cancel()
			slow := does(func(ctx context.Context) error {
				return c.Do(ctx, "slow", func(ctx context.Context, _ *Lock) error {
					<-ctx.Done()
					time.Sleep(time.Second)
					return nil
				})
			}, bg)
			slow.pends(t)
			if cut {
				m.Isolate()
			}
			closing := does(c.Close, within(time.Minute))
			select {
			case <-child.Done():
			case <-time.After(100 * time.Millisecond):
			}
			if !errors.Is(context.Cause(child), ErrClosed) || !errors.Is(context.Cause(child), ErrLost) {
				t.Errorf("cut off %v: after a tenth of a second the context's cause is %v", cut, context.Cause(child))
			}
			closing.ends(t)
			slow.ends(t)
			if cut {
				m.Heal()
			}
		})
	}
}

func TestAClosedClientLeavesTheQueueForPermits(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		c, _ := w.client(t, "c")
		l := acquire(t, a, "k", Permits(1, 1))
		closes := waiting(t, bg, b, "k", Permits(1, 1))
		next := waiting(t, bg, c, "k", Permits(1, 1))
		if err := b.Close(bg); err != nil {
			t.Error(err)
		}
		if _, err := closes.ends(t); err != ErrClosed {
			t.Errorf("the wait: %v", err)
		}
		if n := w.Counts().Waiters; n != 1 {
			t.Errorf("%d wait", n)
		}
		release(t, l)
		release(t, next.ok(t))
		if w.busy() != 0 {
			t.Error("something is left")
		}
	})
}

func TestCloseFreesEverythingInOneStep(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		l, l2 := acquire(t, a, "k"), acquire(t, a, "k2")
		acquire(t, b, "held")
		errs := make(chan error, 1)
		go func() {
			_, err := a.Acquire(bg, "held")
			errs <- err
		}()
		synctest.Wait()
		if err := a.Close(bg); err != nil {
			t.Fatal(err)
		}
		if err := <-errs; err != ErrClosed {
			t.Errorf("the wait ended with %v", err)
		}
		wantLost(t, l, ClientClosed)
		wantLost(t, l2, ClientClosed)
		if n := w.Counts(); n.Grants != 1 || n.Waiters != 0 || n.Sessions != 1 {
			t.Errorf("the table keeps %+v", n)
		}
		if w.Sent(isRelease) != 0 || w.Sent(isClose) != 1 {
			t.Error("not in one step")
		}
		if _, err := a.Acquire(bg, "k"); err != ErrClosed {
			t.Errorf("acquire: %v", err)
		}
		if _, err := a.Inspect(bg, "k"); err != ErrClosed {
			t.Errorf("inspect: %v", err)
		}
		if err := a.Close(bg); err != nil {
			t.Errorf("second close: %v", err)
		}
		if err := l.Release(bg); !errors.Is(err, ErrLost) || !errors.Is(err, ErrClosed) {
			t.Errorf("release: %v", err)
		}
	})
}

func TestCloseOfAnUnusedClientDoesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c := w.join("n").client(Options{})
		before := len(w.Applied())
		if err := c.Close(bg); err != nil {
			t.Error(err)
		}
		if len(w.Applied()) != before {
			t.Errorf("commands were sent")
		}
	})
}

func TestCloseIsBoundedByItsContext(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, m := w.client(t, "a")
		l := acquire(t, c, "k")
		m.Isolate()
		began := time.Now()
		err := c.Close(within(time.Second))
		if err == nil || time.Since(began) != time.Second {
			t.Errorf("close: %v after %v", err, time.Since(began))
		}
		wantLost(t, l, ClientClosed)
		time.Sleep(time.Minute)
		if n := w.Counts().Sessions; n != 0 {
			t.Error("the session did not expire")
		}
	})
}

// Close has a bound of its own besides the caller's.
func TestCloseThatIsNotHeardIsAnError(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, m := w.client(t, "a")
		acquire(t, c, "k")
		m.Isolate()
		if err := c.Close(bg); !errors.Is(err, cluster.ErrNoQuorum) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("close: %v", err)
		}
	})
}

// Close goes on in the background, and the keys are free before the TTL.
func TestCloseGoesOnAfterItsContext(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, m := w.client(t, "a")
		acquire(t, c, "k")
		m.Isolate()
		if err := c.Close(within(time.Second)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("close: %v", err)
		}
		time.Sleep(time.Second)
		m.Heal()
		if err := c.Close(bg); err != nil {
			t.Errorf("close, after all: %v", err)
		}
		if n := w.Counts(); n.Sessions != 0 || n.Grants != 0 {
			t.Errorf("the table keeps %+v", n)
		}
	})
}

func TestCloseWithEndedContextStillTells(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, _ := w.client(t, "a")
		acquire(t, c, "k")
		ctx, cancel := context.WithCancel(bg)
		cancel()
		_ = c.Close(ctx)
		time.Sleep(time.Second)
		if n := w.Counts(); n.Sessions != 0 || n.Grants != 0 {
			t.Errorf("the table keeps %+v", n)
		}
	})
}

func TestCloseWhileTheSessionOpens(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, m := w.client(t, "a")
		m.SetFaults(termtest.Faults{Latency: 2 * time.Second})
		errs := make(chan error, 1)
		go func() {
			_, err := c.Acquire(bg, "k")
			errs <- err
		}()
		time.Sleep(100 * time.Millisecond)
		if err := c.Close(bg); err != nil {
			t.Error(err)
		}
		if err := <-errs; err != ErrClosed {
			t.Errorf("acquire: %v", err)
		}
		time.Sleep(time.Minute)
		if n := w.Counts().Sessions; n != 0 {
			t.Errorf("%d sessions are open", n)
		}
	})
}

// attaching is a member that runs f when a session is attached.
type attaching struct {
	*member
	f func()
}

func (a *attaching) Attach(id machine.SessionID, sink func(machine.Event)) {
	a.member.Attach(id, sink)
	a.f()
}

// A session that is opened for a client closed meanwhile has no locks, so a node
// that stops does not wait until the cluster has heard of its end.
func TestAnUnusedSessionDelaysNoStop(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		_, m := w.client(t, "a")
		rep := &attaching{member: m}
		c := newClient(rep, Options{Name: "b"})
		var closing sync.WaitGroup
		rep.f = func() { // the session is open and not the client's yet
			m.Isolate()
			closing.Go(func() { _ = c.Close(bg) })
			time.Sleep(time.Millisecond)
		}
		if _, err := c.Acquire(bg, "k"); err != ErrClosed {
			t.Errorf("acquire: %v", err)
		}
		time.Sleep(time.Millisecond)
		began := time.Now()
		m.BeginStop()
		if took := time.Since(began); took > 0 {
			t.Errorf("a stop waited for %v", took)
		}
		closing.Wait()
	})
}
