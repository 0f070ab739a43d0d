package locks

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/term/termtest"
)

// After a host's sleep Err is right at once, and the context a tenth of a second
// later.
func TestSleepOfTheHostEndsTrust(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, m := w.client(t, "a")
		b, _ := w.client(t, "b")
		l := acquire(t, a, "k")
		left := l.Remaining()
		m.Sleep(2 * time.Second)
		if l.Remaining() != left-2*time.Second {
			t.Errorf("%v remain of %v after two seconds of sleep", l.Remaining(), left)
		}
		time.Sleep(200 * time.Millisecond) // awake, the session beats at once
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

// An answer that arrives too late does not extend the trust.
func TestTrustThatHasEndedStaysEnded(t *testing.T) {
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

// A grant is pushed when the trust is over by the clock, and nothing has noticed
// yet.
func TestGrantAfterTheEndOfTrustIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, m := w.client(t, "b")
		l := acquire(t, a, "k")
		var granted []LockEvent
		b.trace.trace.Store(&Trace{Acquired: func(_ context.Context, e LockEvent) { granted = append(granted, e) }})
		errs := make(chan error, 1)
		go func() {
			s, err := b.liveSession(bg)
			if err == nil {
				_, err = s.acquire(bg, bg, newAcquireRequest(CallAcquire, "k", nil)) // in this session alone
			}
			errs <- err
		}()
		synctest.Wait()
		m.doze(testTTL)
		// Not by release, because time would pass: the event arrives now.
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
