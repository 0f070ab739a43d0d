package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/internal/history"
	"github.com/wardmote/wardmote/locks"
)

// occupy starts the callers of a process: programs that use every part of the library. A
// light town has one of the four callers, and no other difference.
func (w *town) occupy(p *process) {
	r := rand.New(rand.NewPCG(w.shape.seed, uint64(p.site.i)<<32|uint64(w.startsOf(p))))
	clients, callers := 2, 2
	if w.shape.light {
		clients, callers = 1, 1
	}
	for i := range clients {
		name := fmt.Sprintf("%s.c%d", p.name, i)
		own := fmt.Sprint([]string{"c", "d"}[i], p.site.i) // the coverage tells clients of a process by their names
		opts := locks.Options{Name: own, Trace: w.trace(p, own)}
		if i == clients-1 && r.IntN(3) == 0 {
			opts.TTL = max(w.shape.ttl/2, 300*time.Millisecond)
		}
		client := w.client(p, opts)
		for j := range callers {
			c := &caller{w: w, p: p, client: client, name: name, id: fmt.Sprintf("%s/%d", name, j), ctx: p.ctx, r: rand.New(rand.NewPCG(r.Uint64(), 1))}
			w.calls.Go(c.run)
		}
	}
	client := w.client(p, locks.Options{Name: fmt.Sprint("s", p.site.i)})
	c := &caller{w: w, p: p, client: client, name: p.name + ".s", id: p.name + ".s", ctx: p.ctx, r: rand.New(&sharedSource{pcg: rand.NewPCG(r.Uint64(), 2)})}
	w.calls.Go(c.lead)
	w.calls.Go(c.spread)
	c.follow()
	looker := *c
	looker.id, looker.r = c.id+"/look", rand.New(rand.NewPCG(r.Uint64(), 6))
	w.calls.Go(looker.look)
}

// A sharedSource is drawn from by the works of a caller, which run side by side.
type sharedSource struct {
	mu  sync.Mutex
	pcg *rand.PCG
}

// Uint64 implements rand.Source.
func (s *sharedSource) Uint64() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pcg.Uint64()
}

func (w *town) startsOf(p *process) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return p.site.starts
}

// run makes calls until the process ends.
func (c *caller) run() {
	works := []func(*caller){
		(*caller).mutex, (*caller).mutex, (*caller).mutex, (*caller).sticky, (*caller).sticky,
		(*caller).readers, (*caller).readers, (*caller).permits, (*caller).permits, (*caller).related, (*caller).related,
		(*caller).again, (*caller).conditional, (*caller).cell, (*caller).cell, (*caller).valued, (*caller).values, (*caller).once, (*caller).nested, (*caller).operate,
	}
	for c.ctx.Err() == nil {
		works[c.r.IntN(len(works))](c)
		c.pause(c.upTo(c.w.shape.ttl / 4))
	}
}

// pause waits, until the process ends at most.
func (c *caller) pause(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-c.ctx.Done():
	}
}

// use holds a grip for a while, writes to the fenced resource of its key, and lets go. One
// write in eight comes when the lock has ended, as if it had been under way.
func (c *caller) use(g *grip) {
	if g == nil {
		return
	}
	key := g.hold.Keys[0]
	g.keep(c.ctx, c.holdFor())
	token := g.l.Token()
	late := c.one(8)
	if !late && g.word() {
		c.w.write(c.p, key, token)
	}
	if c.one(12) {
		c.drop(g, fmt.Sprint([]string{"c", "c", "d"}[c.r.IntN(3)], c.r.IntN(c.w.shape.members)))
	} else {
		c.drop(g, "")
	}
	if late && c.ctx.Err() == nil {
		c.w.write(c.p, key, token)
	}
}

func (c *caller) try(a *ask) *ask {
	if c.one(4) {
		a.op.Kind = history.Try
	}
	return a
}

// lazy adds options that change the release or the place in the queue.
func (c *caller) lazy(a *ask) *ask {
	switch c.r.IntN(5) {
	case 0:
		a.with(func(o *history.Op) { o.Lazy = true }, locks.Lazy())
	case 1:
		p := c.r.IntN(5) - 2
		a.with(func(o *history.Op) { o.Priority = p }, locks.Priority(p))
	}
	return a
}

func (c *caller) mutex() {
	a := c.lazy(c.try(want(c.key(fmt.Sprint("m", c.r.IntN(2))))))
	if a.op.Kind == history.Acquire && c.one(2) {
		n := 1 + c.r.IntN(2)
		a.with(func(o *history.Op) { o.Most = n }, locks.MaxWaiters(n))
	}
	if c.one(20) {
		d := c.w.shape.ttl / 2
		a = want(c.key("delayed")).with(func(o *history.Op) { o.Delay = int64(d) }, locks.Delay(d.Truncate(time.Millisecond)))
	}
	c.use(c.take(a, c.patience()))
}

func (c *caller) sticky() {
	key, n := c.key("st"), 1+c.r.IntN(6)
	burst := c.one(6) // it uses up a block of tokens, and the next one
	if burst {
		key, n = c.key("stb"), 20+c.r.IntN(60)
	}
	for range n {
		a := c.try(want(key).with(func(o *history.Op) { o.Sticky = true }, locks.Sticky()))
		if !burst && c.one(8) {
			a = c.try(want(key))
		}
		g := c.take(a, c.patience())
		if g == nil {
			return
		}
		switch {
		case burst:
			c.nap(10 * time.Millisecond) // the next block is on its way meanwhile
		case c.one(3):
			g.keep(c.ctx, c.holdFor())
		}
		if g.word() {
			c.w.write(c.p, key, g.l.Token())
		}
		c.drop(g, "")
	}
}

func (c *caller) readers() {
	a := c.try(want(c.key("rw")))
	if c.one(3) {
		c.turn(c.take(a, c.patience()), history.Exclusive)
		return
	}
	c.turn(c.take(a.with(func(o *history.Op) { o.Mode = history.Shared }, locks.Shared()), c.patience()), history.Shared)
}

// turn changes the mode of a grip to and fro.
func (c *caller) turn(g *grip, mode history.Mode) {
	if g == nil {
		return
	}
	g.keep(c.ctx, c.holdFor()/2)
	l := g.l.(*locks.Lock)
	for range c.r.IntN(3) {
		if c.ctx.Err() != nil {
			break
		}
		ctx, cancel := context.WithTimeout(c.ctx, c.patience())
		if mode == history.Exclusive {
			g.word()
			g.turn(history.Shared) // from the call on
			p, _ := c.begin(history.Op{Kind: history.Downgrade, Grant: g.op})
			err := l.Downgrade(ctx)
			c.finish(p, err, refusedIfEnded(err))
			mode = history.Shared
		} else {
			p, _ := c.begin(history.Op{Kind: history.Upgrade, Grant: g.op})
			err := l.Upgrade(ctx)
			o := c.finish(p, err, func(o *history.Op) {
				refusedIfEnded(err)(o)
				o.Token = uint64(l.Token())
			})
			if o.Outcome == history.Done {
				mode = history.Exclusive
				g.turn(mode)
				c.w.peek(g)
			} else {
				g.retoken()
			}
		}
		cancel()
		g.keep(c.ctx, c.holdFor()/4)
	}
	c.use(g)
}

// refusedIfEnded notes that a change of a lock that has ended changes nothing.
func refusedIfEnded(err error) func(*history.Op) {
	return func(o *history.Op) {
		if errors.Is(err, locks.ErrReleased) {
			o.Outcome = history.Refused
		}
	}
}

func (c *caller) permits() {
	const of = 3
	n := 1 + c.r.IntN(3)
	if c.one(2) {
		key := c.key("sem")
		c.use(c.take(c.try(want(key)).with(func(o *history.Op) { o.Mode, o.N, o.Of = history.Permits, n, of }, locks.Permits(n, of)), c.patience()))
		return
	}
	key := c.key("cap") // has a set capacity
	if c.one(6) {
		to := 1 + c.r.IntN(4)
		p, ctx := c.begin(history.Op{Kind: history.SetCapacity, Keys: []string{key}, N: to})
		ctx, cancel := context.WithTimeout(ctx, c.patience())
		err := c.client.SetCapacity(ctx, key, to)
		cancel()
		c.finish(p, err, nil)
		return
	}
	c.use(c.take(c.try(want(key)).with(func(o *history.Op) { o.Mode, o.N = history.Permits, n }, locks.Permits(n, 0)), c.patience()))
}

// related asks for keys above and below each other, alone and in sets.
func (c *caller) related() {
	top := c.key("t")
	a, b := top+"/a", top+"/b"
	var w *ask
	switch c.r.IntN(6) {
	case 0:
		w = c.try(want(top).with(func(o *history.Op) { o.Tree = true }, locks.Tree()))
	case 1:
		w = c.try(want(top).with(func(o *history.Op) { o.Tree, o.Mode = true, history.Shared }, locks.Tree(), locks.Shared()))
	case 2:
		w = want(a, b)
	case 3:
		w = want(c.key("m0"), b)
	case 4:
		w = c.try(want(a).with(func(o *history.Op) { o.Mode = history.Shared }, locks.Shared()))
	default:
		w = c.lazy(c.try(want([]string{a, b}[c.r.IntN(2)])))
	}
	c.use(c.take(w, c.patience()))
}

// again enters a key that its owner holds.
func (c *caller) again() {
	key, owner := c.key("own"), fmt.Sprint("o", c.r.IntN(2))
	a := func() *ask {
		return want(key).with(func(o *history.Op) { o.Owner = owner }, locks.Reentrant(owner))
	}
	outer := c.take(a(), c.patience())
	if outer == nil {
		return
	}
	outer.keep(c.ctx, c.holdFor()/2)
	c.use(c.take(a(), c.patience()))
	c.use(outer)
}

// conditional takes a key, lets go and takes it again if nobody else had it.
func (c *caller) conditional() {
	key := c.key("if")
	g := c.take(c.try(want(key)), c.patience())
	if g == nil {
		return
	}
	g.keep(c.ctx, c.holdFor()/4)
	token := g.l.Token()
	c.drop(g, "")
	c.use(c.take(c.try(want(key).with(func(o *history.Op) { o.If, o.Cond = uint64(token), true }, locks.IfToken(token))), c.patience()))
}

// nested takes a key under another one, in any order: an endless wait is refused.
func (c *caller) nested() {
	x, y := c.key("m0"), c.key("m1")
	if c.one(2) {
		x, y = y, x
	}
	outer := c.take(want(x), c.patience())
	if outer == nil {
		return
	}
	c.under = outer.l.Context()
	inner := c.take(want(y), c.patience())
	c.under = nil
	c.use(inner)
	c.use(outer)
}

// cell counts up a cell, and reads it.
func (c *caller) cell() {
	key := c.key("cell")
	if c.one(6) {
		key = confKey
	}
	x := c.client.Cell(key)
	if c.one(3) {
		p, ctx := c.begin(history.Op{Kind: history.Get, Keys: []string{key}})
		ctx, cancel := context.WithTimeout(ctx, c.patience())
		v, err := x.Get(ctx)
		cancel()
		c.finish(p, err, func(o *history.Op) { o.Value = string(v) })
		return
	}
	p, ctx := c.begin(history.Op{Kind: history.Update, Keys: []string{key}})
	ctx, cancel := context.WithTimeout(ctx, c.patience())
	var before, after string
	err := x.Update(ctx, func(old []byte) []byte {
		before = string(old)
		n, _ := strconv.Atoi(before)
		after = strconv.Itoa(n + 1)
		c.w.note(p, func(o *history.Op) { o.Old, o.Value = before, after }) // before it is sent: the process may die
		c.nap(c.w.shape.ttl / 40)
		return []byte(after)
	})
	cancel()
	c.finish(p, err, func(o *history.Op) {
		o.Old, o.Value = before, after
		if err != nil && !errors.Is(err, locks.ErrUncertain) {
			o.Outcome = history.Refused // the value is unchanged
		}
	})
}

func (c *caller) nap(d time.Duration) {
	t := time.NewTimer(c.upTo(d))
	defer t.Stop()
	<-t.C
}

// once runs a function under an id. The next id comes after a few calls.
func (c *caller) once() {
	id := c.key(fmt.Sprint("once", c.r.IntN(3)))
	p, ctx := c.begin(history.Op{Kind: history.Once, Keys: []string{id}})
	ctx, cancel := context.WithTimeout(ctx, c.patience())
	ran := false
	v, err := c.client.Once(ctx, id, func(ctx context.Context) ([]byte, error) {
		ran = true
		token, _ := fence.FromContext(ctx)
		run := history.Run{
			ID: c.w.rec.NewID("run"), Kind: history.RunOnce, Process: c.p.name, Client: c.name, Key: id,
			Token: uint64(token), From: c.w.rec.Now(),
		}
		c.w.rec.Run(run)
		c.nap(c.w.shape.ttl) // long enough to die in
		run.Result = run.ID
		run.To = c.w.rec.Now()
		c.w.rec.Run(run)
		return []byte(run.Result), nil
	})
	cancel()
	c.finish(p, err, func(o *history.Op) {
		o.Value, o.Ran = string(v), ran
		if ran && err != nil { // the result could not be stored
			o.Outcome, o.Err = history.Unknown, history.ErrUncertain
		}
	})
}

// operate does what operators do.
func (c *caller) operate() {
	if c.one(4) {
		c.resize()
		return
	}
	key := c.key([]string{"m0", "m1", "rw", "st", "t"}[c.r.IntN(5)])
	ctx, cancel := context.WithTimeout(c.ctx, c.upTo(2*c.w.shape.ttl))
	defer cancel()
	switch c.r.IntN(6) {
	case 0, 1:
		p, _ := c.begin(history.Op{Kind: history.Ask, Keys: []string{key}})
		c.finish(p, c.client.Ask(ctx, key), nil)
	case 2, 3:
		st, err := c.client.Inspect(ctx, key)
		if err != nil || !st.Held() {
			return
		}
		p, _ := c.begin(history.Op{Kind: history.Break, Keys: []string{key}, Token: uint64(st.Holders[0].Token)})
		c.finish(p, c.client.Break(ctx, key, st.Holders[0].Token), nil)
	case 4:
		var refs []string
		for s, err := range c.client.Sessions(ctx) {
			if err == nil && s.Ref != "" {
				refs = append(refs, s.Ref)
			}
		}
		if len(refs) > 0 && c.one(3) {
			ref := refs[c.r.IntN(len(refs))]
			p, _ := c.begin(history.Op{Kind: history.EndSession, Value: ref})
			c.finish(p, c.client.EndSession(ctx, ref), nil)
		}
	case 5:
		for range c.client.List(ctx, "m") {
		}
	}
}
