package voters

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

func TestAMissingVoterIsAdded(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		s.vote("b")
		s.join("b", 2)
		s.join("c", 3)
		took := s.takes(20*time.Second, "a#1 b#1 c#1")
		if least := timing.StableMember + catchUpChecks*timing.Reconcile; took < least {
			t.Errorf("c became a voter after %v, before %v", took, least)
		}
		if got, want := s.changes(), "invite c#1, promote c#1"; got != want {
			t.Errorf("changes %q, want %q", got, want)
		}
	})
}

// One voter grows to three at once, never to two; and three voters with only one
// candidate more do not grow to four.
func TestVotersGrowFromOddToOdd(t *testing.T) {
	onStage(t, 5, func(s *stage) {
		s.join("b", 2)
		time.Sleep(time.Minute)
		s.expect("a#1")
		s.join("c", 3)
		s.takes(20*time.Second, "a#1 b#1 c#1")
		if got, want := s.changes(), "invite b#1, invite c#1, promote b#1, promote c#1"; got != want {
			t.Errorf("changes %q, want %q", got, want)
		}
		s.join("d", 4)
		time.Sleep(time.Minute)
		s.expect("a#1 b#1 c#1")
		s.join("e", 5)
		s.takes(20*time.Second, "a#1 b#1 c#1 d#1 e#1")
	})
}

// A dead voter without answers is replaced after timing.DeadInMemory without a Dir,
// after timing.DeadDurable with a Dir.
func TestASilentVoterIsReplaced(t *testing.T) {
	for _, tt := range []struct {
		durable bool
		after   time.Duration
	}{{false, timing.DeadInMemory}, {true, timing.DeadDurable}} {
		onStage(t, 3, func(s *stage) {
			dir := func(m *member.Sighting) { m.Meta.Durable = tt.durable }
			s.vote("b", "c")
			for i, name := range []string{"b", "c", "d"} {
				s.join(name, uint64(i+2), dir)
			}
			time.Sleep(time.Minute)
			s.expect("a#1 b#1 c#1")
			s.die("c")
			time.Sleep(tt.after)
			s.expect("a#1 b#1 c#1")
			s.takes(20*time.Second, "a#1 b#1 d#1")
			if got, want := s.changes(), "invite d#1, remove c#1, tell c of c#1, promote d#1"; got != want {
				t.Errorf("changes %q, want %q", got, want)
			}
		}, func(cfg *Config) { cfg.Durable = tt.durable })
	}
}

// Gossip may take a voter for dead though raft still reaches the voter.
func TestAVoterThatAnswersIsNotReplaced(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		s.vote("b", "c")
		s.join("b", 2)
		s.join("c", 3)
		s.join("d", 4)
		s.die("c")
		s.set(func() { s.deaf["c"] = false })
		time.Sleep(5 * time.Minute)
		s.expect("a#1 b#1 c#1")
	})
}

func TestADeadVoterWithoutASuccessorIsKept(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		s.vote("b", "c")
		s.join("b", 2)
		s.join("c", 3)
		s.die("c")
		time.Sleep(time.Hour)
		if got := s.changes(); got != "" {
			t.Errorf("changes %q", got)
		}
	})
}

// A voter back without a store replaces the earlier generation at once: nobody
// waits for the earlier generation to be silent for long.
func TestTheSuccessorOfANameVotesAtOnce(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		s.vote("b", "c")
		s.join("b", 2)
		s.join("c", 3)
		time.Sleep(time.Minute)
		s.die("c")
		s.set(func() { s.deaf["c"] = false })
		s.join("c", 9, generation(7))
		if took := s.takes(timing.DeadInMemory, "a#1 b#1 c#7"); took > timing.StableMember+6*timing.Reconcile {
			t.Errorf("it took %v", took)
		}
	})
}

func TestALeavingVoterIsReplacedAndThenAnswered(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		s.vote("b", "c")
		s.join("b", 2)
		s.join("c", 3)
		s.join("d", 4)
		time.Sleep(time.Minute)
		answers := make(chan wire.Code, 2)
		start := time.Now()
		s.r.Depart("c", 3, func(c wire.Code) { answers <- c })
		synctest.Wait()
		if got, want := s.changes(), "invite d#1"; got != want {
			t.Errorf("changes %q at once, want %q", got, want)
		}
		if c := <-answers; c != wire.CodeOK {
			t.Errorf("answered %v", c)
		}
		s.expect("a#1 b#1 d#1")
		if took := time.Since(start); took > 5*timing.Reconcile {
			t.Errorf("answered after %v", took)
		}
		// No part in the configuration: answered at once.
		s.r.Depart("c", 3, func(c wire.Code) { answers <- c })
		if c := <-answers; c != wire.CodeOK || s.voters() != "a#1 b#1 d#1" {
			t.Errorf("answered %v the second time", c)
		}
	})
}

func TestALeavingVoterGoesWithoutASuccessorToo(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		s.vote("b", "c")
		s.join("b", 2)
		s.join("c", 3)
		s.edit("c", leaves)
		s.takes(5*time.Second, "a#1 b#1")
	})
}

// After a restart of c, the earlier process asks in vain.
func TestAnEarlierProcessCannotHaveItsSuccessorReplaced(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		s.vote("b", "c")
		s.join("b", 2)
		s.join("c", 3)
		answers := make(chan wire.Code, 1)
		s.r.Depart("c", 2, func(c wire.Code) { answers <- c })
		if c := <-answers; c != wire.CodeOK {
			t.Errorf("answered %v", c)
		}
		time.Sleep(time.Minute)
		if got := s.changes(); got != "" {
			t.Errorf("changes %q", got)
		}
	})
}

// Every waiting member is answered: the earlier request when a second request
// comes, the rest when the term ends.
func TestEveryDepartureIsAnswered(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		s.vote("b", "c")
		s.join("b", 2)
		s.join("c", 3)
		s.die("b") // c cannot go beside b
		answers := make(chan wire.Code, 3)
		ask := func() { s.r.Depart("c", 3, func(c wire.Code) { answers <- c }) }
		ask()
		synctest.Wait()
		if len(answers) > 0 {
			t.Fatalf("answered %v at once", <-answers)
		}
		ask()
		if c := <-answers; c != wire.CodeNotLeader {
			t.Errorf("the earlier request was answered %v", c)
		}
		s.r.Stop()
		if c := <-answers; c != wire.CodeNotLeader {
			t.Errorf("answered %v at the end of the term", c)
		}
		ask()
		if c := <-answers; c != wire.CodeNotLeader {
			t.Errorf("answered %v after the end of the term", c)
		}
	})
}

// The leader hands over rather than remove itself.
func TestALeavingLeaderHandsOver(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		s.vote("b", "c")
		s.join("b", 2)
		s.join("c", 3)
		s.edit("a", leaves)
		time.Sleep(10 * time.Second)
		if got := s.changes(); got != "transfer" {
			t.Errorf("changes %q", got)
		}
	})
}

// Three ways to fail: no answer, no acceptance, no progress.
func TestACandidateThatFailsIsPassedOver(t *testing.T) {
	for _, tt := range []struct {
		way   string
		fail  func(s *stage)
		limit time.Duration
	}{
		{"answers nothing", func(s *stage) { s.deaf["c"] = true }, 20 * time.Second},
		{"declines", func(s *stage) { s.declines["c"] = true }, 20 * time.Second},
		{"does not catch up", func(s *stage) { s.behind["c"] = true }, timing.CatchUp + 20*time.Second},
	} {
		onStage(t, 3, func(s *stage) {
			s.vote("b")
			s.join("b", 2)
			s.join("c", 3) // the first choice: older than d
			s.join("d", 4)
			s.set(func() { tt.fail(s) })
			s.takes(tt.limit, "a#1 b#1 d#1")
			time.Sleep(time.Minute)
			if got := s.changes(); strings.Contains(got, "promote c#1") {
				t.Errorf("%s: changes %q", tt.way, got)
			}
		})
	}
}

// A failed candidate is tried again if there is no other.
func TestACandidateThatFailedIsTriedAgain(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		s.vote("b")
		s.join("b", 2)
		s.join("c", 3)
		s.set(func() { s.declines["c"] = true })
		time.Sleep(10 * time.Second)
		s.set(func() { s.declines["c"] = false })
		s.takes(timing.CandidateShy+10*time.Second, "a#1 b#1 c#1")
	})
}

func TestNothingChangesUnlessThisNodeLeads(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		s.set(func() { s.leads = false })
		s.vote("b")
		s.join("b", 2)
		s.join("c", 3)
		time.Sleep(time.Minute)
		if got := s.changes(); got != "" {
			t.Errorf("changes %q", got)
		}
	})
}

func TestAChangeThatFailsIsTriedAgain(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		s.set(func() { s.refuse = errors.New("not now") })
		s.vote("b")
		s.join("b", 2)
		s.join("c", 3)
		time.Sleep(time.Minute)
		s.expect("a#1 b#1")
		s.set(func() { s.refuse = nil })
		s.takes(timing.CandidateShy+10*time.Second, "a#1 b#1 c#1")
	})
}

// With more voters than wanted, the leader stands last in line and hands over
// first.
func TestTooManyVotersBecomeFewer(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		s.vote("b", "c", "d")
		for i, name := range []string{"b", "c", "d"} {
			s.join(name, uint64(i+2))
		}
		time.Sleep(5 * time.Second)
		if got := s.changes(); got != "transfer" {
			t.Errorf("changes %q", got)
		}
	})
}

func TestChangesAreReported(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		s.vote("b", "c")
		s.join("b", 2)
		s.join("c", 3)
		s.join("d", 4)
		time.Sleep(10 * time.Second)
		s.edit("c", leaves)
		s.takes(20*time.Second, "a#1 b#1 d#1")
		time.Sleep(2 * time.Second)
		if got := s.reported(); got != "+ d, - c" {
			t.Errorf("reported %q", got)
		}
	})
}

// Only a leader confirmed by a majority tells the configuration, and not during a
// change, because the change may still be undone.
func TestTheConfigurationIsToldByAConfirmedLeader(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		s.vote("b", "c")
		s.join("b", 2)
		s.join("c", 3)
		for _, tt := range []struct {
			claim     string
			id        string
			confirmed bool
			changing  bool
			want      wire.Code
		}{
			{"a voter", "b#1", true, false, wire.CodeOK},
			{"a former voter", "b#2", true, false, wire.CodeNo},
			{"not confirmed", "b#2", false, false, wire.CodeNotLeader},
			{"during a change", "b#2", true, true, wire.CodeNotLeader},
		} {
			s.set(func() { s.confirmed = tt.confirmed })
			s.r.changing.Store(tt.changing)
			answers := make(chan wire.Code, 1)
			s.r.InConfig(tt.id, func(c wire.Code) { answers <- c })
			if c := <-answers; c != tt.want {
				t.Errorf("%s: %v, want %v", tt.claim, c, tt.want)
			}
		}
	})
}
