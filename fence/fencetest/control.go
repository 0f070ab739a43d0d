package fencetest

import (
	"context"
	"sync"

	"github.com/wardmote/wardmote/fence"
)

// control is a guard with the fault of most hand-written guards: control compares and then
// writes, and between the two steps a later holder may claim and write.
type control struct {
	mu    sync.Mutex
	mark  fence.Token
	value string
}

func (c *control) Claim(_ context.Context, t fence.Token) error { return c.check(t) }

func (c *control) Write(ctx context.Context, t fence.Token, value string) error {
	if err := c.check(t); err != nil {
		return err
	}
	Pause(ctx, "between check and write")
	c.mu.Lock()
	defer c.mu.Unlock()
	c.value = value
	return nil
}

func (c *control) Read(context.Context) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.value, nil
}

func (c *control) check(t fence.Token) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case t == 0:
		return fence.ErrUnfenced
	case t < c.mark:
		return &fence.StaleError{Token: t, Seen: c.mark}
	}
	c.mark = t
	return nil
}
