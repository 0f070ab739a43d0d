package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/internal/history"
	"github.com/wardmote/wardmote/locks"
)

// A caller is a goroutine of a program: it makes call after call, and each stands in the
// record.
type caller struct {
	w      *town
	p      *process
	r      *rand.Rand
	client *locks.Client
	name   string // of the client, unique
	id     string // of the caller
	ctx    context.Context
	under  context.Context // of a lock held meanwhile
}

// An ask is a request for a grant.
type ask struct {
	op   history.Op
	opts []locks.Option
	set  bool
}

func want(keys ...string) *ask {
	return &ask{op: history.Op{Kind: history.Acquire, Keys: keys}, set: len(keys) > 1}
}

func (a *ask) with(change func(*history.Op), opts ...locks.Option) *ask {
	if change != nil {
		change(&a.op)
	}
	a.opts = append(a.opts, opts...)
	return a
}

type opKey struct{}

// pending is a call whose record may change when a Trace tells of it.
type pending struct{ op *history.Op }

// trace returns the Trace of a client: it tells when a request waits in the queue.
func (w *town) trace(p *process, client string) *locks.Trace {
	change := func(ctx context.Context, f func(*history.Op)) {
		if call, ok := ctx.Value(opKey{}).(*pending); ok {
			w.note(call, f)
		}
	}
	return &locks.Trace{
		SessionLost: func(_ context.Context, why locks.Reason) { w.cover.lost(holder{p, client}, why) },
		Queued: func(ctx context.Context, _ locks.LockEvent) {
			change(ctx, func(o *history.Op) {
				if o.Queued == 0 && o.Return == 0 {
					o.Queued = w.rec.Now()
				}
			})
		},
		Retrying: func(ctx context.Context, _ locks.LockEvent) {
			change(ctx, func(o *history.Op) { o.Queued, o.Retried = 0, true })
		},
	}
}

// begin records the beginning of a call.
func (c *caller) begin(o history.Op) (*pending, context.Context) {
	o.ID = c.w.rec.NewID(string(o.Kind))
	o.Process, o.Client, o.Caller = c.p.name, c.name, c.id
	o.Call = c.w.rec.Now()
	p := &pending{&o}
	c.w.mu.Lock()
	c.w.waits[p] = o.Call
	c.w.mu.Unlock()
	c.w.rec.Op(o)
	parent := c.ctx
	if c.under != nil {
		parent = c.under
	}
	return p, context.WithValue(parent, opKey{}, p)
}

// note changes the record of a call that goes on.
func (w *town) note(p *pending, change func(*history.Op)) {
	w.mu.Lock()
	change(p.op)
	o := *p.op
	w.mu.Unlock()
	w.rec.Op(o)
}

// finish records the end of a call.
func (c *caller) finish(p *pending, err error, change func(*history.Op)) history.Op {
	stamp := c.w.rec.Now()
	c.w.mu.Lock()
	delete(c.w.waits, p)
	p.op.Return = stamp
	p.op.Outcome, p.op.Err = classify(err)
	if err != nil {
		p.op.Text = err.Error()
	}
	if change != nil {
		change(p.op)
	}
	o := *p.op
	c.w.mu.Unlock()
	c.w.rec.Op(o)
	return o
}

// classify tells what an error says about the cluster.
func classify(err error) (history.Outcome, string) {
	var config *cluster.ConfigError
	switch {
	case err == nil:
		return history.Done, ""
	case errors.Is(err, locks.ErrHeld):
		return history.Refused, history.ErrHeld
	case errors.Is(err, locks.ErrDeadlock):
		return history.Refused, history.ErrDeadlock
	case errors.Is(err, locks.ErrCapacity):
		return history.Refused, history.ErrCapacity
	case errors.Is(err, locks.ErrTooManyWaiters):
		return history.Refused, history.ErrWaiters
	case errors.Is(err, locks.ErrChanged):
		return history.Refused, history.ErrChanged
	case errors.Is(err, locks.ErrTooOld), errors.Is(err, locks.ErrFutureToken):
		return history.Refused, history.ErrTooOld
	case errors.Is(err, locks.ErrWrongMode):
		return history.Refused, history.ErrMode
	case errors.Is(err, locks.ErrNotHeld):
		return history.Refused, history.ErrNotHeld
	case errors.Is(err, locks.ErrUncertain):
		return history.Unknown, history.ErrUncertain
	case errors.Is(err, locks.ErrUnfinished):
		return history.Unknown, history.ErrUnfinished
	case errors.Is(err, locks.ErrOnce):
		return history.Unknown, history.ErrOnce
	case errors.Is(err, locks.ErrClosed), errors.Is(err, cluster.ErrStopped):
		return history.Unknown, history.ErrClosed
	case errors.Is(err, locks.ErrReleased):
		return history.Refused, history.ErrReleased
	case errors.Is(err, locks.ErrLost), errors.Is(err, locks.ErrSessionLost):
		return history.Unknown, history.ErrLost
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return history.Unknown, history.ErrContext
	case errors.As(err, &config):
		return history.Refused, history.ErrOther
	}
	return history.Unknown, history.ErrOther
}

// take asks for a grant, and returns nil if there is none.
func (c *caller) take(a *ask, patience time.Duration) *grip {
	a.op.Lazy = a.op.Lazy || a.op.Sticky
	p, ctx := c.begin(a.op)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if c.under != nil {
		defer context.AfterFunc(c.ctx, cancel)()
	}
	var l lockLike
	var err error
	switch {
	case a.set:
		var s *locks.Set
		if s, err = c.client.AcquireAll(ctx, a.op.Keys, a.opts...); err == nil {
			l = s
		}
	default:
		call := c.client.Acquire
		if a.op.Kind == history.Try {
			call = c.client.TryAcquire
		}
		var one *locks.Lock
		if one, err = call(ctx, a.op.Keys[0], a.opts...); err == nil {
			l = one
		}
	}
	o := c.finish(p, err, func(o *history.Op) {
		if l != nil {
			o.Token = uint64(l.Token())
			if one, ok := l.(*locks.Lock); ok && o.Owner != "" {
				o.Shared = one.Depth() > 1
			}
		}
	})
	if l == nil {
		return nil
	}
	c.w.granted()
	return c.w.grasp(c.p, o.ID, l, history.Hold{
		Client: c.name, Keys: o.Keys, Mode: o.Mode, N: o.N, Tree: o.Tree, Owner: o.Owner, Sticky: o.Sticky,
	}, o.Return)
}

// granted counts.
func (w *town) granted() {
	w.mu.Lock()
	w.grants++
	w.mu.Unlock()
}

// drop releases a grip, perhaps to a successor.
func (c *caller) drop(g *grip, to string) {
	if g == nil {
		return
	}
	g.word()
	kind := history.Release
	if to != "" {
		kind = history.HandOver
	}
	p, _ := c.begin(history.Op{Kind: kind, Keys: nil, Grant: g.op, Value: to})
	ctx, cancel := context.WithTimeout(context.Background(), c.upTo(2*c.w.shape.ttl))
	defer cancel()
	var err error
	if l, ok := g.l.(*locks.Lock); ok && to != "" {
		if err = l.HandOver(ctx, to); errors.Is(err, locks.ErrWrongMode) {
			c.finish(p, err, nil)
			c.drop(g, "")
			return
		}
	} else {
		err = g.l.Release(ctx)
	}
	if errors.Is(err, locks.ErrNoSuccessor) {
		err = nil // released to the next waiter
	}
	o := c.finish(p, err, func(o *history.Op) {
		if errors.Is(err, locks.ErrLost) {
			o.Outcome = history.Refused
		}
	})
	if o.Outcome == history.Refused && o.Err == history.ErrLost {
		g.end(history.Lost, o.Text)
	} else {
		g.end(history.Released, "")
	}
	if g.l.Err() == nil {
		c.w.breaks("release", "%s holds token %d after its release: %v", c.id, g.l.Token(), err)
	}
}

func (c *caller) upTo(d time.Duration) time.Duration { return time.Duration(1 + c.r.Int64N(int64(d))) }

func (c *caller) one(n int) bool { return c.r.IntN(n) == 0 }

// patience is how long a caller waits for a grant: short while there are faults, so that
// calls are cut off, and long in the calm.
func (c *caller) patience() time.Duration {
	if c.w.calm.Err() != nil {
		return time.Hour
	}
	return c.upTo(6 * c.w.shape.ttl)
}

// holdFor is how long a caller holds.
func (c *caller) holdFor() time.Duration {
	switch {
	case c.w.calm.Err() != nil:
		return c.upTo(c.w.shape.ttl / 8)
	case c.one(3):
		return c.upTo(c.w.shape.ttl / 20)
	case c.one(4):
		return c.upTo(3 * c.w.shape.ttl)
	}
	return c.upTo(c.w.shape.ttl)
}

// A guard is a resource that compares tokens.
type guard struct {
	top fence.Token
	n   int64
}

// write writes to the resource of a key under a token, and records the verdict.
func (w *town) write(p *process, resource string, t fence.Token) {
	w.mu.Lock()
	g := w.guard[resource]
	if g == nil {
		g = &guard{}
		w.guard[resource] = g
	}
	ok := t >= g.top
	g.top = max(g.top, t)
	g.n++
	n := g.n
	w.mu.Unlock()
	w.rec.Write(history.Write{Resource: resource, N: n, At: w.rec.Now(), Process: p.name, Token: uint64(t), OK: ok})
}

// key names a key of the present stretch of the run. Keys change, so that the history of
// each stays short; the callers change over one by one. In the calm some callers go back to
// the keys of the stretch before.
func (c *caller) key(name string) string {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	epoch := c.w.epoch
	if c.w.calm.Err() != nil && epoch > 0 {
		epoch -= c.r.IntN(2) // a key that its keeper does not come back to must be free too
	}
	return fmt.Sprintf("%s.%d", name, epoch)
}
