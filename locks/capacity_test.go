package locks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/term/termtest"
	"github.com/wardmote/wardmote/internal/testrounds"
)

func wantCapacity(t *testing.T, err error, want CapacityError) {
	t.Helper()
	var got *CapacityError
	if !errors.As(err, &got) || *got != want || !errors.Is(err, ErrCapacity) {
		t.Errorf("%v, want %v", err, &want)
	}
}

// Two operators who have seen the same capacity do not overwrite each other.
func TestChangeCapacityIsOfTheNumberSeen(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		for _, err := range []error{
			a.ChangeCapacity(bg, "k", 0, 3),
			a.ChangeCapacity(bg, "k", 3, 4),
			b.ChangeCapacity(bg, "k", 3, 4), // is so already
		} {
			if err != nil {
				t.Error(err)
			}
		}
		wantCapacity(t, b.ChangeCapacity(bg, "k", 3, 5), CapacityError{Key: "k", Of: 3, Have: 4})
		wantCapacity(t, b.ChangeCapacity(bg, "other", 2, 5), CapacityError{Key: "other", Of: 2})
		if st, err := b.Inspect(bg, "k"); err != nil || st.Capacity != 4 || !st.CapacitySet {
			t.Errorf("%+v, %v", st, err)
		}
		if err := b.ChangeCapacity(bg, "k", 4, 0); err != nil {
			t.Error(err)
		}
		wantConfig(t, a.ChangeCapacity(bg, "k", -1, 2), "from")
		wantConfig(t, a.ChangeCapacity(bg, "k", 2, MaxCapacity+1), "to")
	})
}

// A request for many permits waits at the head, and smaller ones wait behind it.
func TestTheHeadIsNotPassedBySmallerRequests(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		two, one := acquire(t, a, "k", Permits(2, 4)), acquire(t, a, "k", Permits(1, 4))
		three := waiting(t, bg, b, "k", Permits(3, 4))
		small := waiting(t, bg, b, "k", Permits(1, 0)) // a permit is free
		if _, err := b.TryAcquire(bg, "k", Permits(1, 4)); !errors.Is(err, ErrHeld) {
			t.Errorf("past the head: %v", err)
		}
		st, err := b.Inspect(bg, "k")
		if err != nil || st.Permits != 3 || st.Capacity != 4 || st.CapacitySet || st.Holders[0].N != 2 || st.Waiters[0].N != 3 || st.Waiters[1].Position != 3 {
			t.Errorf("%+v, %v", st, err)
		}
		release(t, one)
		small.pends(t)
		release(t, two)
		release(t, three.ok(t))
		if first, second := three.value.Token(), small.ok(t).Token(); first >= second {
			t.Errorf("tokens %d and %d", first, second)
		}
	})
}

func TestARequestThatCannotFitFailsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		_, err := a.Acquire(bg, "k", Permits(3, 2))
		wantCapacity(t, err, CapacityError{Key: "k", N: 3, Of: 2, Have: 2})
		_, err = a.Acquire(bg, "k", Permits(1, 0))
		wantCapacity(t, err, CapacityError{Key: "k", N: 1})
		l := acquire(t, a, "k", Permits(2, 2))
		_, err = a.TryAcquire(bg, "k", Permits(3, 0))
		wantCapacity(t, err, CapacityError{Key: "k", N: 3, Have: 2})
		release(t, l)
		_, err = a.Acquire(bg, "k", Permits(1, 0)) // the capacity went with the last permit
		wantCapacity(t, err, CapacityError{Key: "k", N: 1})
		for of, field := range map[int]string{-1: "of", MaxCapacity + 1: "of"} {
			wantConfig(t, a.SetCapacity(bg, "k", of), field)
		}
		wantConfig(t, a.SetCapacity(bg, "", 1), "key")
		var none context.Context
		wantConfig(t, a.SetCapacity(none, "k", 1), "ctx")
		gone, cancel := context.WithCancel(bg)
		cancel()
		if err := a.SetCapacity(gone, "k", 1); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if w.Counts().Keys != 1 || w.Status("k").Of != 0 {
			t.Errorf("the table has %+v", w.Status("k"))
		}
	})
}

// A set capacity wins over the requests', stays on a free key, and is given back by 0.
func TestASetCapacityWins(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		set := func(of int) {
			t.Helper()
			if err := a.SetCapacity(bg, "k", of); err != nil {
				t.Fatal(err)
			}
		}
		set(3)
		release(t, acquire(t, b, "k", Permits(3, 1)))
		_, err := b.Acquire(bg, "k", Permits(4, 9))
		wantCapacity(t, err, CapacityError{Key: "k", N: 4, Of: 9, Have: 3})
		if st, err := b.Inspect(bg, "k"); err != nil || st.Capacity != 3 || !st.CapacitySet || st.Permits != 0 || st.Held() {
			t.Errorf("%+v, %v", st, err)
		}

		// Other modes of the key exclude permits as ever.
		l := acquire(t, b, "k")
		permit := waiting(t, bg, a, "k", Permits(1, 0))
		reader := waiting(t, bg, b, "k", Shared())
		release(t, l)
		release(t, permit.ok(t))
		release(t, reader.ok(t))

		// Given back: the number stays as long as permits are held.
		l = acquire(t, b, "k", Permits(1, 0))
		set(0)
		_, err = a.TryAcquire(bg, "k", Permits(1, 2))
		wantCapacity(t, err, CapacityError{Key: "k", N: 1, Of: 2, Have: 3})
		release(t, l)
		release(t, acquire(t, a, "k", Permits(1, 2)))
		if n := w.Counts(); n.Capacities != 0 {
			t.Errorf("%+v", n)
		}
	})
}

func TestRaisingTheCapacityGrantsInOrder(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		acquire(t, a, "k", Permits(2, 2))
		calls := []*call[*Lock]{
			waiting(t, bg, b, "k", Permits(2, 0)), waiting(t, bg, a, "k", Permits(1, 0)), waiting(t, bg, b, "k", Permits(1, 2)),
		}
		var states []Status
		ctx, cancel := context.WithCancel(bg)
		watch := start(func() (struct{}, error) {
			for st, err := range b.Watch(ctx, "k") {
				if err != nil {
					return struct{}{}, nil
				}
				states = append(states, st)
			}
			return struct{}{}, nil
		})
		settle()
		entries := len(w.Applied())
		if err := a.SetCapacity(bg, "k", 5); err != nil {
			t.Fatal(err)
		}
		first, second := calls[0].ok(t), calls[1].ok(t)
		if first.Token() >= second.Token() {
			t.Errorf("tokens %d and %d", first.Token(), second.Token())
		}
		calls[2].pends(t)
		if n := w.Sent(func(c machine.Command) bool { _, ok := c.(machine.SetCapacity); return ok }); n != 1 || len(w.Applied()) == entries {
			t.Errorf("%d commands", n)
		}
		cancel()
		watch.ok(t)
		if len(states) != 2 || states[1].Capacity != 5 || !states[1].CapacitySet || states[1].Permits != 5 || states[1].Queue != 1 {
			t.Errorf("watched %+v", states) // one change: the capacity and the grants
		}
		release(t, first)
		calls[2].ok(t)
	})
}

func TestLoweringTheCapacity(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		if err := a.SetCapacity(bg, "k", 4); err != nil {
			t.Fatal(err)
		}
		one, other := acquire(t, a, "k", Permits(2, 0)), acquire(t, a, "k", Permits(2, 0))
		three := waiting(t, bg, b, "k", Permits(3, 0))
		two := waiting(t, bg, b, "k", Permits(2, 0))
		if err := b.SetCapacity(bg, "k", 2); err != nil {
			t.Fatal(err)
		}
		_, err := three.ends(t)
		wantCapacity(t, err, CapacityError{Key: "k", N: 3, Have: 2})
		if one.Err() != nil || other.Err() != nil {
			t.Error("a lower capacity took permits away")
		}
		if st, err := b.Inspect(bg, "k"); err != nil || st.Permits != 4 || st.Capacity != 2 || st.Queue != 1 {
			t.Errorf("%+v, %v", st, err)
		}
		release(t, one)
		two.pends(t) // two are held
		release(t, other)
		release(t, two.ok(t))
	})
}

// A waiter can need the permits of its own caller once there are fewer.
func TestLoweringTheCapacityFindsDeadlocks(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		own := acquire(t, a, "k", Permits(2, 4))
		others := acquire(t, b, "k", Permits(2, 4))
		under := waiting(t, own.Context(), a, "k", Permits(2, 4))
		free := waiting(t, bg, b, "k", Permits(1, 4))
		if err := b.SetCapacity(bg, "k", 3); err != nil {
			t.Fatal(err)
		}
		if _, err := under.ends(t); !errors.Is(err, ErrDeadlock) {
			t.Error(err)
		}
		if _, err := a.Acquire(own.Context(), "k", Permits(2, 0)); !errors.Is(err, ErrDeadlock) {
			t.Error(err)
		}
		release(t, others)
		release(t, free.ok(t))
		release(t, own)
	})
}

// MaxWaiters and Priority are for permits what they are for other locks.
func TestPermitsWithOtherOptions(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		l := acquire(t, a, "k", Permits(2, 3))
		big := waiting(t, bg, b, "k", Permits(2, 3))
		if _, err := b.Acquire(bg, "k", Permits(2, 3), MaxWaiters(1)); !errors.Is(err, ErrTooManyWaiters) {
			t.Error(err)
		}
		urgent := start(func() (*Lock, error) { return b.Acquire(bg, "k", Permits(1, 3), Priority(1)) })
		release(t, urgent.ok(t)) // before the head, as any other request of a higher priority
		_, err := b.Acquire(within(time.Second), "k", Permits(1, 3))
		var waited *WaitError
		if !errors.As(err, &waited) || waited.Position != 2 || waited.Client != "b" {
			t.Errorf("%v", err)
		}
		if err := a.Break(bg, "k", l.Token()); err != nil {
			t.Error(err)
		}
		big.ok(t)
		if err := a.Ask(bg, "k"); err != nil {
			t.Error(err)
		}
		<-big.value.Asked()
	})
}

// Whatever is lost or comes twice, a SetCapacity that has returned was done once: no
// late copy overwrites a later one, by whatever client.
func TestACapacityIsSetOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.Seed(1)
		clients := make([]*Client, 2)
		for i := range clients {
			c, m := w.client(t, fmt.Sprint("c", i))
			acquire(t, c, fmt.Sprint("own", i)) // a session before the faults
			m.SetFaults(termtest.Faults{Latency: 50 * time.Millisecond, LoseAsk: 0.2, LoseAnswer: 0.4, Twice: 0.5})
			defer m.SetFaults(termtest.Faults{})
			clients[i] = c
		}
		for n := range 60 {
			if err := clients[n%2].SetCapacity(bg, "k", n+1); err != nil {
				t.Fatal(err)
			}
			if n%3 == 0 {
				time.Sleep(time.Second) // copies arrive
			}
			if of := w.Status("k").Of; of != n+1 {
				t.Fatalf("capacity %d after %d was set", of, n+1)
			}
			if n%20 == 19 {
				w.Depose()
				w.Lead()
			}
		}
		synctest.Wait()
		if n := w.Counts(); n.Answers > 2*machine.MaxSeen {
			t.Errorf("%+v", n)
		}
	})
}

// TestOutcomesOfSetCapacityAreForgotten: many calls of one client leave nothing behind.
func TestOutcomesOfSetCapacityAreForgotten(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		for n := range 100 {
			if err := a.SetCapacity(bg, "k", 1+n%7); err != nil {
				t.Fatal(err)
			}
		}
		if n := w.Counts(); n.Answers > 1 {
			t.Errorf("the table remembers %d outcomes", n.Answers)
		}
	})
}

func TestTooManyCapacities(t *testing.T) {
	if !testrounds.Full() {
		t.Skip("65,536 keys; the bound itself is tested in package machine")
	}
	bubble(t, func(t *testing.T, w *world) {
		w.SetCheck(false) // of a table so large
		a, _ := w.client(t, "a")
		if err := a.SetCapacity(bg, "last", 1); err != nil {
			t.Fatal(err)
		}
		id := machine.SessionID{15: 9}
		w.Must(machine.Open{Session: id, Client: "other", Node: "n", Boot: 1, TTL: 1000})
		var batch []machine.Command
		for i := range uint64(machine.MaxCapacities - 1) {
			batch = append(batch, machine.SetCapacity{Session: id, Seq: i + 1, Key: fmt.Sprint("k", i), Of: 1, Seen: []uint64{i}[:min(i, 1)]})
		}
		for part := range slices.Chunk(batch, machine.MaxCommands) {
			w.Must(part...)
		}
		if err := a.SetCapacity(bg, "more", 1); !errors.Is(err, ErrTooManyCapacities) {
			t.Error(err)
		}
		if err := a.SetCapacity(bg, "last", 0); err != nil {
			t.Error(err)
		}
		if err := a.SetCapacity(bg, "more", 1); err != nil {
			t.Error(err)
		}
	})
}

func TestSetCapacityOutlivesALostSession(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		acquire(t, a, "own")
		w.Must(expire(w, a))
		if err := a.SetCapacity(bg, "k", 3); err != nil || w.Status("k").Of != 3 {
			t.Errorf("%v, capacity %d", err, w.Status("k").Of)
		}
		shutdown(t, a)
		if err := a.SetCapacity(bg, "k", 4); err != ErrClosed {
			t.Error(err)
		}
		if st := w.Status("k"); st.Of != 3 || !st.Fixed {
			t.Errorf("%+v", st)
		}
	})
}
