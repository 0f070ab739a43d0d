package term_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/term"
	"github.com/wardmote/wardmote/internal/term/termtest"
	"github.com/wardmote/wardmote/internal/testrounds"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

const delayed = 10 * time.Second

// delayed has session 1 hold k, with a delay, and expire.
func (s *stage) delayed() machine.Token {
	s.t.Helper()
	s.open(1)
	o := s.Must(machine.Acquire{Session: sid(1), Seq: 1, Key: "k", Spec: machine.Spec{Delay: uint64(delayed / time.Millisecond)}})
	s.Must(machine.Expire{Session: sid(1), Term: s.TermNumber()})
	return o.Token
}

// delays returns how many delays the keeper counts.
func (s *stage) delays() int {
	_, delays := s.Term().Counted()
	return delays
}

func TestADelayIsCountedFromTheExpiry(t *testing.T) {
	onStage(t, func(s *stage) {
		s.delayed()
		time.Sleep(delayed / 2)
		if g := s.read(replica.Query{Key: "k", Waiters: 1}).Status.Holders[0]; !g.Delayed || g.Left != uint64(delayed/2/time.Millisecond) {
			t.Errorf("a reader is told %+v", g)
		}
		time.Sleep(delayed/2 - time.Millisecond)
		if !s.held("k") {
			t.Error("freed before the delay was over")
		}
		time.Sleep(2 * tick)
		if s.held("k") {
			t.Error("not freed")
		}
		synctest.Wait()
		if n := s.delays(); n != 0 {
			t.Errorf("%d delays are still counted", n)
		}
	})
}

func TestANewLeaderCountsADelayAnew(t *testing.T) {
	onStage(t, func(s *stage) {
		s.delayed()
		time.Sleep(delayed - time.Second)
		s.Lead()
		time.Sleep(delayed - time.Millisecond)
		if !s.held("k") {
			t.Fatal("the new leader did not count the whole delay")
		}
		time.Sleep(2 * tick)
		if s.held("k") {
			t.Error("not freed")
		}
	})
}

// The end of a delay is proposed until the fate is known. A grant taken back
// or broken meanwhile is forgotten.
func TestTheEndOfADelayIsProposedUntilItIsDone(t *testing.T) {
	onStage(t, func(s *stage) {
		s.delayed()
		s.HoldEntries()
		time.Sleep(delayed + 2*tick)
		s.Decide(termtest.Dropped)
		s.ReleaseEntries()
		synctest.Wait()
		if !s.held("k") || s.delays() != 1 {
			t.Errorf("held %t, %d delays counted", s.held("k"), s.delays())
		}
		time.Sleep(timing.EndDelayAgain + 2*tick)
		if s.held("k") || s.delays() != 0 {
			t.Errorf("held %t, %d delays counted", s.held("k"), s.delays())
		}
	})
	onStage(t, func(s *stage) {
		token := s.delayed()
		s.open(2) // of the same client's name
		if o := s.acquire(2, 1, "k"); o <= token {
			t.Fatalf("not reclaimed: %d", o)
		}
		time.Sleep(delayed + 2*tick)
		synctest.Wait()
		if !s.held("k") && s.alive(2) || s.delays() != 0 {
			t.Errorf("held %t, %d delays counted", s.held("k"), s.delays())
		}
	})
}

// Only a leader ends a delay or a session: no client proposes these commands.
func TestAForgedCommandOfTheLeaderIsRefused(t *testing.T) {
	onStageWith(t, termtest.Config{Refused: refusals()}, func(s *stage) {
		token := s.delayed()
		s.open(2)
		before := len(s.Applied())
		for _, cmd := range []machine.Command{
			machine.EndDelay{Token: token, Term: 1}, machine.Expire{Session: sid(2), Term: 1},
			machine.Silence{Session: sid(2), Term: 1}, machine.Hear{Session: sid(2), Term: 1},
			machine.LeaderStart{Term: 2}, machine.Lift{Term: 1}, machine.Bound{Term: 1, TTL: 300},
			machine.Raise{Term: 1, Format: 1}, machine.Found{}, machine.Unknown{Raw: "x"}, nil,
		} {
			ch := make(chan wire.Code, 1)
			s.Term().Propose(s.owner(), cmd, func(_ machine.Outcome, c wire.Code) { ch <- c })
			if c := verdict(ch); c != wire.CodeBad {
				t.Errorf("%#v: %v", cmd, c)
			}
		}
		if n := len(s.Applied()); n != before || !s.held("k") || !s.alive(2) {
			t.Errorf("%d commands were applied, held %t, alive %t", n-before, s.held("k"), s.alive(2))
		}
	})
}

// Delays ending all at once, as after a leader change, do not push out the
// clients' commands, and end all the same.
func TestManyDelaysThatEndAtOnceLeaveRoomForClients(t *testing.T) {
	if !testrounds.Full() {
		t.Skip("65,000 delays take seconds")
	}
	onStage(t, func(s *stage) {
		s.SetCheck(false)
		const keys, holders = term.MaxProposals + 1000, 3 // each within the keys of a session
		var batch []machine.Command
		for i := range holders {
			s.open(byte(3 + i))
		}
		for i := range keys {
			batch = append(batch, machine.Acquire{Session: sid(byte(3 + i%holders)), Seq: uint64(i/holders + 1), Key: fmt.Sprint("k", i), Spec: machine.Spec{Delay: 3000}})
		}
		s.Apply(batch...)
		for i := range holders {
			s.Must(machine.Expire{Session: sid(byte(3 + i)), Term: 1})
		}
		time.Sleep(time.Second) // the sessions end in slices
		s.HoldEntries()
		time.Sleep(3*time.Second + 2*tick)
		if n := s.delays(); n < term.MaxProposals {
			t.Fatalf("%d delays", n)
		}
		done := make(chan wire.Code, 1)
		s.Term().Propose(s.owner(), opening(2), func(_ machine.Outcome, c wire.Code) { done <- c })
		if c := verdict(done); c != 0 {
			t.Errorf("a client was told %v", c)
		}
		s.ReleaseEntries()
		time.Sleep(time.Minute)
		if n := s.delays(); n > 0 || s.held("k0") {
			t.Errorf("%d delays are left", n)
		}
	})
}
