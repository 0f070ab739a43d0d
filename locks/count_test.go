package locks

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/meter"
)

// Each error of a request has its kind for the metrics.
func TestFailuresHaveKinds(t *testing.T) {
	for _, c := range []struct {
		err  error
		want meter.Failure
	}{
		{&HeldError{}, meter.FailedHeld},
		{callError("acquire", "k", cluster.ErrFounding), meter.FailedHeld},
		{callError("acquire", "k", context.Canceled), meter.FailedEnded},
		{callError("acquire", "k", &endError{cause: errors.New("cause"), err: context.DeadlineExceeded}), meter.FailedEnded},
		{callError("acquire", "k", fmt.Errorf("%w: %w", cluster.ErrNoQuorum, context.Canceled)), meter.FailedNoQuorum},
		{refusalError(&acquireRequest{}, machine.Outcome{Code: machine.TooManyWaiters}), meter.FailedFull},
		{refusalError(&acquireRequest{}, machine.Outcome{Code: machine.TooManyKeys}), meter.FailedFull},
		{refusalError(&acquireRequest{}, machine.Outcome{Code: machine.TooMuchOfNode, Field: machine.NodeKeys, Limit: 1}), meter.FailedFull},
		{&DeadlockError{}, meter.FailedDeadlock},
		{ErrClosed, meter.FailedClosed},
		{callError("acquire", "k", cluster.ErrStopped), meter.FailedClosed},
		{&CapacityError{}, meter.FailedOther},
		{errors.New("new"), meter.FailedOther},
	} {
		if kind := failureOf(c.err); kind != c.want {
			t.Errorf("%v: %s, want %s", c.err, meter.FailureNames[kind], meter.FailureNames[c.want])
		}
	}
	if int(lastReason) >= meter.MaxReasons {
		t.Error("reasons without a counter")
	}
}

const lastReason = SessionEnded

// Waits and holds are counted once each, whatever the way in and the way out, and none of
// the keys of Once.
func TestEachGrantIsCountedOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, m := w.client(t, "a")
		key := func(l *meter.Labels) *meter.Labels { c.meter.Add(l); return l }
		labels := key(meter.NewLabels(func(string) string { return "x" }))
		for range 3 {
			l := acquire(t, c, "a")
			time.Sleep(time.Second)
			if err := l.Release(bg); err != nil {
				t.Fatal(err)
			}
			_ = l.Release(bg)
		}
		if err := c.Do(bg, "do", func(context.Context, *Lock) error { return nil }); err != nil {
			t.Fatal(err)
		}
		set, err := c.AcquireAll(bg, []string{"x", "y"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Once(bg, "id", func(context.Context) ([]byte, error) { return nil, nil }); err != nil {
			t.Fatal(err)
		}
		held := acquire(t, c, "a")
		counts := func() [5]uint64 {
			s := labels.All()
			x := s[len(s)-1]
			return [5]uint64{c.meter.Waits.Read().Count(), c.meter.Holds.Read().Count(), uint64(c.meter.Held.Load()), x.Waits.Read().Count(), uint64(x.Held())}
		}
		if got := counts(); got != [5]uint64{6, 4, 2, 6, 2} {
			t.Errorf("waits, holds, held, waits by key, held by key: %v", got)
		}
		ctx := held.Context()
		m.Isolate()
		<-ctx.Done()
		if got := counts(); got != [5]uint64{6, 6, 0, 6, 0} {
			t.Errorf("after the loss: %v", got)
		}
		lost := uint64(0)
		for i := range c.meter.Lost {
			lost += c.meter.Lost[i].Load()
		}
		if lost != 2 || c.meter.SessionsLost[QuorumUnreachable].Load() != 1 {
			t.Errorf("%d losses", lost)
		}
		_ = set
	})
}
