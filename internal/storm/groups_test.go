//go:build linux

package storm

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/history"
	"github.com/wardmote/wardmote/locks"
)

// lead stands for election, and updates a resource in each term.
func (k *caller) lead(ctx context.Context) {
	op := &history.Op{Kind: history.Acquire, Keys: []string{"lead"}, Lazy: true}
	k.begin(op)
	call := op.ID
	err := k.c.Elect(k.ctx(ctx), "lead", func(ctx context.Context, l *locks.Lock) error {
		op.Token = uint64(l.Token())
		k.end(op, nil)
		g := k.granted(op, l)
		k.run(ctx, history.RunLead, call, "lead", g)
		k.returned(op, g)
		op = &history.Op{Kind: history.Acquire, Keys: []string{"lead"}, Lazy: true}
		k.begin(op)
		return nil
	})
	k.end(op, err)
}

// run records a run of a function of Elect or Spread, which updates the key's resource
// until ctx ends or a random time has passed.
func (k *caller) run(ctx context.Context, kind, call, key string, g *grant) {
	run := history.Run{
		ID: k.p.rec.NewID(k.p.s.Process + "/r"), Kind: kind, Process: k.p.s.Process, Client: k.c.name, Call: call,
		Key: key, Token: uint64(g.lock.Token()), From: k.p.rec.Now(),
	}
	k.p.rec.Run(run)
	k.p.worksOn(key, 1)
	defer k.p.worksOn(key, -1)
	limit := time.NewTimer(k.within(k.p.s.TTL/4, 2*k.p.s.TTL))
	defer limit.Stop()
	for over := false; !over; {
		k.update(g, key)
		pause := time.NewTimer(2 * k.p.s.Pace)
		select {
		case <-ctx.Done():
			over = true
		case <-limit.C:
			over = kind == history.RunLead // a shard stays
		case <-pause.C:
		}
		pause.Stop()
		g.valid()
	}
	run.To = k.p.rec.Now()
	k.p.rec.Run(run)
}

// shards is the number of shards of spread.
const shards = 6

// spread owns shards. Calls of Acquire stand in the recording from the moment from which
// the shard may have been granted.
func (k *caller) spread(ctx context.Context) {
	var mu sync.Mutex
	free := make(map[int]int64) // since when this caller does not own the shard
	began := k.p.rec.Now()
	call := k.p.rec.NewID(k.p.s.Process + "/spread")
	k.p.rec.Mark(history.Joins, k.c.name, "shards")
	_ = k.c.Spread(ctx, "shards", shards, func(ctx context.Context, shard int, l *locks.Lock) error {
		mu.Lock()
		since := max(began, free[shard])
		mine := &caller{p: k.p, c: k.c, name: fmt.Sprint(k.name, "/", shard), r: newRand(k.p.s.Seed, uint64(since))}
		mu.Unlock()
		op := &history.Op{Kind: history.Acquire, Keys: []string{fmt.Sprint("shards/", shard)}, Lazy: true}
		mine.begin(op)
		op.Call, op.Token = since, uint64(l.Token())
		mine.end(op, nil)
		g := mine.granted(op, l)
		mine.run(ctx, history.RunShard, call, op.Keys[0], g)
		mine.returned(op, g)
		mu.Lock()
		free[shard] = k.p.rec.Now()
		mu.Unlock()
		return nil
	})
	k.p.rec.Mark(history.Leaves, k.c.name, "shards")
}

// errOnce is the failure of some functions of once.
var errOnce = errors.New("the function failed")

// once runs a function under an id, the same at all members for two seconds. The functions
// take up to half a second, so that some die in the middle.
func (k *caller) once(ctx context.Context) {
	k.loop(ctx, 2, func(ctx context.Context) {
		id := fmt.Sprint("o", k.p.rec.Now()/int64(2*time.Second))
		op := &history.Op{Kind: history.Once, Keys: []string{id}}
		var ran *history.Run
		_ = k.call(op, func() error {
			result, err := k.c.Once(ctx, id, func(ctx context.Context) ([]byte, error) {
				run := history.Run{
					ID: k.p.rec.NewID(k.p.s.Process + "/r"), Kind: history.RunOnce, Process: k.p.s.Process, Client: k.c.name, Call: op.ID,
					Key: id, From: k.p.rec.Now(),
				}
				ran = &run
				k.p.rec.Run(run)
				k.sleep(ctx, k.within(0, 350*time.Millisecond))
				run.To, run.Result, run.Failed = k.p.rec.Now(), run.ID, k.r.IntN(8) == 0
				k.p.rec.Run(run)
				if run.Failed {
					return nil, errOnce
				}
				return []byte(run.Result), nil
			})
			op.Value, op.Ran = string(result), ran != nil
			return err
		})
	})
}

// cells updates and reads two cells. Every value is unique.
func (k *caller) cells(ctx context.Context) {
	k.loop(ctx, 1, func(ctx context.Context) {
		key := k.pick("c%d", 2)
		cell := k.c.Cell(key)
		if k.r.IntN(3) == 0 {
			op := &history.Op{Kind: history.Get, Keys: []string{key}}
			_ = k.call(op, func() error {
				v, err := cell.Get(ctx)
				op.Value = string(v)
				return err
			})
			return
		}
		op := &history.Op{Kind: history.Update, Keys: []string{key}, Value: k.p.rec.NewID(k.p.s.Process + "/v")}
		_ = k.call(op, func() error { return cell.Update(ctx, k.change(op)) })
	})
}

// change returns the function of an Update. The function records the old value before the
// new one can be sent: a process killed in the middle of Update leaves an open call, and a
// judge must know the value that the call may have replaced.
func (k *caller) change(op *history.Op) func(old []byte) []byte {
	return func(old []byte) []byte {
		op.Old = string(old)
		k.now.put(*op)
		return []byte(op.Value)
	}
}

// operator asks holders to release, and breaks grants.
func (k *caller) operator(ctx context.Context) {
	k.loop(ctx, 6, func(ctx context.Context) {
		key := []string{"x0", "x1", "r0", "y0", "s0", "p0", "t0", "d/a", "lead"}[k.r.IntN(9)]
		status, err := k.c.Inspect(ctx, key)
		if err != nil || len(status.Holders) == 0 {
			return
		}
		token := status.Holders[0].Token
		if k.r.IntN(2) == 0 {
			op := &history.Op{Kind: history.Ask, Keys: []string{key}}
			_ = k.call(op, func() error { return k.c.Ask(ctx, key) })
			return
		}
		op := &history.Op{Kind: history.Break, Keys: []string{key}, Token: uint64(token)}
		_ = k.call(op, func() error { return k.c.Break(ctx, key, token) })
	})
}
