package wardmote

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/locks"
)

func TestLocalGrantsAtOnceAndEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		began := time.Now()
		c, err := Local(ctx)
		if err != nil {
			t.Fatal(err)
		}
		lock, err := c.Acquire(ctx, "k")
		if err != nil {
			t.Fatal(err)
		}
		if d := time.Since(began); d > 500*time.Millisecond {
			t.Errorf("the first lock took %v", d)
		}
		if err := c.Node().Ready(ctx); err != nil {
			t.Error(err)
		}
		second := locks.New(c.Node(), locks.Options{Name: "second"})
		if _, err := second.TryAcquire(ctx, "k"); err == nil {
			t.Error("a key is held twice")
		}
		time.Sleep(5 * time.Minute)
		if err := lock.Err(); err != nil {
			t.Errorf("lost after minutes: %v", err)
		}

		other, err := Local(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := other.Acquire(ctx, "k"); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		if a, b := c.Node().Members(), other.Node().Members(); len(a) != 1 || len(b) != 1 {
			t.Errorf("two Locals have met: %v, %v", a, b)
		}

		if err := second.Close(ctx); err != nil {
			t.Error(err)
		}
		cancel()
		<-c.Node().Done()
		<-other.Node().Done()
		if err := lock.Err(); err == nil {
			t.Error("the lock has outlived the member")
		}
		if err := c.Node().Stop(); err != nil || c.Node().Err() != cluster.ErrStopped {
			t.Errorf("ended with %v, %v", err, c.Node().Err())
		}
		if _, err := c.Acquire(context.Background(), "k"); err == nil {
			t.Error("acquired after the end")
		}
		time.Sleep(time.Minute) // the libraries' last goroutines end
	})
}

func TestLocalRefusesAContextThatHasEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, ctx := range []context.Context{nil, ctx} {
		if c, err := Local(ctx); err == nil {
			t.Errorf("%v: got %v", ctx, c)
		}
	}
}
