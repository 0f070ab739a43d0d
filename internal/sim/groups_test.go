package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/wardmote/wardmote/internal/history"
	"github.com/wardmote/wardmote/locks"
)

// The numbers of shards of the group: the first one, and the others.
const (
	shards     = 6
	mostShards = 8
)

const group = "group"

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

// spread works on shards until the process ends, by the number that the cluster has.
func (c *caller) spread() {
	for n := c.w.numberOfShards(0); c.ctx.Err() == nil; {
		call := c.w.rec.NewID("spread")
		c.w.rec.Mark(history.Joins, call, group)
		var opts []locks.SpreadOption
		if c.one(3) {
			opts = append(opts, locks.Drain(c.upTo(c.w.shape.ttl/4).Truncate(time.Millisecond)))
		}
		c.w.mu.Lock()
		c.w.spreads[c.p] = n
		c.w.mu.Unlock()
		err := c.client.Spread(c.ctx, group, n, func(ctx context.Context, shard int, l *locks.Lock) error {
			key := fmt.Sprintf("%s/%d", group, shard)
			c.term(ctx, history.Run{Kind: history.RunShard, Key: key, Call: call, Of: n}, l, time.Hour)
			return nil
		}, opts...)
		c.w.rec.Mark(history.Leaves, call, group)
		var other *locks.ShardsError
		if !errors.As(err, &other) || other.Have == n {
			c.ends("Spread", err)
			return
		}
		n = c.w.numberOfShards(other.Have)
	}
}

// numberOfShards returns the number of shards as the town knows, after n has been told, unless
// n is 0.
func (w *town) numberOfShards(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n > 0 {
		w.shards = n
	}
	return w.shards
}

// resize changes the number of shards, under faults only: in the calm there is a last number.
func (c *caller) resize() {
	from, to := c.w.numberOfShards(0), mostShards-2*c.r.IntN(3)
	if from == to || c.w.calm.Err() != nil {
		return
	}
	p, ctx := c.begin(history.Op{Kind: history.Resize, Keys: []string{group}, Of: from, N: to})
	ctx, cancel := context.WithTimeout(ctx, c.patience())
	defer cancel()
	err := c.client.Resize(ctx, group, from, to)
	// An earlier copy of a refused request may have been granted.
	c.finish(p, err, nil)
	var other *locks.ShardsError
	switch {
	case err == nil:
		c.w.numberOfShards(to)
	case errors.As(err, &other):
		c.w.numberOfShards(other.Have)
	}
}

// ends checks the end of a long call.
func (c *caller) ends(what string, err error) {
	if c.ctx.Err() == nil && !errors.Is(err, locks.ErrClosed) && !c.p.diedOfItsDisk() {
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
	if run.Kind == history.RunLead {
		defer c.w.leading(run.Token, fmt.Sprintf("member-%d s%d", c.p.site.i, c.p.site.i))()
	}
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

// leading notes that somebody leads under a token, until the result is called.
func (w *town) leading(token uint64, who string) (end func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.elected[token] = who
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.elected, token)
	}
}
