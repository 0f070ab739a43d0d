package locks

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/machine"

	"github.com/wardmote/wardmote/internal/term/termtest"
)

// A change that finds its grant broken tells nothing more: who ended the lock does.
// It must not take the other locks of the client along.
func TestBreakBesideAChangeEndsOneLockOnly(t *testing.T) {
	for range 30 {
		bubble(t, func(t *testing.T, w *world) {
			a, m := w.client(t, "a")
			b, _ := w.client(t, "b")
			l, other := acquire(t, a, "k"), acquire(t, a, "other")
			acquire(t, b, "x")
			id := b.currentSession().id
			m.SetHooks(termtest.Hooks{Proposed: func(c machine.Command) {
				if _, ok := c.(machine.SetValue); ok {
					w.Apply(machine.Break{Session: id, Key: "k", Token: machine.Token(l.Token())})
				}
			}})
			if err := l.SetValue(bg, []byte("v")); !errors.Is(err, ErrLost) {
				t.Errorf("SetValue: %v", err)
			}
			a.currentSession().loseGrant(l.g.seq, l.g.key, 0, Broken) // the same verdict, late
			time.Sleep(time.Second)
			if err := other.Err(); err != nil {
				t.Errorf("another lock of the client: %v", err)
			}
		})
	}
}

// slowly makes the contexts below ctx so many that to cancel it takes a while.
func slowly(ctx context.Context) {
	for range 300_000 {
		_, cancel := context.WithCancel(ctx)
		_ = cancel
	}
}

// The last Release of an owner frees the key only when the contexts of the others
// have ended, though another goroutine ends them.
func TestLastReleaseWaitsForTheContextsOfTheOthers(t *testing.T) {
	w := newWorld(t)
	a, _ := w.client(t, "a")
	b, _ := w.client(t, "b")
	enter := func() *Lock {
		l, err := a.Acquire(bg, "k", Reentrant("o"))
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	first, second := enter(), enter()
	slowly(first.Context())
	last, stop := context.WithCancel(first.Context()) // the contexts end in no order
	defer stop()
	released := make(chan error, 1)
	go func() { released <- first.Release(bg) }()
	for first.Err() == nil {
	}
	if err := second.Release(bg); err != nil {
		t.Fatal(err)
	}
	next, err := b.Acquire(bg, "k")
	if err != nil {
		t.Fatal(err)
	}
	if last.Err() == nil {
		t.Errorf("token %d was granted while a context of the holder before lives", next.Token())
	}
	if err := <-released; err != nil {
		t.Fatal(err)
	}
}

// A Break that comes beside an upgrade of the grant it means broke nothing, and
// says so.
func TestBreakOfWhatIsUpgradedMeanwhileSaysSo(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, m := w.client(t, "b")
		l := acquire(t, a, "k", Shared())
		before := l.Token()
		acquire(t, b, "x")
		once := false
		m.SetHooks(termtest.Hooks{Proposed: func(c machine.Command) {
			if _, ok := c.(machine.Break); ok && !once {
				once = true
				w.Apply(machine.Upgrade{Session: a.currentSession().id, Seq: 99, Token: machine.Token(before)})
			}
		}})
		var held *HeldError
		if err := b.Break(bg, "k", before); !errors.As(err, &held) || held.Token <= before {
			t.Errorf("break of token %d: %v", before, err)
		}
	})
}

// Whatever frees keys waits until the contexts of all locks that have ended have
// ended: a release, what is cleaned up, and the end of the session.
func TestNothingIsToldWhileContextsAreBeingEnded(t *testing.T) {
	frees := func(c machine.Command) bool {
		switch c.(type) {
		case machine.Release, machine.Withdraw, machine.Close:
			return true
		}
		return false
	}
	for name, tell := range map[string]func(*session, *cleanup){
		"release":  func(s *session, d *cleanup) { _ = s.proposeRelease(bg, d) },
		"clean-up": func(s *session, d *cleanup) { s.startCleanup(d) },
		"loss":     func(s *session, _ *cleanup) { s.lose(QuorumUnreachable) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				a, _ := w.client(t, "a")
				l := acquire(t, a, "k")
				s := a.currentSession()
				before := w.Sent(frees)
				going, ended := make(chan struct{}), make(chan struct{})
				go func() {
					s.mu.Lock()
					s.unlockAndCancel([]func(){func() { close(going); <-ended }})
				}()
				<-going
				go tell(s, &cleanup{keys: []string{"k"}, token: l.Token()})
				time.Sleep(100 * time.Millisecond)
				if n := w.Sent(frees); n != before {
					t.Errorf("the cluster was told while a context lives")
				}
				close(ended)
				time.Sleep(time.Second)
				if n := w.Sent(frees); n == before {
					t.Error("the cluster was not told")
				}
			})
		})
	}
}
