package locks

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/testrounds"
)

// The term simulation: clients on the real term, with random faults of the log, the voters,
// the network, the processes and the clocks. WARDMOTE_SIM sets for how long, WARDMOTE_SEED
// the first seed, WARDMOTE_RESULTS a file for the result, as a line of JSON:
//
//	WARDMOTE_SIM=90s go test -count=1 -run '^TestTermSimulation$' -v ./locks
//
// The order of goroutines is random, so a seed repeats the faults, and not always a failure.

// simLength is the simulated time of a round with faults.
const simLength = 10 * time.Minute

// situations are what a long simulation must have seen.
var situations = []string{
	"a session is marked", "a mark is taken away", "a session expires", "a verdict comes too late",
	"a session ends in slices", "a session is ended by an operator", "a session is closed", "a lock is broken",
	"a request arrives twice", "an update is uncertain",
	"a frozen holder is overtaken", "a leader in doubt begins anew",
}

// faultsOfTerm are the faults that a long simulation must have caused.
var faultsOfTerm = []string{
	"leader replaced", "leader deposed, and goes on", "leader frozen", "leader frozen, and replaced", "voters cut off",
	"member cut off", "connection reset", "process frozen", "host asleep",
	"entry late", "entry unheard", "entry dropped", "entry refused", "entry inherited", "answer late", "answer lost",
}

// simResult is the line of a simulation in the results.
type simResult struct {
	Suite      string         `json:"suite"` // "term"
	Seed       uint64         `json:"seed"`  // of the first round
	Rounds     int            `json:"rounds"`
	Hours      float64        `json:"hours"` // simulated
	Grants     int            `json:"grants"`
	Faults     map[string]int `json:"faults"`
	Coverage   []string       `json:"coverage"`            // situations and faults that were seen
	Uncovered  []string       `json:"uncovered,omitempty"` // and that were not
	Violations []string       `json:"violations"`
}

// simRound plays a round, and returns its book. f, if not nil, changes the world first.
func simRound(t *testing.T, seed uint64, c climate, length time.Duration, f func(*sky)) (s *sky) {
	synctest.Test(t, func(t *testing.T) {
		s = newSky(t, seed, c, length)
		if f != nil {
			f(s)
		}
		var users sync.WaitGroup
		for i, m := range s.members {
			for j := range 2 {
				u := &simUser{s: s, m: m, c: s.clients[i], rng: rand.New(rand.NewPCG(seed, uint64(100+10*i+j)))}
				act := u.live
				if s.full && i == 0 && j == 0 {
					act = u.crowd
				}
				users.Go(act)
			}
		}
		s.rage()
		s.calm()
		users.Wait()
		s.end()
	})
	return s
}

func (r *simResult) add(s *sky, seen map[string]int) {
	r.Rounds++
	r.Hours += s.took.Hours()
	r.Grants += s.book.grants
	for kind, n := range s.faults {
		r.Faults[kind] += n
		seen[kind] += n
	}
	for situation, n := range s.book.seen {
		seen[situation] += n
	}
}

func TestTermSimulation(t *testing.T) {
	budget, err := testrounds.Simulate(time.Second)
	if err != nil {
		t.Fatal(err)
	}
	seed, err := testrounds.Seed(rand.Uint64())
	if err != nil {
		t.Fatal(err)
	}
	r := simResult{Suite: "term", Seed: seed, Faults: make(map[string]int), Violations: []string{}}
	seen := make(map[string]int)
	for began := time.Now(); time.Since(began) < budget && len(r.Violations) == 0; seed++ {
		ok := t.Run(fmt.Sprint(seed), func(t *testing.T) {
			s := simRound(t, seed, drawClimate(rand.New(rand.NewPCG(seed, 4))), simLength, nil)
			r.add(s, seen)
			for _, v := range s.book.violations {
				r.Violations = append(r.Violations, fmt.Sprintf("seed %d: %s", seed, v))
				t.Error(v)
			}
		})
		if !ok && len(r.Violations) == 0 {
			r.Violations = append(r.Violations, fmt.Sprintf("seed %d: see the output", seed))
		}
	}
	for _, what := range slices.Concat(situations, faultsOfTerm) {
		if seen[what] > 0 {
			r.Coverage = append(r.Coverage, what)
		} else {
			r.Uncovered = append(r.Uncovered, what)
		}
	}
	if err := testrounds.AppendResult(r); err != nil {
		t.Error(err)
	}
	faults := 0
	for _, kind := range faultsOfTerm {
		faults += r.Faults[kind]
	}
	t.Logf("term: seed %d, %.1f simulated hours, %d grants, %d faults, coverage %d of %d",
		r.Seed, r.Hours, r.Grants, faults, len(r.Coverage), len(r.Coverage)+len(r.Uncovered))
	for _, kind := range slices.Sorted(maps.Keys(seen)) {
		t.Logf("%8d  %s", seen[kind], kind)
	}
	if r.Hours > 20 && len(r.Uncovered) > 0 {
		t.Errorf("never seen: %s", strings.Join(r.Uncovered, ", "))
	}
	if every := r.Hours * 3600 / float64(max(faults, 1)); every > 10 && len(r.Violations) == 0 {
		t.Errorf("a fault in %.0f simulated seconds, want one in 10", every)
	}
}

// Clocks of which one is a fifth fast and the other a fifth slow break the promise that
// rests on rates: the simulation finds them, so it would find others.
func TestTheTermSimulationFindsBadClocks(t *testing.T) {
	for seed := range uint64(20) {
		s := simRound(t, seed, climate{ttl: 9 * time.Second}, 5*time.Minute, func(s *sky) {
			for _, c := range s.voters {
				c.Set(1.2, 0)
			}
			for _, m := range s.members {
				m.clock.Set(0.8, 0)
				m.rate = 0.8
			}
		})
		if i := slices.IndexFunc(s.book.violations, func(v string) bool { return strings.Contains(v, "loss told first") }); i >= 0 {
			t.Logf("after %d rounds: %s", seed+1, s.book.violations[i])
			return
		}
	}
	t.Error("clients that trust their locks for longer than a leader waits were not found")
}
