package sim

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

// seed returns WARDMOTE_SEED, or a random one.
func seed() uint64 {
	if n, err := strconv.ParseUint(os.Getenv("WARDMOTE_SEED"), 10, 64); err == nil {
		return n
	}
	return rand.Uint64() >> 1
}

// phasesOf is the number of phases of a run.
const phasesOf = 36

// seedPlan draws the plan of WARDMOTE_SEED and WARDMOTE_SIM_PLAN, or a short one of a random
// seed.
func seedPlan() (plan, error) {
	n := phasesOf
	if os.Getenv("WARDMOTE_SEED") == "" {
		n = 4
	}
	n, aims, err := parsePlan(os.Getenv("WARDMOTE_SIM_PLAN"), n)
	if err != nil {
		return plan{}, err
	}
	return drawPlan(seed(), n, aims), nil
}

// TestSeed plays one seed.
func TestSeed(t *testing.T) {
	p, err := seedPlan()
	if err != nil {
		t.Fatal(err)
	}
	t.Log(p.replay())
	began := time.Now()
	res := play(t, p)
	t.Logf("%v\n%v under faults, %d grants, %d faults, %d triples, %v, %d ops, in %v", res.plan, res.under, res.grants, res.faults, len(res.coverage), res.searches, len(res.history.Ops), time.Since(began))
	if len(res.violations) > 0 {
		describe(t, res)
	}
	all := newTally()
	all.add(res)
	all.judge(t)
}

// TestSim plays fresh seeds for the time in WARDMOTE_SIM, such as 10m or 2h, and appends
// one line of JSON for each to the file in WARDMOTE_SIM_FILE. It goes on after a failure.
// WARDMOTE_SIM_PLAN holds for the first seed.
func TestSim(t *testing.T) {
	d, err := time.ParseDuration(os.Getenv("WARDMOTE_SIM"))
	if err != nil {
		t.Skip("WARDMOTE_SIM is not set: TestSeed plays one seed")
	}
	all := newTally()
	n, aims, err := phasesOf, uncovered(all.seen), error(nil)
	if text := os.Getenv("WARDMOTE_SIM_PLAN"); text != "" {
		if n, aims, err = parsePlan(text, n); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	for s := seed(); time.Since(began) < d; s++ {
		t.Run(strconv.FormatUint(s, 10), func(t *testing.T) {
			p := drawPlan(s, n, aims)
			res := play(t, p)
			all.add(res)
			if len(res.violations) > 0 {
				t.Log(p.replay())
				if d, err := time.ParseDuration(os.Getenv("WARDMOTE_SIM_LESS")); err == nil {
					res = minimise(t, res, d)
				}
				describe(t, res)
			}
			if name := os.Getenv("WARDMOTE_SIM_FILE"); name != "" {
				if err := res.line(p).append(name); err != nil {
					t.Error(err)
				}
			}
		})
		n, aims = phasesOf, uncovered(all.seen)
		if all.bad > 0 && os.Getenv("WARDMOTE_SIM_FIRST") != "" {
			break
		}
	}
	t.Log(all)
	all.judge(t)
}

// line is one finished seed.
type line struct {
	Suite      string   `json:"suite"`
	Seed       uint64   `json:"seed"`
	Hours      float64  `json:"hours"`
	Grants     int      `json:"grants"`
	Faults     int      `json:"faults"`
	Coverage   []string `json:"coverage"`
	Violations []string `json:"violations"`
	Searches   int      `json:"searches"`
	Undecided  int      `json:"undecided"`
	Plan       string   `json:"plan,omitempty"` // WARDMOTE_SIM_PLAN, if there are violations
}

// line returns the line of a run of the plan p, of which r may show a shorter one.
func (r result) line(p plan) line {
	l := line{Suite: "sim", Seed: r.plan.shape.seed, Hours: r.under.Hours(), Grants: r.grants, Faults: r.faults, Searches: r.searches.All, Undecided: r.searches.Undecided, Violations: []string{}}
	for x := range r.coverage {
		l.Coverage = append(l.Coverage, x.String())
	}
	for _, v := range r.violations {
		l.Violations = append(l.Violations, v.String())
		l.Plan = p.env()
	}
	return l
}

// append appends the line to a file, in one write.
func (l line) append(name string) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	text, err := json.Marshal(l)
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	return err
}
