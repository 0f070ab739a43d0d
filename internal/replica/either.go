package replica

import (
	"context"
	"sync"
	"sync/atomic"
)

// An Ender ends once.
type Ender interface {
	Done() <-chan struct{} // closed at the end
	Err() error            // nil before the end, and then the reason
}

// An Either is a context that ends with another context or with an Ender, whichever ends
// first. Every call of a lock has one, so an Either takes no memory but its own, no goroutine
// and no lock of the two, as long as nobody calls Done: a Replica waits for the channels of
// Ends. Without it a call would need context.WithCancel and context.AfterFunc, which take
// seven pieces of memory and the locks of both contexts.
//
// Begin comes before the first use, and Close after the last.
type Either struct {
	context.Context // has the values and the deadline
	other           Ender
	closed          atomic.Bool

	mu   sync.Mutex
	done chan struct{} // nil until Done is called
	shut chan struct{} // closed by Close
	wg   sync.WaitGroup
}

// Begin makes e end with ctx or with other.
func (e *Either) Begin(ctx context.Context, other Ender) { e.Context, e.other = ctx, other }

// Close ends e, and joins the goroutine of Done.
func (e *Either) Close() {
	e.closed.Store(true)
	e.mu.Lock()
	if e.shut != nil {
		close(e.shut)
		e.shut = nil
	}
	e.mu.Unlock()
	e.wg.Wait()
}

// Err implements context.Context.
func (e *Either) Err() error {
	if err := e.Context.Err(); err != nil {
		return err
	}
	if e.other.Err() != nil || e.closed.Load() {
		return context.Canceled
	}
	return nil
}

// Done implements context.Context, for callers that do not know of Ends. It takes a goroutine
// until e ends.
func (e *Either) Done() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.done != nil {
		return e.done
	}
	done, shut := make(chan struct{}), make(chan struct{})
	e.done = done
	if e.closed.Load() {
		close(done)
		return done
	}
	e.shut = shut
	e.wg.Go(func() {
		defer close(done)
		select {
		case <-e.Context.Done():
		case <-e.other.Done():
		case <-shut:
		}
	})
	return done
}

// Ends returns the channels of which one is closed when ctx ends. Other is nil unless ctx is
// an Either. A caller that waits outlasts no Close: Close follows the call.
func Ends(ctx context.Context) (one, other <-chan struct{}) {
	if e, ok := ctx.(*Either); ok {
		return e.Context.Done(), e.other.Done()
	}
	return ctx.Done(), nil
}

// Cause is context.Cause, and knows the reason of an Either's Ender too.
func Cause(ctx context.Context) error {
	e, ok := ctx.(*Either)
	if !ok {
		return context.Cause(ctx)
	}
	if cause := context.Cause(e.Context); cause != nil {
		return cause
	}
	if why := e.other.Err(); why != nil {
		return why
	}
	return e.Err()
}
