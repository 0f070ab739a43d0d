package sim

import (
	"reflect"
	"strings"
	"testing"
)

// The line that a failed run prints draws the same plan again, whatever the seeds before it
// have covered.
func TestAReplayLineDrawsTheSamePlan(t *testing.T) {
	list, err := states()
	if err != nil {
		t.Fatal(err)
	}
	aimed := 0
	for seed := range uint64(50) {
		seen := make(map[triple]int)
		for i, x := range list {
			if i%7 != int(seed%7) && seed > 0 || seed > 45 {
				seen[x]++ // of the last seeds all: nothing is left to aim at
			}
		}
		p := drawPlan(seed, phasesOf, uncovered(seen))
		for _, s := range p.steps {
			if strings.HasPrefix(s.phase.name, "aim at ") {
				aimed++
			}
		}
		line := p.replay()
		if !strings.HasSuffix(line, " go test -count=20 -run '^TestSeed$' ./internal/sim") {
			t.Fatalf("the line is %q", line)
		}
		for _, word := range strings.Fields(line)[:2] {
			name, value, _ := strings.Cut(word, "=")
			t.Setenv(name, value)
		}
		again, err := seedPlan()
		if err != nil {
			t.Fatal(err)
		}
		if again.String() != p.String() || !reflect.DeepEqual(again.aims, p.aims) {
			t.Fatalf("%s\ndraws\n%v\nand not\n%v", line, again, p)
		}
		for i, s := range p.steps {
			if x := again.steps[i]; x.seed != s.seed || x.mends != s.mends {
				t.Fatalf("%s: step %d is %+v and not %+v", line, i, x, s)
			}
		}
	}
	if aimed == 0 {
		t.Error("no plan was aimed at anything")
	}
	for _, text := range []string{"x", "0", "3,fresh/idle", "3,fresh/idle/nowhere"} {
		if _, _, err := parsePlan(text, phasesOf); err == nil {
			t.Errorf("%q is a plan", text)
		}
	}
}
