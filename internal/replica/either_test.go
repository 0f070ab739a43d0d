package replica

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

type ender struct {
	done chan struct{}
	err  error
}

func (e *ender) Done() <-chan struct{} { return e.done }

func (e *ender) Err() error {
	select {
	case <-e.done:
		return e.err
	default:
		return nil
	}
}

// TestEither: an Either ends with each of the two, with the reason of the one that ended, and
// for callers that know nothing of Ends too.
func TestEither(t *testing.T) {
	why := errors.New("why")
	tests := map[string]struct {
		end        func(cancel context.CancelCauseFunc, other *ender, e *Either)
		err, cause error
	}{
		"nothing":     {func(context.CancelCauseFunc, *ender, *Either) {}, nil, nil},
		"the context": {func(cancel context.CancelCauseFunc, _ *ender, _ *Either) { cancel(why) }, context.Canceled, why},
		"the ender":   {func(_ context.CancelCauseFunc, o *ender, _ *Either) { close(o.done) }, context.Canceled, why},
		"Close":       {func(_ context.CancelCauseFunc, _ *ender, e *Either) { e.Close() }, context.Canceled, context.Canceled},
		"a deadline": {func(context.CancelCauseFunc, *ender, *Either) { time.Sleep(2 * time.Second) },
			context.DeadlineExceeded, context.DeadlineExceeded},
	}
	for name, tt := range tests {
		for _, watched := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				timed, stop := context.WithTimeout(context.Background(), 2*time.Second)
				defer stop()
				ctx, cancel := context.WithCancelCause(timed)
				defer cancel(nil)
				other := &ender{make(chan struct{}), why}
				var e Either
				e.Begin(ctx, other)
				child := context.Context(&e)
				if watched {
					var stop context.CancelFunc
					child, stop = context.WithCancel(&e)
					defer stop()
				}
				tt.end(cancel, other, &e)
				synctest.Wait()
				if e.Err() != tt.err || Cause(&e) != tt.cause {
					t.Errorf("%s: %v, because of %v; want %v, %v", name, e.Err(), Cause(&e), tt.err, tt.cause)
				}
				if (child.Err() != nil) != (tt.err != nil) {
					t.Errorf("%s: the child's error is %v", name, child.Err())
				}
				if tt.err != nil && watched {
					<-child.Done()
					<-e.Done()
				}
				if one, two := Ends(&e); name != "Close" && (ended(one) || ended(two)) != (tt.err != nil) {
					t.Errorf("%s: the channels of Ends say otherwise", name)
				}
				e.Close() // joins, or the bubble would end with a goroutine
				<-e.Done()
			})
		}
	}
	if one, two := Ends(context.Background()); one != nil || two != nil || Cause(context.Background()) != nil {
		t.Error("a plain context is not its own")
	}
}

func ended(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
