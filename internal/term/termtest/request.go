package termtest

import (
	"context"
	"errors"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/term"
	"github.com/wardmote/wardmote/internal/wire"
)

const (
	retryAfter     = 300 * time.Millisecond // a request without an answer is sent again
	retryWaitAfter = 3 * time.Second        // the same for a request waiting for a change
	twiceWithin    = 3 * time.Second        // a second copy arrives
	pushAgain      = 2 * time.Second        // a lost event is told again
)

// A request is sent again and again until an answer comes.
type request[T any] struct {
	waits   bool              // for a change
	command bool              // may have an effect without an answer
	twice   bool              // may arrive twice
	session machine.SessionID // zero: none
	over    func(func(T))     // answers for a session not claimed, or detached
	send    func(*term.Term, *term.Subscriber, func(T, wire.Code)) (cancel func())
}

// A call is a request of a client, with all attempts.
type call[T any] struct {
	ctx      context.Context // ends with the call, and so does the waiting of every attempt
	m        *Member
	r        request[T]
	verdicts chan verdict[T] // size 1: the first answer of any attempt
	refused  chan struct{}   // size 1: an attempt was answered NotLeader, Busy or Unknown
}

type verdict[T any] struct {
	value T
	code  wire.Code
}

// ask sends r until an answer comes, ctx ends or the member stops.
func ask[T any](ctx context.Context, m *Member, r request[T]) (zero T, _ error) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	c := &call[T]{ctx, m, r, make(chan verdict[T], 1), make(chan struct{}, 1)}
	unknown := false
	fail := func(err error) (T, error) { return zero, &replica.Error{Unknown: unknown && r.command, Err: err} }
	clock := m.Clock()
	for {
		clock.Await()
		next := m.c.next.Wait()
		select {
		case <-m.done:
			return fail(replica.ErrStopped)
		default:
		}
		if ctx.Err() != nil {
			return fail(context.Cause(ctx))
		}
		faults, cut := m.network()
		if cut != nil {
			select {
			case <-cut:
			case <-m.done:
			case <-ctx.Done():
				return fail(errors.Join(replica.ErrNoQuorum, context.Cause(ctx)))
			}
			continue
		}
		c.attempt(faults)
		v, ok := c.wait(next)
		switch {
		case !ok:
			unknown = true
		case v.code == wire.CodeVersion, v.code == wire.CodeBad:
			return fail(replica.ErrVersion)
		case v.code == wire.CodeDenied:
			return fail(&replica.Denied{Reason: "by the test"})
		default:
			return v.value, nil
		}
	}
}

// wait waits for an answer until the request should be sent again.
func (c *call[T]) wait(next <-chan struct{}) (v verdict[T], ok bool) {
	patience := retryAfter
	if c.r.waits {
		patience = retryWaitAfter
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		select {
		case v = <-c.verdicts:
			return v, true
		case <-c.refused:
			timer.Reset(retryAfter)
			continue
		case <-timer.C:
		case <-next:
		case <-c.m.done:
		case <-c.ctx.Done():
		}
		return v, false
	}
}

// attempt sends the request once.
func (c *call[T]) attempt(f Faults) {
	m := c.m
	lost := m.c.chance(f.LoseAnswer)
	answer := func(v T, code wire.Code) {
		if _, cut := m.network(); lost || cut != nil {
			return
		}
		m.after(f.Latency, func() { m.awake(func() { c.answered(v, code) }) })
	}
	arrive := func(t *term.Term, s *term.Subscriber) {
		if cancel := c.r.send(t, s, answer); cancel != nil {
			context.AfterFunc(c.ctx, cancel)
		}
	}
	m.mu.Lock()
	n := m.connection
	detached := c.r.session != (machine.SessionID{}) && m.sinks[c.r.session] == nil
	m.mu.Unlock()
	if detached {
		c.r.over(func(v T) { c.answered(v, wire.CodeOK) })
		return
	}
	if n == nil || m.c.chance(f.LoseAsk) {
		return
	}
	n.send(f.Latency, arrive)
	if c.r.twice && m.c.chance(f.Twice) {
		m.after(twiceWithin, func() { m.alone(arrive) })
	}
}

// after calls f after a delay of up to most.
func (m *Member) after(most time.Duration, f func()) {
	if d := m.c.upTo(most); d > 0 {
		time.AfterFunc(d, f)
		return
	}
	f()
}

func (c *call[T]) answered(v T, code wire.Code) {
	switch code {
	case wire.CodeNotLeader, wire.CodeBusy, wire.CodeUnknown:
		select {
		case c.refused <- struct{}{}:
		default:
		}
		return
	}
	select {
	case c.verdicts <- verdict[T]{v, code}:
	default:
	}
}
