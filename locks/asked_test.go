package locks

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/internal/machine"

	"github.com/wardmote/wardmote/internal/term/termtest"
)

func isAsk(c machine.Command) bool { _, ok := c.(machine.Ask); return ok }

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestAskedHolderMayLetGo(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		l := acquire(t, a, "k")
		asked := l.Asked()
		if closed(asked) {
			t.Error("asked by nobody")
		}
		next := waiting(t, bg, b, "k")
		if closed(asked) {
			t.Error("a waiter does not ask")
		}
		if err := b.Ask(bg, "k"); err != nil {
			t.Fatal(err)
		}
		settle()
		if !closed(asked) || !closed(l.Asked()) || l.Err() != nil {
			t.Error("the holder was not told, or ended")
		}
		release(t, l)
		if settle(); !closed(next.done) {
			t.Error("the asker still waits")
		}
		next.ok(t)
	})
}

func TestAskForAFreeKeyDoesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		if err := a.Ask(bg, "k"); err != nil || w.Sent(isAsk) != 1 {
			t.Error(err)
		}
		l := acquire(t, a, "k")
		if settle(); closed(l.Asked()) {
			t.Error("asked before it was held")
		}
	})
}

func TestEveryHolderIsAsked(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		r1, r2 := acquire(t, a, "k", Shared()), acquire(t, b, "k", Shared())
		s := acquireAll(t, a, []string{"x", "y"})
		for _, key := range []string{"k", "y"} {
			if err := b.Ask(bg, key); err != nil {
				t.Fatal(err)
			}
		}
		settle()
		if !closed(r1.Asked()) || !closed(r2.Asked()) || !closed(s.Asked()) {
			t.Error("somebody was not asked")
		}
	})
}

// AskHolder asks the grant that the operator has seen, and nobody who has come since.
func TestAskHolderAsksOneGrant(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		if err := b.AskHolder(bg, "k", 7); !errors.Is(err, ErrNotHeld) || errors.Is(err, ErrHeld) {
			t.Errorf("a free key: %v", err)
		}
		r1, r2 := acquire(t, a, "k", Shared()), acquire(t, b, "k", Shared())
		if err := b.AskHolder(bg, "k", r2.Token()); err != nil {
			t.Error(err)
		}
		if settle(); closed(r1.Asked()) || !closed(r2.Asked()) {
			t.Errorf("asked: %v and %v", closed(r1.Asked()), closed(r2.Asked()))
		}
		release(t, r2)
		err := b.AskHolder(bg, "k", r2.Token())
		var held *HeldError
		if want := (HeldError{Key: "k", Client: "a", Node: "node-a", Token: r1.Token()}); !errors.As(err, &held) || *held != want {
			t.Errorf("a grant that has gone: %v", err)
		}
		if settle(); closed(r1.Asked()) {
			t.Error("another grant was asked")
		}
		wantConfig(t, b.AskHolder(bg, "k", 0), "token")
		wantConfig(t, b.AskHolder(bg, "", 7), "key")
	})
}

func TestAskFailsWithoutAQuorum(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, m := w.client(t, "a")
		m.Isolate()
		if err := a.Ask(within(time.Second), "k"); !errors.Is(err, cluster.ErrNoQuorum) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("ask: %v", err)
		}
		call := does(func(ctx context.Context) error { return a.Ask(ctx, "k") }, bg)
		call.pends(t)
		if err := a.Close(bg); err != nil { // there is no session
			t.Error(err)
		}
		if _, err := call.ends(t); !errors.Is(err, ErrClosed) {
			t.Errorf("ask: %v", err)
		}
		m.Heal()
	})
}

func TestAskInASessionThatIsGoneOpensAnother(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, m := w.client(t, "a")
		b, _ := w.client(t, "b")
		acquire(t, a, "mine")
		m.SetFaults(termtest.Faults{LosePush: 1})
		w.ExpireNow()
		m.SetFaults(termtest.Faults{})
		l := acquire(t, b, "k")
		if err := a.Ask(bg, "k"); err != nil {
			t.Fatal(err)
		}
		settle()
		if !closed(l.Asked()) || w.Sent(isOpen) != 3 {
			t.Errorf("asked %v, %d sessions", closed(l.Asked()), w.Sent(isOpen))
		}
	})
}

func TestContendedTellsThatSomebodyWaits(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		l := acquire(t, a, "k")
		early := l.Contended()
		if closed(early) {
			t.Error("contended by nobody")
		}
		next := waiting(t, bg, b, "k")
		third := waiting(t, bg, a, "k")
		if !closed(early) || !closed(l.Contended()) {
			t.Error("the holder was not told")
		}
		// A holder with waiters behind the grant is told from the start, by an event or
		// by the answer.
		release(t, l)
		n := next.ok(t)
		if !closed(n.Contended()) {
			t.Error("the next was not told")
		}
		release(t, n)
		if last := third.ok(t); closed(last.Contended()) {
			t.Error("the last is contended by nobody")
		}
	})
}

// holdAnswers delays the answers to Acquire by a second, so that events overtake the
// answers.
func holdAnswers(m *member) *late { return &late{member: m} }

type late struct{ *member }

func (r *late) Propose(ctx context.Context, cmd machine.Command) (machine.Outcome, error) {
	out, err := r.member.Propose(ctx, cmd)
	if isAcquire(cmd) {
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
	return out, err
}

func TestEventsThatOvertakeTheGrantAreKept(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var mu sync.Mutex
		var asked, contended []LockEvent
		m := w.join("slow")
		a := newClient(holdAnswers(m), Options{Name: "a", Trace: &Trace{
			Asked:     func(_ context.Context, e LockEvent) { mu.Lock(); asked = append(asked, e); mu.Unlock() },
			Contended: func(_ context.Context, e LockEvent) { mu.Lock(); contended = append(contended, e); mu.Unlock() },
		}})
		defer shutdown(t, a)
		b, _ := w.client(t, "b")
		call := waiting(t, bg, a, "k")
		other := waiting(t, bg, b, "k")
		if err := b.Ask(bg, "k"); err != nil {
			t.Fatal(err)
		}
		l := call.ok(t)
		if !closed(l.Asked()) || !closed(l.Contended()) {
			t.Error("what came before the answer is lost")
		}
		m.Reconnect() // repeats the events
		settle()
		mu.Lock()
		if len(asked) != 1 || asked[0] != (LockEvent{Key: "k", Call: CallAcquire, Token: l.Token(), At: asked[0].At, By: "b"}) ||
			len(contended) != 1 || contended[0] != (LockEvent{Key: "k", Call: CallAcquire, Token: l.Token(), At: contended[0].At}) {
			t.Errorf("traced %+v and %+v", asked, contended)
		}
		mu.Unlock()
		release(t, l)
		other.ok(t)

		// The same with a loss that overtakes the answer to its grant.
		call = waiting(t, bg, a, "l")
		_, token := w.Owner("l")
		w.Apply(machine.Break{Session: b.currentSession().id, Key: "l", Token: token})
		_, err := call.ends(t)
		var lost *LostError
		if !errors.As(err, &lost) || lost.Reason != Broken {
			t.Errorf("acquire: %v", err)
		}
		settle()
		if _, token := w.Owner("l"); token != 0 {
			t.Error("the key is still taken")
		}
	})
}

func TestLostSignalsAreToldAgain(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, m := w.client(t, "a")
		b, _ := w.client(t, "b")
		l := acquire(t, a, "k")
		m.SetFaults(termtest.Faults{LosePush: 1})
		waiting(t, bg, b, "k")
		if err := b.Ask(bg, "k"); err != nil {
			t.Fatal(err)
		}
		settle()
		if closed(l.Asked()) || closed(l.Contended()) {
			t.Error("nothing was lost")
		}
		m.SetFaults(termtest.Faults{})
		time.Sleep(3 * time.Second)
		if !closed(l.Asked()) || !closed(l.Contended()) {
			t.Error("the signals are lost for good")
		}
	})
}
