package locks

import (
	"context"
	"sync"
	"time"
)

const (
	blockedAfter = 3 * time.Second // a call without a leader for so long is told
	blockedLook  = time.Second     // while calls run, the reason is looked at so often
)

// blockedCalls are the running calls of a client that need the cluster, for
// Trace.Blocked.
type blockedCalls struct {
	mu       sync.Mutex
	calls    map[*blockedCall]struct{}
	watching bool // watchBlocked runs
}

// blockedCall is a running call of a client.
type blockedCall struct {
	ctx   context.Context
	key   string
	since time.Time
	told  string // the reason told last; "" if none
}

func calledNothing() {}

// mayBlock registers a call with ctx about key, until done is called. It does nothing
// without Trace.Blocked.
func (c *Client) mayBlock(ctx context.Context, key string) (done func()) {
	if c.trace.to().Blocked == nil {
		return calledNothing
	}
	b := &c.blocked
	call := &blockedCall{ctx: ctx, key: key, since: time.Now()}
	b.mu.Lock()
	if b.calls == nil {
		b.calls = make(map[*blockedCall]struct{})
	}
	b.calls[call] = struct{}{}
	start := !b.watching
	b.watching = true
	b.mu.Unlock()
	if start {
		c.goTask(c.watchBlocked)
	}
	return func() {
		b.mu.Lock()
		delete(b.calls, call)
		b.mu.Unlock()
	}
}

// watchBlocked tells the calls that are blocked, and why, until none runs or the
// client closes. It looks again and again: a reason is made up of many rooms'
// knowledge, and no event tells that the text would be another one.
func (c *Client) watchBlocked() {
	look := time.NewTicker(blockedLook)
	defer look.Stop()
	var lost time.Time // since when no leader is known; zero: one is
	for {
		select {
		case <-look.C:
		case <-c.closing.Done():
			return
		}
		err, now := c.rep.Reached(), time.Now()
		switch {
		case err == nil:
			lost = time.Time{}
		case lost.IsZero():
			lost = now
		}
		if !c.tellBlocked(err, lost, now) {
			return
		}
	}
}

// tellBlocked tells each call that has been blocked for long enough, unless the call
// was told the same reason. The result is false if no call runs.
func (c *Client) tellBlocked(err error, lost, now time.Time) bool {
	b := &c.blocked
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.calls) == 0 {
		b.watching = false
		return false
	}
	for call := range b.calls {
		switch {
		case err == nil:
			call.told = ""
		case now.Sub(lost) >= blockedAfter-blockedLook && now.Sub(call.since) >= blockedAfter && call.told != err.Error():
			call.told = err.Error()
			c.trace.blocked(call.ctx, LockEvent{Key: call.key, Took: now.Sub(call.since), Err: err})
		}
	}
	return true
}
