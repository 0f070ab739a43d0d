package locks

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
)

// mute is a replica that loses the answers to Acquire.
type mute struct{ replica.Replica }

func (m mute) Propose(ctx context.Context, cmd machine.Command) (machine.Outcome, error) {
	o, err := m.Replica.Propose(ctx, cmd)
	if _, ok := cmd.(machine.Acquire); ok {
		<-ctx.Done()
		return machine.Outcome{}, &replica.Error{Unknown: true, Err: context.Cause(ctx)}
	}
	return o, err
}

func TestAGrantToldByEventEndsTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.join("a"), w.join("b")
		ca, cb := a.client(Options{}), newClient(mute{b}, Options{})
		l, err := ca.Acquire(context.Background(), "k")
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan error, 1)
		go func() { _, err := cb.Acquire(context.Background(), "k"); got <- err }()
		time.Sleep(time.Second)
		if err := l.Release(context.Background()); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		select {
		case err := <-got:
			if err != nil {
				t.Error(err)
			}
		default:
			t.Error("granted by event, but Acquire waits for its answer")
		}
		if err := cb.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if err := ca.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// Late events of an ended session are not taken for events of the next session.
func TestEventsOfAFormerSessionAreDropped(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		lost := acquire(t, c, "k")
		former := c.currentSession()
		w.Apply(expire(w, c))
		settle()
		l := acquire(t, c, "k")
		held := acquire(t, b, "held")
		next := waiting(t, bg, c, "held")
		for seq := range uint64(4) {
			for _, e := range []machine.Event{
				{Kind: machine.EventGranted, Session: former.id, Seq: seq, Key: "held", Token: 99},
				{Kind: machine.EventAsked, Session: former.id, Seq: seq, Key: "k", Token: machine.Token(lost.Token())},
				{Kind: machine.EventLost, Session: former.id, Seq: seq, Key: "k", Token: machine.Token(lost.Token()), Reason: machine.Broken},
				{Kind: machine.EventEnded, Session: former.id, Reason: machine.Expired},
			} {
				former.handleEvent(e)
			}
		}
		next.pends(t)
		if l.Err() != nil || closed(l.Asked()) {
			t.Errorf("the lock of now: %v, asked %v", l.Err(), closed(l.Asked()))
		}
		wantLost(t, lost, SessionExpired)
		release(t, held)
		next.ok(t)
		time.Sleep(testTTL)
		if w.Sent(isRelease)+w.Sent(isWithdraw) != 1 {
			t.Error("something was let go")
		}
	})
}
