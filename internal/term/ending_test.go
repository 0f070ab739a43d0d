package term_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/term"
	"github.com/wardmote/wardmote/internal/term/termtest"
	"github.com/wardmote/wardmote/internal/wire"
)

// many returns n keys in order.
func many(from, n int) (keys []string) {
	for i := range n {
		keys = append(keys, fmt.Sprintf("key %05d", from+i))
	}
	return keys
}

// full has session 1 hold sets of keys, a slice for each.
func (s *stage) full(sets int) {
	s.t.Helper()
	s.SetCheck(false)
	s.open(1)
	for i := range sets {
		s.Must(machine.Acquire{Session: sid(1), Seq: uint64(i + 1), Keys: many(1000*i, machine.MaxSlice)})
	}
}

func (s *stage) checkTable() {
	s.t.Helper()
	if err := s.Check(); err != nil {
		s.t.Error(err)
	}
}

func isSlice(c machine.Command) bool { _, ok := c.(machine.EndSlice); return ok }

// close proposes to close session 1, and returns the outcome once there is one.
func (s *stage) close() <-chan machine.Outcome {
	ch := make(chan machine.Outcome, 1)
	s.Term().Propose(s.owner(), machine.Close{Session: sid(1)}, func(o machine.Outcome, c wire.Code) {
		if c != wire.CodeOK {
			o.Code = machine.Code(200 + c)
		}
		ch <- o
	})
	return ch
}

// said returns the outcome's code if there is one by now, or 0.
func said(ch <-chan machine.Outcome) machine.Code {
	synctest.Wait()
	select {
	case o := <-ch:
		return o.Code
	default:
		return 0
	}
}

// A session with thousands of keys is over with the first entry, for its client and for
// every command; each further entry frees a slice of the keys, beats and other commands go on
// in between, and the Close is answered once the last key is free.
func TestALargeSessionEndsInSlices(t *testing.T) {
	onStage(t, func(s *stage) {
		const sets = 5
		s.full(sets)
		s.open(2)
		s.acquire(2, 1, "other")
		s.Must(machine.Acquire{Session: sid(2), Seq: 2, Key: many(0, 1)[0]})
		s.HoldEntries()
		closed := s.close()
		s.Decide(termtest.Committed)
		for left := sets - 1; left > 0; left-- {
			if c := said(closed); c != 0 {
				t.Fatalf("closed with code %d, and %d sets are left", c, left)
			}
			if n := s.Counts(); n.Grants < machine.MaxSlice*left || n.Ending != 1 {
				t.Fatalf("%d sets are left, and the table has %+v", left, n)
			}
			if c := verdict(s.beat(1)); c != wire.CodeNoSession {
				t.Errorf("a beat of the ending session: %v", c)
			}
			if c := nextVerdict(s.beat(2)); c != wire.CodeOK {
				t.Errorf("a beat between two slices: %v", c)
			}
			if s.alive(1) {
				t.Error("the session is open")
			}
			release := s.propose(machine.Release{Session: sid(1), Token: 1})
			if c := verdict(release); c != wire.CodeOK {
				t.Errorf("a command of the ending session: %v", c)
			}
			s.Decide(termtest.Committed)
		}
		if c := said(closed); c != machine.OK {
			t.Errorf("closed with code %d", c)
		}
		s.ReleaseEntries()
		if id, _ := s.Owner(many(0, 1)[0]); id != sid(2) {
			t.Error("the waiter got nothing")
		}
		if n := s.Counts(); n.Sessions != 1 || n.Ending != 0 || n.Grants != 2 {
			t.Errorf("left %+v", n)
		}
		if n := s.Sent(isSlice); n != sets-1 {
			t.Errorf("%d slices", n)
		}
		if c := said(s.close()); c != machine.NoSession {
			t.Errorf("a second Close: code %d", c)
		}
		s.checkTable()
	})
}

// treeOver has session 2 hold a tree, with so many waiters of session 3 below, and returns the
// release of the tree.
func (s *stage) treeOver(waiters int) machine.Release {
	s.t.Helper()
	s.SetCheck(false)
	s.open(2)
	s.open(3)
	tree := s.Must(machine.Acquire{Session: sid(2), Seq: 1, Key: "t", Spec: machine.Spec{Tree: true}})
	for i := range waiters {
		s.Must(machine.Acquire{Session: sid(3), Seq: uint64(i + 1), Key: fmt.Sprintf("t/%04d", i)})
	}
	return machine.Release{Session: sid(2), Token: tree.Token}
}

// A freed tree lets thousands of waiters be granted: a step grants a part, further entries the
// rest, and beats go on in between. The leader changes after the first slice.
func TestAFreedTreeIsGrantedInSlices(t *testing.T) {
	for name, lead := range map[string]func(*stage){
		"one leader": func(s *stage) { s.ReleaseEntries() },
		"log":        func(s *stage) { s.Decide(termtest.Dropped); s.ReleaseEntries(); s.Lead() },
		"snapshot":   func(s *stage) { s.Decide(termtest.Dropped); s.ReleaseEntries(); s.LeadFromSnapshot() },
	} {
		t.Run(name, func(t *testing.T) {
			onStage(t, func(s *stage) {
				const waiters = 3 * machine.MaxAdmitted
				free := s.treeOver(waiters)
				s.HoldEntries()
				release := s.propose(free)
				s.Decide(termtest.Committed)
				if c := verdict(release); c != wire.CodeOK {
					t.Fatalf("released with code %v", c)
				}
				synctest.Wait()
				s.Decide(termtest.Committed)
				synctest.Wait()
				if n := s.Counts(); n.Grants != 2*machine.MaxAdmitted || n.Waiters != waiters-n.Grants {
					t.Fatalf("after one slice %+v", n)
				}
				if c := nextVerdict(s.beat(2)); c != wire.CodeOK {
					t.Errorf("a beat between two slices: %v", c)
				}
				synctest.Wait()
				lead(s)
				synctest.Wait()
				if n := s.Counts(); n.Grants != waiters || n.Waiters != 0 {
					t.Errorf("at last %+v", n)
				}
				s.checkTable()
			})
		})
	}
}

// A member that ends many large sessions has another's wait for one slice at a time, also at a
// leader that finds them in its table.
func TestMembersTakeTurnsInEnding(t *testing.T) {
	for _, anew := range []bool{false, true} {
		onStage(t, func(s *stage) {
			s.SetCheck(false)
			const crowd = 12
			for i := range byte(crowd + 1) {
				node := "m"
				if i == crowd {
					node = "v"
				}
				s.Must(machine.Open{Session: sid(i + 1), Client: "c", Node: node, TTL: 3000})
				for j := range 3 {
					s.Must(machine.Acquire{Session: sid(i + 1), Seq: uint64(j + 1), Keys: many(1000*(3*int(i)+j), machine.MaxSlice)})
				}
			}
			s.Proposals()
			s.HoldEntries()
			for i := range byte(crowd + 1) {
				s.Must(machine.Close{Session: sid(i + 1)})
			}
			if anew {
				s.Decide(termtest.Dropped)
				s.ReleaseEntries()
				synctest.Wait()
				s.Proposals()
				s.Lead()
			} else {
				s.ReleaseEntries()
			}
			synctest.Wait()
			var ends []int
			for _, p := range s.Proposals() {
				if c, ok := p.Command.(machine.EndSlice); ok {
					ends = append(ends, int(number(c.Session)))
				}
			}
			of := func(n int) (at []int) {
				for i, id := range ends {
					if id == n {
						at = append(at, i)
					}
				}
				return at
			}
			if v := of(crowd + 1); len(ends) != 2*(crowd+1) || len(v) != 2 || v[0] > 2 || v[1] > 4 {
				t.Errorf("with another leader %v: the member's slices are %v of %d: %v", anew, v, len(ends), ends)
			}
			if last := of(crowd); len(last) != 2 || last[0] > crowd+2 {
				t.Errorf("the last session of the crowd ends in the slices %v", last)
			}
			if n := s.Counts(); n.Sessions != 0 || n.Ending != 0 {
				t.Errorf("left %+v", n)
			}
		})
	}
}

// Neither waiters that were put off nor ending sessions wait for all of the others.
func TestSlicesTakeTurns(t *testing.T) {
	onStage(t, func(s *stage) {
		s.full(6)
		free := s.treeOver(5 * machine.MaxAdmitted)
		s.Proposals()
		s.HoldEntries()
		closed, release := s.close(), s.propose(free)
		synctest.Wait()
		s.ReleaseEntries()
		if c, r := said(closed), verdict(release); c != machine.OK || r != wire.CodeOK {
			t.Fatalf("closed with code %d, released with %v", c, r)
		}
		var turns []string
		for _, p := range s.Proposals() {
			switch p.Command.(type) {
			case machine.EndSlice:
				turns = append(turns, "end")
			case machine.AdmitSlice:
				turns = append(turns, "admit")
			}
		}
		alternate := 0
		for i := 1; i < len(turns); i++ {
			if turns[i] != turns[i-1] {
				alternate++
			}
		}
		if alternate < 7 || len(turns) < 9 {
			t.Errorf("%v", turns)
		}
		if n := s.Counts(); n.Waiters != 0 || n.Ending != 0 {
			t.Errorf("left %+v", n)
		}
	})
}

// The leader changes between two slices, one time by a voter that has the table from a
// snapshot: the next leader goes on, and answers the Close that comes again.
func TestTheNextLeaderGoesOnWithTheSlices(t *testing.T) {
	for name, lead := range map[string]func(*stage){
		"log":      func(s *stage) { s.Lead() },
		"snapshot": func(s *stage) { s.LeadFromSnapshot() },
	} {
		t.Run(name, func(t *testing.T) {
			onStage(t, func(s *stage) {
				s.full(5)
				s.HoldEntries()
				closed := s.close()
				s.Decide(termtest.Committed)
				s.Decide(termtest.Committed)
				synctest.Wait()
				s.Decide(termtest.Dropped)
				if c := said(closed); c != 0 {
					t.Fatalf("closed with code %d", c)
				}
				led := make(chan struct{})
				go func() { defer close(led); lead(s) }()
				s.Decide(termtest.Committed) // LeaderStart
				<-led
				if c := said(closed); c != 200+machine.Code(wire.CodeUnknown) {
					t.Errorf("the old leader said %d", c)
				}
				again := s.close()
				if c := said(again); c != 0 {
					t.Errorf("the keys are not free, and the new leader said %d", c)
				}
				s.Decide(termtest.Committed)
				if c := said(again); c != 0 {
					t.Errorf("the keys are not free, and the new leader said %d", c)
				}
				s.ReleaseEntries()
				if c := said(again); c != machine.NoSession {
					t.Errorf("the new leader said %d", c)
				}
				if n := s.Counts(); n.Sessions != 0 || n.Grants != 0 {
					t.Errorf("left %+v", n)
				}
				s.checkTable()
			})
		})
	}
}

// The client of an expired session is told at once and once, whatever it still holds in the
// table; an operator's wait for the end of the session lasts until the last key is free.
func TestTheEndIsToldWithTheFirstSlice(t *testing.T) {
	onStage(t, func(s *stage) {
		s.full(4)
		s.open(9)
		var told []machine.Event
		own := &term.Subscriber{Node: "n", Event: func(e machine.Event) { told = append(told, e) }}
		s.Term().Join(own)
		s.Term().Attach(own, keys(1), nil)
		gone, cancel := s.gone(1)
		defer cancel()
		synctest.Wait()
		told = nil
		s.HoldEntries()
		out := s.Apply(machine.Expire{Session: sid(1), Term: 1})
		if out[0].Code != machine.Unfinished {
			t.Fatalf("%+v", out)
		}
		s.Apply(machine.EndSession{Session: sid(9), Ref: sid(1).Ref()})
		synctest.Wait()
		want := machine.Event{Kind: machine.EventEnded, Session: sid(1), Reason: machine.Expired}
		told = slices.DeleteFunc(told, func(e machine.Event) bool { return e.Kind == machine.EventLost })
		if len(told) != 1 || told[0] != want {
			t.Errorf("told %+v", told)
		}
		s.Decide(termtest.Committed)
		if c := verdict(gone); c != 0 {
			t.Errorf("gone, and keys are left: %v", c)
		}
		list := make(chan replica.SessionsPage, 1)
		s.Term().Sessions(replica.SessionsQuery{Limit: 9}, func(a replica.SessionsPage, _ wire.Code) { list <- a })
		ending := 0
		for _, l := range (<-list).Sessions {
			if l.Ending && l.Ref == sid(1).Ref() && l.Keys > 0 {
				ending++
			}
		}
		if ending != 1 {
			t.Error("the list does not tell that the session is ending")
		}
		s.ReleaseEntries()
		if c := verdict(gone); c != wire.CodeOK {
			t.Errorf("all keys are free: %v", c)
		}
		told = nil
		s.Term().Attach(own, keys(1), nil)
		if synctest.Wait(); len(told) != 1 || told[0] != want {
			t.Errorf("a client that attaches too late is told %+v", told)
		}
		s.checkTable()
	})
}

// An operator ends a session with thousands of waits: they leave in slices, in turn with
// the slices of another session, and none of them is granted.
func TestTheWaitsOfARevokedSessionLeaveInSlices(t *testing.T) {
	onStage(t, func(s *stage) {
		s.full(3)
		s.open(2)
		s.open(9)
		for i := range 3 {
			s.Must(machine.Acquire{Session: sid(9), Seq: uint64(i + 1), Keys: many(10_000+1000*i, machine.MaxSlice)})
			s.Must(machine.Acquire{Session: sid(2), Seq: uint64(i + 1), Keys: many(10_000+1000*i, machine.MaxSlice)})
		}
		s.HoldEntries()
		closed, ordered := s.close(), s.order(2)
		s.ReleaseEntries()
		if c := verdict(ordered); c != wire.CodeOK {
			t.Fatal(c)
		}
		if c := said(closed); c != machine.OK {
			t.Errorf("closed with code %d", c)
		}
		if n := s.Counts(); n.Waiters != 0 || n.Grants != 3*machine.MaxSlice || n.Sessions != 2 {
			t.Errorf("left %+v", n)
		}
		s.checkTable()
	})
}

// The last waits of a revoked session leave in the entry in which its client closes it:
// the slices go on.
func TestARevokedSessionIsClosedWithASlice(t *testing.T) {
	onStage(t, func(s *stage) {
		s.SetCheck(false)
		s.open(1)
		s.open(9)
		for i := range 2 { // each wait is a slice, and so is each set of keys
			set := many(10_000+1000*i, 600)
			s.Must(machine.Acquire{Session: sid(9), Seq: uint64(i + 1), Keys: set}, machine.Acquire{Session: sid(1), Seq: uint64(i + 1), Keys: set})
			s.Must(machine.Acquire{Session: sid(1), Seq: uint64(i + 4), Keys: many(20_000+1000*i, machine.MaxSlice)})
		}
		s.HoldEntries()
		s.propose(opening(8)) // so that the next two are one entry
		synctest.Wait()
		s.Must(machine.EndSession{Session: sid(9), Ref: sid(1).Ref()})
		closed := s.close()
		s.Decide(termtest.Committed)
		s.Decide(termtest.Committed)
		synctest.Wait()
		if n := s.Counts(); n.Ending != 1 || n.Grants != 2*600+machine.MaxSlice {
			t.Fatalf("the slice and the Close were not one entry: %+v", n)
		}
		s.ReleaseEntries()
		if c := said(closed); c != machine.OK {
			t.Errorf("closed with code %d", c)
		}
		if n := s.Counts(); n.Ending != 0 || n.Grants != 2*600 {
			t.Errorf("left %+v", n)
		}
		s.checkTable()
	})
}

// A slice that the leader has no room for, or that is in no log, is proposed again.
func TestASliceIsProposedAgain(t *testing.T) {
	onStage(t, func(s *stage) {
		s.full(3)
		s.open(7)
		s.HoldEntries()
		first := s.propose(opening(8))
		synctest.Wait()
		large := machine.SetValue{Session: sid(7), Token: 1, Rev: 1, Value: make([]byte, machine.MaxValue)}
		for full := false; !full; {
			s.Term().Propose(s.owner(), large, func(_ machine.Outcome, c wire.Code) { full = full || c == wire.CodeBusy })
		}
		out := s.Apply(machine.Expire{Session: sid(1), Term: 1})
		if out[0].Code != machine.Unfinished || s.Sent(isSlice) != 0 {
			t.Fatalf("%+v", out)
		}
		s.ReleaseEntries()
		if c := verdict(first); c != wire.CodeOK {
			t.Error(c)
		}
		time.Sleep(3 * tick)
		synctest.Wait()
		if n := s.Counts(); n.Ending != 0 || n.Sessions != 2 {
			t.Errorf("left %+v", n)
		}
	})
}

// A Forget is answered when the last key of the process is free, as are copies of it. All wait
// for the session once.
func TestAForgetIsAnsweredAtTheEnd(t *testing.T) {
	onStage(t, func(s *stage) {
		const sets = 4
		s.SetCheck(false)
		earlier := opening(1)
		earlier.Node, earlier.Boot, earlier.Dir = "m", 6, victimDir.ID()
		s.Must(earlier)
		for i := range sets {
			s.Must(machine.Acquire{Session: sid(1), Seq: uint64(i + 1), Keys: many(1000*i, machine.MaxSlice)})
		}
		later := &term.Subscriber{Node: "m", Boot: 7, Dir: victimDir.ID(), Event: func(machine.Event) {}}
		s.Term().Join(later)
		forget := func() <-chan machine.Outcome {
			ch := make(chan machine.Outcome, 1)
			s.Term().Propose(later, machine.Forget{Node: "m", Boot: 6, Dir: victimDir.ID()}, func(o machine.Outcome, c wire.Code) {
				if c != wire.CodeOK {
					o.Code = machine.Code(200 + c)
				}
				ch <- o
			})
			return ch
		}
		s.HoldEntries()
		first := forget()
		s.Decide(termtest.Committed)
		synctest.Wait()
		again := forget()
		var more []<-chan machine.Outcome
		for range 20 {
			more = append(more, forget())
		}
		for left := sets - 1; left > 0; left-- {
			if c := said(first); c != 0 {
				t.Fatalf("code %d, and %d sets are left", c, left)
			}
			if c := said(again); c != 0 {
				t.Fatalf("the copy: code %d, and %d sets are left", c, left)
			}
			if n := s.Term().EndsAwaited(); n != 1 {
				t.Fatalf("%d wait for the session", n)
			}
			s.Decide(termtest.Committed)
		}
		s.ReleaseEntries()
		if c := said(first); c != machine.OK {
			t.Errorf("code %d", c)
		}
		if c := said(again); c != machine.OK {
			t.Errorf("the copy: code %d", c)
		}
		for i, ch := range more {
			if c := said(ch); c != machine.OK {
				t.Errorf("copy %d: code %d", i, c)
			}
		}
		if n := s.Counts(); n.Sessions != 0 || n.Grants != 0 {
			t.Errorf("left %+v", n)
		}
		if c := said(forget()); c != machine.OK {
			t.Errorf("nothing is left: code %d", c)
		}
	})
}

// A Forget whose slices outlive the term is asked again.
func TestAForgetIsNotAnsweredByAnEndingTerm(t *testing.T) {
	onStage(t, func(s *stage) {
		s.SetCheck(false)
		earlier := opening(1)
		earlier.Node, earlier.Boot, earlier.Dir = "m", 6, victimDir.ID()
		s.Must(earlier)
		for i := range 3 {
			s.Must(machine.Acquire{Session: sid(1), Seq: uint64(i + 1), Keys: many(1000*i, machine.MaxSlice)})
		}
		later := &term.Subscriber{Node: "m", Boot: 7, Dir: victimDir.ID(), Event: func(machine.Event) {}}
		s.Term().Join(later)
		s.HoldEntries()
		code := make(chan wire.Code, 1)
		s.Term().Propose(later, machine.Forget{Node: "m", Boot: 6, Dir: victimDir.ID()}, func(_ machine.Outcome, c wire.Code) { code <- c })
		s.Decide(termtest.Committed)
		synctest.Wait()
		s.Decide(termtest.Dropped)
		led := make(chan struct{})
		go func() { defer close(led); s.Lead() }()
		s.Decide(termtest.Committed) // LeaderStart
		<-led
		s.ReleaseEntries()
		if c := verdict(code); c != wire.CodeUnknown {
			t.Errorf("code %v", c)
		}
	})
}
