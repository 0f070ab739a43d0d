package voters

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// To two voters a third is added at once: young, and behind. Three steps follow each
// other without a pause.
func TestAMissingVoterIsAddedAtOnce(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		s.vote("b")
		s.join("b", 2)
		s.set(func() { s.behind["c"] = true })
		time.Sleep(time.Minute)
		s.join("c", 3)
		synctest.Wait()
		s.expect("a#1 b#1 c#1")
		if got, want := s.changes(), "promote c#1"; got != want {
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

// A voter that raft misses is replaced after timing.DeadInMemory without a Dir,
// after timing.DeadDurable with a Dir, whether gossip sees it or not.
func TestASilentVoterIsReplaced(t *testing.T) {
	for _, tt := range []struct {
		claim   string
		durable bool
		after   time.Duration
		lose    func(s *stage)
	}{
		{"dead", false, timing.DeadInMemory, func(s *stage) { s.die("c") }},
		{"out of raft's reach", false, timing.DeadInMemory, func(s *stage) { s.sever("c") }},
		{"dead, with a Dir", true, timing.DeadDurable, func(s *stage) { s.die("c") }},
		{"out of raft's reach, with a Dir", true, timing.DeadDurable, func(s *stage) { s.sever("c") }},
	} {
		onStage(t, 3, func(s *stage) {
			dir := func(m *member.Sighting) { m.Meta.Durable = tt.durable }
			s.vote("b", "c")
			for i, name := range []string{"b", "c", "d"} {
				s.join(name, uint64(i+2), dir)
			}
			time.Sleep(time.Minute + 300*time.Millisecond)
			s.expect("a#1 b#1 c#1")
			tt.lose(s)
			time.Sleep(tt.after - time.Millisecond)
			s.expect("a#1 b#1 c#1")
			if took := s.takes(2*timing.Reconcile, "a#1 b#1 d#1"); took > timing.Reconcile+10*time.Millisecond {
				t.Errorf("%s: %v after the wait", tt.claim, took)
			}
			if got, want := s.changes(), "remove c#1, tell c of c#1, promote d#1"; got != want {
				t.Errorf("%s: changes %q, want %q", tt.claim, got, want)
			}
			if !slices.Contains(s.suspected, "c") {
				t.Errorf("%s: nobody looks for proof", tt.claim)
			}
		}, func(cfg *Config) { cfg.Durable = tt.durable })
	}
}

// The wait for a silent voter survives an election: the former leader missed the
// voter already.
func TestTheWaitForASilentVoterSurvivesAnElection(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		s.vote("b", "c")
		s.join("b", 2)
		s.join("c", 3)
		s.join("d", 4)
		s.set(func() { s.missed["c#1"] = time.Now().Add(-timing.DeadInMemory + 2*time.Second) })
		s.set(func() { s.cut["c"] = time.Time{} })
		if took := s.takes(timing.DeadInMemory, "a#1 b#1 d#1"); took < 2*time.Second || took > 2*time.Second+timing.Reconcile {
			t.Errorf("replaced after %v", took)
		}
	})
}

// Gossip may take a voter for dead though raft still reaches the voter.
func TestAVoterThatAnswersIsNotReplaced(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		s.vote("b", "c")
		s.join("b", 2)
		s.join("c", 3)
		s.join("d", 4)
		s.die("c")
		s.reach("c")
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

// Once the end of a voter's process is proved, a spare votes at once, and so does
// the next process of the name, though gossip takes the ended one for alive.
func TestAnEndedVoterIsReplacedAtOnce(t *testing.T) {
	for _, tt := range []struct {
		claim  string
		join   func(s *stage)
		voters string
	}{
		{"by a spare", func(s *stage) { s.join("d", 4) }, "a#1 b#1 d#1"},
		{"by the next process of its name", func(s *stage) { s.join("c", 9, generation(7)) }, "a#1 b#1 c#7"},
	} {
		onStage(t, 3, func(s *stage) {
			s.vote("b", "c")
			s.join("b", 2)
			s.join("c", 3)
			time.Sleep(time.Minute)
			s.sever("c")
			tt.join(s)
			time.Sleep(time.Second)
			s.expect("a#1 b#1 c#1")
			s.reach("c")
			s.finish("c", 3)
			synctest.Wait()
			s.expect(tt.voters)
			if got := s.changes(); !strings.HasPrefix(got, "remove c#1, promote") {
				t.Errorf("%s: changes %q", tt.claim, got)
			}
		})
	}
}

// A goodbye in another's name changes nothing: the voter answers raft. Once it answers
// no more, the word counts.
func TestAVoterThatAnswersRaftHasNotEnded(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		s.vote("b", "c")
		s.join("b", 2)
		s.join("c", 3)
		s.join("d", 4)
		time.Sleep(time.Minute)
		s.prove("c", 3)
		time.Sleep(time.Hour)
		if got := s.changes(); got != "" {
			t.Errorf("changes %q", got)
		}
		s.sever("c")
		synctest.Wait()
		s.expect("a#1 b#1 d#1")
	})
}

// A voter that ended and was not invited in vain is not lost for a candidate that
// does not answer.
func TestRoomIsMadeOnlyForACandidateAtHand(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		s.vote("b", "c")
		s.join("b", 2)
		s.join("c", 3)
		s.join("d", 4)
		s.set(func() { s.declines["d"] = true })
		s.die("c")
		s.prove("c", 3)
		time.Sleep(time.Minute)
		if got := s.changes(); got != "" {
			t.Errorf("changes %q", got)
		}
		s.set(func() { s.declines["d"] = false })
		s.takes(timing.CandidateShy+2*time.Second, "a#1 b#1 d#1")
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
		synctest.Wait() // gossip never says that c leaves: c is no candidate all the same
		if got, want := s.changes(), "invite d#1, promote d#1, remove c#1, tell c of c#1"; got != want {
			t.Errorf("changes %q at once, want %q", got, want)
		}
		if c := <-answers; c != wire.CodeOK {
			t.Errorf("answered %v", c)
		}
		s.expect("a#1 b#1 d#1")
		if took := time.Since(start); took > 0 {
			t.Errorf("answered after %v", took)
		}
		// No part in the configuration: answered at once.
		s.r.Depart("c", 3, func(c wire.Code) { answers <- c })
		if c := <-answers; c != wire.CodeOK || s.voters() != "a#1 b#1 d#1" {
			t.Errorf("answered %v the second time", c)
		}
	})
}

// A voter leaves by its own word alone, which raft's own address gives: a holder of a
// shared secret can ask in its name, and describe it.
func TestAVoterThatStaysIsNotReplacedByAnothersWord(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		s.vote("b", "c")
		s.join("b", 2)
		s.join("c", 3)
		s.join("d", 4)
		time.Sleep(time.Minute)
		s.set(func() { s.stays["c"] = true })
		answers := make(chan wire.Code, 1)
		s.r.Depart("c", 3, func(c wire.Code) { answers <- c })
		if c := <-answers; c != wire.CodeNo {
			t.Errorf("answered %v", c)
		}
		for _, word := range []func(*member.Sighting){leaves, thin} {
			s.edit("c", word)
			time.Sleep(time.Minute)
		}
		if got := s.changes(); got != "" {
			t.Errorf("changes %q", got)
		}
		for _, v := range s.lastTold().Voters {
			if v.Leaving {
				t.Errorf("%s is told to leave", v.Raft)
			}
		}
		s.set(func() { delete(s.stays, "c") })
		s.takes(2*timing.Reconcile, "a#1 b#1 d#1")
	})
}

// A process with a Dir asks to leave and ends too early. Its successor, the same voter,
// stays.
func TestALaterProcessOfAVoterIsAskedAnew(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		s.vote("b", "c")
		s.join("b", 2, durable)
		s.join("c", 3, durable)
		s.die("b") // c cannot go beside b
		answers := make(chan wire.Code, 1)
		s.r.Depart("c", 3, func(c wire.Code) { answers <- c })
		time.Sleep(5 * time.Second)
		s.die("c")
		s.join("c", 4, durable)
		s.set(func() { s.stays["c"] = true })
		s.reach("c")
		s.reach("b")
		time.Sleep(time.Minute)
		if s.changes() != "" || len(answers) != 1 {
			t.Errorf("changes %q, %d answers", s.changes(), len(answers))
		}
	}, func(c *Config) { c.Durable = true })
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

// A later process without the voter role has no part in the voter of its name, and ends
// no departure: the voter that leaves is still in the configuration.
func TestAMereNamesakeEndsNoDeparture(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		s.vote("b", "c")
		s.join("b", 2)
		s.join("c", 3)
		s.die("b") // c cannot go beside b
		s.set(func() { s.said[member.Process{Name: "c", Boot: 9}] = posed })
		s.join("c", 9, generation(9))
		answers := make(chan wire.Code, 1)
		s.r.Depart("c", 3, func(c wire.Code) { answers <- c })
		time.Sleep(5 * time.Second)
		if len(answers) > 0 {
			t.Fatalf("answered %v, and the voters are %s", <-answers, s.voters())
		}
		s.join("d", 4)
		s.reach("b")
		if c := <-answers; c != wire.CodeOK {
			t.Errorf("answered %v", c)
		}
		s.takes(time.Minute, "a#1 b#1 d#1")
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

// Two ways to fail: no answer, no acceptance.
func TestACandidateThatFailsIsPassedOver(t *testing.T) {
	for _, tt := range []struct {
		way   string
		fail  func(s *stage)
		limit time.Duration
	}{
		{"answers nothing", func(s *stage) { s.deaf["c"] = true }, 20 * time.Second},
		{"declines", func(s *stage) { s.declines["c"] = true }, 20 * time.Second},
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

// A candidate that must catch up before a leaving voter goes, and does not, gives
// way to another one.
func TestACandidateThatDoesNotCatchUpGivesWay(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		s.vote("b", "x")
		s.join("b", 2)
		s.join("x", 2, leaves)
		s.set(func() { s.behind["c"] = true })
		s.join("c", 3)
		s.join("d", 4)
		s.takes(timing.CatchUp+10*time.Second, "a#1 b#1 d#1")
		if got, want := s.changes(), "invite c#1, remove c#1, tell c of c#1, invite d#1, promote d#1, remove x#1, tell x of x#1"; got != want {
			t.Errorf("changes %q, want %q", got, want)
		}
	})
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

// With more voters than wanted a follower goes, never the leader.
func TestTooManyVotersBecomeFewer(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		s.vote("b", "c", "d", "e")
		for i, name := range []string{"b", "c", "d", "e"} {
			s.join(name, uint64(i+2))
		}
		time.Sleep(5 * time.Second)
		if got, want := s.changes(), "remove e#1, tell e of e#1, remove d#1, tell d of d#1"; got != want {
			t.Errorf("changes %q, want %q", got, want)
		}
	})
}

// Five members in memory become five voters without being asked, and three again
// some time after only four are left.
func TestFiveMembersBecomeFiveVoters(t *testing.T) {
	onStage(t, 0, func(s *stage) {
		for i, name := range []string{"b", "c", "d", "e"} {
			s.join(name, uint64(i+2))
		}
		s.takes(10*time.Second, "a#1 b#1 c#1 d#1 e#1")
		s.die("e")
		s.prove("e", 5)
		time.Sleep(timing.FewerVoters - time.Second)
		s.expect("a#1 b#1 c#1 d#1 e#1")
		s.takes(3*time.Second, "a#1 b#1 c#1")
	})
}

// Each change of the voters' state is told once, with the state as it is.
func TestTheStateOfTheVotersIsTold(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		s.vote("b", "c")
		s.join("b", 2)
		s.join("c", 3)
		time.Sleep(10 * time.Second)
		s.set(func() {
			if n := len(s.told); n != 1 {
				t.Errorf("told %d times without a change: %+v", n, s.told)
			}
		})
		state := func(change ...func(v *wire.VoterState)) wire.VoterSet {
			set := wire.VoterSet{Term: 5, Wanted: 3}
			s.set(func() { set.Index = s.index })
			for _, name := range []string{"a", "b", "c"} {
				v := wire.VoterState{Raft: name + "#1", Addr: "10.0.0.1:7000", Present: true, Reached: true, Current: true}
				if name == "c" {
					for _, f := range change {
						f(&v)
					}
				}
				set.Voters = append(set.Voters, v)
			}
			return set
		}
		expect := func(claim string, want wire.VoterSet) {
			t.Helper()
			synctest.Wait()
			if got := s.lastTold(); !reflect.DeepEqual(got, want) {
				t.Errorf("%s: told %+v, want %+v", claim, got, want)
			}
		}
		unreached := func(v *wire.VoterState) { v.Reached, v.Current = false, false }
		expect("whole", state())
		s.sever("c")
		expect("out of reach", state(unreached))
		s.finish("c", 3)
		expect("ended", state(unreached, func(v *wire.VoterState) { v.Present = false }))
		s.reach("c")
		s.join("d", 4)
		synctest.Wait()
		got := s.lastTold()
		if len(got.Voters) != 3 || got.Voters[2].Raft != "d#1" || got.Wanted != 3 {
			t.Errorf("told %+v", got)
		}
		s.edit("d", leaves)
		synctest.Wait()
		if got := s.lastTold(); len(got.Voters) != 2 || got.Wanted != 2 {
			t.Errorf("told %+v", got)
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

// Any member can gossip words about any other. Such words cost no voter its place,
// and give none.
func TestGossipAboutOthersChangesNoVoter(t *testing.T) {
	liar := func(boot uint64, change ...func(*member.Sighting)) func(*stage) {
		return func(s *stage) {
			s.join("b", boot, change...)
			s.set(func() { s.said[member.Process{Name: "b", Boot: boot}] = member.Metadata{} })
		}
	}
	own := func(s *stage) {
		for _, m := range s.members() {
			s.set(func() { s.said[member.Process{Name: m.Name, Boot: m.Boot}] = m.Meta })
		}
	}
	for claim, lie := range map[string]func(*stage){
		"leaves":       func(s *stage) { s.edit("b", leaves) },
		"is thin":      func(s *stage) { s.edit("b", thin) },
		"starts anew":  func(s *stage) { s.edit("b", dead(0)); liar(9, generation(9))(s) },
		"is succeeded": liar(9, generation(9)),
		"reads a format that no table has": func(s *stage) {
			s.set(func() { s.format = older })
			s.edit("b", format(older))
			own(s)
			s.edit("b", format(newest))
		},
		"has a long TTL": func(s *stage) { s.edit("b", func(m *member.Sighting) { m.Meta.TTL = 3_600_000 }) },
		"has companions": func(s *stage) {
			for _, name := range []string{"g", "h"} {
				s.join(name, 1)
				s.set(func() { s.said[member.Process{Name: name, Boot: 1}] = member.Metadata{} })
			}
		},
	} {
		t.Run(claim, func(t *testing.T) {
			onStage(t, 0, func(s *stage) {
				s.vote("b", "c")
				s.join("b", 1)
				s.join("c", 1)
				time.Sleep(time.Minute)
				own(s)
				before, bound := s.changes(), stageTerm{s}.Bound()
				lie(s)
				time.Sleep(time.Minute)
				if s.expect("a#1 b#1 c#1"); s.changes() != before {
					t.Errorf("gossip that b %s changes the configuration: %s", claim, s.changes())
				}
				if got := (stageTerm{s}).Bound(); got != bound {
					t.Errorf("gossip that b %s makes the bound of TTLs %d", claim, got)
				}
				if f := (stageTerm{s}).Format(); claim == "reads a format that no table has" && f != older {
					t.Errorf("gossip that b %s raises the table to format %d", claim, f)
				}
			})
		})
	}
}

// A term may last for years, and each deploy replaces all processes. A member that asks
// under one boot after the other fills nothing either.
func TestLeaversOfThePastAreForgotten(t *testing.T) {
	onStage(t, 3, func(s *stage) {
		s.vote("b", "c")
		s.join("b", 2)
		s.join("c", 3)
		s.die("b") // c cannot go beside b
		answered := 0
		for boot := range uint64(3 * maxLeavers) {
			s.r.Depart("c", boot+3, func(wire.Code) { answered++ })
		}
		leavers := func() int {
			s.r.mu.Lock()
			defer s.r.mu.Unlock()
			return len(s.r.leavers)
		}
		if n := leavers(); n > maxLeavers {
			t.Errorf("%d processes are remembered", n)
		}
		s.r.Depart("c", 3, func(wire.Code) { answered++ })
		synctest.Wait()
		time.Sleep(2 * timing.Reconcile)
		if n := leavers(); n != 1 || !s.r.leaves("c", 3) {
			t.Errorf("%d processes are remembered, c among them: %t", n, s.r.leaves("c", 3))
		}
		if answered != 3*maxLeavers {
			t.Errorf("%d answers", answered)
		}
		s.die("c")
		time.Sleep(2 * timing.Reconcile)
		if n := leavers(); n != 0 {
			t.Errorf("%d processes are remembered after their end", n)
		}
		s.r.Stop()
	})
}
