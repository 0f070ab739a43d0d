package lockstest

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/wardmote/wardmote/locks"
)

// Holder returns the holder of key by the word of the cluster, and the number of the
// member on which the holder's client runs; of several holders the one granted first. Ok
// is false, and i is -1, if nobody holds the key. The holder may be a member that was
// killed or frozen: its session goes on until the cluster has ended the session. If no
// member reaches a leader, the test fails.
func (c *Cluster) Holder(key string) (i int, h locks.Holder, ok bool) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), formLimit+2*c.ttl)
	defer cancel()
	st, ok := <-c.ask(ctx, key, func(locks.Status) bool { return true })
	if !ok {
		c.t.Fatalf("lockstest: nobody can tell who holds %q: %s", key, c.describe(key))
	}
	if len(st.Holders) == 0 {
		return -1, locks.Holder{}, false
	}
	return c.number(st.Holders[0].Node), st.Holders[0], true
}

// KillHolder kills the member on which key is held, and returns the member's number. If
// nobody holds the key, or the member does not run, the test fails.
func (c *Cluster) KillHolder(key string) int {
	c.t.Helper()
	i, h, ok := c.Holder(key)
	if !ok {
		c.t.Fatalf("lockstest: nobody holds %q: %s", key, c.describe(key))
	}
	if why := c.ended(h); why != "" {
		c.t.Fatalf("lockstest: %q is held by %s on %s, which %s", key, h.Client, h.Node, why)
	}
	c.Kill(i)
	return i
}

// WaitHeld waits until a client holds key, and returns the holder, with the number of the
// client's member. A holder does not count while its member is killed, frozen, paused or
// isolated, so that WaitHeld after one of these faults waits for the next holder. A
// holder behind a Cut or a Partition counts until its lock has ended. The holder may
// have changed when WaitHeld returns.
//
// The test fails if nobody holds the key for longer than a minute and two TTLs. The
// failure names holders that do not count, waiters, and the state of each member.
func (c *Cluster) WaitHeld(key string) (i int, h locks.Holder) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), formLimit+2*c.ttl)
	defer cancel()
	for {
		changed := c.changed.Wait() // before the state is read
		asking, stop := context.WithCancel(ctx)
		held := c.ask(asking, key, func(st locks.Status) bool { return c.counted(st) != nil })
		select {
		case st, ok := <-held:
			stop()
			if ok {
				if h := c.counted(st); h != nil {
					return c.number(h.Node), *h
				}
				continue
			}
			// No member can be asked: one must come back first.
			select {
			case <-changed:
				continue
			case <-ctx.Done():
			}
		case <-changed:
			stop()
			continue
		case <-ctx.Done():
		}
		stop()
		c.t.Fatalf("lockstest: nobody holds %q: %s", key, c.describe(key))
	}
}

// ask has all members that can be asked watch key, and returns the first state that
// passes. The channel is closed without a state when no member is left that could answer,
// and when ctx ends. The goroutine of a member that is frozen meanwhile ends after the
// member is thawed; the end of the test waits for the goroutine.
func (c *Cluster) ask(ctx context.Context, key string, passes func(locks.Status) bool) <-chan locks.Status {
	ctx, cancel := context.WithCancel(ctx)
	members := c.awake()
	answers := make(chan *locks.Status, len(members)) // nil: this member gives up
	for _, m := range members {
		client := c.observer(m)
		c.stops.Go(func() {
			for st, err := range client.Watch(ctx, key) {
				if err == nil && passes(st) {
					answers <- &st
					return
				}
			}
			answers <- nil
		})
	}
	first := make(chan locks.Status, 1)
	c.stops.Go(func() {
		defer cancel()
		defer close(first)
		for range members {
			select {
			case st := <-answers:
				if st != nil {
					first <- *st
					return
				}
			case <-ctx.Done():
				return
			}
		}
	})
	return first
}

// observer returns the client of m with which the cluster itself watches keys. The client
// never opens a session.
func (c *Cluster) observer(m *member) *locks.Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m.observer == nil {
		m.observer = locks.New(m.node, locks.Options{Name: "lockstest"})
		m.clients = append(m.clients, m.observer)
	}
	return m.observer
}

// number returns the number of the member of that name, or -1.
func (c *Cluster) number(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, s := range c.hosts {
		if s.name == name {
			return i
		}
	}
	return -1
}

// counted returns the first holder that counts, or nil.
func (c *Cluster) counted(st locks.Status) *locks.Holder {
	for i := range st.Holders {
		if c.discounts(st.Holders[i]) == "" {
			return &st.Holders[i]
		}
	}
	return nil
}

// ended returns why the process of h does not run, or "".
func (c *Cluster) ended(h locks.Holder) string {
	i := c.number(h.Node)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case i < 0:
		return "is no member of this test"
	case c.members[i] == nil:
		return "was killed"
	case h.Acquired.Before(c.members[i].started.Truncate(time.Millisecond)):
		return "was killed, and started again" // times of the log are by package time, in milliseconds
	}
	return ""
}

// discounts returns why h does not count as a holder, or "".
func (c *Cluster) discounts(h locks.Holder) string {
	if why := c.ended(h); why != "" {
		return why
	}
	s := c.hosts[c.number(h.Node)]
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case s.clock.Frozen():
		return "is frozen"
	case s.paused:
		return "is paused"
	case s.isolated:
		return "is isolated"
	case h.Delayed:
		return "has lost the lock, and keeps the key taken by a delay"
	}
	return ""
}

// describe returns the state of key and of all members, for the message of a failure.
func (c *Cluster) describe(key string) string {
	var b strings.Builder
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if st, ok := <-c.ask(ctx, key, func(locks.Status) bool { return true }); ok {
		for _, h := range st.Holders {
			fmt.Fprintf(&b, "\n\tholder %s on %s, token %d", h.Client, h.Node, h.Token)
			if why := c.discounts(h); why != "" {
				fmt.Fprintf(&b, ", does not count: the member %s", why)
			}
		}
		for _, w := range st.Waiters {
			fmt.Fprintf(&b, "\n\twaiter %s on %s", w.Client, w.Node)
		}
		if st.Queue == 0 {
			b.WriteString("\n\tnobody waits")
		}
	} else {
		b.WriteString("\n\tno member reaches a leader")
	}
	return b.String() + c.states()
}

// states returns a line for each member, for the message of a failure.
func (c *Cluster) states() string {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var b strings.Builder
	for i := range c.hosts {
		fmt.Fprintf(&b, "\n\tmember %d: %s", i, c.state(ctx, i))
	}
	return b.String()
}

// state describes member i in a few words.
func (c *Cluster) state(ctx context.Context, i int) string {
	c.mu.Lock()
	m, s := c.members[i], *c.hosts[i]
	c.mu.Unlock()
	switch {
	case m == nil:
		return "does not run"
	case s.clock.Frozen():
		return "frozen"
	}
	var b strings.Builder
	if s.paused {
		b.WriteString("paused, ")
	}
	if s.isolated {
		b.WriteString("isolated, ")
	}
	h := m.node.Health(ctx)
	switch {
	case h.Reason != "":
		b.WriteString(h.Reason)
	case h.Quorum:
		fmt.Fprintf(&b, "reaches the leader %s", h.Leader)
	default:
		fmt.Fprintf(&b, "reaches no leader: %v", h.Err)
	}
	return b.String()
}
