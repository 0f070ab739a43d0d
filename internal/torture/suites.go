package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// A suite is a kind of run.
type suite struct {
	name   string
	pkg    string // from the root, slash-separated
	weight int    // its share of the time; 0: once for each commit
	run    string // the tests' pattern; "" for fuzz targets
	slice  time.Duration
	limit  time.Duration // a run is ended after so long
	alone  bool          // nothing runs beside it: it keeps promises of time
	full   string        // environment: WARDMOTE_FULL
	length string        // environment: the variable with the slice
	more   []string      // environment
	args   []string
	source bool // run by the go command, not from a test binary

	situations string // a file with a line for each situation that the suite can see; "": the suite tells
}

// planVariable tells internal/sim what else than the seed makes a plan.
const planVariable = "WARDMOTE_SIM_PLAN"

// suites are all suites, in the order of the report.
var suites = []suite{
	{name: "sim", pkg: "internal/sim", weight: 40, run: "^TestSim$", slice: 5 * time.Minute, limit: 15 * time.Minute, length: "WARDMOTE_SIM", situations: "internal/sim/testdata/states.txt"},
	{name: "term", pkg: "locks", weight: 20, run: "^TestTermSimulation$", slice: 5 * time.Minute, limit: 15 * time.Minute, length: "WARDMOTE_SIM"},
	{name: "processes", pkg: "internal/storm", weight: 20, run: "^TestAStormBreaksNoPromise$", slice: 5 * time.Minute, limit: 20 * time.Minute, length: "WARDMOTE_STORM", alone: true},
	{name: "fuzz", weight: 15, slice: 2 * time.Minute, limit: 5 * time.Minute},
	{name: "kills", pkg: "internal/raftstore", weight: 5, run: "^TestAKilledProcessLosesNothingAcknowledged$", limit: 30 * time.Minute, more: []string{"WARDMOTE_KILLS=200"}},
	{name: "model", pkg: "internal/model", run: ".", limit: 2 * time.Hour, full: "1"},
	{name: "survival", pkg: "internal/survival", run: ".", limit: 2 * time.Hour, full: "1"},
	{name: "mutants", pkg: "internal/mutants", run: "^TestMutants$", limit: 6 * time.Hour, source: true, args: []string{"-tags", "mutants", "-parallel", "1", "-args", "-suites=model,term,sim"}},
}

func suiteOf(name string) (suite, bool) {
	for _, s := range suites {
		if s.name == name {
			return s, true
		}
	}
	return suite{}, false
}

// inTree returns the suites of a tree.
func inTree(root string) (list []suite) {
	for _, s := range suites {
		if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(s.pkg))); err == nil {
			list = append(list, s)
		}
	}
	return list
}

// environment returns the variables of a run, beside the process's own.
func (s suite) environment(j job, results string) []string {
	env := []string{"WARDMOTE_RESULTS=" + results, "WARDMOTE_SIM_FILE=" + results, "WARDMOTE_FULL=" + s.full}
	if !s.alone {
		env = append(env, "GOMAXPROCS=1")
	}
	if s.length != "" {
		slice := s.slice
		if j.Again > 0 {
			slice = time.Second // the failing seed alone
		}
		env = append(env, s.length+"="+slice.String())
	}
	if s.weight > 0 && s.pkg != "" {
		env = append(env, fmt.Sprintf("WARDMOTE_SEED=%d", j.Seed))
	}
	if j.Plan != "" {
		env = append(env, planVariable+"="+j.Plan)
	}
	return append(env, s.more...)
}

// replay returns the command to run a job again.
func (s suite) replay(j job) string {
	switch {
	case j.Target != "":
		return fmt.Sprintf("go test -run '^$' -fuzz '^%s$' -fuzztime 2m ./%s", j.Target, j.Package)
	case s.source:
		return "make mutants"
	case s.full != "":
		return fmt.Sprintf("WARDMOTE_FULL=1 go test -count=1 -timeout 0 ./%s", s.pkg)
	case s.length == "":
		return fmt.Sprintf("%s go test -count=1 -timeout 0 -run '%s' ./%s", s.more[0], s.run, s.pkg)
	}
	plan := ""
	if j.Plan != "" {
		plan = planVariable + "=" + j.Plan + " "
	}
	return fmt.Sprintf("%s=1s WARDMOTE_SEED=%d %sgo test -count=1 -timeout 0 -v -run '%s' ./%s", s.length, j.Seed, plan, s.run, s.pkg)
}
