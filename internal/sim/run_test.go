package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/history"
	"github.com/wardmote/wardmote/internal/machine"
)

// A plan is everything that a run is made from: the shape and the phases. The order of
// goroutines is not part of it, so a plan that has shown a violation may show none the
// next time.
type plan struct {
	shape shape
	steps []step
	drawn int      // phases: minimise takes some of them away
	aims  []string // what drawPlan aimed at, in order; noAim where the aimer had nothing
}

// A step is a phase with the seed of its own choices.
type step struct {
	phase phase
	seed  uint64
	mends bool // the network is healed afterwards
}

func (p plan) String() string {
	text := p.shape.String()
	for _, s := range p.steps {
		text += "\n\t" + s.phase.name
		if s.mends {
			text += ", healed"
		}
	}
	return text
}

// allPhases lists every phase.
func allPhases() []phase {
	return append(append(append([]phase(nil), randomPhases...), directedPhases...), ambushes()...)
}

// drawPlan draws the plan of a seed, with n phases. One in three is aimed at a state, if aims
// has one.
func drawPlan(seed uint64, n int, aims aimer) plan {
	p := plan{shape: drawShape(seed), drawn: n}
	r := rand.New(rand.NewPCG(seed, 2))
	kinds := [][]phase{randomPhases, directedPhases, ambushes()}
	if only := os.Getenv("WARDMOTE_SIM_PHASES"); only != "" {
		kinds = [][]phase{slices.DeleteFunc(allPhases(), func(x phase) bool { return !strings.Contains(x.name, only) })}
	}
	for range n {
		// All other draws are the same for each aimer, so that a seed and its aims make the plan.
		if x, aimed := r.Uint64(), r.IntN(3) == 0; aimed {
			if t, ok := aims(x); ok {
				p.aims = append(p.aims, t.String())
				p.steps = append(p.steps, step{aim(t), r.Uint64(), true})
				continue
			}
			p.aims = append(p.aims, noAim)
		}
		from := kinds[r.IntN(len(kinds))]
		p.steps = append(p.steps, step{from[r.IntN(len(from))], r.Uint64(), r.IntN(4) > 0})
	}
	return p
}

// A result is what a run has shown.
type result struct {
	plan       plan
	history    history.History
	violations []history.Violation
	searches   history.Searches
	under      time.Duration // simulated, with faults
	grants     int
	faults     int
	questions  int // of holders after a stop
	coverage   map[triple]int
}

// play runs a plan in a bubble.
func play(t *testing.T, p plan) (res result) {
	if p.shape.dir != noDir {
		p.shape.path = memoryDir(t)
	}
	if p.shape.secrets != nil {
		p.shape.secrets = newSecrets(p.shape.seed)
	}
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t, p.shape)
		res = w.live(p)
		// Goroutines of third parties end some time after they were told to stop.
		<-time.After(time.Minute)
	})
	found, made := history.Judge(res.history)
	res.violations = append(res.violations, found...)
	res.searches = made
	return res
}

// memoryDir returns a directory on a file system in memory where there is one: a disk's
// flushes would take a tenth of the CPU time, and lost flushes are for package raftstore.
func memoryDir(t *testing.T) string {
	if shm := "/dev/shm"; os.Getenv("TMPDIR") == "" {
		if dir, err := os.MkdirTemp(shm, "wardmote-sim-"); err == nil {
			t.Cleanup(func() { os.RemoveAll(dir) })
			return dir
		}
	}
	return t.TempDir()
}

// live plays the plan and collects the record.
func (w *town) live(p plan) result {
	watching, stopWatching := context.WithCancel(context.Background())
	defer stopWatching()
	for _, s := range w.sites {
		w.start(s)
	}
	w.ready(time.Minute + w.shape.ttl)
	for _, s := range w.sites {
		if p := w.running(s); p != nil {
			w.occupy(p)
		}
	}
	w.calls.Go(func() { w.cover.watch(watching) })
	began := time.Now()
	for i, s := range p.steps {
		w.mu.Lock()
		w.epoch = i / 2
		w.mu.Unlock()
		w.rec.Mark("phase", "", s.phase.name)
		a := &act{w: w, r: rand.New(rand.NewPCG(s.seed, 3))}
		s.phase.run(a)
		if s.mends {
			w.heal()
		} else {
			for _, at := range w.sites {
				w.thaw(at)
			}
		}
		if a.r.IntN(2) == 0 {
			w.revive()
		}
		a.wait(a.upTo(w.shape.ttl))
	}
	res := result{plan: p, under: time.Since(began)}
	w.calmDown()
	w.serves()
	stopWatching()
	w.finish()
	w.end()
	w.calls.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	res.history, res.violations = w.rec.History(), w.broken
	res.grants, res.faults, res.questions, res.coverage = w.grips.n, w.faults, w.questions, w.cover.seen
	return res
}

// ready waits until every process has joined a cluster that grants.
func (w *town) ready(patience time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, s := range w.sites {
		if p := w.running(s); p != nil {
			if err := p.node.Ready(ctx); err != nil {
				w.breaks("liveness", "%s is not ready: %v", p.name, err)
			}
		}
	}
}

// calmDown ends all faults and waits until every call from before has returned.
func (w *town) calmDown() {
	w.rest() // waits are long from now on, and holds short
	w.heal()
	w.revive()
	limits := w.shape.limits()
	w.rec.Limits(limits)
	w.rec.Mark(history.Heal, "", "")
	calm := w.rec.Now()
	w.mu.Lock()
	before := w.grants
	w.epoch++ // the keys of the last faults are kept by callers that come back by chance only
	w.mu.Unlock()
	until := time.Now().Add(time.Duration(limits.Live) + time.Second)
	for time.Now().Before(until) {
		<-time.After(500 * time.Millisecond)
		w.mu.Lock()
		old := w.grants < before+3*len(w.sites)
		for _, call := range w.waits {
			old = old || call < calm
		}
		w.mu.Unlock()
		if !old {
			return
		}
	}
	w.rec.Mark("late", "", "the calls before the calm have not all returned")
	w.mu.Lock()
	n := w.grants - before
	w.mu.Unlock()
	if n < 3 {
		w.breaks("liveness", "%d grants in %v after the last fault", n, time.Duration(limits.Live))
	}
}

// limits returns the bounds that the record is held to.
func (s shape) limits() history.Limits {
	live := 40*time.Second + 10*s.ttl
	if s.complete {
		live += time.Minute
	}
	// By the slowest clock, since a beat that is confirmed later was sent before a freeze.
	trust := time.Duration(float64(s.ttl-margin(s.ttl)) / (1 - s.spread))
	return history.Limits{Live: int64(live), Told: int64(time.Millisecond), Trust: int64(trust + time.Millisecond)}
}

// finish closes all clients and checks that the table is empty afterwards: at the latest
// when the sessions of killed processes have expired.
func (w *town) finish() {
	for _, s := range w.sites {
		if p := w.running(s); p != nil {
			p.cancel()
			w.stops.Go(func() { w.closeClients(p) })
		}
	}
	for range 60 {
		<-time.After(time.Second)
		empty := true
		w.log.view(func(m *machine.State, _ term) {
			n := m.Counts()
			empty = n.Sessions+n.Grants == 0 // a lost lock's delay outlives its session
		})
		if empty {
			break
		}
	}
	w.log.left()
}

// minimise returns a shorter plan that still shows a violation of one of the checks. Each
// candidate is played a few times, since the order of goroutines differs; the removal of
// large parts is tried first.
func minimise(t *testing.T, res result, patience time.Duration) result {
	checks := make(map[string]bool)
	for _, v := range res.violations {
		checks[v.Check] = true
	}
	again := func(p plan) (result, bool) {
		for range 3 {
			r := play(t, p)
			for _, v := range r.violations {
				if checks[v.Check] {
					return r, true
				}
			}
		}
		return result{}, false
	}
	began := time.Now()
	for size := (len(res.plan.steps) + 1) / 2; size > 0 && time.Since(began) < patience; {
		shorter := false
		for from := 0; from < len(res.plan.steps) && time.Since(began) < patience; {
			to := min(from+size, len(res.plan.steps))
			p := res.plan
			p.steps = append(append([]step(nil), p.steps[:from]...), p.steps[to:]...)
			if r, ok := again(p); ok {
				res, shorter = r, true
			} else {
				from = to
			}
		}
		if !shorter || size > len(res.plan.steps) {
			size /= 2
		}
	}
	return res
}

// describe reports a failed run.
func describe(t *testing.T, res result) {
	t.Helper()
	t.Errorf("%v", res.plan)
	for i, v := range res.violations {
		if i == 5 {
			t.Errorf("… and %d more", len(res.violations)-i)
			break
		}
		t.Errorf("%v", v)
		if v.At == 0 {
			continue
		}
		var text fmtWriter
		if err := res.history.Print(&text, v, int64(3*res.plan.shape.ttl), int64(res.plan.shape.ttl)); err == nil && i < 2 {
			t.Log("\n" + string(text))
		}
	}
}

// fmtWriter collects text.
type fmtWriter []byte

func (w *fmtWriter) Write(p []byte) (int, error) { *w = append(*w, p...); return len(p), nil }

// replay returns the command that plays a drawn plan again.
func (p plan) replay() string {
	return fmt.Sprintf("WARDMOTE_SEED=%d WARDMOTE_SIM_PLAN=%s go test -count=20 -run '^TestSeed$' ./internal/sim", p.shape.seed, p.env())
}

// env returns WARDMOTE_SIM_PLAN for a drawn plan: parsePlan reads it.
func (p plan) env() string {
	return strings.Join(append([]string{strconv.Itoa(p.drawn)}, p.aims...), ",")
}
