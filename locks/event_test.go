package locks

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
)

// mute is a replica on which the answers to Acquire get lost.
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
