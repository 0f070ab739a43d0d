//go:build linux

package storm

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"sync"
	"time"

	"github.com/wardmote/wardmote/internal/history"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/locks"
)

// visited are the keys of each kind of work that must be granted once more after the last fault:
// callers give up after a while, and a lost wake-up would look like impatience. owned are the
// keys of elections and shards that must have an owner.
var (
	visited = map[string][]string{
		"set": {"x0", "x1", "x2"},
		"all": {"x0", "x1", "x2", "r0", "r1", "y0", "y1", "s0", "s1", "p0", "t0", "t1", "t2", "t3", "d", "d/a", "d/a/b", "d/c"},
	}
	owned = map[string][]string{"all": ownedKeys()}
)

func ownedKeys() []string {
	keys := []string{"lead"}
	for i := range shards {
		keys = append(keys, fmt.Sprint("shards/", i))
	}
	return keys
}

// serveWithin bounds the time from the end of the last fault until every member is granted a
// free key, each key of the work is granted once more, and every shard has an owner: a lost cluster
// is given up and succeeded, new processes wait for listed ones that do not answer, and sessions
// that nobody can prove dead are waited out.
func (w *town) serveWithin() time.Duration {
	return 2*timing.Retirement + timing.SuccessionPatience + timing.GhostQuiet + 8*w.kind.TTL
}

// settleWithin bounds the time from the last cause until every shard is where it stays: a session
// is waited out, by a second leader perhaps, the plan waits for further callers, and the last
// owner's function returns.
func (w *town) settleWithin() time.Duration { return 3*w.kind.TTL + timing.PlanMost }

// patient calls f until f succeeds, or for limit: on a host that stood still, twice as long.
func (w *town) patient(limit time.Duration, f func(left time.Duration) error) error {
	for began := time.Now(); ; {
		err := f(max(limit-time.Since(began), time.Second))
		took := time.Since(began)
		if err == nil || took > limit && (took > 2*limit || w.stalls.Sum(began) < took/8) || errors.Is(err, errLost) {
			return err
		}
	}
}

// errLost: a majority in memory is lost, and says so.
var errLost = errors.New("the cluster needs a restart of all")

// serves waits until every member is granted a key. A call that takes long says why, in
// the log.
func (w *town) serves() error {
	return w.everybody(func(i int) error {
		began := time.Now()
		err := w.patient(w.serveWithin(), func(time.Duration) error {
			h := w.house(i)
			r, err := h.ask("acquire", fmt.Sprint("calm", i), 15*time.Second)
			switch {
			case err == nil:
				_, _ = h.ask("release", r.Key, 10*time.Second)
			case !w.kind.Dir && !w.kind.Complete && strings.Contains(err.Error(), "cannot come back by itself"):
				return fmt.Errorf("%w: %w", errLost, err)
			default:
				w.missed(h, "a key", began, err)
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("%s was granted nothing within %v: %w", name(i), time.Since(began).Round(time.Second), err)
		}
		return nil
	})
}

// missed logs why a member was not served, or gives a supervisor time to start the next process.
func (w *town) missed(h *house, what string, began time.Time, err error) {
	if h.p.Ended() {
		time.Sleep(200 * time.Millisecond)
		return
	}
	w.logf("%s waits for %s for %v: %v", h.process, what, time.Since(began).Round(time.Second), err)
}

// everybody calls f for each member at once, and returns the first error.
func (w *town) everybody(f func(i int) error) error {
	errs := make([]error, w.kind.Members)
	var asking sync.WaitGroup
	for i := range errs {
		asking.Go(func() { errs[i] = f(i) })
	}
	asking.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// visit has the members acquire the keys of the work once more, while the work goes on, each key
// behind whoever waits for it. Then it waits until every election and shard has an owner, which
// history judges. long is a wait for shards that move without a cause.
func (w *town) visit(long bool, r *result) (broken []string) {
	r.limits.Keys, r.limits.Works = visited[w.kind.Work], owned[w.kind.Work]
	r.limits.Live, r.limits.Settle = int64(w.serveWithin()), int64(w.settleWithin())
	began := time.Now()
	if err := w.everybody(func(i int) error {
		for n, key := range r.limits.Keys {
			if n%w.kind.Members != i {
				continue
			}
			err := w.patient(w.serveWithin(), func(left time.Duration) error {
				h := w.house(i)
				_, err := h.ask("visit", key, left+time.Second) // late enough for the judge to see
				if err != nil {
					w.missed(h, key, began, err)
				}
				return err
			})
			if err != nil {
				return fmt.Errorf("%s was not granted %s within %v of the last fault: %w", name(i), key, time.Since(began).Round(time.Second), err)
			}
		}
		return nil
	}); err != nil {
		broken = append(broken, fmt.Sprint("liveness: ", err))
	}
	if w.stalls.Sum(began) > time.Since(began)/8 {
		r.limits.Live *= 2
	}
	at := w.rec.Now()
	_ = w.patient(w.serveWithin(), func(time.Duration) error {
		at = w.rec.Now()
		idle := w.idle(r.limits.Works)
		if len(idle) == 0 {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
		return fmt.Errorf("nobody works on %v", idle)
	})
	w.rec.MarkAt(at, history.Calm, "", "")
	if long {
		time.Sleep(w.settleWithin() + 2*time.Second)
	}
	return broken
}

// idle returns those of the keys that no member works on.
func (w *town) idle(keys []string) (idle []string) {
	var mu sync.Mutex
	running := make(map[string]bool)
	_ = w.everybody(func(i int) error {
		r, err := w.house(i).ask("works", "", 5*time.Second)
		mu.Lock()
		defer mu.Unlock()
		for key := range strings.FieldsSeq(r.Detail) {
			running[key] = true
		}
		return err
	})
	for _, key := range keys {
		if !running[key] {
			idle = append(idle, key)
		}
	}
	return idle
}

// calm ends the work of all members, and waits until nothing is held.
func (w *town) calm() (broken []string) {
	err := w.everybody(func(i int) error {
		h := w.house(i)
		if _, err := h.ask("quiet", "", w.serveWithin()); err != nil && !h.p.Ended() {
			return fmt.Errorf("the calls of %s did not end: %w", h.process, err)
		}
		return nil
	})
	if err != nil {
		broken = append(broken, fmt.Sprint("liveness: ", err))
	}
	// The keys of dead processes are free after a TTL.
	var r report
	for began := time.Now(); time.Since(began) < w.serveWithin(); time.Sleep(100 * time.Millisecond) {
		if r, err = w.house(0).ask("left", "", 10*time.Second); err == nil && r.Token == 0 {
			return broken
		}
	}
	return append(broken, fmt.Sprintf("clean: %d keys are held at the end, such as %q: %v", r.Token, r.Detail, err))
}

// leave ends all members by SIGTERM.
func (w *town) leave() (broken []string) {
	err := w.everybody(func(i int) error {
		if h := w.house(i); !h.p.Ended() && !h.terminate() {
			return fmt.Errorf("%s did not end within 20 s of SIGTERM", h.process)
		}
		return nil
	})
	if err != nil {
		broken = append(broken, fmt.Sprint("liveness: ", err))
	}
	return broken
}

// visit acquires a key of the work, behind whoever waits for it, and releases it.
func (p *program) visit(ctx context.Context, key string) error {
	k := &caller{p: p, c: p.clients[0], name: p.rec.NewID(p.s.Process + "/visit"), r: newRand(p.s.Seed, uint64(crc32.ChecksumIEEE([]byte(key))))}
	for {
		op := &history.Op{Kind: history.Acquire, Keys: []string{key}}
		var opts []locks.Option
		switch key {
		case "p0":
			op.Mode, op.N, op.Of = history.Permits, permits, permits
			opts = append(opts, locks.Permits(permits, permits))
		case "d":
			op.Tree = true
			opts = append(opts, locks.Tree())
		}
		g, err := k.acquire(k.ctx(ctx), op, opts...)
		if err == nil {
			k.letGo(op, g)
			return nil
		}
		if !k.sleep(ctx, 100*time.Millisecond) { // an operator may end the grant before its return
			return err
		}
	}
}
