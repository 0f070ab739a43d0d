package term_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/wire"
)

// contended has session 1 hold k, session 2 wait for it, and session 3 open, in a term where an
// entry takes 8 ms. The result is the holder's token.
func (s *stage) contended() machine.Token {
	for id := byte(1); id < 4; id++ {
		s.open(id)
	}
	token := s.acquire(1, 1, "k")
	s.acquire(2, 1, "k")
	s.HoldEntries()
	quick := &crowd{s: s, member: "quick", session: 1, seq: 1}
	for range 8 {
		quick.propose(1)
		synctest.Wait()
		time.Sleep(8 * time.Millisecond)
		s.decideEntry()
	}
	return token
}

// ask proposes cmd for a member, and returns its place and where its code comes.
func (s *stage) ask(member string, cmd machine.Command) (place uint64, code <-chan wire.Code) {
	ch := make(chan wire.Code, 1)
	place = s.Term().ProposeOf(member, cmd, func(_ machine.Outcome, c wire.Code) { ch <- c })
	synctest.Wait()
	return place, ch
}

func (s *stage) wantUndecided(n int, when string) {
	s.t.Helper()
	synctest.Wait()
	if got := s.Undecided(); got != n {
		s.t.Errorf("%s: %d entries in flight, want %d", when, got, n)
	}
}

// A request that only joins a queue shares the entry of the next command.
func TestARequestThatOnlyWaitsGoesWithTheNextCommand(t *testing.T) {
	onStage(t, func(s *stage) {
		token := s.contended()
		_, joined := s.ask("c", machine.Acquire{Session: sid(3), Seq: 1, Key: "k"})
		s.wantUndecided(0, "a request that only waits")
		time.Sleep(time.Millisecond)
		_, released := s.ask("a", machine.Release{Session: sid(1), Token: token})
		s.wantUndecided(1, "the release")
		s.decideEntry()
		if verdict(joined) != wire.CodeOK || verdict(released) != wire.CodeOK {
			t.Error("two entries for one change of the holder")
		}
		s.wantUndecided(0, "after both")
		if holder, _ := s.Owner("k"); holder != sid(2) || s.Status("k").Queue != 1 {
			t.Errorf("held by %x, %d wait", holder, s.Status("k").Queue)
		}
		s.ReleaseEntries()
	})
}

// Without another command it goes alone, after half of the time of an entry. Others of its kind
// do not put that off.
func TestARequestThatOnlyWaitsGoesAloneInTheEnd(t *testing.T) {
	onStage(t, func(s *stage) {
		s.contended()
		_, first := s.ask("c", machine.Acquire{Session: sid(3), Seq: 1, Key: "k"})
		time.Sleep(3 * time.Millisecond)
		_, second := s.ask("c", machine.Acquire{Session: sid(3), Seq: 2, Key: "k"})
		time.Sleep(999 * time.Microsecond)
		s.wantUndecided(0, "before half of an entry's time")
		time.Sleep(time.Microsecond)
		s.wantUndecided(1, "after half of an entry's time")
		time.Sleep(8 * time.Millisecond)
		s.decideEntry()
		if verdict(first) != wire.CodeOK || verdict(second) != wire.CodeOK {
			t.Error("not in one entry")
		}
		_, third := s.ask("c", machine.Acquire{Session: sid(3), Seq: 3, Key: "k"})
		s.wantUndecided(0, "the next one, at once")
		time.Sleep(4 * time.Millisecond)
		s.decideEntry()
		if verdict(third) != wire.CodeOK {
			t.Error("the next one is not in the log")
		}
		s.ReleaseEntries()
	})
}

// A request that does more than wait is worth an entry at once, and so are those about which
// nothing is known, and all where entries are short.
func TestOtherRequestsGoAtOnce(t *testing.T) {
	for name, cmd := range map[string]machine.Command{
		"a free key":            machine.Acquire{Session: sid(3), Seq: 1, Key: "free"},
		"the first waiter":      machine.Acquire{Session: sid(3), Seq: 1, Key: "quick2"},
		"a try":                 machine.Acquire{Session: sid(3), Seq: 1, Key: "k", Try: true},
		"an order of the queue": machine.Withdraw{Session: sid(2), Seq: 1},
	} {
		onStage(t, func(s *stage) {
			s.contended()
			s.ask("c", cmd)
			s.wantUndecided(1, name)
			s.decideEntry()
			s.ReleaseEntries()
		})
	}
	onStage(t, func(s *stage) {
		for id := byte(1); id < 4; id++ {
			s.open(id)
		}
		s.acquire(1, 1, "k")
		s.acquire(2, 1, "k")
		s.HoldEntries()
		s.ask("c", machine.Acquire{Session: sid(3), Seq: 1, Key: "k"})
		s.wantUndecided(1, "before any entry was measured")
		s.ReleaseEntries()
	})
}

// A request that waits for company can be taken back, and ends with the term.
func TestARequestThatWaitsForCompanyCanBeTakenBack(t *testing.T) {
	onStage(t, func(s *stage) {
		s.contended()
		place, code := s.ask("c", machine.Acquire{Session: sid(3), Seq: 1, Key: "k"})
		s.Term().TakeBackOf("c", place)
		if c := verdict(code); c != wire.CodeBusy {
			t.Errorf("taken back: %v", c)
		}
		time.Sleep(10 * time.Millisecond)
		s.wantUndecided(0, "nothing is left")
		_, code = s.ask("c", machine.Acquire{Session: sid(3), Seq: 1, Key: "k"})
		s.wantUndecided(0, "again")
		s.ReleaseEntries()
		s.Lead()
		if c := verdict(code); c != wire.CodeNotLeader {
			t.Errorf("after the term: %v", c)
		}
	})
}

// A request behind a costly command of its member waits for no company: the command's debt would
// have it wait for many entries with others' commands.
func TestARequestOfAMemberInDebtWaitsForNoCompany(t *testing.T) {
	onStage(t, func(s *stage) {
		s.contended()
		keys := make([]string, machine.MaxKeys)
		for i := range keys {
			keys[i] = fmt.Sprintf("%04d", i)
		}
		place := func(cmd machine.Acquire) <-chan wire.Code {
			cmd.Session = sid(3)
			ch := make(chan wire.Code, 1)
			s.Term().ProposeOf("c", cmd, func(_ machine.Outcome, c wire.Code) { ch <- c })
			return ch
		}
		costly, joined := place(machine.Acquire{Seq: 1, Keys: keys}), place(machine.Acquire{Seq: 2, Key: "k"})
		s.wantUndecided(1, "the costly command")
		s.decideEntry()
		if verdict(costly) != wire.CodeOK || len(joined) > 0 {
			t.Fatal("both are in one entry: the test shows nothing")
		}
		s.wantUndecided(1, "the request behind it, at once")
		s.decideEntry()
		if verdict(joined) != wire.CodeOK {
			t.Error("the request is not in the log")
		}
		s.ReleaseEntries()
	})
}
