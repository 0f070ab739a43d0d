package locks

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/internal/machine"

	"github.com/wardmote/wardmote/internal/term/termtest"
)

func TestHandOverGoesToTheNamedClientFirst(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		c, _ := w.client(t, "c")
		l := acquire(t, a, "k")
		first := waiting(t, bg, b, "k")
		named := waiting(t, bg, c, "k")
		second := waiting(t, bg, c, "k")
		if err := l.HandOver(bg, "c"); err != nil {
			t.Fatal(err)
		}
		n := named.ok(t)
		first.pends(t)
		if n.Token() <= l.Token() || l.Err() != ErrReleased {
			t.Errorf("token %d after %d; %v", n.Token(), l.Token(), l.Err())
		}
		if err := l.HandOver(bg, "c"); err != ErrReleased {
			t.Errorf("again: %v", err)
		}
		release(t, n)
		release(t, first.ok(t)) // passed once only
		second.ok(t)
	})
}

// Loss is told first: where the cluster agrees, the successor runs before the
// answer is here.
func TestHandOverEndsTheLockBeforeTheMessageLeaves(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, m := w.client(t, "a")
		b, _ := w.client(t, "b")
		l := acquire(t, a, "k")
		ctx := l.Context()
		next := waiting(t, bg, b, "k")
		m.SetHooks(termtest.Hooks{Proposed: func(cmd machine.Command) {
			if r, ok := cmd.(machine.Release); ok && (ctx.Err() == nil || r.To != "b") {
				t.Errorf("held while %+v is sent", r)
			}
		}})
		if err := l.HandOver(bg, "b"); err != nil {
			t.Error(err)
		}
		next.ok(t)
	})
}

func TestHandOverWithoutASuccessorReleases(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		l := acquire(t, a, "k")
		next := waiting(t, bg, b, "k")
		err := l.HandOver(bg, "nobody")
		if !errors.Is(err, ErrNoSuccessor) || l.Err() != ErrReleased {
			t.Errorf("hand over: %v, the lock: %v", err, l.Err())
		}
		next.ok(t)
	})
}

func TestHandOverArguments(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		l := acquire(t, a, "k")
		for _, name := range []string{"", "\xff", strings.Repeat("n", 129)} {
			wantConfig(t, l.HandOver(bg, name), "client")
		}
		if l.Err() != nil || w.Sent(isRelease) != 0 {
			t.Error("the lock has ended")
		}
		var zero Lock
		if zero.HandOver(bg, "a") == nil {
			t.Error("a zero lock was handed over")
		}
	})
}

func TestHandOverThatWasNotHeardGoesOn(t *testing.T) {
	for _, successor := range []string{"c", "nobody"} {
		bubble(t, func(t *testing.T, w *world) {
			a, m := w.client(t, "a")
			b, _ := w.client(t, "b")
			c, _ := w.client(t, "c")
			l := acquire(t, a, "k")
			first := waiting(t, bg, b, "k")
			named := waiting(t, bg, c, "k")
			m.Isolate()
			if err := l.HandOver(within(time.Second), successor); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("hand over: %v", err)
			}
			m.Heal()
			if successor == "nobody" {
				first.ok(t)
				return
			}
			named.ok(t)
			first.pends(t)
		})
	}
}

// The answer was lost, and by the second copy the key is the successor's.
func TestHandOverWhoseAnswerIsLost(t *testing.T) {
	for _, successor := range []string{"b", "nobody"} {
		bubble(t, func(t *testing.T, w *world) {
			a, m := w.client(t, "a")
			b, _ := w.client(t, "b")
			l := acquire(t, a, "k")
			next := waiting(t, bg, b, "k")
			m.SetFaults(termtest.Faults{LoseAnswer: 1})
			call := does(func(ctx context.Context) error { return l.HandOver(ctx, successor) }, bg)
			time.Sleep(time.Second)
			m.SetFaults(termtest.Faults{})
			if _, err := call.ends(t); successor == "b" && err != nil || successor != "b" && !errors.Is(err, ErrNoSuccessor) {
				t.Errorf("hand over: %v", err)
			}
			n := next.ok(t)
			time.Sleep(time.Minute)
			if n.Err() != nil {
				t.Error("the successor was freed")
			}
		})
	}
}

func TestHandOverThatFindsTheSessionGoneIsALoss(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, m := w.client(t, "a")
		l := acquire(t, a, "k")
		m.SetFaults(termtest.Faults{LosePush: 1})
		w.ExpireNow()
		if err := l.HandOver(bg, "b"); !errors.Is(err, ErrLost) {
			t.Errorf("hand over: %v", err)
		}
	})
}

// The end of the session is not that of the caller's ctx.
func TestReleaseThatTheSessionEndsBefore(t *testing.T) {
	for reason, end := range map[Reason]func(m *member){
		QuorumUnreachable: func(*member) {},
		NodeStopped:       func(m *member) { m.Stop() },
	} {
		t.Run(reason.String(), func(t *testing.T) {
			for range 10 {
				bubble(t, func(t *testing.T, w *world) {
					a, m := w.client(t, "a")
					l := acquire(t, a, "k")
					m.Isolate()
					call := does(l.Release, bg)
					call.pends(t)
					end(m)
					_, err := call.ends(t)
					if !errors.Is(err, ErrSessionLost) && !errors.Is(err, cluster.ErrStopped) || errors.Is(err, context.Canceled) {
						t.Errorf("release: %v", err)
					}
					if l.Err() != ErrReleased {
						t.Errorf("the lock: %v", l.Err())
					}
				})
			}
		})
	}
}
