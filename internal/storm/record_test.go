//go:build linux

package storm

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/internal/history"
	"github.com/wardmote/wardmote/locks"
)

// caller is a goroutine of a client with one call after the other. A caller records each
// call twice: before, so that a kill leaves an open call, and after.
type caller struct {
	p    *program
	c    *client
	name string
	r    *rand.Rand
	now  *entry // of the latest call
	news bool   // the driver is told when a request waits
}

// ctx returns a context whose requests are the caller's.
func (k *caller) ctx(parent context.Context) context.Context {
	return context.WithValue(parent, callerKey{}, k)
}

// call records op, runs f, and records op again with the outcome. f may set the results.
func (k *caller) call(op *history.Op, f func() error) error {
	k.begin(op)
	err := f()
	k.end(op, err)
	return err
}

func (k *caller) begin(op *history.Op) {
	op.ID = k.p.rec.NewID(k.p.s.Process)
	op.Process, op.Client, op.Caller = k.p.s.Process, k.c.name, k.name
	op.Call = k.p.rec.Now()
	k.now = &entry{rec: k.p.rec}
	k.now.put(*op)
}

func (k *caller) end(op *history.Op, err error) {
	op.Return = k.p.rec.Now()
	op.Outcome, op.Err = outcome(op.Kind, err)
	if err != nil {
		op.Text = err.Error()
	}
	k.now.put(*op)
}

// outcome sorts the errors. Unknown are all errors that leave open whether anything was
// changed.
func outcome(kind history.Kind, err error) (history.Outcome, string) {
	var denied *cluster.DeniedError
	switch {
	case err == nil:
		return history.Done, ""
	case errors.As(err, &denied):
		return history.Refused, history.ErrOther
	}
	for _, c := range []struct {
		target  error
		outcome history.Outcome
		class   string
	}{
		{locks.ErrDeadlock, history.Refused, history.ErrDeadlock},
		{locks.ErrCapacity, history.Refused, history.ErrCapacity},
		{locks.ErrChanged, history.Refused, history.ErrChanged},
		{locks.ErrTooOld, history.Refused, history.ErrTooOld},
		{locks.ErrWrongMode, history.Refused, history.ErrMode},
		{locks.ErrNotHeld, history.Refused, history.ErrNotHeld},
		{locks.ErrHeld, history.Refused, history.ErrHeld},
		{locks.ErrUncertain, history.Unknown, history.ErrUncertain},
		{locks.ErrUnfinished, history.Refused, history.ErrUnfinished},
		{locks.ErrOnce, history.Refused, history.ErrOnce},
		{locks.ErrClosed, history.Unknown, history.ErrClosed},
		{cluster.ErrStopped, history.Unknown, history.ErrClosed},
		{locks.ErrSessionLost, history.Unknown, history.ErrLost},
		{locks.ErrReleased, history.Refused, history.ErrReleased},
		{locks.ErrLost, history.Refused, history.ErrLost},
		{context.DeadlineExceeded, history.Unknown, history.ErrContext},
		{context.Canceled, history.Unknown, history.ErrContext},
	} {
		if errors.Is(err, c.target) {
			// A grant lost before the return of Acquire had taken effect.
			if c.class == history.ErrLost && (kind == history.Acquire || kind == history.Try) {
				return history.Unknown, c.class
			}
			return c.outcome, c.class
		}
	}
	return history.Unknown, history.ErrOther
}

// A lock is a locks.Lock or a locks.Set.
type lock interface {
	Token() fence.Token
	Err() error
	Context() context.Context
	Release(context.Context) error
}

// grant is a grant with its record, as the holder sees the grant.
type grant struct {
	p    *program
	lock lock

	base string // of the resource, as read by hold

	mu sync.Mutex
	h  history.Hold
}

// granted records a hold. The stamp From is taken here, after the call has returned.
func (k *caller) granted(op *history.Op, l lock) *grant {
	g := &grant{p: k.p, lock: l}
	g.h = history.Hold{
		ID: k.p.rec.NewID(k.p.s.Process + "/h"), Op: op.ID, Process: op.Process, Client: op.Client,
		Keys: op.Keys, Mode: op.Mode, N: op.N, Tree: op.Tree, Owner: op.Owner, Sticky: op.Sticky,
		Token: uint64(l.Token()), From: k.p.rec.Now(),
	}
	k.p.rec.Hold(g.h)
	context.AfterFunc(l.Context(), func() {
		at := k.p.rec.Now()
		var lost *locks.LostError
		errors.As(context.Cause(l.Context()), &lost)
		g.change(func(h *history.Hold) {
			if h.How == "" && lost != nil { // else a hold in another mode has taken its place
				h.How, h.End, h.Reason = history.Lost, at, lost.Reason.String()
			}
			h.Done = at
		})
	})
	return g
}

// change changes the hold and records it.
func (g *grant) change(f func(h *history.Hold)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f(&g.h)
	g.p.rec.Hold(g.h)
}

// valid asks Err, and records the word "held" with a stamp from before the question.
func (g *grant) valid() bool {
	at := g.p.rec.Now()
	if g.lock.Err() != nil {
		return false
	}
	g.change(func(h *history.Hold) {
		if h.How != history.Released {
			h.Valid = max(h.Valid, at)
		}
	})
	return true
}

// over notes the end by release, or by loss.
func (g *grant) over(err error) {
	at := g.p.rec.Now()
	g.change(func(h *history.Hold) {
		switch {
		case h.How == history.Lost:
		case errors.Is(err, locks.ErrLost):
			h.How, h.End = history.Lost, at
		default:
			h.How, h.End = history.Released, at
		}
	})
}

// acquire makes the call described by op, and records the grant.
func (k *caller) acquire(ctx context.Context, op *history.Op, opts ...locks.Option) (*grant, error) {
	var l lock
	err := k.call(op, func() error {
		var one *locks.Lock
		var err error
		switch {
		case op.Kind == history.Try:
			one, err = k.c.TryAcquire(ctx, op.Keys[0], opts...)
		case len(op.Keys) > 1:
			var set *locks.Set
			if set, err = k.c.AcquireAll(ctx, op.Keys, opts...); err == nil {
				l = set
			}
		default:
			one, err = k.c.Acquire(ctx, op.Keys[0], opts...)
		}
		if one != nil {
			l = one
		}
		if err == nil {
			op.Token = uint64(l.Token())
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return k.granted(op, l), nil
}

// release releases the grant of op.
func (k *caller) release(ctx context.Context, op *history.Op, g *grant) {
	g.valid()
	r := &history.Op{Kind: history.Release, Keys: op.Keys, Grant: op.ID, Token: uint64(g.lock.Token()), Owner: op.Owner}
	g.over(k.call(r, func() error { return g.lock.Release(ctx) }))
}

// returned records that the work of Do, Elect or Spread returns, and the library is about
// to release the lock.
func (k *caller) returned(op *history.Op, g *grant) {
	err := g.lock.Err()
	if err == nil {
		g.valid()
	}
	r := &history.Op{Kind: history.Release, Keys: op.Keys, Grant: op.ID, Token: uint64(g.lock.Token())}
	g.over(k.call(r, func() error { return err }))
}

// hold acquires a key for the driver, and asks Err every 5 ms until the end of the lock or
// the command release.
func (p *program) hold(ctx context.Context, key string) (uint64, error) {
	k := &caller{p: p, c: p.clients[0], name: p.rec.NewID(p.s.Process + "/driver"), news: true}
	ctx = k.ctx(ctx)
	op := &history.Op{Kind: history.Acquire, Keys: []string{key}}
	g, err := k.acquire(ctx, op)
	for err != nil && ctx.Err() == nil && errors.Is(err, locks.ErrLost) {
		g, err = k.acquire(ctx, op)
	}
	if err != nil {
		return 0, err
	}
	// After a refusal the lock is lost already: lateWrite is to find out.
	_, _ = p.store.ask(request{Do: "claim", Resource: key, Process: p.s.Process, Token: g.h.Token})
	state, err := p.store.ask(request{Do: "read", Resource: key, Process: p.s.Process, Token: g.h.Token})
	if err == nil {
		g.base = state.State
	}
	p.mu.Lock()
	p.held[key] = g
	p.mu.Unlock()
	p.sick.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for g.valid() {
			select {
			case <-p.ended.Done():
				return
			case <-tick.C:
			}
		}
	})
	return g.h.Token, nil
}

// holds returns the grant of a key that hold holds, or nil.
func (p *program) holds(key string) *grant {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held[key]
}

// letGo releases the key that hold holds.
func (p *program) letGo(ctx context.Context, key string) error {
	p.mu.Lock()
	g := p.held[key]
	delete(p.held, key)
	p.mu.Unlock()
	if g == nil {
		return locks.ErrNotHeld
	}
	k := &caller{p: p, c: p.clients[0], name: p.rec.NewID(p.s.Process + "/driver")}
	k.release(ctx, &history.Op{ID: g.h.Op, Keys: g.h.Keys}, g)
	return nil
}

// lateWrite writes under the key's lock, held or lost.
func (p *program) lateWrite(key string) error {
	g := p.holds(key)
	if g == nil {
		return locks.ErrNotHeld
	}
	_, err := p.store.ask(request{Do: "write", Resource: key, Process: p.s.Process, Token: g.h.Token, Base: g.base, Value: p.rec.NewID(p.s.Process)})
	return err
}

// renew renews the lock of a key again and again until ctx ends, and returns how many beats
// were confirmed. An error says that the lock was lost before the first.
func (p *program) renew(ctx context.Context, key string) (confirmed uint64, err error) {
	g := p.holds(key)
	if g == nil {
		return 0, locks.ErrNotHeld
	}
	if err := g.lock.Err(); err != nil {
		return 0, err
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if g.lock.(*locks.Lock).Renew(ctx) == nil {
			confirmed++
		}
		select {
		case <-ctx.Done():
			return confirmed, nil
		case <-tick.C:
		}
	}
}
