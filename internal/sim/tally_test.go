package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/history"
)

// A tally adds the runs of many seeds up.
type tally struct {
	cpu                          time.Duration // of the process, before the first run
	under                        time.Duration // simulated, with faults
	grants, calls, faults, seeds int
	searches                     history.Searches
	bad                          int // seeds with violations
	seen                         map[triple]int
	rare                         map[string]int // what callers do seldom, by its name
}

func newTally() *tally {
	return &tally{cpu: cpuTime(), seen: make(map[triple]int), rare: make(map[string]int)}
}

// rareThings are what each simulated hour must have, since a judge without cases judges nothing.
var rareThings = []string{"resizes", "full queues", "values set", "values shown", "holders shown", "questions after a stop"}

// rare counts rareThings in a run.
func (r result) rare() map[string]int {
	n := map[string]int{"questions after a stop": r.questions}
	for i := range r.history.Ops {
		switch o := &r.history.Ops[i]; {
		case o.Kind == history.Resize && o.Outcome == history.Done:
			n["resizes"]++
		case o.Err == history.ErrWaiters:
			n["full queues"]++
		case o.Kind == history.SetValue && o.Outcome == history.Done:
			n["values set"]++
		}
	}
	for i := range r.history.Shows {
		switch r.history.Shows[i].Kind {
		case history.ShowValue:
			n["values shown"]++
		case history.ShowHolder:
			n["holders shown"]++
		}
	}
	return n
}

func (y *tally) add(res result) {
	y.seeds++
	y.under += res.under
	y.grants, y.calls, y.faults = y.grants+res.grants, y.calls+len(res.history.Ops), y.faults+res.faults
	y.searches = y.searches.Add(res.searches)
	for x, n := range res.coverage {
		y.seen[x] += n
	}
	for x, n := range res.rare() {
		y.rare[x] += n
	}
	if len(res.violations) > 0 {
		y.bad++
	}
}

// uncovered lists the reachable states that no run has seen, and counts the reachable ones.
func (y *tally) uncovered() (missing []triple, of int, err error) {
	list, err := states()
	for _, x := range list {
		if y.seen[x] == 0 {
			missing = append(missing, x)
		}
	}
	return missing, len(list), err
}

func (y *tally) String() string {
	if y.under == 0 {
		return "nothing was simulated"
	}
	missing, of, _ := y.uncovered()
	cpu := cpuTime() - y.cpu
	hourly := func(n int) float64 { return float64(n) / y.under.Hours() }
	rare := ""
	for _, x := range rareThings {
		rare += fmt.Sprintf("%.0f %s, ", hourly(y.rare[x]), x)
	}
	return fmt.Sprintf("%d seeds, %.2f simulated hours in %.0f s of CPU time, which is %.0f s a second; "+
		"%.0f grants, %.0f calls, %s%.0f faults an hour; %d of %d states; %v, %d bad seeds",
		y.seeds, y.under.Hours(), cpu.Seconds(), y.under.Seconds()/max(cpu.Seconds(), 0.001),
		hourly(y.grants), hourly(y.calls), rare, hourly(y.faults), of-len(missing), of, y.searches, y.bad)
}

// The bounds of a long run.
const (
	longRun    = 6 * time.Hour    // a process of CI simulates more
	leastSeen  = 95               // percent of the reachable states
	mostCalmed = 10 * time.Second // from one fault to the next, in the mean
	leastRare  = 5                // of each of rareThings an hour
)

// judge fails a run with too many undecided searches, and a long one that has seen too few
// states, or had too few faults or rare things.
func (y *tally) judge(t testing.TB) {
	if !y.searches.Enough() {
		t.Errorf("%v, and of a run of their length too many", y.searches)
	}
	if y.under < longRun {
		return
	}
	missing, of, err := y.uncovered()
	if err != nil {
		t.Error(err)
	}
	if 100*(of-len(missing)) < leastSeen*of {
		t.Errorf("%v simulated, and of %d states only %d came about: without %v", y.under, of, of-len(missing), missing)
	}
	if time.Duration(y.faults)*mostCalmed < y.under {
		t.Errorf("%d faults in %v are fewer than one in %v", y.faults, y.under, mostCalmed)
	}
	for _, x := range rareThings {
		if float64(y.rare[x]) < leastRare*y.under.Hours() {
			t.Errorf("%d %s in %v are fewer than %d an hour", y.rare[x], x, y.under, leastRare)
		}
	}
}
