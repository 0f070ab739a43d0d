package locks

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/term/termtest"
)

func TestBadOptionsAreRefusedByEveryCall(t *testing.T) {
	for _, test := range []struct {
		field string
		opts  Options
	}{
		{"Options.TTL", Options{TTL: -1}},
		{"Options.TTL", Options{TTL: 299 * time.Millisecond}},
		{"Options.Name", Options{Name: strings.Repeat("n", 129)}},
		{"Options.Name", Options{Name: "\xff"}},
		{"Options.Meta", Options{Meta: map[string]string{"k": strings.Repeat("v", 4<<10)}}},
	} {
		bubble(t, func(t *testing.T, w *world) {
			c := w.join("n").client(test.opts)
			defer shutdown(t, c)
			_, err1 := c.Acquire(bg, "k")
			_, err2 := c.TryAcquire(bg, "k")
			_, err3 := c.Inspect(bg, "k")
			var err4 error
			for _, err4 = range c.Watch(bg, "k") {
			}
			_, err5 := c.AcquireAll(bg, []string{"k"})
			work := func(context.Context, *Lock) error { return nil }
			shard := func(context.Context, int, *Lock) error { return nil }
			for i, err := range []error{err1, err2, err3, err4, err5, c.Ask(bg, "k"), c.Break(bg, "k", 1),
				c.Do(bg, "k", work), c.Elect(bg, "k", work), c.Spread(bg, "k", 1, shard)} {
				var config *cluster.ConfigError
				if !errors.As(err, &config) || config.Field != test.field {
					t.Errorf("call %d: %v, want a ConfigError of %s", i, err, test.field)
				}
			}
			if n := w.Sent(isOpen); n != 0 {
				t.Error("a session was opened")
			}
		})
	}
}

func TestBadArgumentsAreRefusedBeforeAnythingIsSent(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, _ := w.client(t, "a")
		for _, test := range []struct {
			field, key string
			opts       []Option
		}{
			{"key", "", nil},
			{"key", strings.Repeat("k", 513), nil},
			{"key", "\xff", nil},
			{"key", "\x00cell", nil},
			{"MaxWaiters", "k", []Option{MaxWaiters(0)}},
			{"MaxWaiters", "k", []Option{MaxWaiters(10_001)}},
			{"Meta", "k", []Option{Meta(map[string]string{"k": strings.Repeat("v", 4<<10)})}},
		} {
			_, err := c.Acquire(bg, test.key, test.opts...)
			var config *cluster.ConfigError
			if !errors.As(err, &config) || config.Field != test.field {
				t.Errorf("%q: %v, want a ConfigError of %s", test.key, err, test.field)
			}
		}
		if l, err := c.Acquire(bg, strings.Repeat("k", 512)); err != nil || l.Err() != nil {
			t.Errorf("a key of 512 bytes: %v", err)
		}
	})
}

// An eagerMember claims a larger bound of TTLs than the table has.
type eagerMember struct{ *member }

func (eagerMember) TTL() time.Duration { return 2 * testTTL }

func TestSessionTTLIsBoundedByTheClusters(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		over := w.join("n").client(Options{TTL: testTTL + time.Millisecond})
		defer shutdown(t, over)
		_, err := over.Acquire(bg, "k")
		var config *cluster.ConfigError
		if !errors.As(err, &config) || config.Field != "Options.TTL" {
			t.Errorf("a TTL over the bound: %v", err)
		}

		// Commands carry whole milliseconds, so a fraction must not be trusted.
		small := w.join("n").client(Options{TTL: time.Second + time.Millisecond/2})
		defer shutdown(t, small)
		l := acquire(t, small, "k")
		if want := time.Second - margin(time.Second); l.Remaining() != want {
			t.Errorf("%v remain, want %v", l.Remaining(), want)
		}

		// The member claims a bound that is not committed yet.
		eager := newClient(eagerMember{w.join("n")}, Options{})
		defer shutdown(t, eager)
		l = acquire(t, eager, "l")
		if want := testTTL - margin(testTTL); l.Remaining() != want {
			t.Errorf("%v remain, want %v", l.Remaining(), want)
		}
	})
}

func TestGoroutinesOfOneClientContend(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, _ := w.client(t, "a")
		l := acquire(t, c, "k")
		got := make(chan *Lock)
		go func() { got <- acquire(t, c, "k") }()
		synctest.Wait()
		select {
		case <-got:
			t.Fatal("both hold")
		default:
		}
		if err := l.Release(bg); err != nil {
			t.Fatal(err)
		}
		if next := <-got; next.Token() <= l.Token() {
			t.Errorf("token %d after %d", next.Token(), l.Token())
		}
	})
}

func TestTryAcquireNamesTheHolder(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		l := acquire(t, a, "k")
		_, err := b.TryAcquire(bg, "k")
		var held *HeldError
		if !errors.As(err, &held) || !errors.Is(err, ErrHeld) {
			t.Fatal(err)
		}
		if want := (HeldError{Key: "k", Client: "a", Node: "node-a", Token: l.Token()}); *held != want {
			t.Errorf("%+v, want %+v", *held, want)
		}
		if w.Counts().Waiters != 0 {
			t.Error("the try waits")
		}
		if err := l.Release(bg); err != nil {
			t.Fatal(err)
		}
		if _, err := b.TryAcquire(bg, "k"); err != nil {
			t.Error(err)
		}
	})
}

func TestTryAcquireWhileFounding(t *testing.T) {
	bubble(t, func(t *testing.T, _ *world) {
		w := &world{termtest.New(t, termtest.Config{Founding: true})}
		c, _ := w.client(t, "a")
		if _, err := c.TryAcquire(bg, "k"); !errors.Is(err, cluster.ErrFounding) {
			t.Errorf("try: %v", err)
		}
		go func() {
			time.Sleep(time.Second)
			w.Apply(machine.Lift{Term: w.TermNumber()})
		}()
		began := time.Now()
		acquire(t, c, "k")
		if time.Since(began) != time.Second {
			t.Errorf("granted after %v", time.Since(began))
		}
	})
}

func TestMaxWaitersRefusesAndChangesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, _ := w.client(t, "a")
		acquire(t, c, "k")
		go c.Acquire(bg, "k")
		synctest.Wait()
		if _, err := c.Acquire(bg, "k", MaxWaiters(1)); !errors.Is(err, ErrTooManyWaiters) {
			t.Errorf("second waiter: %v", err)
		}
		if n := w.Counts().Waiters; n != 1 {
			t.Errorf("%d wait", n)
		}
	})
}

// The call returns at once and leaves nothing in the queue.
func TestCancelledWaiterLeavesAtOnceAndIsNeverGranted(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		l := acquire(t, a, "k")
		began := time.Now()
		_, err := b.Acquire(within(700*time.Millisecond), "k")
		if time.Since(began) != 700*time.Millisecond {
			t.Errorf("the call returned after %v", time.Since(began))
		}
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), `"k"`) {
			t.Errorf("acquire: %v", err)
		}
		if errors.Is(err, cluster.ErrNoQuorum) {
			t.Errorf("there was a quorum: %v", err)
		}
		synctest.Wait()
		if n := w.Counts().Waiters; n != 0 {
			t.Errorf("%d still wait", n)
		}
		if err := l.Release(bg); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if _, token := w.Owner("k"); token != 0 {
			t.Error("the cancelled waiter holds the key")
		}
	})
}

func TestCauseOfTheCallersContextIsReported(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, _ := w.client(t, "a")
		acquire(t, c, "k")
		ctx, cancel := context.WithCancelCause(bg)
		reason := errors.New("shift is over")
		time.AfterFunc(time.Second, func() { cancel(reason) })
		if _, err := c.Acquire(ctx, "k"); !errors.Is(err, reason) || !errors.Is(err, context.Canceled) {
			t.Errorf("acquire: %v", err)
		}
		if _, err := c.Acquire(ctx, "free"); !errors.Is(err, reason) {
			t.Errorf("acquire: %v", err)
		}
		if _, token := w.Owner("free"); token != 0 {
			t.Error("an ended context took a key")
		}
	})
}

// Acquire returns the lock or an error, in any order of grant and cancel, and leaves
// nothing behind.
func TestGrantThatCrossesACancel(t *testing.T) {
	for offset := -3 * time.Millisecond; offset <= 3*time.Millisecond; offset += 100 * time.Microsecond {
		bubble(t, func(t *testing.T, w *world) {
			a, _ := w.client(t, "a")
			b, m := w.client(t, "b")
			l := acquire(t, a, "k")
			acquire(t, b, "other") // opens the session
			m.SetFaults(termtest.Faults{Latency: 2 * time.Millisecond})
			time.AfterFunc(time.Second, func() { l.Release(bg) })
			got, err := b.Acquire(within(time.Second+offset), "k")
			if (got == nil) == (err == nil) {
				t.Fatalf("lock %v and error %v", got, err)
			}
			if got != nil && got.Err() != nil {
				t.Errorf("granted, but %v", got.Err())
			}
			time.Sleep(time.Minute)
			if _, token := w.Owner("k"); (token != 0) != (got != nil) {
				t.Errorf("token %d in the table, error %v", token, err)
			}
		})
	}
}

// The request may have arrived or not. Its withdrawal arrives before the request,
// arrives after the request, or finds a grant.
func TestRequestOfUnknownOutcomeIsWithdrawn(t *testing.T) {
	for _, try := range []bool{false, true} {
		for _, f := range []termtest.Faults{{LoseAnswer: 1}, {LoseAsk: 1}, {Latency: 5 * time.Second}} {
			bubble(t, func(t *testing.T, w *world) {
				c, m := w.client(t, "a")
				acquire(t, c, "other")
				m.SetFaults(f)
				call := c.Acquire
				if try {
					call = c.TryAcquire
				}
				_, err := call(within(time.Second), "k")
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%+v: %v", f, err)
				}
				m.SetFaults(termtest.Faults{})
				time.Sleep(time.Minute)
				if n := w.Counts(); n.Grants != 1 || n.Waiters != 0 || n.Answers != 0 {
					t.Errorf("%+v: the table keeps %+v", f, n)
				}
				if waiters, locks := c.currentSession().sizes(); waiters != 0 || locks != 1 {
					t.Errorf("%+v: the session keeps %d waiters and %d locks", f, waiters, locks)
				}
				if w.Sent(isWithdraw) == 0 {
					t.Errorf("%+v: nothing was withdrawn", f)
				}
			})
		}
	}
}

// A request that was certainly not applied needs no withdrawal, but its seq must be
// marked as seen, or the gaps would add up.
func TestRequestThatWasNotSentIsNotWithdrawn(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, m := w.client(t, "a")
		acquire(t, c, "other")
		m.SetHooks(termtest.Hooks{Refuse: func(machine.Command) *replica.Error {
			return &replica.Error{Err: errors.New("busy")}
		}})
		if _, err := c.Acquire(bg, "k"); err == nil || !strings.Contains(err.Error(), "busy") {
			t.Errorf("acquire: %v", err)
		}
		m.SetHooks(termtest.Hooks{})
		l := acquire(t, c, "k")
		if w.Sent(isWithdraw) != 0 {
			t.Error("withdrawn")
		}
		if err := l.Release(bg); err != nil {
			t.Error(err)
		}
	})
}

func TestMissingQuorumIsReported(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, m := w.client(t, "a")
		m.Isolate()
		for range 2 { // without a session, twice
			_, err := c.Acquire(within(time.Second), "k")
			if !errors.Is(err, cluster.ErrNoQuorum) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("acquire: %v", err)
			}
		}
		if _, err := c.Acquire(within(time.Minute), "k"); !errors.Is(err, cluster.ErrNoQuorum) {
			t.Errorf("acquire: %v", err)
		}
		m.Heal()
		acquire(t, c, "k")
		m.Isolate()
		if _, err := c.Acquire(within(time.Second), "l"); !errors.Is(err, cluster.ErrNoQuorum) {
			t.Errorf("acquire with a session: %v", err)
		}
	})
}

// The remains of an earlier call are withdrawn before a new call asks.
func TestNewCallDoesNotMeetTheRemainsOfTheOld(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, m := w.client(t, "a")
		acquire(t, c, "other")
		m.SetHooks(termtest.Hooks{Proposed: func(cmd machine.Command) {
			if isWithdraw(cmd) {
				time.Sleep(time.Second) // slower than the next request
			}
		}})
		m.SetFaults(termtest.Faults{LoseAnswer: 1})
		if _, err := c.Acquire(within(time.Second), "k"); err == nil {
			t.Fatal("granted without an answer")
		}
		m.SetFaults(termtest.Faults{})
		if _, err := c.Acquire(within(300*time.Millisecond), "k"); err == nil {
			t.Error("granted before the withdrawal")
		}
		time.Sleep(time.Minute)
		m.SetFaults(termtest.Faults{LoseAnswer: 1})
		if _, err := c.Acquire(within(time.Second), "k"); err == nil {
			t.Fatal("granted without an answer")
		}
		if _, token := w.Owner("k"); token == 0 {
			t.Fatal("the request did not arrive")
		}
		m.SetFaults(termtest.Faults{})
		if _, err := c.TryAcquire(bg, "k"); err != nil {
			t.Errorf("try: %v", err)
		}
	})
}

func TestLostAcquireAnswerGivesOneGrant(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, m := w.client(t, "a")
		acquire(t, c, "other")
		m.SetFaults(termtest.Faults{LoseAnswer: 1})
		time.AfterFunc(2*time.Second, func() { m.SetFaults(termtest.Faults{}) })
		l := acquire(t, c, "k")
		if w.Sent(isAcquire) < 3 {
			t.Fatal("the request was not repeated")
		}
		if err := l.Release(bg); err != nil {
			t.Fatal(err)
		}
		if _, token := w.Owner("k"); token != 0 {
			t.Error("one release did not free the key")
		}
	})
}

func TestLostPushIsLearntFromTheNextSync(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, m := w.client(t, "b")
		l := acquire(t, a, "k")
		m.SetFaults(termtest.Faults{LosePush: 1})
		time.AfterFunc(time.Second, func() { l.Release(bg) })
		time.AfterFunc(time.Second+time.Millisecond, func() { m.SetFaults(termtest.Faults{}) })
		began := time.Now()
		next := acquire(t, b, "k")
		if d := time.Since(began); d <= time.Second || d > 4*time.Second {
			t.Errorf("learnt after %v", d)
		}
		if next.Err() != nil {
			t.Error(next.Err())
		}
		// The same event again is no second grant.
		m.Reconnect()
		synctest.Wait()
		if err := next.Release(bg); err != nil {
			t.Error(err)
		}
	})
}

// A grant may be pushed before its request is answered.
func TestPushMayOvertakeTheAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, m := w.client(t, "b")
		l := acquire(t, a, "k")
		acquire(t, b, "other")
		m.SetFaults(termtest.Faults{LoseAnswer: 1})
		time.AfterFunc(100*time.Millisecond, func() { l.Release(bg) })
		time.AfterFunc(time.Second, func() { m.SetFaults(termtest.Faults{}) })
		next := acquire(t, b, "k")
		if err := next.Err(); err != nil {
			t.Error(err)
		}
		if err := next.Release(bg); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		if _, token := w.Owner("k"); token != 0 {
			t.Error("the key is taken")
		}
	})
}

// Waiters are served in commit order, a single waiter at a time.
func TestWaitersAreServedInOrder(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var clients []*Client
		for _, name := range []string{"a", "b", "c"} {
			c, _ := w.client(t, name)
			acquire(t, c, "other "+name)
			clients = append(clients, c)
		}
		first := acquire(t, clients[0], "k")
		const waiters = 12
		got := make(chan int, waiters)
		var wg sync.WaitGroup
		for i := range waiters {
			wg.Go(func() {
				l := acquire(t, clients[i%3], "k")
				got <- i
				if err := l.Release(bg); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		if err := first.Release(bg); err != nil {
			t.Fatal(err)
		}
		for i := range waiters {
			if j := <-got; j != i {
				t.Errorf("waiter %d was served as number %d", j, i)
			}
		}
		wg.Wait()
	})
}

// Sessions report seen outcomes, and the table forgets them.
func TestSeenOutcomesAreForgotten(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.SetCheck(false)
		a, _ := w.client(t, "a")
		b, m := w.client(t, "b")
		acquire(t, a, "k")
		m.SetFaults(termtest.Faults{LoseAnswer: 0.2, Twice: 0.1})
		for range 500 {
			if _, err := b.TryAcquire(bg, "k"); !errors.Is(err, ErrHeld) {
				t.Fatal(err)
			}
		}
		// Nothing that a failed command carried is forgotten either.
		for range 10 {
			m.SetFaults(termtest.Faults{})
			if _, err := b.TryAcquire(bg, "k"); !errors.Is(err, ErrHeld) {
				t.Fatal(err)
			}
			m.SetFaults(termtest.Faults{LoseAsk: 1})
			if _, err := b.TryAcquire(within(time.Second), "l"); err == nil {
				t.Fatal("granted")
			}
			m.SetFaults(termtest.Faults{})
			time.Sleep(2 * time.Second)
		}
		if n := w.Counts().Answers; n > 1 {
			t.Errorf("%d refusals are remembered", n)
		}
		if err := w.Check(); err != nil {
			t.Error(err)
		}
	})
}

// Close ends the locks before the pending calls, and may take a while in between.
func TestGrantWhileTheClientEndsItsLocksIsClosed(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, m := w.client(t, "a")
		acquire(t, a, "x")
		s := a.currentSession()
		m.SetFaults(termtest.Faults{Latency: time.Second})
		call := start(func() (*Lock, error) { return a.TryAcquire(bg, "k") })
		synctest.Wait()
		s.mu.Lock()
		s.draining = true
		s.mu.Unlock()
		if _, err := call.ends(t); err != ErrClosed {
			t.Errorf("acquire: %v", err)
		}
		time.Sleep(5 * time.Second) // withdrawn
		if w.busy() != 1 {
			t.Errorf("the table keeps %+v", w.Counts())
		}
	})
}

// The error of a single call does not claim that its session has ended.
func TestRequestThatTheClusterGaveUpIsNotTheSessionsEnd(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, m := w.client(t, "a")
		acquire(t, a, "x")
		id := a.currentSession().id
		m.SetHooks(termtest.Hooks{Proposed: func(c machine.Command) {
			if c, ok := c.(machine.Acquire); ok {
				w.Apply(machine.Withdraw{Session: id, Seq: c.Seq})
			}
		}})
		if _, err := a.Acquire(bg, "k"); err == nil || errors.Is(err, ErrSessionLost) {
			t.Errorf("acquire: %v", err)
		}
	})
}

// Callers that wait for another call's request hear of the missing quorum too:
// callers that wait for a session, callers behind a pending clean-up of the key,
// callers behind the first entry of an owner, and a change behind another change.
func TestMissingQuorumIsReportedToAllCallers(t *testing.T) {
	want := func(t *testing.T, what string, err error) {
		t.Helper()
		if !errors.Is(err, cluster.ErrNoQuorum) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", what, err)
		}
	}
	bubble(t, func(t *testing.T, w *world) {
		a, m := w.client(t, "a")
		m.Isolate()
		var calls []*call[*Lock]
		for i := range 3 {
			ctx := within(time.Duration(i+1) * time.Second)
			calls = append(calls, start(func() (*Lock, error) { return a.Acquire(ctx, "k") }))
		}
		for _, call := range calls {
			_, err := call.ends(t)
			want(t, "without a session", err)
		}
		m.Heal()
		l, held := acquire(t, a, "k"), acquire(t, a, "held")
		m.Isolate()
		first := waiting(t, bg, a, "mine", Reentrant("o"))
		_, err := a.Acquire(within(time.Second), "mine", Reentrant("o"))
		want(t, "as a follower", err)
		set := does(func(ctx context.Context) error { return held.SetValue(ctx, nil) }, bg)
		set.pends(t)
		want(t, "after another change", held.SetValue(within(time.Second), nil))
		want(t, "release", l.Release(within(time.Second)))
		_, err = a.Acquire(within(time.Second), "k")
		want(t, "after a release that is owed", err)
		m.Heal()
		first.ok(t)
		set.ok(t)
	})
}
