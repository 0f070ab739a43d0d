package locks

import (
	"context"
	"fmt"
	"testing"
)

// A call that has nothing to do is refused before it begins.
func TestWorkMustBeGiven(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, _ := w.client(t, "a")
		// What panics is told, so that the test goes on.
		call := func(f func() error) (err error) {
			defer func() {
				if p := recover(); p != nil {
					err = fmt.Errorf("panic: %v", p)
				}
			}()
			return f()
		}
		wantConfig(t, call(func() error { return c.Do(bg, "k", nil) }), "work")
		wantConfig(t, call(func() error { return c.Elect(bg, "k", nil) }), "lead")
		if t.Failed() {
			t.FailNow() // a shard's work runs in a goroutine where nobody recovers
		}
		wantConfig(t, c.Spread(bg, "k", 2, nil), "work")
		wantConfig(t, c.Cell("k").Update(bg, nil), "change")
		_, err := c.Once(bg, "k", nil)
		wantConfig(t, err, "fn")
		if n := w.Sent(isOpen); n != 0 {
			t.Error("a session was opened")
		}
		if err := c.Do(bg, "k", func(context.Context, *Lock) error { return nil }); err != nil {
			t.Error(err)
		}
	})
}
