package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/wardmote/wardmote/internal/history"
	"github.com/wardmote/wardmote/locks"
)

// confKey is the cell that every process watches as long as it runs.
const confKey = "conf"

// A state is what a watch yields.
type state struct {
	value string
	token uint64
	who   string // leads: the member and the client
}

// A sight names the latest watch of a process for a key.
type sight struct {
	p   *process
	key string
}

// follow watches the cell of all processes, and the elected one, until the process ends.
func (c *caller) follow() {
	c.w.calls.Go(func() { c.watch(c.ctx, history.ShowValue, confKey) })
	c.w.calls.Go(func() { c.observe(c.ctx, "elect") })
}

// look watches one key after the other for a while each.
func (c *caller) look() {
	for c.ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(c.ctx, c.upTo(4*c.w.shape.ttl))
		switch c.r.IntN(3) {
		case 0:
			c.watch(ctx, history.ShowValue, c.key("cell"))
		case 1:
			c.watch(ctx, history.ShowValue, c.key("val"))
		default:
			c.watch(ctx, history.ShowHolder, c.key(fmt.Sprint("m", c.r.IntN(2))))
		}
		cancel()
		c.pause(c.upTo(c.w.shape.ttl))
	}
}

// shows returns a function that records the states of one watch.
func (c *caller) shows(kind, key string) func(state) {
	watch, after := c.w.rec.NewID("watch"), c.w.rec.Now()
	return func(s state) {
		c.w.rec.Show(history.Show{Watch: watch, Process: c.p.name, Kind: kind, Key: key, Value: s.value, Token: s.token, After: after, At: c.w.rec.Now()})
		c.w.mu.Lock()
		c.w.sights[sight{c.p, key}] = s
		c.w.mu.Unlock()
		after = c.w.rec.Now()
	}
}

// watch watches the value or the holder of a key until ctx ends.
func (c *caller) watch(ctx context.Context, kind, key string) {
	show := c.shows(kind, key)
	if kind == history.ShowValue {
		for v, err := range c.client.Cell(key).Watch(ctx) {
			if c.ended(ctx, "Cell.Watch", err) {
				return
			}
			show(state{value: string(v)})
		}
		return
	}
	for st, err := range c.client.Watch(ctx, key) {
		if c.ended(ctx, "Watch", err) {
			return
		}
		var s state
		if len(st.Holders) > 0 {
			s.token = uint64(st.Holders[0].Token)
		}
		show(s)
	}
}

// observe observes who leads until ctx ends.
func (c *caller) observe(ctx context.Context, key string) {
	show := c.shows(history.ShowHolder, key)
	for e, err := range c.client.Observe(ctx, key) {
		if c.ended(ctx, "Observe", err) {
			return
		}
		show(state{token: uint64(e.Token), who: e.Node + " " + e.Client})
	}
}

// ended reports whether a watch has ended, and checks why.
func (c *caller) ended(ctx context.Context, what string, err error) bool {
	if err != nil && ctx.Err() == nil && !errors.Is(err, locks.ErrClosed) && !c.p.diedOfItsDisk() {
		c.w.breaks("ends", "%s of %s ended with %v", what, c.id, err)
	}
	return err != nil
}

// valued takes a key, reads the value that the holder before has left, and leaves its token.
func (c *caller) valued() {
	key, before := c.key("val"), c.w.rec.Now()
	g := c.take(want(key), c.patience())
	if g == nil {
		return
	}
	l := g.l.(*locks.Lock)
	v, _ := l.Value()
	c.w.rec.Op(history.Op{ID: c.w.rec.NewID("value"), Process: c.p.name, Client: c.name, Caller: c.id, Kind: history.Get, Keys: []string{key},
		Grant: g.op, Value: string(v), Call: before, Return: c.w.rec.Now(), Outcome: history.Done})
	g.keep(c.ctx, c.holdFor()/2)
	value := fmt.Sprint(uint64(l.Token()))
	over := l.Err()
	p, ctx := c.begin(history.Op{Kind: history.SetValue, Keys: []string{key}, Grant: g.op, Value: value})
	ctx, cancel := context.WithTimeout(ctx, c.patience())
	err := l.SetValue(ctx, []byte(value))
	cancel()
	c.finish(p, err, func(o *history.Op) {
		if over != nil {
			o.Outcome = history.Refused // a lock that was lost before sets nothing
		}
	})
	if over != nil && err == nil {
		c.w.breaks("loss", "%s set the value of %q under token %s, after %v", c.id, key, value, over)
	}
	c.use(g)
}

// values reads a cell in a list of values.
func (c *caller) values() {
	key := c.key("cell")
	p, ctx := c.begin(history.Op{Kind: history.Get, Keys: []string{key}})
	ctx, cancel := context.WithTimeout(ctx, c.patience())
	defer cancel()
	value := ""
	for v, err := range c.client.Values(ctx, key) {
		if err != nil {
			c.finish(p, err, nil)
			return
		}
		if v.Key == key {
			value = string(v.Data)
		}
	}
	c.finish(p, nil, func(o *history.Op) { o.Value = value })
}

// shownWithin bounds in the calm how late a watch shows the latest state.
const shownWithin = 10 * time.Second

// shown checks that every process is shown the value of the common cell, and the one that
// leads.
func (w *town) shown() {
	s := w.sites[slices.IndexFunc(w.sites, func(s *site) bool { return w.running(s) != nil })]
	client := w.client(w.running(s), locks.Options{Name: "reader"})
	var late []string
	for until := time.Now().Add(shownWithin); time.Now().Before(until); <-time.After(100 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), shownWithin)
		v, err := client.Cell(confKey).Get(ctx)
		cancel()
		if err != nil {
			late = []string{err.Error()}
		} else if late = w.blind(string(v)); len(late) == 0 {
			return
		}
	}
	w.breaks("watch", "%v after all was calm the latest state is not shown: %v", shownWithin, late)
}

// blind lists the processes that are not shown the value of the common cell, or the one that
// leads.
func (w *town) blind(value string) (late []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.sites {
		if s.now == nil {
			continue
		}
		if x, ok := w.sights[sight{s.now, confKey}]; !ok || x.value != value {
			late = append(late, fmt.Sprintf("%s is shown %q for %q", s.now.name, x.value, value))
		}
		if x := w.sights[sight{s.now, "elect"}]; len(w.elected) != 1 || w.elected[x.token] == "" || w.elected[x.token] != x.who {
			late = append(late, fmt.Sprintf("%s is shown %q, token %d, of %v", s.now.name, x.who, x.token, w.elected))
		}
	}
	return late
}
