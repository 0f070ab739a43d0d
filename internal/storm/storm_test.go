//go:build linux

package storm

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/history"
)

// stormEnv is the length of the storm, seedEnv the first seed, and townsEnv the number of
// towns at a time.
const (
	stormEnv = "WARDMOTE_STORM"
	seedEnv  = "WARDMOTE_SEED"
	townsEnv = "WARDMOTE_TOWNS"
	keepEnv  = "WARDMOTE_STORM_KEEP" // keeps all recordings
)

// oneSchedule is the length of the faults of one schedule in a storm.
const oneSchedule = 60 * time.Second

// A storm of random faults breaks no promise. A plain run has a moment of two faults; with
// WARDMOTE_STORM=<duration> schedules of a minute follow each other for so long.
func TestAStormBreaksNoPromise(t *testing.T) {
	seed := uint64(1)
	if text := os.Getenv(seedEnv); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("%s: %v", seedEnv, err)
		}
		seed = n
	}
	text := os.Getenv(stormEnv)
	if text == "" {
		k := kind{Members: 5, TTL: time.Second, Work: "all", Pace: 150 * time.Millisecond}
		play(t, k, seed, []step{
			{At: 200 * time.Millisecond, Fault: "kill leader", For: 300 * time.Millisecond},
			{At: 400 * time.Millisecond, Fault: "stop holder", For: 1200 * time.Millisecond},
		}, "go test -run TestAStormBreaksNoPromise ./internal/storm")
		return
	}
	length, err := time.ParseDuration(text)
	if err != nil || length <= 0 {
		t.Fatalf("%s: %q is no length of a storm", stormEnv, text)
	}
	towns, _ := strconv.Atoi(os.Getenv(townsEnv))
	until := time.Now().Add(length)
	var mu sync.Mutex
	t.Run("schedules", func(t *testing.T) {
		for range max(towns, 1) {
			t.Run("town", func(t *testing.T) {
				t.Parallel()
				for time.Until(until) > 0 {
					mu.Lock()
					mine := seed
					seed++
					mu.Unlock()
					one := min(oneSchedule, max(time.Until(until), 10*time.Second)).Round(time.Second)
					k, steps := draw(mine, one)
					t.Run(fmt.Sprint("seed=", mine), func(t *testing.T) {
						play(t, k, mine, steps, fmt.Sprintf("%s=%v %s=%d go test -count=1 -timeout 0 -v -run TestAStormBreaksNoPromise ./internal/storm", stormEnv, one, seedEnv, mine))
					})
				}
			})
		}
	})
}

// play plays a schedule in a town of its own, and judges the history.
func play(t *testing.T, k kind, seed uint64, steps []step, replay string) result {
	t.Helper()
	base, err := os.MkdirTemp(os.Getenv("WARDMOTE_STORM_DIR"), fmt.Sprintf("wardmote-storm-%d-", seed))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("seed %d: %v\n%s", seed, k, printed(steps))
	began := time.Now()
	r := result{Suite: "processes", Seed: seed, Town: k.String()}
	w, err := newTown(base, k, seed, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	broken := func() []string {
		defer w.close()
		return w.live(steps, &r)
	}()
	r.WallSeconds = time.Since(began).Seconds()
	h, err := readAll(base)
	if err != nil {
		t.Error(err)
	}
	if r.Rescued {
		h = withoutValues(h)
	} else if !k.Complete { // else a successor begins another log
		broken = append(broken, compareLogs(&h, &r)...)
	}
	found := judge(h, &r)
	for _, v := range found {
		r.Found = append(r.Found, v.String())
	}
	r.Found = append(r.Found, broken...)
	crashed, err := crashes(base)
	if err != nil {
		t.Error(err)
	}
	r.Found = append(r.Found, crashed...)
	r.conclude(w)
	tell(t, &r)
	if err := r.idleDisks(); err != nil {
		t.Error(err)
	}
	if err := r.publish(); err != nil {
		t.Error(err)
	}
	if r.Violations > 0 {
		t.Errorf("%d violations; the recordings are in %s; replay with\n%s", r.Violations, base, replay)
		for _, text := range r.Found {
			t.Log(text)
		}
		return r
	}
	if os.Getenv(keepEnv) != "" {
		t.Logf("the recordings are in %s", base)
	} else if err := os.RemoveAll(base); err != nil {
		t.Error(err)
	}
	return r
}

// crashes finds in the logs the processes that the Go runtime has ended, and those whose record is
// not whole. A process may end by itself for want of memory, since some faults take it.
func crashes(base string) (found []string, err error) {
	names, err := filepath.Glob(filepath.Join(base, "*.log"))
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(text)) {
			crash := slices.ContainsFunc([]string{"panic: ", "fatal error: ", "WARNING: DATA RACE", cutShort}, func(begins string) bool { return strings.HasPrefix(line, begins) })
			if crash && !strings.Contains(line, "out of memory") && !strings.Contains(line, "cannot allocate memory") && !strings.Contains(line, "newosproc") {
				found = append(found, fmt.Sprintf("crash: %s: %s", filepath.Base(name), strings.TrimSpace(line)))
			}
		}
	}
	return found, err
}

// conclude adds the verdict of the resources. A lost update of the fenced copy is a
// violation; lost updates of the other copies are counted.
func (r *result) conclude(w *town) {
	var forgets []forgotten
	r.Fenced, forgets = w.store.sum("")
	for _, f := range forgets {
		r.Found = append(r.Found, fmt.Sprintf("updates: a fenced write of %s lost %d", f.Process, f.Lost))
	}
	r.Checked, _ = w.store.sum("checked")
	r.Plain, _ = w.store.sum("plain")
	w.mu.Lock()
	r.Processes, r.Deaths = w.started, w.deaths
	w.mu.Unlock()
	r.Violations = len(r.Found)
	r.Void = r.OpsASecond < leastRate
}

// tell prints a result.
func tell(t *testing.T, r *result) {
	t.Helper()
	faults := 0
	var kinds []string
	for name, n := range r.Faults {
		faults += n
		kinds = append(kinds, fmt.Sprintf("%s %d", name, n))
	}
	slices.Sort(kinds)
	t.Logf("%.0f s, %d processes, %d operations (%.0f/s), %d grants, %d of them after a wait in the queue, %d lost, %d entries compared, %d faults: %s", r.WallSeconds, r.Processes, r.Ops, r.OpsASecond, r.Grants, r.Waits, r.Lost, r.Entries, faults, strings.Join(kinds, ", "))
	t.Logf("every member was granted a key %.1f s after the faults", r.Served)
	t.Logf("updates: fenced %+v, checked by Err %+v, plain %+v; %d components undecided", r.Fenced, r.Checked, r.Plain, r.Undecided)
	for name, o := range map[string]overlaps{"stopped": r.Stopped, "running": r.Running} {
		t.Logf("overlaps with the next grant while the holder's process was %s: %d, the longest %.1f ms, told %.1f ms after the process ran", name, o.N, o.Longest, o.Told)
		for _, line := range o.lines[:min(len(o.lines), 5)] {
			t.Log("  ", line)
		}
	}
	if len(r.Idle) > 0 {
		t.Logf("hit nothing, and do not count: %v", r.Idle)
	}
	for name, why := range r.Missing {
		t.Logf("not made: %s: %s", name, why)
	}
	if r.Void {
		t.Logf("VOID: fewer than %d operations a second say nothing", leastRate)
	}
}

// withoutValues leaves out the calls about values, since a lost cluster has forgotten them.
func withoutValues(h history.History) history.History {
	h.Ops = slices.DeleteFunc(h.Ops, func(o history.Op) bool {
		return o.Kind == history.Get || o.Kind == history.Update || o.Kind == history.Once
	})
	h.Runs = slices.DeleteFunc(h.Runs, func(r history.Run) bool { return r.Kind == history.RunOnce })
	return h
}

// live starts the town, plays the schedule, and ends the town. live returns the broken
// promises of liveness.
func (w *town) live(steps []step, r *result) (broken []string) {
	for i := range w.kind.Members {
		if _, err := w.start(i); err != nil {
			return []string{err.Error()}
		}
	}
	if err := w.serves(); err != nil {
		return append(broken, fmt.Sprint("liveness: the town was not founded: ", err))
	}
	ctx, cancel := context.WithTimeout(context.Background(), 24*time.Hour)
	defer cancel()
	var reviving sync.WaitGroup
	reviving.Go(func() { w.revive(ctx) })
	r.from = w.rec.Now()
	x := &fighter{w: w, ctx: ctx, made: make(map[string]int), idle: make(map[string]int), missing: make(map[string]string)}
	x.play(steps)
	r.Faults, r.Idle, r.Missing = x.made, x.idle, x.missing
	r.to = w.rec.Now()
	w.rec.Mark(history.Heal, "", "")
	if err := w.serves(); err != nil && !w.kind.Dir && !w.kind.Complete {
		// Deaths that nobody planned took a majority in memory: all must start anew, as
		// the survivors say.
		r.Rescued = true
		w.logf("rescued: %v", err)
		_ = x.quitAll(step{Who: 1})
		broken = broken[:0]
		if err := w.serves(); err != nil {
			broken = append(broken, fmt.Sprint("liveness: after a restart of all: ", err))
		}
	} else if err != nil {
		broken = append(broken, fmt.Sprint("liveness: ", err))
	}
	r.Served = time.Duration(w.rec.Now() - r.to).Seconds()
	if len(broken) == 0 {
		w.rec.Mark(history.Heal, "", "everybody is served") // the calm begins
		broken = append(broken, w.visit(os.Getenv(stormEnv) != "", r)...)
	}
	broken = append(broken, w.calm()...)
	cancel()
	reviving.Wait()
	return append(broken, w.leave()...)
}
