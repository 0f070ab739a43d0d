package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/history"
	"github.com/wardmote/wardmote/locks"
)

// calmAsks are requests for the keys that callers use, by their names.
var calmAsks = map[string]func(key string) *ask{
	"m0": plain, "m1": plain, "delayed": plain, "st": plain, "stb": plain, "rw": plain, "if": plain, "t/a": plain, "t/b": plain,
	"t": func(key string) *ask { return want(key).with(func(o *history.Op) { o.Tree = true }, locks.Tree()) },
	"own": func(key string) *ask {
		return want(key).with(func(o *history.Op) { o.Owner = "calm" }, locks.Reentrant("calm"))
	},
	"sem": func(key string) *ask {
		return want(key).with(func(o *history.Op) { o.Mode, o.N, o.Of = history.Permits, 3, 3 }, locks.Permits(3, 3))
	},
}

func plain(key string) *ask { return want(key) }

// serves checks after the last fault that nothing is stuck. Callers give their calls up after a
// while, and a lost wake-up would look like impatience: so each key that was used under the
// faults is granted once more, behind whoever waits for it; somebody leads, and every shard has
// an owner.
func (w *town) serves() {
	limit := time.Duration(w.shape.limits().Live)
	var visits sync.WaitGroup
	for _, s := range w.sites {
		if p := w.running(s); p != nil {
			c := &caller{w: w, p: p, client: w.client(p, locks.Options{Name: fmt.Sprint("v", s.i)}), name: p.name + ".v", id: p.name + ".v",
				ctx: p.ctx, r: rand.New(rand.NewPCG(w.shape.seed, uint64(s.i)<<8|5))}
			visits.Go(func() { c.visit(limit) })
		}
	}
	visits.Wait()
	var missing []string
	for until := time.Now().Add(limit); time.Now().Before(until); <-time.After(100 * time.Millisecond) {
		at := w.rec.Now()
		if missing = w.idle(); len(missing) == 0 {
			w.rec.MarkAt(at, history.Calm, "", "")
			w.shown()
			return
		}
	}
	w.breaks("liveness", "%v after the last fault not everything has one that works on it: %v", limit, missing)
}

// visit takes half of the keys of the last stretch under faults, and of the calm.
func (c *caller) visit(limit time.Duration) {
	c.w.mu.Lock()
	epoch := c.w.epoch
	c.w.mu.Unlock()
	var keys []string
	for name := range calmAsks {
		keys = append(keys, name)
	}
	slices.Sort(keys)
	c.r.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	for _, name := range keys[:len(keys)/2] {
		for e := max(0, epoch-1); e <= epoch; e++ {
			key := fmt.Sprintf("%s.%d", name, e)
			if top, below, ok := strings.Cut(name, "/"); ok {
				key = fmt.Sprintf("%s.%d/%s", top, e, below)
			}
			until := time.Now().Add(limit)
			var g *grip
			for g == nil && c.ctx.Err() == nil && time.Now().Before(until) { // an operator may end the session
				if g = c.take(calmAsks[name](key), time.Until(until)); g == nil {
					c.nap(100 * time.Millisecond)
				}
			}
			if g == nil && c.ctx.Err() == nil {
				c.w.breaks("liveness", "%s is not granted %q within %v after the last fault", c.id, key, limit)
			}
			c.drop(g, "")
		}
	}
}

// idle returns the works of Elect and Spread that nobody has now, and those of shards beyond the
// number.
func (w *town) idle() (missing []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	want := func(key string, n int) {
		if w.working[key] != n {
			missing = append(missing, fmt.Sprintf("%s: %d", key, w.working[key]))
		}
	}
	want("elect", 1)
	of := 0
	for _, s := range w.sites {
		if n := w.spreads[s.now]; s.now != nil && of != 0 && n != of {
			missing = append(missing, fmt.Sprintf("%s: one of %d shards, and others of %d", s.now.name, n, of))
		} else if s.now != nil {
			of = n
		}
	}
	for i := range mostShards {
		n := 0
		if i < of {
			n = 1
		}
		want(fmt.Sprintf("%s/%d", group, i), n)
	}
	return missing
}

// worksOn counts the works that run.
func (w *town) worksOn(key string, n int) {
	w.mu.Lock()
	w.working[key] += n
	w.mu.Unlock()
}
