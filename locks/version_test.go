package locks

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/term/termtest"
)

// nextFormat makes up a next format, in which everything but exclusive locks of a
// single key without a lineage is new.
func nextFormat(c machine.Command) int {
	old := true
	switch c := c.(type) {
	case machine.Acquire:
		old = c.Spec == machine.Spec{Meta: c.Meta} && len(c.Keys) == 0 && len(c.Under) == 0
	case machine.Release:
		old = c.To == ""
	case machine.Upgrade, machine.Downgrade, machine.SetValue, machine.Ask, machine.Break:
		old = false
	}
	if old {
		return machine.MaxFormat
	}
	return machine.MaxFormat + 1
}

// oldWorld is a cluster with a voter that does not read the next format, until
// upgrade is called.
func oldWorld(t *testing.T, w *world) (upgrade func()) {
	var upgraded atomic.Bool
	w.Cluster = termtest.New(t, termtest.Config{Format: func(c machine.Command) int {
		if upgraded.Load() {
			return machine.MaxFormat
		}
		return nextFormat(c)
	}})
	return func() { upgraded.Store(true) }
}

func TestCommandsOfANewFormatAreRefusedByAnOldCluster(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		upgrade := oldWorld(t, w)
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		l := acquire(t, a, "k")
		_, err1 := b.Acquire(bg, "s", Shared())
		_, err2 := b.TryAcquire(bg, "p", Permits(1, 2))
		_, err3 := b.AcquireAll(bg, []string{"x", "y"})
		err4 := b.Elect(bg, "e", func(context.Context, *Lock) error { return nil }, Priority(3))
		for i, err := range []error{err1, err2, err3, err4, l.Downgrade(bg), l.SetValue(bg, []byte("v")), b.Ask(bg, "k"), b.Break(bg, "k", l.Token())} {
			if !errors.Is(err, ErrVersion) {
				t.Errorf("call %d: %v", i, err)
			}
		}
		if l.Err() != nil {
			t.Error(l.Err())
		}
		if n := w.Counts(); n.Grants != 1 || n.Waiters != 0 {
			t.Errorf("the table keeps %+v", n)
		}
		upgrade()
		if err := l.SetValue(bg, []byte("v")); err != nil {
			t.Error(err)
		}
		if err := l.Downgrade(bg); err != nil {
			t.Error(err)
		}
		release(t, acquire(t, b, "k", Shared()))
	})
}

// Locks nest without lineages, as they did before.
func TestLocksNestInAnOldCluster(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		oldWorld(t, w)
		a, m := w.client(t, "a")
		l := acquire(t, a, "k")
		inner, err := a.Acquire(l.Context(), "inner")
		if err != nil {
			t.Fatal(err)
		}
		release(t, inner)
		// The same if the connection to the leader does not know lineages.
		m.SetHooks(termtest.Hooks{Refuse: func(c machine.Command) *replica.Error {
			if nextFormat(c) > machine.MaxFormat {
				return &replica.Error{Err: ErrVersion}
			}
			return nil
		}})
		if _, err = a.Acquire(l.Context(), "inner"); err != nil {
			t.Fatal(err)
		}
		if n := w.Counts().Grants; n != 2 {
			t.Errorf("%d grants", n)
		}
	})
}

func TestHandOverInAnOldClusterReleases(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		oldWorld(t, w)
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		l := acquire(t, a, "k")
		next := waiting(t, bg, b, "k")
		if err := l.HandOver(bg, "b"); !errors.Is(err, ErrVersion) || errors.Is(err, ErrNoSuccessor) {
			t.Errorf("hand over: %v", err)
		}
		next.ok(t)
	})
}
