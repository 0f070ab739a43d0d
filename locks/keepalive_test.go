package locks

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/term/termtest"
)

func TestBeatsThatAreNeverAnsweredEndTheLockInTime(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, m := w.client(t, "a")
		m.SetHooks(termtest.Hooks{Beat: func(ctx context.Context) (bool, error) { <-ctx.Done(); return true, ctx.Err() }})
		opened := time.Now()
		l := acquire(t, c, "k")
		<-l.Context().Done()
		if d := time.Since(opened); d != testTTL-margin(testTTL) {
			t.Errorf("told after %v", d)
		}
		wantLost(t, l, QuorumUnreachable)
	})
}

// A client's goroutines try for keys and hold them for random times, beyond many
// TTLs: the trust of every held lock is extended.
func TestEveryHeldLockIsKeptAlive(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.SetCheck(false)
		c, m := w.client(t, "c")
		least := testTTL - margin(testTTL) - testTTL/beatsPerTTL
		began := time.Now()
		acquire(t, c, "kept")
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				for n := range 250 {
					l, err := c.TryAcquire(bg, fmt.Sprint("k", (i+n)%12))
					if errors.Is(err, ErrHeld) {
						time.Sleep(time.Duration(100+i) * time.Millisecond)
						continue
					}
					if err != nil {
						t.Error(err)
						return
					}
					time.Sleep(time.Duration(n%7*i) * 100 * time.Millisecond)
					if left := l.Remaining(); left < least || l.Err() != nil {
						t.Errorf("%v remain, want %v at least; %v", left, least, l.Err())
					}
					release(t, l)
				}
			})
		}
		wg.Wait()
		took := time.Since(began)
		if took < 10*testTTL {
			t.Errorf("it took %v only", took)
		}
		if n, want := m.Beats(), int64(took/(testTTL/beatsPerTTL)); n < want-1 || n > want+1 {
			t.Errorf("%d beats in %v", n, took)
		}
		if n := w.busy(); n != 1 {
			t.Errorf("%d keys are taken", n)
		}
	})
}

func TestHeldLockLastsAndSendsFewBeats(t *testing.T) {
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

func TestTrustEndsATTLLessTheMarginAfterTheLastConfirmedBeatWasSent(t *testing.T) {
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

// A slow beat delays no other beat.
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
				return false, nil // half of them are answered
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

// A single failed beat harms nothing, and is traced.
func TestFailedBeatIsTracedAndTheNextIsSent(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var failed []error
		m := w.join("n")
		c := m.client(Options{Trace: &Trace{BeatFailed: func(_ context.Context, err error) { failed = append(failed, err) }}})
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

// After a loss the session sends no more beats and is closed in the cluster.
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
