package term_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/term/termtest"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

func TestABeatIsAcknowledgedByARoundThatBeganAfterIt(t *testing.T) {
	onStage(t, func(s *stage) {
		s.open(1)
		s.HoldRounds()
		first := s.beat(1)
		synctest.Wait() // the first round is under way
		second := s.beat(1)
		s.AnswerRound(true)
		if c := verdict(first); c != wire.CodeOK {
			t.Errorf("first beat: %v", c)
		}
		if c := verdict(second); c != 0 {
			t.Errorf("the second beat was answered by a round that began before it: %v", c)
		}
		s.AnswerRound(false)
		if c := verdict(second); c != wire.CodeNotLeader {
			t.Errorf("second beat after a failed round: %v", c)
		}
	})
}

// The old leader has not heard of the election; the voters have.
func TestADeposedLeaderAcknowledgesNothing(t *testing.T) {
	onStage(t, func(s *stage) {
		s.open(1)
		if c := verdict(s.beat(1)); c != wire.CodeOK {
			t.Fatalf("before the election: %v", c)
		}
		old := s.Depose()
		beat, none, read, scan := make(chan wire.Code, 1), make(chan wire.Code, 1), make(chan wire.Code, 1), make(chan wire.Code, 1)
		old.Beat(own(old), sid(1), func(c wire.Code) { beat <- c })
		old.Beat(own(old), sid(9), func(c wire.Code) { none <- c })
		old.Read(replica.Query{Key: "k"}, func(_ replica.Answer, c wire.Code) { read <- c })
		old.Scan(replica.Scan{Limit: 1}, func(_ replica.Scanned, c wire.Code) { scan <- c })
		granting := make(chan wire.Code, 1)
		old.Granting(func(c wire.Code) { granting <- c })
		for name, ch := range map[string]chan wire.Code{
			"a beat": beat, "a beat of a session that it lacks": none, "a read": read, "a scan": scan, "granting": granting,
		} {
			if c := verdict(ch); c != wire.CodeNotLeader {
				t.Errorf("%s: answered with %v by a deposed leader", name, c)
			}
		}
		if c := verdict(s.beat(1)); c != wire.CodeOK {
			t.Errorf("the new leader: %v", c)
		}
	})
}

// The leader's own voter has voted for another leader; a third voter has not heard of
// the election, and says yes.
func TestALeaderDoesNotCountItsOwnVoterAfterAVoteForAnother(t *testing.T) {
	onStage(t, func(s *stage) {
		s.open(1)
		s.Depose()           // the second voter leads, by the votes of the second and the third
		second := s.Depose() // the first voter leads, by the votes of the first and the second
		beat := make(chan wire.Code, 1)
		second.Beat(own(second), sid(1), func(c wire.Code) { beat <- c })
		if c := verdict(beat); c != wire.CodeNotLeader {
			t.Errorf("answered with %v", c)
		}
	})
}

func TestARoundNeedsAMajorityOfTheVoters(t *testing.T) {
	onStageWith(t, termtest.Config{Voters: 5}, func(s *stage) {
		s.open(1)
		s.CutVoters(2)
		if c := verdict(s.beat(1)); c != wire.CodeOK {
			t.Errorf("three of five: %v", c)
		}
		s.CutVoters(3)
		b := s.beat(1)
		if c := verdict(b); c != 0 {
			t.Errorf("two of five: %v", c)
		}
		time.Sleep(timing.ConfirmRound)
		if c := nextVerdict(b); c != wire.CodeNotLeader {
			t.Errorf("two of five, after a round's time: %v", c)
		}
	})
}

func TestBeatsWaitWhileAnExpiryIsInFlight(t *testing.T) {
	onStage(t, func(s *stage) {
		s.open(1)
		untilSilent() // the mark has been committed
		s.HoldEntries()
		time.Sleep(ttl / 2) // the expiry has been proposed
		b := s.beat(1)
		if c := verdict(b); c != 0 {
			t.Fatalf("a beat was answered with %v while the session's expiry was in flight", c)
		}
		s.Decide(termtest.Committed)
		if c := verdict(b); c != wire.CodeNoSession {
			t.Errorf("after the expiry the beat was answered with %v", c)
		}
		if s.alive(1) {
			t.Error("the session lives")
		}
	})
}

// After a failed mark, a session is expired without a mark.
func TestBeatsWaitWhileAnUnmarkedSessionExpires(t *testing.T) {
	onStage(t, func(s *stage) {
		s.open(1)
		s.HoldEntries()
		time.Sleep(ttl + tick/2)
		s.Decide(termtest.Refused) // the mark
		time.Sleep(2 * tick)       // the expiry has been proposed
		b := s.beat(1)
		if c := verdict(b); c != 0 {
			t.Fatalf("a beat was answered with %v while the session's expiry was in flight", c)
		}
		s.Decide(termtest.Committed)
		if c := verdict(b); c != wire.CodeNoSession || s.alive(1) {
			t.Errorf("after the expiry the beat was answered with %v, alive: %t", c, s.alive(1))
		}
	})
}

// The mark is in flight, and the leader does not know yet whether the mark stands.
func TestBeatsWaitWhileAMarkIsInFlight(t *testing.T) {
	for _, fate := range []termtest.Fate{termtest.Committed, termtest.Unheard, termtest.Dropped} {
		onStage(t, func(s *stage) {
			s.open(1)
			s.HoldEntries()
			untilSilent() // the mark has been proposed
			b := s.beat(1)
			if c := verdict(b); c != 0 {
				t.Fatalf("a beat was answered with %v while the session's mark was in flight", c)
			}
			s.Decide(fate)
			if fate == termtest.Committed {
				if c := verdict(b); c != 0 {
					t.Fatalf("a beat was answered with %v before the mark was removed", c)
				}
				s.Decide(termtest.Committed) // Hear
				if c := verdict(b); c != wire.CodeOK {
					t.Errorf("after the mark was removed: %v", c)
				}
				return
			}
			if c := verdict(b); c != wire.CodeNotLeader {
				t.Errorf("fate %v: answered with %v", fate, c)
			}
			select {
			case <-s.Term().Doubt():
			default:
				t.Errorf("fate %v: the leader has no doubt", fate)
			}
			// The mark may stand, and its TTL count, whatever this leader says from now on.
			if c := verdict(s.beat(1)); c == wire.CodeOK {
				t.Errorf("fate %v: a beat is confirmed by a leader that does not know whether the session is marked", fate)
			}
			s.ReleaseEntries()
			s.Lead()
			if c := verdict(s.beat(1)); c != wire.CodeOK {
				t.Errorf("fate %v: the next leader answers %v", fate, c)
			}
		})
	}
}

// slowRound opens session 1 with a TTL shorter than a round, and returns a beat
// of the session with the round under way. The session is due for its mark after 400 ms
// and for its expiry after 600 ms; each is proposed at the next tick.
func (s *stage) slowRound() <-chan wire.Code {
	o := opening(1)
	o.TTL = 600
	s.Must(o)
	s.HoldRounds()
	b := s.beat(1)
	synctest.Wait()
	return b
}

func TestARoundThatEndsDuringAnExpiryAcknowledgesNothing(t *testing.T) {
	onStage(t, func(s *stage) {
		b := s.slowRound()
		time.Sleep(400*time.Millisecond + tick + tick/2) // the mark has been committed
		s.HoldEntries()
		time.Sleep(200 * time.Millisecond)
		s.AnswerRound(true)
		if c := verdict(b); c != 0 {
			t.Fatalf("answered with %v while the expiry was in flight", c)
		}
		s.Decide(termtest.Committed)
		if c := verdict(b); c != wire.CodeNoSession || s.alive(1) {
			t.Errorf("answered with %v, the session lives: %t", c, s.alive(1))
		}
	})
}

func TestARoundThatEndsDuringAMarkAcknowledgesNothing(t *testing.T) {
	for _, committed := range []bool{false, true} {
		onStage(t, func(s *stage) {
			b := s.slowRound()
			if !committed {
				s.HoldEntries()
			}
			time.Sleep(400*time.Millisecond + tick + tick/2)
			s.HoldEntries()
			s.AnswerRound(true)
			if c := verdict(b); c != 0 {
				t.Fatalf("answered with %v, the mark was committed: %t", c, committed)
			}
			if !committed {
				s.Decide(termtest.Committed) // Silence
			}
			s.ReleaseRounds()
			if c := verdict(b); c != 0 {
				t.Fatalf("answered with %v before the mark was removed", c)
			}
			s.Decide(termtest.Committed) // Hear
			if c := verdict(b); c != wire.CodeOK {
				t.Errorf("answered with %v after the mark was removed", c)
			}
		})
	}
}

func TestASilentSessionIsMarkedAndHeardAgain(t *testing.T) {
	onStage(t, func(s *stage) {
		s.open(1)
		untilSilent()
		if !s.proposed(machine.Silence{Session: sid(1), Term: 1}) {
			t.Fatal("no mark after two thirds of the TTL")
		}
		s.HoldEntries()
		b := s.beat(1)
		if c := verdict(b); c != 0 {
			t.Fatalf("a marked session's beat was answered with %v before it was unmarked", c)
		}
		s.Decide(termtest.Committed)
		if c := verdict(b); c != wire.CodeOK || !s.proposed(machine.Hear{Session: sid(1), Term: 1}) {
			t.Errorf("after unmarking: %v", c)
		}
		s.ReleaseEntries()
		// Beats go on: the session is neither marked nor ended again.
		before := len(s.Applied())
		for range 10 {
			time.Sleep(ttl / 3)
			if c := verdict(s.beat(1)); c != wire.CodeOK {
				t.Errorf("beat: %v", c)
			}
		}
		if after := s.Applied(); len(after) != before {
			t.Errorf("a beating session cost entries: %v", after[before:])
		}
	})
}

func TestAnIdleClusterWritesNothing(t *testing.T) {
	onStage(t, func(s *stage) {
		s.open(1)
		before := len(s.Applied())
		for range 300 {
			time.Sleep(ttl / 3)
			if c := verdict(s.beat(1)); c != wire.CodeOK {
				t.Fatal(c)
			}
		}
		if n := len(s.Applied()); n != before {
			t.Errorf("300 beats cost %d commands", n-before)
		}
	})
}

// Stop answers every beat: beats in a round, beats waiting for an entry, and later
// beats.
func TestABeatIsAnsweredWhenTheTermEnds(t *testing.T) {
	onStage(t, func(s *stage) {
		s.open(1)
		s.open(2)
		untilSilent()
		s.HoldEntries()
		waits := s.beat(1) // for the Hear
		synctest.Wait()
		s.HoldRounds()
		none := s.beat(9)
		synctest.Wait()
		old := s.Term()
		stopped := make(chan struct{})
		go func() { old.Stop(); close(stopped) }()
		for _, ch := range []<-chan wire.Code{waits, none} {
			if c := verdict(ch); c != wire.CodeNotLeader {
				t.Errorf("answered with %v", c)
			}
		}
		late := make(chan wire.Code, 1)
		old.Beat(own(old), sid(2), func(c wire.Code) { late <- c })
		s.Decide(termtest.Dropped)
		<-stopped
		if c := verdict(late); c != wire.CodeNotLeader {
			t.Errorf("a late beat was answered with %v", c)
		}
	})
}
