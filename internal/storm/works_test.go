//go:build linux

package storm

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/wardmote/wardmote/internal/history"
	"github.com/wardmote/wardmote/locks"
)

// A work is a goroutine of a member: a loop of calls of a kind. A work records each call,
// asks Err during each hold, and has every hold end soon.
type work func(k *caller, ctx context.Context)

// works are the kinds of work of a member, by the settings' Work.
var works = map[string][]work{
	"":    nil,
	"set": {(*caller).exclusive, (*caller).exclusive},
	"all": {
		(*caller).exclusive, (*caller).exclusive, (*caller).reentrant, (*caller).sticky, (*caller).readers, (*caller).permits,
		(*caller).sets, (*caller).trees, (*caller).lead, (*caller).spread, (*caller).operator, (*caller).once, (*caller).cells,
	},
}

// lasting is the place of the first work of "all" that leaves values in the cluster.
const lasting = 11

// startWork starts the works until ctx ends.
func (p *program) startWork(ctx context.Context) {
	for i, w := range works[p.s.Work] {
		if i >= lasting && p.s.JoinIsComplete {
			break // a successor in memory has no values
		}
		k := &caller{p: p, c: p.clients[i%2], name: fmt.Sprint(p.s.Process, "/w", i), r: newRand(p.s.Seed, uint64(i))}
		p.work.Go(func() { w(k, ctx) })
	}
}

// loop runs f again and again, at the pace of the settings. Each call of f has a context
// that bounds its calls of the library; releases are not bounded by ctx's end.
func (k *caller) loop(ctx context.Context, slower int, f func(ctx context.Context)) {
	for k.sleep(ctx, k.p.s.Pace*time.Duration(slower)) {
		bounded, cancel := context.WithTimeout(k.ctx(ctx), k.within(k.p.s.TTL/2, 3*k.p.s.TTL))
		f(bounded)
		cancel()
	}
}

// within returns a random time.
func (k *caller) within(least, most time.Duration) time.Duration {
	return least + time.Duration(k.r.Int64N(int64(most-least)+1))
}

// sleep waits for d, half of it or half as much again, and reports whether ctx lives.
func (k *caller) sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(k.within(d/2, d*3/2))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

func (k *caller) pick(format string, n int) string { return fmt.Sprintf(format, k.r.IntN(n)) }

// bound is for calls that end a hold of the work.
func bound() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 10*time.Second)
}

// letGo releases a grant, whether the work's context lives or not.
func (k *caller) letGo(op *history.Op, g *grant) {
	ctx, cancel := bound()
	defer cancel()
	k.release(ctx, op, g)
}

// update changes the resource of a key under the key's exclusive lock: the fenced copy,
// the checked and the plain one. Between reading and writing passes some time, in which
// the process may be stopped.
func (k *caller) update(g *grant, key string) {
	token, me := g.h.Token, k.p.s.Process
	ask := func(do, copied, base, value string) answer {
		a, err := k.p.store.ask(request{Do: do, Resource: key, Process: me, Token: token, Copy: copied, Base: base, Value: value})
		if err != nil {
			a.Error = err.Error()
		}
		return a
	}
	if ask("claim", "", "", "").Error != "" {
		return
	}
	fenced, checked, plain := ask("read", "", "", ""), ask("read", "checked", "", ""), ask("read", "plain", "", "")
	k.sleep(context.Background(), k.within(time.Millisecond, 40*time.Millisecond))
	value := k.p.rec.NewID(me)
	if g.valid() {
		ask("write", "checked", checked.State, value)
	}
	ask("write", "plain", plain.State, value)
	if fenced.Error == "" {
		ask("write", "", fenced.State, value)
	}
}

// exclusive takes a key of a few keys in demand, in all ways.
func (k *caller) exclusive(ctx context.Context) {
	k.loop(ctx, 1, func(ctx context.Context) {
		op := &history.Op{Kind: history.Acquire, Keys: []string{k.pick("x%d", 3)}}
		var opts []locks.Option
		switch k.r.IntN(6) {
		case 0:
			op.Kind = history.Try
		case 1:
			op.Lazy = true
			opts = append(opts, locks.Lazy())
		case 2:
			op.Priority = k.r.IntN(3) - 1
			opts = append(opts, locks.Priority(op.Priority))
		case 3:
			k.do(ctx, op)
			return
		}
		g, err := k.acquire(ctx, op, opts...)
		if err != nil {
			return
		}
		k.update(g, op.Keys[0])
		k.letGo(op, g)
	})
}

// do is exclusive's call of Do: its lock is released some time after the work's return.
func (k *caller) do(ctx context.Context, op *history.Op) {
	op.Lazy = true
	granted := false
	k.begin(op)
	err := k.c.Do(ctx, op.Keys[0], func(_ context.Context, l *locks.Lock) error {
		granted, op.Token = true, uint64(l.Token())
		k.end(op, nil)
		g := k.granted(op, l)
		k.update(g, op.Keys[0])
		k.returned(op, g)
		return nil
	})
	if !granted {
		k.end(op, err)
	}
}

// reentrant takes a key twice.
func (k *caller) reentrant(ctx context.Context) {
	k.loop(ctx, 2, func(ctx context.Context) {
		outer := &history.Op{Kind: history.Acquire, Keys: []string{k.pick("r%d", 2)}, Owner: k.name}
		g, err := k.acquire(ctx, outer, locks.Reentrant(k.name))
		if err != nil {
			return
		}
		inner := &history.Op{Kind: history.Acquire, Keys: outer.Keys, Owner: k.name}
		var l *locks.Lock
		err = k.call(inner, func() error {
			var err error
			if l, err = k.c.Acquire(ctx, inner.Keys[0], locks.Reentrant(k.name)); err == nil {
				inner.Token = uint64(l.Token())
				inner.Shared = inner.Token == outer.Token
			}
			return err
		})
		if err == nil {
			second := k.granted(inner, l)
			k.update(second, inner.Keys[0])
			k.letGo(inner, second)
		}
		k.letGo(outer, g)
	})
}

// sticky takes one of two keys; the client leaves a key to others only on request.
func (k *caller) sticky(ctx context.Context) {
	k.loop(ctx, 1, func(ctx context.Context) {
		op := &history.Op{Kind: history.Acquire, Keys: []string{k.pick("y%d", 2)}, Sticky: true, Lazy: true}
		for range 1 + k.r.IntN(3) {
			again := *op
			g, err := k.acquire(ctx, &again, locks.Sticky())
			if err != nil {
				return
			}
			k.update(g, op.Keys[0])
			k.letGo(&again, g)
		}
	})
}

// readers takes a key for reading, and now and then for writing by an upgrade.
func (k *caller) readers(ctx context.Context) {
	k.loop(ctx, 2, func(ctx context.Context) {
		op := &history.Op{Kind: history.Acquire, Keys: []string{k.pick("s%d", 2)}, Mode: history.Shared}
		g, err := k.acquire(ctx, op, locks.Shared())
		if err != nil {
			return
		}
		g.valid()
		l := g.lock.(*locks.Lock)
		if k.r.IntN(3) == 0 {
			up := &history.Op{Kind: history.Upgrade, Keys: op.Keys, Grant: op.ID}
			err := k.call(up, func() error {
				err := l.Upgrade(ctx)
				up.Token = uint64(l.Token())
				return err
			})
			if err == nil {
				g.over(nil)
				exclusive := *op
				exclusive.Mode = history.Exclusive
				g = k.granted(&exclusive, l)
				k.update(g, op.Keys[0])
				k.downgrade(ctx, op, &g, l)
			}
		}
		k.letGo(op, g)
	})
}

// downgrade makes an upgraded lock shared again, now and then.
func (k *caller) downgrade(ctx context.Context, op *history.Op, g **grant, l *locks.Lock) {
	if k.r.IntN(2) == 0 {
		return
	}
	(*g).valid()
	(*g).over(nil)
	down := &history.Op{Kind: history.Downgrade, Keys: op.Keys, Grant: op.ID, Token: uint64(l.Token())}
	from := k.p.rec.Now()
	_ = k.call(down, func() error { return l.Downgrade(ctx) })
	*g = k.granted(op, l)
	(*g).change(func(h *history.Hold) { h.From = from })
}

// permits is the capacity of the key of permits.
const permits = 3

// permits takes some permits of a key.
func (k *caller) permits(ctx context.Context) {
	k.loop(ctx, 2, func(ctx context.Context) {
		op := &history.Op{Kind: history.Acquire, Keys: []string{"p0"}, Mode: history.Permits, N: 1 + k.r.IntN(permits-1), Of: permits}
		g, err := k.acquire(ctx, op, locks.Permits(op.N, op.Of))
		if err != nil {
			return
		}
		g.valid()
		k.sleep(ctx, k.within(time.Millisecond, 100*time.Millisecond))
		k.letGo(op, g)
	})
}

// sets takes two or three of five keys at once.
func (k *caller) sets(ctx context.Context) {
	k.loop(ctx, 3, func(ctx context.Context) {
		op := &history.Op{Kind: history.Acquire}
		for _, i := range k.r.Perm(4)[:2+k.r.IntN(2)] {
			op.Keys = append(op.Keys, fmt.Sprint("t", i))
		}
		g, err := k.acquire(ctx, op)
		if err != nil {
			return
		}
		g.valid()
		k.sleep(ctx, k.within(time.Millisecond, 30*time.Millisecond))
		k.letGo(op, g)
	})
}

// trees takes a tree of keys, or a key in a tree.
func (k *caller) trees(ctx context.Context) {
	keys := []string{"d", "d/a", "d/a/b", "d/c"}
	k.loop(ctx, 3, func(ctx context.Context) {
		op := &history.Op{Kind: history.Acquire, Keys: []string{keys[k.r.IntN(len(keys))]}}
		var opts []locks.Option
		if k.r.IntN(2) == 0 {
			op.Tree = true
			opts = append(opts, locks.Tree())
		}
		g, err := k.acquire(ctx, op, opts...)
		if err != nil {
			return
		}
		g.valid()
		k.sleep(ctx, k.within(time.Millisecond, 30*time.Millisecond))
		k.letGo(op, g)
	})
}

func newRand(seed, stream uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, stream)) }
