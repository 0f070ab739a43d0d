package sim

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/history"
	"github.com/wardmote/wardmote/internal/testrounds"
)

// mixed is a shape without chance: three voters in memory and two members that do not vote.
func mixed(seed uint64, ttl time.Duration) shape {
	s := shape{seed: seed, members: 5, thin: 2, ttl: ttl, spread: 0.004}
	s.draw(rand.New(rand.NewPCG(seed, 1)))
	return s
}

// repeat is a plan of one phase, again and again.
func repeat(s shape, x phase, n int) plan {
	p := plan{shape: s}
	for i := range n {
		p.steps = append(p.steps, step{x, s.seed + uint64(i), true})
	}
	return p
}

// Each directed schedule leaves all promises kept. A plain run plays one of them.
func TestDirectedPhases(t *testing.T) {
	phases := directedPhases
	if !testrounds.Full() {
		phases = phases[:1]
	}
	for _, x := range phases {
		t.Run(x.name, func(t *testing.T) {
			res := play(t, repeat(mixed(seed(), 3*time.Second), x, testrounds.Rounds(2, 12)))
			t.Logf("seed %d: %v under faults, %d grants", res.plan.shape.seed, res.under, res.grants)
			if len(res.violations) > 0 {
				describe(t, res)
			}
		})
	}
}

// The run finds out that clocks differ by more than holders can bear: a member whose clock
// is slow is cut off, and trusts its locks after the leader, whose clock is fast, has expired
// its session. Without this test a run that never says no would pass for a proof.
func TestClocksBeyondTheBoundAreFoundOut(t *testing.T) {
	s := mixed(seed(), 5*time.Second)
	for i := range s.rates {
		s.rates[i] = []float64{1.2, 1.2, 1.2, 0.8, 0.8}[i] // the members that do not vote are slow
	}
	cut := phase{"a slow member is cut off", func(a *act) {
		a.w.isolate(a.w.sites[3+a.r.IntN(2)])
		a.wait(2 * a.ttl())
	}}
	res := play(t, repeat(s, cut, 6))
	for _, v := range res.violations {
		if v.Check == "exclusion" {
			return
		}
	}
	t.Errorf("seed %d: clocks 40 %% apart, and nobody held too long: %v", s.seed, res.violations)
}

func TestStatesAreTriples(t *testing.T) {
	list, err := states()
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[triple]bool)
	for _, x := range list {
		if seen[x] {
			t.Errorf("%v stands twice", x)
		}
		seen[x] = true
		if back, err := parseTriple(x.String()); err != nil || back != x {
			t.Errorf("%v: %v, %v", x, back, err)
		}
	}
	if len(list) < 50 {
		t.Errorf("only %d states", len(list))
	}
	for _, text := range []string{"fresh/idle", "fresh/idle/nowhere", "fresh/asleep/whole", "old/idle/whole"} {
		if _, err := parseTriple(text); err == nil {
			t.Errorf("%q is a triple", text)
		}
	}
}

// A violation is reduced to the phases that matter.
func TestAPlanIsMinimised(t *testing.T) {
	bad := phase{"bad", func(a *act) { a.w.breaks("planted", "by the phase") }}
	idle := phase{"idle", func(a *act) { a.wait(time.Millisecond) }}
	p := plan{shape: mixed(1, time.Second)}
	p.shape.members, p.shape.thin = 3, 0
	for i := range 4 {
		x := idle
		if i == 2 {
			x = bad
		}
		p.steps = append(p.steps, step{x, uint64(i), true})
	}
	res := result{plan: p, violations: []history.Violation{{Check: "planted"}}}
	if less := minimise(t, res, time.Minute); len(less.plan.steps) != 1 || less.plan.steps[0].phase.name != "bad" {
		t.Errorf("left %v", less.plan)
	}
}

// failures counts the failures that a judge reports.
type failures struct {
	testing.TB
	n int
}

func (f *failures) Errorf(string, ...any) { f.n++ }

// A run whose searches have too often come to nothing fails.
func TestARunMustBeDecided(t *testing.T) {
	for undecided, fails := range map[int]int{1: 0, 2: 1} {
		y := newTally()
		y.add(result{searches: history.Searches{All: 100, Undecided: undecided}})
		f := &failures{TB: t}
		if y.judge(f); f.n != fails {
			t.Errorf("%v: fails %d times and not %d", y.searches, f.n, fails)
		}
	}
}

// A long run fails if it has seen too little, or was too calm.
func TestALongRunMustSeeNearlyAllStates(t *testing.T) {
	list, err := states()
	if err != nil {
		t.Fatal(err)
	}
	const enough, often = int(longRun / mostCalmed), leastRare * int(longRun/time.Hour)
	for _, test := range []struct {
		claim  string
		under  time.Duration
		faults int
		seen   int
		rare   int
		fails  int
	}{
		{"a long run", longRun, enough, len(list), often, 0},
		{"all but a few states", longRun, enough, len(list) - len(list)/20, often, 0},
		{"too few states", longRun, enough, len(list) - len(list)/20 - 1, often, 1},
		{"too few faults", longRun, enough - 1, len(list), often, 1},
		{"too few of each rare thing", longRun, enough, len(list), often - 1, len(rareThings)},
		{"a short run", longRun - 1, 0, 0, 0, 0},
	} {
		y := newTally()
		y.under, y.faults = test.under, test.faults
		for _, x := range rareThings {
			y.rare[x] = test.rare
		}
		for _, x := range list[:test.seen] {
			y.seen[x]++
		}
		f := &failures{TB: t}
		if y.judge(f); f.n != test.fails {
			t.Errorf("%s fails %d times and not %d", test.claim, f.n, test.fails)
		}
	}
}
