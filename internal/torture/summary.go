package main

import (
	"cmp"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A summary is the sum of all runs.
type summary struct {
	Made     string    `json:"made"`    // the day of the last run
	Commits  []string  `json:"commits"` // tested, in order
	Suites   []tally   `json:"suites"`
	Fuzz     []fuzzed  `json:"fuzz"`
	Mutants  []mutant  `json:"mutants"` // of the last run of each
	Failures []failure `json:"failures"`
}

// A tally is the sum of a suite's runs.
type tally struct {
	Suite      string         `json:"suite"`
	Runs       int            `json:"runs"`
	WallHours  float64        `json:"wall_hours"`
	CPUHours   float64        `json:"cpu_hours"`
	Hours      float64        `json:"simulated_hours,omitempty"`
	Grants     int            `json:"grants,omitempty"`
	Faults     map[string]int `json:"faults,omitempty"`
	Coverage   int            `json:"coverage,omitempty"`  // situations seen
	Uncovered  []string       `json:"uncovered,omitempty"` // situations that no run has seen
	Violations int            `json:"violations"`
	Void       int            `json:"void,omitempty"` // schedules in which the host stood still or did too little

	seen, unseen map[string]bool
}

func (t *tally) faults() (n int) {
	for _, k := range t.Faults {
		n += k
	}
	return n
}

// A fuzzed is a fuzz target.
type fuzzed struct {
	Package string  `json:"package"`
	Target  string  `json:"target"`
	Minutes float64 `json:"cpu_minutes"`
}

// A mutant is a planted bug.
type mutant struct {
	Name     string  `json:"name"`
	Promise  string  `json:"promise"`
	Survived bool    `json:"survived"`
	Found    []found `json:"found"`
}

// A failure is a failed run, and how often it repeated.
type failure struct {
	ID       string `json:"id"`
	Suite    string `json:"suite"`
	Target   string `json:"target,omitempty"`
	Commit   string `json:"commit"`
	Seed     uint64 `json:"seed"`
	Plan     string `json:"plan,omitempty"`
	Tried    int    `json:"tried"`
	Repeated int    `json:"repeated"`
	Replay   string `json:"replay"`
}

// summarize adds runs up.
func summarize(runs []run) (s summary) {
	tallies := make(map[string]*tally)
	fuzz := make(map[target]float64)
	mutants := make(map[string]mutant)
	var last time.Time
	for i := range runs {
		r := &runs[i]
		if !slices.Contains(s.Commits, r.Commit) {
			s.Commits = append(s.Commits, r.Commit)
		}
		if r.Began.After(last) {
			last = r.Began
		}
		t := tallies[r.Suite]
		if t == nil {
			t = &tally{Suite: r.Suite, Faults: make(map[string]int), seen: make(map[string]bool), unseen: make(map[string]bool)}
			tallies[r.Suite] = t
		}
		t.add(r)
		if r.Target != "" {
			fuzz[target{r.Target, r.Package}] += r.CPU / 60
		}
		for _, one := range r.parse() {
			if one.Mutant == "" {
				continue
			}
			m := mutant{Name: one.Mutant, Promise: one.Promise, Survived: one.Survived}
			_ = json.Unmarshal(one.Found, &m.Found)
			mutants[m.Name] = m
		}
		if r.Failed && r.Again == 0 {
			s.Failures = append(s.Failures, failed(r, runs))
		}
	}
	if !last.IsZero() {
		s.Made = last.Format(time.DateOnly)
	}
	for _, suite := range suites {
		if t := tallies[suite.name]; t != nil {
			t.close()
			s.Suites = append(s.Suites, *t)
		}
	}
	for t, minutes := range fuzz {
		s.Fuzz = append(s.Fuzz, fuzzed{t.pkg, t.name, minutes})
	}
	slices.SortFunc(s.Fuzz, func(a, b fuzzed) int {
		return cmp.Or(strings.Compare(a.Package, b.Package), strings.Compare(a.Target, b.Target))
	})
	for _, name := range slices.Sorted(maps.Keys(mutants)) {
		s.Mutants = append(s.Mutants, mutants[name])
	}
	return s
}

func (t *tally) add(r *run) {
	t.Runs++
	t.WallHours += r.Seconds / 3600
	t.CPUHours += r.CPU / 3600
	violations := 0
	for _, one := range r.parse() {
		if one.Void {
			t.Void++
			continue
		}
		t.Hours += one.Hours
		t.Grants += one.Grants
		violations += int(one.Violations)
		for kind, n := range one.Faults {
			t.Faults[kind] += n
		}
		for _, what := range one.Coverage {
			t.seen[what] = true
		}
		for _, what := range one.Uncovered {
			t.unseen[what] = true
		}
	}
	if r.Failed {
		violations = max(violations, 1)
	}
	t.Violations += violations
}

// close counts what was seen.
func (t *tally) close() {
	t.Coverage = len(t.seen)
	for _, what := range slices.Sorted(maps.Keys(t.unseen)) {
		if !t.seen[what] {
			t.Uncovered = append(t.Uncovered, what)
		}
	}
	t.Hours, t.WallHours, t.CPUHours = round(t.Hours), round(t.WallHours), round(t.CPUHours)
}

// readSituations finds the situations of suites with a list of them.
func (s *summary) readSituations(root string) error {
	for i := range s.Suites {
		t := &s.Suites[i]
		known, _ := suiteOf(t.Suite)
		if known.situations == "" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(known.situations)))
		if err != nil {
			return err
		}
		t.compare(string(text))
	}
	return nil
}

// compare counts the situations in a list, a line each; a line that begins with # is a
// comment.
func (t *tally) compare(list string) {
	t.Coverage, t.Uncovered = 0, nil
	for line := range strings.Lines(list) {
		switch line = strings.TrimSpace(line); {
		case line == "" || strings.HasPrefix(line, "#"):
		case t.seen[line]:
			t.Coverage++
		default:
			t.Uncovered = append(t.Uncovered, line)
		}
	}
}

// covered is the part of the situations that were seen, in percent, and 100 if there are
// none.
func (t *tally) covered() float64 {
	if t.Coverage+len(t.Uncovered) == 0 {
		return 100
	}
	return 100 * float64(t.Coverage) / float64(t.Coverage+len(t.Uncovered))
}

// round keeps three digits behind the point.
func round(x float64) float64 { return float64(int64(x*1000+0.5)) / 1000 }

// failed describes a failed run.
func failed(r *run, runs []run) failure {
	f := failure{ID: r.ID, Suite: r.Suite, Target: r.Target, Commit: r.Commit}
	f.Seed, f.Plan = r.seedOf()
	for _, x := range runs {
		if x.Of == r.ID {
			f.Tried++
			if x.Failed {
				f.Repeated++
			}
		}
	}
	if s, known := suiteOf(r.Suite); known {
		j := r.job
		j.Seed, j.Plan = f.Seed, f.Plan
		f.Replay = s.replay(j)
	}
	return f
}
