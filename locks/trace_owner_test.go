package locks

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// Calls of one owner that begin at the same moment make one request: one call is told to
// begin, and its grant ends it. A call that joins after its own session was lost has ended
// before.
func TestEveryBeginningOfAnOwnerHasAnEnd(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var mu sync.Mutex
		calls := make(map[int]string)
		next := 0
		step := func(ctx context.Context, to string) {
			mu.Lock()
			defer mu.Unlock()
			n, _ := ctx.Value(callerKey{}).(int)
			if n == 0 {
				if to != "failed" {
					t.Errorf("%s without a beginning", to)
				}
				return // a call that has joined another, or found no session
			}
			if was := calls[n]; was != "began" && was != "granted" {
				t.Errorf("call %d: from %q to %q", n, was, to)
			}
			calls[n] = to
		}
		c := w.join("n").client(Options{Trace: &Trace{
			Acquiring: func(ctx context.Context, e LockEvent) (context.Context, map[string]string) {
				mu.Lock()
				defer mu.Unlock()
				next++
				calls[next] = "began"
				ctx = context.WithValue(ctx, callerKey{}, next)
				mu.Unlock()
				time.Sleep(time.Millisecond) // other calls of the owner begin meanwhile
				mu.Lock()
				return ctx, nil
			},
			Acquired:      func(ctx context.Context, e LockEvent) { step(ctx, "granted") },
			AcquireFailed: func(ctx context.Context, e LockEvent) { step(ctx, "failed") },
			Released:      func(ctx context.Context, e LockEvent) { step(ctx, "released") },
			Lost:          func(ctx context.Context, e LockEvent) { step(ctx, "lost") },
		}})
		other, _ := w.client(t, "other")
		r := rand.New(rand.NewPCG(1, 2))
		var wg sync.WaitGroup
		for range 8 {
			seed := r.Uint64()
			wg.Go(func() {
				r := rand.New(rand.NewPCG(seed, 3))
				for range 60 {
					ctx, cancel := context.WithTimeout(bg, time.Duration(r.IntN(3000))*time.Millisecond)
					if l, err := c.Acquire(ctx, fmt.Sprint(r.IntN(2)), Reentrant("o")); err == nil {
						time.Sleep(time.Duration(r.IntN(500)) * time.Millisecond)
						_ = l.Release(ctx)
					}
					cancel()
				}
			})
		}
		wg.Go(func() {
			for i := range 20 {
				time.Sleep(500 * time.Millisecond)
				if i%5 == 4 {
					w.ExpireNow()
				}
				ctx, cancel := context.WithTimeout(bg, 10*time.Second)
				if l, err := other.Acquire(ctx, fmt.Sprint(i%2)); err == nil {
					time.Sleep(2 * time.Second)
					_ = l.Release(bg)
				}
				cancel()
			}
		})
		wg.Wait()
		shutdown(t, c)
		counts := make(map[string]int)
		for n, at := range calls {
			counts[at]++
			if at == "began" || at == "granted" {
				t.Errorf("call %d ended as %q", n, at)
			}
		}
		if counts["released"] == 0 || counts["failed"] == 0 || counts["lost"] == 0 {
			t.Errorf("the test shows too little: %v", counts)
		}
	})
}

// A function of the Trace that panics leaves no request behind for which the other calls of
// the owner would wait.
func TestAPanicInAcquiringFreesTheOwner(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		first := true
		c := w.join("n").client(Options{Trace: &Trace{
			Acquiring: func(ctx context.Context, _ LockEvent) (context.Context, map[string]string) {
				if first {
					first = false
					panic("a function of the program")
				}
				return ctx, nil
			},
		}})
		defer shutdown(t, c)
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			_, _ = c.Acquire(bg, "k", Reentrant("o"))
		}()
		ctx, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		l, err := c.Acquire(ctx, "k", Reentrant("o"))
		if err != nil {
			t.Fatal(err)
		}
		release(t, l)
	})
}
