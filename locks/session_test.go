package locks

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
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

func TestHeldLockLastsAndIsCheap(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, m := w.client(t, "a")
		var held []*Lock
		for i := range 100 {
			held = append(held, acquire(t, c, string(rune('a'+i))))
		}
		time.Sleep(time.Hour)
		for _, l := range held {
			if l.Err() != nil {
				t.Fatal(l.Err())
			}
		}
		if n := m.Beats(); n < 1195 || n > 1205 {
			t.Errorf("%d beats in an hour, want 1200 whatever the number of locks", n)
		}
	})
}

func TestWindowEndsATTLLessTheMarginAfterTheLastConfirmedBeatWasSent(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, m := w.client(t, "a")
		l := acquire(t, c, "k")
		ctx := l.Context()
		m.SetFaults(termtest.Faults{Latency: 500 * time.Millisecond})
		time.Sleep(testTTL/3 + time.Second) // the first beat has been sent, and answered late
		if m.Beats() != 1 {
			t.Fatalf("%d beats", m.Beats())
		}
		m.Isolate()
		sent := time.Now().Add(-time.Second)
		<-ctx.Done()
		if d := time.Since(sent); d != testTTL-margin(testTTL) {
			t.Errorf("the context ended %v after the beat was sent, want %v", d, testTTL-margin(testTTL))
		}
		wantLost(t, l, QuorumUnreachable)
	})
}

// The first window counts from the first sending of the request for a session.
func TestFirstWindowCountsFromTheFirstAttemptToOpen(t *testing.T) {
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

func TestShortOutageLosesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, m := w.client(t, "a")
		l := acquire(t, c, "k")
		for range 20 {
			m.Isolate()
			time.Sleep(5 * time.Second)
			m.Heal()
			time.Sleep(4 * time.Second)
		}
		if l.Err() != nil {
			t.Error(l.Err())
		}
		resume := w.Pause()
		time.Sleep(5 * time.Second)
		resume()
		w.Lead()
		time.Sleep(time.Minute)
		if l.Err() != nil {
			t.Error(l.Err())
		}
	})
}

// No beat is held up by another that is slow.
func TestSlowBeatDelaysNoOther(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, m := w.client(t, "a")
		l := acquire(t, c, "k")
		began := time.Now()
		var mu sync.Mutex
		var sent []time.Duration
		outstanding, most := 0, 0
		m.SetHooks(termtest.Hooks{Beat: func(ctx context.Context) (bool, error) {
			mu.Lock()
			sent = append(sent, time.Since(began))
			n := len(sent)
			outstanding++
			most = max(most, outstanding)
			mu.Unlock()
			defer func() { mu.Lock(); outstanding--; mu.Unlock() }()
			if n%2 == 0 {
				return false, nil // one in two is answered
			}
			<-ctx.Done()
			return true, ctx.Err()
		}})
		time.Sleep(5 * time.Minute)
		if l.Err() != nil {
			t.Fatal(l.Err())
		}
		mu.Lock()
		defer mu.Unlock()
		if len(sent) < 99 {
			t.Errorf("%d beats", len(sent))
		}
		for i, d := range sent {
			if d != time.Duration(i+1)*testTTL/3 {
				t.Fatalf("beat %d was sent after %v", i, d)
			}
		}
		if most > beatsPerTTL {
			t.Errorf("%d beats were under way at a time", most)
		}
	})
}

// One failed beat harms nothing, and is told.
func TestFailedBeatIsToldAndTheNextGoesOut(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var failed []error
		m := w.join("n")
		c := m.client(Options{Trace: &Trace{BeatFailed: func(err error) { failed = append(failed, err) }}})
		l := acquire(t, c, "k")
		boom, n := errors.New("boom"), new(atomic.Int64)
		m.SetHooks(termtest.Hooks{Beat: func(context.Context) (bool, error) { return n.Add(1)%2 == 1, boom }})
		time.Sleep(time.Minute)
		if l.Err() != nil {
			t.Error(l.Err())
		}
		shutdown(t, c)
		if len(failed) < 9 || !errors.Is(failed[0], boom) {
			t.Errorf("%d failures were told: %v", len(failed), failed)
		}
	})
}

// After a loss the session is left alone, and told to end.
func TestLossStopsTheBeatsAndClosesTheSession(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, m := w.client(t, "a")
		l := acquire(t, c, "k")
		var mu sync.Mutex
		beats, blocked := 0, true
		m.SetHooks(termtest.Hooks{Beat: func(ctx context.Context) (bool, error) {
			mu.Lock()
			beats++
			wait := blocked
			mu.Unlock()
			if wait {
				<-ctx.Done()
				return true, ctx.Err()
			}
			return false, nil
		}})
		<-l.Context().Done()
		wantLost(t, l, QuorumUnreachable)
		synctest.Wait()
		mu.Lock()
		at := beats
		blocked = false
		mu.Unlock()
		// Commands still pass, so the key is free before the session's TTL is over.
		if _, token := w.Owner("k"); token != 0 {
			t.Error("the key is still taken")
		}
		if w.Sent(isClose) != 1 {
			t.Error("the session was not closed")
		}
		time.Sleep(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if beats != at {
			t.Errorf("%d beats after the loss", beats-at)
		}
		// A new call opens a new session; the old lock stays lost.
		next := acquire(t, c, "k")
		if next.Err() != nil || l.Err() == nil || next.Token() <= l.Token() {
			t.Errorf("new %v, old %v", next.Err(), l.Err())
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

func TestWaitEndsWithItsSession(t *testing.T) {
	for _, reason := range []Reason{SessionExpired, QuorumUnreachable, NodeStopped} {
		bubble(t, func(t *testing.T, w *world) {
			a, _ := w.client(t, "a")
			b, m := w.client(t, "b")
			acquire(t, a, "k")
			errs := make(chan error, 1)
			go func() {
				_, err := b.Acquire(bg, "k")
				errs <- err
			}()
			time.Sleep(100 * time.Millisecond)
			switch reason {
			case SessionExpired:
				id := b.currentSession().id
				w.Apply(machine.Expire{Session: id, Term: w.TermNumber()})
			case QuorumUnreachable:
				m.Isolate()
			case NodeStopped:
				m.Stop()
			}
			err := <-errs
			var ended *SessionError
			if !errors.As(err, &ended) || *ended != (SessionError{"k", reason}) || !errors.Is(err, ErrSessionLost) {
				t.Errorf("acquire: %v, want %v", err, reason)
			}
			if errors.Is(err, context.Canceled) || errors.Is(err, ErrLost) {
				t.Errorf("%v matches too much", err)
			}
		})
	}
}

// The push of a grant comes when the window is over by the clock, but
// nobody has noticed yet.
func TestGrantThatArrivesTooLateIsNone(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, m := w.client(t, "b")
		l := acquire(t, a, "k")
		var granted []LockEvent
		b.trace.trace = &Trace{Acquired: func(e LockEvent) { granted = append(granted, e) }}
		errs := make(chan error, 1)
		go func() {
			got, err := b.Acquire(bg, "k")
			if got != nil {
				t.Error("granted")
			}
			errs <- err
		}()
		synctest.Wait()
		m.doze(testTTL)
		// Not by release, which would let time pass: the grant is told now.
		b.currentSession().handleEvent(machine.Event{Kind: machine.EventGranted, Session: b.currentSession().id, Seq: 1, Key: "k", Token: 99})
		if err := <-errs; !errors.Is(err, ErrSessionLost) {
			t.Errorf("acquire: %v", err)
		}
		synctest.Wait()
		if len(granted) != 0 {
			t.Errorf("told as granted: %v", granted)
		}
		if err := l.Release(bg); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if _, token := w.Owner("k"); token != 0 {
			t.Error("the waiter of the lost session was granted the key")
		}
	})
}

func TestLockThatIsLostBeforeItIsReturnedShowsIt(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, m := w.client(t, "a")
		acquire(t, c, "other")
		// The answer is slower than the window is long, from here.
		m.SetHooks(termtest.Hooks{Beat: func(ctx context.Context) (bool, error) { <-ctx.Done(); return true, ctx.Err() }})
		time.Sleep(8700 * time.Millisecond)
		m.SetFaults(termtest.Faults{Latency: time.Second})
		l, err := c.Acquire(bg, "k")
		if err == nil {
			err = l.Err()
		}
		if !errors.Is(err, ErrLost) && !errors.Is(err, ErrSessionLost) {
			t.Errorf("%v", err)
		}
	})
}

// A stopped holder finds out: Err is right at once, the context a tenth of a second later.
func TestSleepOfTheHostCounts(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, m := w.client(t, "a")
		b, _ := w.client(t, "b")
		l := acquire(t, a, "k")
		left := l.Remaining()
		m.Sleep(2 * time.Second)
		if l.Remaining() != left-2*time.Second {
			t.Errorf("%v remain of %v after two seconds of sleep", l.Remaining(), left)
		}
		time.Sleep(200 * time.Millisecond) // awake, it beats at once
		if l.Remaining() < left-200*time.Millisecond || l.Err() != nil {
			t.Errorf("%v, %v remain", l.Err(), l.Remaining())
		}

		ctx := l.Context()
		m.SetFaults(termtest.Faults{LosePush: 1})
		m.Sleep(time.Minute)
		time.Sleep(sleepCheck)
		synctest.Wait()
		if ctx.Err() == nil {
			t.Error("the context has not ended a tenth of a second after the host awoke")
		}
		wantLost(t, l, HostSlept)
		acquire(t, b, "k")
	})
}

func TestErrIsRightAtOnceAfterASleep(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, m := w.client(t, "a")
		l := acquire(t, c, "k")
		m.Sleep(time.Minute)
		if err := l.Err(); !errors.Is(err, ErrLost) {
			t.Errorf("Err is %v", err)
		}
		if l.Context().Err() == nil {
			t.Error("the context has not ended")
		}
		wantLost(t, l, HostSlept)
	})
}

func TestContextIsRightAtOnceAfterASleep(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, m := w.client(t, "a")
		l := acquire(t, c, "k")
		m.Sleep(time.Minute)
		if l.Context().Err() == nil {
			t.Error("the context has not ended")
		}
	})
}

// An answer that comes too late does not open the window anew.
func TestWindowThatIsOverStaysSo(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, m := w.client(t, "a")
		l := acquire(t, c, "k")
		s := c.currentSession()
		m.doze(testTTL)
		s.extendTrust(c.now())
		if l.Err() == nil {
			t.Error("a beat confirmed after the end brought the lock back")
		}
	})
}

func TestBeatsAreCountedFromTheirCall(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, m := w.client(t, "a")
		l := acquire(t, c, "k")
		release := make(chan struct{})
		m.SetHooks(termtest.Hooks{Beat: func(ctx context.Context) (bool, error) {
			select {
			case <-release:
			case <-ctx.Done():
			}
			return true, ctx.Err()
		}})
		time.Sleep(testTTL/3 + 2*time.Second)
		m.SetHooks(termtest.Hooks{})
		release <- struct{}{}
		synctest.Wait()
		if want := testTTL - margin(testTTL) - 2*time.Second; l.Remaining() != want {
			t.Errorf("%v remain, want %v", l.Remaining(), want)
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

// Its own bound is not the caller's.
func TestCloseThatIsNotHeardSaysSo(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, m := w.client(t, "a")
		acquire(t, c, "k")
		m.Isolate()
		if err := c.Close(bg); !errors.Is(err, cluster.ErrNoQuorum) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("close: %v", err)
		}
	})
}

// It goes on by itself, and the keys need not wait for the TTL.
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

// A request that meets an expired session changes nothing, and is asked again in
// a new one.
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

// Two clients of one name, or one process started again, have
// different sessions.
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

func TestSessionIDsAreRandom(t *testing.T) {
	seen := make(map[machine.SessionID]bool)
	for range 1000 {
		id := newSessionID()
		if id == (machine.SessionID{}) || seen[id] {
			t.Fatal("an ID was drawn twice, or is zero")
		}
		seen[id] = true
	}
}

func TestTraceIsToldInOrder(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var told []string
		note := func(what string) func(LockEvent) {
			return func(e LockEvent) { told = append(told, what+" "+e.Key) }
		}
		m := w.join("n")
		c := m.client(Options{Trace: &Trace{
			SessionOpened: func(ttl time.Duration) { told = append(told, "opened "+ttl.String()) },
			SessionLost:   func(r Reason) { told = append(told, "session lost: "+r.String()) },
			Acquired:      note("acquired"),
			Released:      note("released"),
			Lost:          note("lost"),
		}})
		l := acquire(t, c, "k")
		acquire(t, c, "l")
		acquire(t, c, "m")
		if err := l.Release(bg); err != nil {
			t.Fatal(err)
		}
		w.ExpireNow()
		time.Sleep(time.Millisecond)
		shutdown(t, c)
		want := []string{"opened 9s", "acquired k", "acquired l", "acquired m", "released k",
			"lost l", "lost m", "session lost: session expired"}
		if len(told) != len(want) {
			t.Fatalf("told %q, want %q", told, want)
		}
		for i := range want {
			if told[i] != want[i] {
				t.Errorf("told %q, want %q", told[i], want[i])
			}
		}
	})
}

func TestTraceThatBlocksIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate, calls := make(chan struct{}), 0
		tr := newTracer(&Trace{Acquired: func(LockEvent) { <-gate; calls++ }})
		for range 3 * maxTraced {
			tr.acquired(LockEvent{})
		}
		synctest.Wait()
		if n := len(tr.queue); n > maxTraced {
			t.Errorf("%d calls are kept", n)
		}
		close(gate)
		tr.close()
		if calls < maxTraced || calls > 2*maxTraced {
			t.Errorf("%d calls", calls)
		}
		tr.acquired(LockEvent{}) // dropped
	})
}

func TestBeatErrorsKnownToBeFinalEndTheSession(t *testing.T) {
	for _, test := range []struct {
		err    error
		reason Reason
	}{
		{replica.ErrNoSession, SessionExpired},
		{&replica.Error{Err: cluster.ErrStopped}, NodeStopped},
	} {
		bubble(t, func(t *testing.T, w *world) {
			c, m := w.client(t, "a")
			l := acquire(t, c, "k")
			m.SetHooks(termtest.Hooks{Beat: func(context.Context) (bool, error) { return true, test.err }})
			time.Sleep(testTTL/3 + time.Second)
			wantLost(t, l, test.reason)
		})
	}
}

func TestTraceThatEndsItsGoroutine(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var mu sync.Mutex
		var told []string
		tell := func(what string) {
			mu.Lock()
			told = append(told, what)
			mu.Unlock()
			runtime.Goexit()
		}
		c := w.join("node").client(Options{Name: "a", Trace: &Trace{
			SessionOpened: func(time.Duration) { tell("opened") },
			Acquired:      func(LockEvent) { tell("acquired") },
			Released:      func(LockEvent) { tell("released") },
			SessionLost:   func(Reason) { tell("ended") },
		}})
		release(t, acquire(t, c, "k"))
		shutdown(t, c)
		if want := []string{"opened", "acquired", "released", "ended"}; !slices.Equal(told, want) {
			t.Errorf("told %q, want %q", told, want)
		}
	})
}
