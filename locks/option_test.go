package locks

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/internal/machine"

	"github.com/wardmote/wardmote/internal/term/termtest"
)

func TestOptionsThatCannotBeUsedAreRefusedBeforeAnythingIsSent(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, _ := w.client(t, "a")
		work := func(context.Context, *Lock) error { return nil }
		shard := func(context.Context, int, *Lock) error { return nil }
		set := func(opts ...Option) error {
			s, err := c.AcquireAll(bg, []string{"a", "b"}, opts...)
			if s != nil {
				t.Error("a set and an error")
			}
			return err
		}
		one := func(opts ...Option) error {
			_, err1 := c.Acquire(bg, "k", opts...)
			_, err2 := c.TryAcquire(bg, "k", opts...)
			err3 := c.Do(bg, "k", work, opts...)
			err4 := c.Elect(bg, "k", work, opts...)
			for _, err := range []error{err2, err3, err4} {
				if fmt.Sprint(err) != fmt.Sprint(err1) {
					t.Errorf("%v and %v", err, err1)
				}
			}
			return err1
		}
		elect := func(opts ...Option) error { return c.Elect(bg, "k", work, opts...) }
		spread := func(opts ...SpreadOption) error { return c.Spread(bg, "k", 2, shard, opts...) }
		many := make([]string, machine.MaxKeys+1)
		for i := range many {
			many[i] = fmt.Sprint("key", i)
		}
		long := make([]string, 600)
		for i := range long {
			long[i] = fmt.Sprint(strings.Repeat("k", 500), i)
		}
		all := func(keys ...string) error { _, err := c.AcquireAll(bg, keys); return err }
		for _, test := range []struct {
			field string
			err   error
		}{
			{"Permits", one(Permits(0, 2))},
			{"Permits", one(Permits(MaxCapacity+1, 0))},
			{"Permits", one(Permits(1, -1))},
			{"Permits", one(Permits(1, MaxCapacity+1))},
			{"Priority", one(Priority(101))},
			{"Priority", one(Priority(-101))},
			{"Delay", one(Delay(0))},
			{"Delay", one(Delay(time.Millisecond + 1))},
			{"Delay", one(Delay(24*time.Hour + time.Millisecond))},
			{"Reentrant", one(Reentrant(""))},
			{"Reentrant", one(Reentrant(strings.Repeat("o", 129)))},
			{"Reentrant", one(Reentrant("\xff"))},
			{"Shared", one(Permits(1, 2), Shared())},
			{"Shared", one(Shared(), Permits(1, 2))},
			{"Tree", one(Permits(1, 2), Tree())},
			{"Priority", one(Tree(), Priority(1))},
			{"Reentrant", one(Reentrant("o"), IfToken(5))},
			{"Permits", set(Permits(1, 2))},
			{"Priority", set(Priority(1))},
			{"Delay", set(Delay(time.Second))},
			{"IfToken", set(IfToken(0))},
			{"Reentrant", set(Reentrant("o"))},
			{"MaxWaiters", set(MaxWaiters(0))},
			{"keys", all()},
			{"keys", all("a", "b", "a")},
			{"keys", all(many...)},
			{"keys", all(long...)},
			{"key", all("a", "")},
			{"key", all("a", "\x00b")},
			{"IfToken", elect(IfToken(5))},
			{"Reentrant", elect(Reentrant("o"))},
			{"Weight", spread(Weight(-1))},
			{"Weight", spread(Weight(machine.MaxWeight + 1))},
			{"Succeeds", spread(Succeeds(""))},
			{"Succeeds", spread(Succeeds("\xff"))},
			{"Prepare", spread(Prepare(nil))},
			{"Drain", spread(Drain(-1))},
			{"Drain", spread(Drain(time.Second + 1))},
			{"Grace", spread(Grace(24*time.Hour + time.Millisecond))},
			{"MaxMoves", spread(MaxMoves(0))},
			{"MaxMoves", spread(MaxMoves(MaxShards + 1))},
			{"key", c.Ask(bg, "")},
			{"key", c.Break(bg, "", 1)},
			{"token", c.Break(bg, "k", 0)},
		} {
			wantConfig(t, test.err, test.field)
		}
		if n := w.Sent(isOpen); n != 0 {
			t.Error("a session was opened")
		}
	})
}

// The table finds no option malformed that this package accepts.
func TestEveryAcceptedCombinationOfOptionsIsKnownToTheTable(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.SetCheck(false)
		c, _ := w.client(t, "a")
		token := acquire(t, c, "other").Token()
		options := []Option{Shared(), Permits(1, 3), Tree(), Reentrant("o"), Priority(7), Delay(time.Second), IfToken(token), MaxWaiters(3),
			Meta(map[string]string{"k": "v"})}
		passed := 0
		for bits := range 1 << len(options) {
			var opts []Option
			for i, o := range options {
				if bits&(1<<i) != 0 {
					opts = append(opts, o)
				}
			}
			if newAcquireRequest(CallAcquire, "k", opts).err == nil {
				passed++
				l, err := c.TryAcquire(bg, fmt.Sprint("k", bits), opts...)
				if err != nil {
					t.Errorf("%b: %v", bits, err)
					continue
				}
				release(t, l)
			}
			if newSetRequest([]string{"x", "y"}, opts).err == nil {
				passed++
				s, err := c.AcquireAll(bg, []string{fmt.Sprint("k", bits), "x"}, opts...)
				if err != nil {
					t.Errorf("set, %b: %v", bits, err)
					continue
				}
				release(t, s)
			}
		}
		if passed < 100 {
			t.Errorf("only %d combinations were tried", passed)
		}
	})
}

func TestReadersShareAndWritersDoNot(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		r1, r2 := acquire(t, a, "k", Shared()), acquire(t, b, "k", Shared())
		if r1.Token() >= r2.Token() {
			t.Errorf("tokens %d and %d", r1.Token(), r2.Token())
		}
		writer := waiting(t, bg, a, "k")
		late := waiting(t, bg, b, "k", Shared()) // behind the writer
		if _, err := b.TryAcquire(bg, "k", Shared()); !errors.Is(err, ErrHeld) {
			t.Errorf("a reader overtook a writer: %v", err)
		}
		release(t, r1)
		writer.pends(t)
		release(t, r2)
		l := writer.ok(t)
		late.pends(t)
		release(t, l)
		release(t, late.ok(t))
	})
}

// Tokens are a single rising sequence over all ways to acquire.
func TestTokensRiseThroughAllWaysToAcquire(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		var last fence.Token
		rises := func(token fence.Token) {
			t.Helper()
			if token <= last {
				t.Errorf("token %d after %d", token, last)
			}
			last = token
		}
		for range 3 {
			l := acquire(t, a, "k")
			rises(l.Token())
			next := waiting(t, bg, a, "k")
			release(t, l)
			l = next.ok(t)
			rises(l.Token())
			release(t, l)
			l, err := a.TryAcquire(bg, "k")
			if err != nil {
				t.Fatal(err)
			}
			rises(l.Token())
			release(t, l)
			s := acquireAll(t, a, []string{"k", "l"})
			rises(s.Token())
			release(t, s)
			l = acquire(t, a, "k", Shared())
			rises(l.Token())
			if err := l.Upgrade(bg); err != nil {
				t.Fatal(err)
			}
			rises(l.Token())
			release(t, l)
			l = acquire(t, a, "k", Reentrant("o"))
			rises(l.Token())
			release(t, l)
		}
	})
}

func TestReadersOutliveTheTTL(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		var locks []*Lock
		for range 50 {
			locks = append(locks, acquire(t, a, "k", Shared()))
		}
		time.Sleep(3 * testTTL)
		for _, l := range locks {
			if l.Err() != nil {
				t.Error(l.Err())
			}
			release(t, l)
		}
		if w.busy() != 0 {
			t.Error("something is left")
		}
	})
}

func TestWriterFollowsAReaderThatExpiresAndOneThatReleases(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, m := w.client(t, "a")
		b, _ := w.client(t, "b")
		c, _ := w.client(t, "c")
		r := acquire(t, a, "k", Shared())
		r2 := acquire(t, b, "k", Shared())
		writer := waiting(t, bg, c, "k")
		m.Isolate()
		release(t, r2)
		began := time.Now()
		l := writer.ok(t)
		if took := time.Since(began); took > testTTL {
			t.Errorf("the writer waited %v", took)
		}
		if r.Err() == nil || l.Err() != nil {
			t.Error("a reader beside a writer")
		}
		m.Heal()
	})
}

func TestQueuedReadersEnterTogether(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		writer := acquire(t, a, "k")
		var calls []*call[*Lock]
		for i := range 20 {
			c, _ := w.client(t, fmt.Sprint("r", i))
			calls = append(calls, waiting(t, bg, c, "k", Shared()))
		}
		release(t, writer)
		settle()
		for i, call := range calls {
			if !closed(call.done) {
				t.Errorf("reader %d still waits", i)
			}
			if err := call.ok(t).Err(); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestPermitsAreBoundedAndReturnWithTheirClient(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var mu sync.Mutex
		inside, most, turns := 0, 0, 0
		var wg sync.WaitGroup
		for i := range 10 {
			c, _ := w.client(t, fmt.Sprint("c", i))
			wg.Go(func() {
				for range 10 {
					err := c.Do(bg, "k", func(context.Context, *Lock) error {
						mu.Lock()
						inside++
						turns++
						most = max(most, inside)
						mu.Unlock()
						time.Sleep(time.Second)
						mu.Lock()
						inside--
						mu.Unlock()
						return nil
					}, Permits(1, 3))
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if most != 3 || turns != 100 || w.busy() != 0 {
			t.Errorf("%d at once, %d turns, %d left", most, turns, w.busy())
		}
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		acquire(t, a, "k", Permits(1, 2))
		acquire(t, a, "k", Permits(1, 2))
		third := waiting(t, bg, b, "k", Permits(1, 2))
		fourth := waiting(t, bg, b, "k", Permits(1, 2))
		if err := a.Close(bg); err != nil {
			t.Fatal(err)
		}
		third.ok(t)
		fourth.ok(t)
	})
}

func TestCapacitiesMustAgreeWhileAnybodyHoldsOrWaits(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, _ := w.client(t, "a")
		l := acquire(t, c, "k", Permits(1, 2))
		for _, of := range []int{1, 3} {
			_, err := c.Acquire(bg, "k", Permits(1, of))
			var capacity *CapacityError
			if !errors.As(err, &capacity) || !errors.Is(err, ErrCapacity) || *capacity != (CapacityError{Key: "k", N: 1, Of: of, Have: 2}) {
				t.Errorf("permit of %d: %v", of, err)
			}
		}
		err := c.Elect(bg, "k", func(context.Context, *Lock) error { return errWork }, Permits(1, 5))
		if !errors.Is(err, ErrCapacity) {
			t.Errorf("elect: %v", err)
		}
		release(t, l)
		release(t, acquire(t, c, "k", Permits(1, 3)))
	})
}

func TestPermitWaiterThatGivesUpLeavesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, _ := w.client(t, "a")
		l := acquire(t, c, "k", Permits(1, 1))
		if _, err := c.Acquire(within(time.Second), "k", Permits(1, 1)); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		synctest.Wait()
		release(t, l)
		if w.busy() != 0 {
			t.Error("something is left")
		}
	})
}

func TestTreeExcludesKeysBelowAndNamesTheConflict(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		tree := acquire(t, a, "x", Tree())
		_, err := b.TryAcquire(bg, "x/y/z")
		var held *HeldError
		if want := (HeldError{Key: "x/y/z", Client: "a", Node: "node-a", Token: tree.Token(), Conflict: "x"}); !errors.As(err, &held) || *held != want {
			t.Errorf("%v, want %+v", err, want)
		}
		release(t, acquire(t, b, "xy"))
		below := waiting(t, bg, b, "x/y")
		release(t, tree)
		l := below.ok(t)
		_, err = a.TryAcquire(bg, "x", Tree())
		if want := (HeldError{Key: "x", Client: "b", Node: "node-b", Token: l.Token(), Conflict: "x/y"}); !errors.As(err, &held) || *held != want {
			t.Errorf("%v, want %+v", err, want)
		}
		release(t, acquire(t, a, "x")) // no tree, no conflict
	})
}

func TestTryBehindAWaiterNamesTheWaiter(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		c, _ := w.client(t, "c")
		acquire(t, a, "k", Shared())
		waiting(t, bg, b, "k")
		_, err := c.TryAcquire(bg, "k", Shared())
		var held *HeldError
		if !errors.As(err, &held) || held.Token != 0 && held.Client != "a" {
			t.Errorf("try: %v", err)
		}
	})
}

func TestPriorityPassesOthersButNotForEver(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		l := acquire(t, a, "k")
		low := waiting(t, bg, a, "k", Priority(-1))
		plain := waiting(t, bg, a, "k")
		high := waiting(t, bg, a, "k", Priority(100))
		release(t, l)
		l = high.ok(t)
		plain.pends(t)
		release(t, l)
		l = plain.ok(t)
		for n := 0; ; n++ {
			if n > machine.MaxPassed {
				t.Fatal("the lowest waits for ever")
			}
			next := waiting(t, bg, a, "k")
			release(t, l)
			settle()
			select {
			case <-low.done:
				release(t, low.ok(t))
				release(t, next.ok(t))
				return
			default:
			}
			l = next.ok(t)
		}
	})
}

// After abnormal loss only.
func TestDelayKeepsTheKeyAfterAnExpiryOnly(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, m := w.client(t, "a")
		b, _ := w.client(t, "b")
		release(t, acquire(t, a, "k", Delay(time.Minute)))
		if !w.free("k") {
			t.Error("a release has a delay")
		}
		l := acquire(t, a, "k", Delay(time.Minute))
		m.Isolate()
		next := waiting(t, bg, b, "k")
		time.Sleep(2 * testTTL)
		next.pends(t)
		_, err := b.TryAcquire(bg, "k")
		var held *HeldError
		if want := (HeldError{Key: "k", Client: "a", Node: "node-a", Token: l.Token(), Delayed: true}); !errors.As(err, &held) || *held != want {
			t.Errorf("%v, want %+v", err, want)
		}
		began := time.Now()
		time.Sleep(30 * time.Second)
		next.pends(t)
		got := next.ok(t)
		if took := time.Since(began); took > time.Minute {
			t.Errorf("the delay took %v more", took)
		}
		if _, clean := got.Value(); clean {
			t.Error("the holder before is said to have released")
		}
		m.Heal()
	})
}

func TestOwnDelayIsWaived(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, m := w.client(t, "a")
		acquire(t, a, "k", Delay(time.Hour))
		m.Isolate()
		time.Sleep(2 * testTTL)
		m.Heal()
		release(t, acquire(t, a, "k"))
	})
}

func TestIfTokenGrantsOnlyIfNobodyWasGrantedSince(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		first := acquire(t, a, "k", IfToken(0))
		release(t, first)
		other := acquire(t, b, "other") // a later token, but of another key
		again := acquire(t, a, "k", IfToken(first.Token()))
		if again.Token() <= other.Token() {
			t.Errorf("token %d after %d", again.Token(), other.Token())
		}
		_, err := b.Acquire(bg, "k", IfToken(first.Token()))
		var changed *ChangedError
		if want := (ChangedError{Key: "k", Since: first.Token(), Token: again.Token()}); !errors.As(err, &changed) || *changed != want || !errors.Is(err, ErrChanged) {
			t.Errorf("%v, want %+v", err, want)
		}
	})
}

// EventRefused: a waiter is refused when another client is granted the key.
func TestConditionalWaiterIsRefusedWhenAnotherIsGranted(t *testing.T) {
	for _, lose := range []bool{false, true} {
		bubble(t, func(t *testing.T, w *world) {
			a, _ := w.client(t, "a")
			b, m := w.client(t, "b")
			l := acquire(t, a, "k")
			before := waiting(t, bg, a, "k")
			token := l.Token()
			late := waiting(t, bg, b, "k", IfToken(token))
			if lose {
				m.SetFaults(termtest.Faults{LosePush: 1})
			}
			release(t, l)
			l = before.ok(t)
			settle()
			if lose {
				late.pends(t)
				m.SetFaults(termtest.Faults{})
				time.Sleep(3 * time.Second) // told again
			}
			_, err := late.ends(t)
			var changed *ChangedError
			if want := (ChangedError{Key: "k", Since: token, Token: l.Token()}); !errors.As(err, &changed) || *changed != want {
				t.Errorf("%v, want %+v", err, want)
			}
			m.SetFaults(termtest.Faults{})
			release(t, acquire(t, b, "other")) // reports the refusal as seen
			if n := w.Counts(); n.Answers != 0 || n.Waiters != 0 {
				t.Errorf("the table keeps %+v", n)
			}
			if waiters, _ := b.currentSession().sizes(); waiters != 0 {
				t.Errorf("%d waiters are left", waiters)
			}
		})
	}
}

func TestOldIfTokenIsRefusedWhenNobodyKnows(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.SetCheck(false)
		a, _ := w.client(t, "a")
		l := acquire(t, a, "k")
		release(t, l)
		other := acquire(t, a, "held")
		s := a.currentSession()
		// More keys than the table remembers.
		for i := range machine.MaxPast/machine.MaxKeys + 1 {
			var keys []string
			for j := range machine.MaxKeys {
				keys = append(keys, fmt.Sprintf("k%d-%04d", i, j))
			}
			seq := uint64(1_000_000 + i)
			w.Must(machine.Acquire{Session: s.id, Seq: seq, Keys: keys}, machine.Withdraw{Session: s.id, Seq: seq})
		}
		if _, err := a.Acquire(bg, "k", IfToken(l.Token())); !errors.Is(err, ErrTooOld) {
			t.Errorf("acquire: %v", err)
		}
		if other.Err() != nil {
			t.Error(other.Err())
		}
	})
}
