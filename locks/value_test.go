package locks

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/machine"

	"github.com/wardmote/wardmote/internal/term/termtest"
)

func isSetValue(c machine.Command) bool { _, ok := c.(machine.SetValue); return ok }

func TestValueIsLeftForTheNextHolder(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		l := acquire(t, a, "k")
		if v, clean := l.Value(); v != nil || !clean {
			t.Errorf("a new key has value %q, clean %v", v, clean)
		}
		next := waiting(t, bg, b, "k")
		v := []byte("one")
		if err := l.SetValue(bg, v); err != nil {
			t.Fatal(err)
		}
		copy(v, "two")
		if v, _ := l.Value(); v != nil {
			t.Errorf("its own holder reads %q", v)
		}
		release(t, l)
		n := next.ok(t)
		got, clean := n.Value()
		if string(got) != "one" || !clean {
			t.Errorf("value %q, clean %v", got, clean)
		}
		got[0] = 'X'
		if again, _ := n.Value(); string(again) != "one" {
			t.Error("the caller changed the value")
		}
		release(t, n)
		// The value is kept while the key has no holder, and shared holders read the
		// value too.
		r := acquire(t, a, "k", Shared())
		if v, clean := r.Value(); string(v) != "one" || !clean {
			t.Errorf("value %q, clean %v", v, clean)
		}
		release(t, r)
		l = acquire(t, a, "k")
		if err := l.SetValue(bg, nil); err != nil {
			t.Fatal(err)
		}
		release(t, l)
		if v, _ := acquire(t, a, "k").Value(); v != nil {
			t.Errorf("value %q", v)
		}
	})
}

func TestValueOfALostHolderIsUnclean(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, m := w.client(t, "a")
		b, _ := w.client(t, "b")
		l := acquire(t, a, "k")
		if err := l.SetValue(bg, []byte("half")); err != nil {
			t.Fatal(err)
		}
		m.Isolate()
		n := acquire(t, b, "k")
		if v, clean := n.Value(); string(v) != "half" || clean {
			t.Errorf("value %q, clean %v", v, clean)
		}
		m.Heal()
		if err := l.SetValue(bg, []byte("late")); !errors.Is(err, ErrLost) {
			t.Errorf("set by a lost lock: %v", err)
		}
		release(t, n)
		if v, clean := acquire(t, b, "k").Value(); string(v) != "half" || !clean {
			t.Errorf("value %q, clean %v", v, clean)
		}
	})
}

func TestValueIsSetByExclusiveLocksOnly(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		for _, l := range []*Lock{acquire(t, a, "s", Shared()), acquire(t, a, "p", Permits(1, 2))} {
			if err := l.SetValue(bg, []byte("v")); !errors.Is(err, ErrWrongMode) {
				t.Errorf("%q: %v", l.Key(), err)
			}
		}
		l := acquire(t, a, "k")
		wantConfig(t, l.SetValue(bg, make([]byte, machine.MaxValue+1)), "value")
		if n := w.Sent(isSetValue); n != 0 {
			t.Errorf("%d were sent", n)
		}
		big := bytes.Repeat([]byte{7}, machine.MaxValue)
		if err := l.SetValue(bg, big); err != nil {
			t.Error(err)
		}
		release(t, l)
		if v, _ := acquire(t, a, "k").Value(); !bytes.Equal(v, big) {
			t.Errorf("%d bytes", len(v))
		}
	})
}

func TestValuesFull(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.SetCheck(false)
		a, _ := w.client(t, "a")
		big := make([]byte, machine.MaxValue)
		for i := range machine.MaxValuesSize / machine.MaxValue {
			l := acquire(t, a, string(rune('A'+i%26))+string(rune('a'+i/26)))
			if err := l.SetValue(bg, big); err != nil {
				t.Fatal(err)
			}
			release(t, l)
		}
		l := acquire(t, a, "k")
		if err := l.SetValue(bg, []byte("v")); !errors.Is(err, ErrValuesFull) {
			t.Errorf("one more: %v", err)
		}
		if err := l.setValue(bg, []byte("v"), true); err != nil {
			t.Errorf("one that may fade: %v", err)
		}
		if l.Err() != nil {
			t.Error(l.Err())
		}
	})
}

func TestSetValueOfUnknownOutcome(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, m := w.client(t, "a")
		l := acquire(t, a, "k")
		m.SetFaults(termtest.Faults{LoseAnswer: 1})
		if err := l.SetValue(within(time.Second), []byte("v")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("set value: %v", err)
		}
		m.SetFaults(termtest.Faults{})
		if err := l.SetValue(bg, []byte("w")); err != nil || l.Err() != nil {
			t.Errorf("again: %v, %v", err, l.Err())
		}
	})
}

// The answer to the first copy has arrived, the second copy is still under way.
func TestLateSecondCopyOfASetValueDoesNotBringTheOldValueBack(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, m := w.client(t, "a")
		l := acquire(t, a, "k")
		m.SetFaults(termtest.Faults{Twice: 1})
		if err := l.SetValue(bg, []byte("old")); err != nil {
			t.Fatal(err)
		}
		m.SetFaults(termtest.Faults{})
		if err := l.SetValue(bg, []byte("new")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if n := w.Sent(isSetValue); n != 3 {
			t.Fatalf("%d copies", n)
		}
		release(t, l)
		if v, _ := acquire(t, a, "k").Value(); string(v) != "new" {
			t.Errorf("value %q", v)
		}
	})
}

// A call that was given up may still set the value: the value as given, not as
// changed later.
func TestValueIsCopied(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, m := w.client(t, "a")
		l := acquire(t, a, "k")
		m.SetFaults(termtest.Faults{Latency: 200 * time.Millisecond})
		ctx, cancel := context.WithCancel(bg)
		buffer := []byte("mine")
		call := does(func(ctx context.Context) error { return l.SetValue(ctx, buffer) }, ctx)
		synctest.Wait()
		cancel()
		if _, err := call.ends(t); !errors.Is(err, context.Canceled) {
			t.Errorf("set value: %v", err)
		}
		copy(buffer, "else")
		time.Sleep(time.Second)
		m.SetFaults(termtest.Faults{})
		release(t, l)
		if v, _ := acquire(t, a, "k").Value(); string(v) != "mine" {
			t.Errorf("value %q", v)
		}
	})
}
