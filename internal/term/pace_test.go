package term_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/wire"
)

// A crowd is a member's commands, as many as are asked for.
type crowd struct {
	s       *stage
	member  string
	session byte
	seq     uint64
	decided int
}

func (c *crowd) propose(n int) {
	for range n {
		c.seq++
		c.s.Term().ProposeOf(c.member, machine.Acquire{Session: sid(c.session), Seq: c.seq, Key: fmt.Sprint(c.member, c.seq)},
			func(machine.Outcome, wire.Code) { c.decided++ })
	}
}

// entry decides the entry in flight, and returns how many commands of c it had.
func (c *crowd) entry() int {
	before := c.decided
	c.s.decideEntry()
	return c.decided - before
}

// While a second member is about, an entry has few commands of a member with thousands, and
// the second member's command is in the next entry. A second after its last command the
// entries are long again.
func TestEntriesAreShortWhileTwoMembersAreAbout(t *testing.T) {
	onStage(t, func(s *stage) {
		s.SetCheck(false)
		s.open(1)
		s.open(2)
		s.HoldEntries()
		noisy, quiet := &crowd{s: s, member: "noisy", session: 1}, &crowd{s: s, member: "quiet", session: 2}
		noisy.propose(10_000)
		synctest.Wait()
		noisy.entry()
		if n := noisy.entry(); n != machine.MaxCommands {
			t.Fatalf("alone: %d commands in an entry", n)
		}
		quiet.propose(1)
		s.decideEntry() // was in flight
		for range 5 {
			if n := noisy.entry(); n > 32 {
				t.Fatalf("beside another member: %d commands in an entry", n)
			}
			if quiet.decided != 1 {
				t.Fatal("the other's command is not in the next entry")
			}
		}
		time.Sleep(900 * time.Millisecond)
		noisy.entry()
		if n := noisy.entry(); n > 32 {
			t.Fatalf("less than a second later: %d commands in an entry", n)
		}
		time.Sleep(200 * time.Millisecond)
		noisy.entry()
		if n := noisy.entry(); n != machine.MaxCommands {
			t.Errorf("more than a second later: %d commands in an entry", n)
		}
		s.ReleaseEntries()
		synctest.Wait()
	})
}

// Where an entry without work takes long, a member may add more to each: half of that time.
func TestAMembersPartGrowsWithTheTimeOfAnEntry(t *testing.T) {
	onStage(t, func(s *stage) {
		s.SetCheck(false)
		s.open(1)
		s.open(2)
		s.HoldEntries()
		noisy, quiet := &crowd{s: s, member: "noisy", session: 1}, &crowd{s: s, member: "quiet", session: 2}
		for range 8 {
			quiet.propose(1)
			synctest.Wait()
			time.Sleep(8 * time.Millisecond)
			s.decideEntry()
		}
		noisy.propose(3000)
		synctest.Wait()
		noisy.entry()
		for range 5 {
			quiet.propose(1)
			if n := noisy.entry(); n != 200 {
				t.Fatalf("%d commands in an entry", n)
			}
		}
		s.ReleaseEntries()
		synctest.Wait()
	})
}

// Many members with a few commands each leave room in an entry, and a crowd does not get it.
func TestACrowdAmongManyMembersHasAPart(t *testing.T) {
	onStage(t, func(s *stage) {
		s.SetCheck(false)
		s.open(1)
		s.HoldEntries()
		noisy := &crowd{s: s, member: "noisy", session: 1}
		noisy.propose(1)
		synctest.Wait() // in flight
		noisy.propose(5000)
		others := make([]*crowd, 100)
		for round := range 5 {
			for i := range others {
				others[i] = &crowd{s: s, member: fmt.Sprint("other", i), session: 1, seq: uint64(10_000 + 1000*i + round)}
				others[i].propose(1)
			}
			s.decideEntry() // was in flight
			if n := noisy.entry(); n < 16 || n > 64 {
				t.Errorf("%d commands of the crowd in an entry", n)
			}
			for i, o := range others {
				if o.decided != 1 {
					t.Errorf("the command of member %d is not in the next entry", i)
				}
			}
		}
		s.ReleaseEntries()
		synctest.Wait()
	})
}

// Of the entries that end a large session, every second one has no slice while a member has
// commands. Without commands of members the slices follow each other.
func TestASliceIsInEverySecondEntry(t *testing.T) {
	onStage(t, func(s *stage) {
		const sets = 40
		s.full(sets)
		s.open(2)
		s.HoldEntries()
		s.close()
		synctest.Wait()
		s.decideEntry() // the Close
		quiet := &crowd{s: s, member: "quiet", session: 2}
		slice := func() bool {
			before := s.Sent(isSlice)
			s.decideEntry()
			return s.Sent(isSlice) > before
		}
		for range 3 {
			if !slice() {
				t.Fatal("alone: an entry without a slice")
			}
		}
		with := 0
		for range 10 {
			quiet.propose(1)
			if slice() {
				with++
			}
		}
		if with < 4 || with > 6 {
			t.Errorf("%d of 10 entries had a slice", with)
		}
		if quiet.decided < 9 {
			t.Errorf("%d commands in ten entries", quiet.decided)
		}
		if s.Counts().Ending == 0 {
			t.Error("the end is over, and the test shows nothing")
		}
		s.ReleaseEntries()
		synctest.Wait()
	})
}
