package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/wardmote/wardmote/internal/history"
	"github.com/wardmote/wardmote/locks"
)

// shards is the number of shards of the group.
const shards = 6

// lead stands for election until the process ends.
func (c *caller) lead() {
	const key = "elect"
	call := c.w.rec.NewID("elect")
	err := c.client.Elect(c.ctx, key, func(ctx context.Context, l *locks.Lock) error {
		c.term(ctx, history.Run{Kind: history.RunLead, Key: key, Call: call}, l, c.upTo(4*c.w.shape.ttl))
		return nil
	})
	c.ends("Elect", err)
}

// spread works on shards until the process ends.
func (c *caller) spread() {
	const name = "group"
	call := c.w.rec.NewID("spread")
	c.w.rec.Mark(history.Joins, call, name)
	var opts []locks.SpreadOption
	if c.one(3) {
		opts = append(opts, locks.Drain(c.upTo(c.w.shape.ttl/4).Truncate(time.Millisecond)))
	}
	err := c.client.Spread(c.ctx, name, shards, func(ctx context.Context, shard int, l *locks.Lock) error {
		key := fmt.Sprintf("%s/%d", name, shard)
		c.term(ctx, history.Run{Kind: history.RunShard, Key: key, Call: call}, l, time.Hour)
		return nil
	}, opts...)
	c.w.rec.Mark(history.Leaves, call, name)
	c.ends("Spread", err)
}

// ends checks the end of a long call.
func (c *caller) ends(what string, err error) {
	if c.ctx.Err() == nil && !errors.Is(err, locks.ErrClosed) {
		c.w.breaks("ends", "%s of %s ended with %v", what, c.id, err)
	}
}

// term is the work of a leader or of a shard: it ends with ctx or after d.
func (c *caller) term(ctx context.Context, run history.Run, l *locks.Lock, d time.Duration) {
	run.ID = c.w.rec.NewID("run")
	run.Process, run.Client, run.Token, run.From = c.p.name, c.name, uint64(l.Token()), c.w.rec.Now()
	c.w.rec.Run(run)
	c.w.worksOn(run.Key, 1)
	defer c.w.worksOn(run.Key, -1)
	g := c.w.grasp(c.p, run.ID, l, history.Hold{Client: c.name, Keys: []string{l.Key()}}, run.From)
	c.w.write(c.p, l.Key(), l.Token())
	end := time.NewTimer(d)
	defer end.Stop()
	tick := time.NewTicker(c.w.shape.ttl / 4)
	defer tick.Stop()
	for on := true; on; {
		select {
		case <-ctx.Done():
			on = false
		case <-end.C:
			on = false
		case <-tick.C:
			if g.word() {
				c.w.write(c.p, l.Key(), l.Token())
			}
		}
	}
	// The work takes a moment to end, and keeps its key meanwhile.
	if c.one(2) && errors.Is(context.Cause(ctx), locks.ErrHandedOver) {
		g.keep(c.ctx, c.upTo(c.w.shape.ttl/3))
	}
	g.word()
	if err := l.Err(); errors.Is(err, locks.ErrReleased) {
		c.w.breaks("shards", "the key %s, token %d, was released while the work of %s runs", l.Key(), l.Token(), c.id)
	}
	run.To = c.w.rec.Now()
	c.w.rec.Run(run)
	g.end(history.Released, "")
}
