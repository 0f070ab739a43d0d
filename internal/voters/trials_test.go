package voters

import (
	"fmt"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/timing"
)

// A member in a crash loop fails as one candidate after the other. Failures are forgotten
// in time, and count until then.
func TestFailuresOfThePastAreForgotten(t *testing.T) {
	trials, now := newTrials(), time.Now()
	last := member.Sighting{}
	for boot := range uint64(1000) {
		now = now.Add(time.Second)
		last.Process = member.Process{Name: "a", Boot: boot}
		trials.fail(last.Process, now)
		if left := trials.passOver([]member.Sighting{last}, now); len(left) != 0 {
			t.Fatal("a candidate that has just failed is tried again")
		}
	}
	if most := int(timing.CandidateShy/time.Second) + 1; len(trials.failed) > most {
		t.Errorf("%d failures are remembered, want %d", len(trials.failed), most)
	}
	if left := trials.passOver([]member.Sighting{last}, now.Add(timing.CandidateShy)); len(left) != 1 {
		t.Error("a candidate is passed over for ever")
	}
}

// A member in a crash loop is invited under one raft ID after the other, and removed
// before it has caught up.
func TestTrialsOfThePastAreForgotten(t *testing.T) {
	trials, now := newTrials(), time.Now()
	for n := range 1000 {
		s := server{id: fmt.Sprint("a#", n)}
		trials.forgetAllBut([]server{s})
		if trials.overdue(&s, now) || trials.overdue(&s, now.Add(timing.CatchUp)) || !trials.overdue(&s, now.Add(timing.CatchUp+1)) {
			t.Fatal("the trial of a server lasts as long as before")
		}
	}
	if len(trials.since) != 1 {
		t.Errorf("%d trials are remembered", len(trials.since))
	}
}
