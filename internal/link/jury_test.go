package link

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/stream"
	"github.com/wardmote/wardmote/internal/testrounds"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// confirms answers a reading as a leader does that a majority confirms.
func confirms(q *stream.Request) {
	if q.Type == wire.Read {
		q.Answer(wire.CodeOK, wire.Marshal(&replica.Answer{}))
		return
	}
	q.Answer(wire.CodeOK, nil)
}

// cluster adds the leader a in term 5, and the voters b and c.
func (s *stage) cluster5() (a, b, c *host) {
	a, b, c = s.host("a", 5), s.host("b", 0), s.host("c", 0)
	for _, h := range []*host{a, b, c} {
		h.votes = true
		h.setAnswer(confirms)
		if h != a {
			h.tell("a", 5)
		}
	}
	s.set(func() { s.voters = []string{"a", "b", "c"} })
	return a, b, c
}

// served5 is cluster5 once a has served the member for long, so that its list of the voters counts.
func (s *stage) served5() (a, b, c *host) {
	a, b, c = s.cluster5()
	a.list = []string{"a", "b", "c"}
	s.gossip("a", leads(5), votes)
	s.attachedTo("a")
	time.Sleep(2 * timing.DirectMost)
	return a, b, c
}

// five adds the voters d and e to those of served5.
func (s *stage) five() (all []string) {
	a, _, _ := s.cluster5()
	all = []string{"a", "b", "c", "d", "e"}
	for _, name := range all[3:] {
		h := s.host(name, 0)
		h.votes = true
		h.tell("a", 5)
		h.setAnswer(confirms)
	}
	s.set(func() { s.voters = all })
	a.set(func() { a.list = all })
	s.gossip("a", leads(5), votes)
	s.attachedTo("a")
	time.Sleep(2 * timing.DirectMost)
	return all
}

// A leader that a majority confirms is not left, however high the terms of others. A
// leader that confirms nothing is left at once.
func TestALeaderThatConfirmsItselfIsNotLeft(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		a, _, c := s.cluster5()
		s.gossip("a", leads(5), votes)
		s.attachedTo("a")
		s.host("liar", math.MaxUint64).setAnswer(confirms)
		s.gossip("liar", leads(math.MaxUint64), votes)
		for range 600 {
			time.Sleep(100 * time.Millisecond)
			if got, _, _ := s.k.Leader(); got != "a" {
				t.Fatalf("attached to %q", got)
			}
		}
		if got, want := s.told(), "a at a leads term 5"; got != want {
			t.Errorf("told %q, want %q", got, want)
		}
		if n := len(s.sortedDials("liar")); n > 60 {
			t.Errorf("the liar was dialled %d times in a minute", n)
		}
		a.setAnswer(with(wire.CodeNotLeader))
		s.host("b", 6).setAnswer(confirms)
		c.tell("b", 6)
		s.gossip("b", leads(6), votes)
		time.Sleep(timing.Suspect(ttl))
		s.attachedTo("b")
	})
}

// sortedDials returns the dials of an address since the last call of dialled.
func (s *stage) sortedDials(addr string) (out []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.dials {
		if d == addr {
			out = append(out, d)
		}
	}
	return out
}

// A member that believed a false leader, of a term at the end of the numbers and with
// voters of its own, comes back as soon as a majority of the voters has been heard,
// and the false leader gets the member no more while the true leader answers.
func TestAFalseLeaderIsLeftOnTheVotersWord(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.cluster5()
		liar := s.host("liar", math.MaxUint64)
		liar.votes = true
		liar.setAnswer(confirms)
		s.set(func() { s.unreachable["a"] = true })
		s.gossip("liar", leads(math.MaxUint64), votes)
		s.attachedTo("liar")
		liar.stream().Notify(wire.Voters, wire.Marshal(&wire.VoterSet{Term: math.MaxUint64, Voters: []wire.VoterState{{Raft: "x#1", Addr: "x"}, {Raft: "y#1", Addr: "y"}}}))
		liar.stream().Notify(wire.Bound, wire.Marshal(&wire.AttachAnswer{TTL: math.MaxUint64}))
		s.k.deliver(machine.Event{Token: math.MaxUint64})
		s.set(func() { delete(s.unreachable, "a") })
		time.Sleep(3 * timing.HoldFind(ttl))
		s.attachedTo("a")
		if got := s.k.Term(); got != 5 {
			t.Errorf("the highest term is %d", got)
		}
		if got := s.k.TTL(); got != ttl {
			t.Errorf("the bound is %v", got)
		}
		if token, _, bound := s.k.Seen(); token != 0 || bound != ttl {
			t.Errorf("seen token %d, bound %v", token, bound)
		}
		time.Sleep(5 * time.Minute)
		s.attachedTo("a")
		if got, want := s.told(), fmt.Sprintf("liar at liar leads term %d, a at a leads term 5", uint64(math.MaxUint64)); got != want {
			t.Errorf("told %q", got)
		}
	})
}

// Where members share a secret, a false leader takes the name of an honest voter. The voter is
// attached to as soon as it is elected. A proven name is banned at every address.
func TestAFalseLeaderHasNobodyElseBanned(t *testing.T) {
	for _, named := range []bool{false, true} {
		onStage(t, func(t *testing.T, s *stage) {
			a, b, c := s.cluster5()
			b.named = named
			s.gossip("a", leads(5), votes)
			s.gossip("b", votes)
			s.attachedTo("a")
			poser := s.host("x", 6)
			poser.name, poser.named = "b", named
			poser.setAnswer(confirms)
			s.set(func() {
				s.members = append(s.members, member.Sighting{Process: member.Process{Name: "b", Boot: 2, Addr: "x"}, Meta: member.Metadata{Voter: true, Leads: 6}, Alive: true})
			})
			s.gossiped.Wake()
			time.Sleep(5 * time.Minute)
			s.attachedTo("a")
			if n := len(s.sortedDials("x")); n < 3 {
				t.Fatalf("the false leader was dialled %d times", n)
			}
			a.crash()
			c.tell("b", 7)
			b.serve(7)
			time.Sleep(2 * time.Second)
			s.settle()
			if name, _, _ := s.k.Leader(); (name == "b") == named {
				t.Errorf("with proven names %v: attached to %q", named, name)
			}
		})
	}
}

// A process with the voter role that lies as a relay has a member refuse no honest leader at its own
// address, and is no voice of the jury.
func TestALyingRelayHasNobodyBanned(t *testing.T) {
	for _, hints := range [][]string{{"a"}, {"a", "b"}} {
		onStage(t, func(t *testing.T, s *stage) {
			a, _, _ := s.cluster5()
			s.set(func() { s.unreachable["b"], s.unreachable["c"] = true, true }) // so the liar is asked
			s.gossip("a", leads(5), votes)
			s.attachedTo("a")
			liar, poser := s.host("liar", 0), s.host("x", 6)
			liar.votes = true
			poser.name = "a"
			poser.setAnswer(confirms)
			s.set(func() {
				s.liars = map[string]*host{"liar": poser}
				s.voters = append(s.voters, "liar")
			})
			s.gossip("liar", votes)
			for i := range 1200 {
				if i%20 == 0 {
					liar.mu.Lock()
					liar.hint, liar.told = hints[i/20%len(hints)], 6
					liar.mu.Unlock()
					liar.release()
				}
				time.Sleep(250 * time.Millisecond)
				if name, at, _ := s.k.Leader(); name != "a" || at != "a" || s.k.Term() != 5 {
					t.Fatalf("after %d looks attached to %q at %q in term %d", i, name, at, s.k.Term())
				}
			}
			poser.mu.Lock()
			attached := len(poser.attaches)
			poser.mu.Unlock()
			if attached < 3 {
				t.Fatalf("the false leader was attached to %d times", attached)
			}
			a.crash() // its streams end, and it goes on
			time.Sleep(2 * time.Second)
			s.attachedTo("a")
			if got := s.k.Term(); got != 5 {
				t.Errorf("attached in term %d", got)
			}
		})
	}
}

// A relay that lies answers for the very leader that this member's own raft follows. The answer
// is a claim like any other, and the present leader is asked.
func TestALyingRelayIsNotBelievedByRaftsWord(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.cluster5()
		s.set(func() { s.unreachable["b"], s.unreachable["c"] = true, true })
		s.gossip("a", leads(5), votes)
		s.attachedTo("a")
		liar, poser := s.host("liar", 0), s.host("x", 9)
		liar.votes = true
		poser.name = "b"
		poser.setAnswer(confirms)
		s.set(func() {
			s.liars = map[string]*host{"liar": poser}
			s.voters = append(s.voters, "liar")
			s.guess = "b"
		})
		s.gossip("liar", votes)
		liar.tell("b", 9)
		for range 240 {
			time.Sleep(250 * time.Millisecond)
			if name, _, _ := s.k.Leader(); name != "a" {
				t.Fatalf("attached to %q", name)
			}
		}
		poser.mu.Lock()
		defer poser.mu.Unlock()
		if len(poser.attaches) == 0 {
			t.Error("the false leader was not attached to")
		}
	})
}

// A false leader has gone, and its term stays neither with known voters nor, in the
// end, without: only one voter is in reach.
func TestATermThatNobodyElectedIsForgotten(t *testing.T) {
	for _, reach := range []int{3, 1} {
		onStage(t, func(t *testing.T, s *stage) {
			liar := s.host("liar", math.MaxUint64)
			s.gossip("liar", leads(math.MaxUint64), votes)
			s.attachedTo("liar")
			a, b, c := s.cluster5()
			if reach == 1 {
				s.set(func() { s.unreachable["b"], s.unreachable["c"] = true, true })
			}
			s.gossip("liar")
			liar.resign()
			s.set(func() { delete(s.hosts, "liar") })
			time.Sleep(6 * timing.HoldFind(3*time.Second))
			s.attachedTo("a")
			_, _, _ = a, b, c
		})
	}
}

// A voter that served this member in a term that nobody elected, and tells the term ever
// since, keeps the member from no leader for long: not even where only one other voter is
// in reach, so that the voters cannot outvote the liar.
func TestALiarKeepsNobodyFromTheLeaderByATerm(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		liar := s.host("liar", math.MaxUint64)
		liar.votes = true
		s.gossip("liar", leads(math.MaxUint64), votes)
		s.attachedTo("liar")
		s.cluster5()
		s.set(func() {
			s.unreachable["b"] = true
			s.voters = []string{"a", "b", "liar"}
		})
		s.gossip("liar", votes)
		liar.setAnswer(with(wire.CodeNotLeader))
		liar.tell("x", math.MaxUint64)
		liar.resign()
		time.Sleep(6 * timing.HoldFind(3*time.Second))
		s.attachedTo("a")
		time.Sleep(time.Minute)
		s.attachedTo("a")
	})
}

// A member that proves no voter role is no leader, whatever it answers.
func TestAMemberWithoutTheVoterRoleIsNoLeader(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		mere := s.host("mere", 9)
		mere.mere, mere.votes = true, true
		s.gossip("mere", leads(9), votes)
		time.Sleep(time.Minute)
		s.attachedTo("")
		mere.mu.Lock()
		if len(mere.attaches) > 0 {
			t.Error("asked to serve")
		}
		mere.mu.Unlock()
		s.host("a", 5)
		s.gossip("a", leads(5), votes)
		s.attachedTo("a")
	})
}

// Forged gossip of many leaders does not displace the true leader: not when a voter
// tells of the leader, and in the end not when gossip alone does.
func TestManyForgedLeadersHideNoTrueLeader(t *testing.T) {
	for _, told := range []bool{true, false} {
		onStage(t, func(t *testing.T, s *stage) {
			for i := range 200 {
				s.know(fmt.Sprint("ghost", i), leads(math.MaxUint64-uint64(i)), votes)
			}
			s.host("a", 5)
			limit := time.Minute
			if told {
				b := s.host("b", 0)
				b.votes = true
				b.tell("a", 5)
				s.set(func() { s.voters = []string{"b"} })
				limit = time.Second
			} else {
				s.know("a", leads(5))
			}
			s.gossiped.Wake()
			time.Sleep(limit)
			s.attachedTo("a")
		})
	}
}

// A leader that is too busy for one question is not left for a claim.
func TestABusyLeaderIsNotLeftForAClaim(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		a, _, _ := s.cluster5()
		s.gossip("a", leads(5), votes)
		s.attachedTo("a")
		a.setAnswer(with(wire.CodeBusy))
		s.host("liar", 6).setAnswer(confirms)
		s.gossip("liar", leads(6), votes)
		time.Sleep(2 * timing.Suspect(s.k.TTL()))
		a.setAnswer(confirms)
		time.Sleep(timing.Suspect(s.k.TTL()))
		s.attachedTo("a")
		if got, want := s.told(), "a at a leads term 5"; got != want {
			t.Errorf("told %q, want %q", got, want)
		}
	})
}

// A false leader of the present term is left on the voters' word, as one of a later term is.
func TestAFalseLeaderOfThePresentTermIsLeft(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.cluster5()
		liar := s.host("liar", 5)
		liar.votes = true
		liar.setAnswer(confirms)
		s.set(func() { s.unreachable["a"] = true })
		s.gossip("liar", leads(5), votes)
		s.attachedTo("liar")
		s.set(func() { delete(s.unreachable, "a") })
		s.gossip("a", leads(5), votes)
		time.Sleep(time.Minute)
		if name, _, _ := s.k.Leader(); name != "a" {
			t.Errorf("attached to %q, and b and c follow a", name)
		}
	})
}

// A member that is relayed to its leader does not go to another process of the same term,
// though a stream to that process would be direct.
func TestARelayedMemberStaysWithItsLeader(t *testing.T) {
	for range 12 {
		onStage(t, func(t *testing.T, s *stage) {
			s.cluster5()
			liar := s.host("liar", 0)
			liar.votes = true
			liar.tell("a", 5)
			liar.setAnswer(confirms)
			s.set(func() { s.unreachable["a"] = true; s.voters = append(s.voters, "liar") })
			s.gossip("a", leads(5), votes)
			time.Sleep(5 * time.Second)
			if name, _, _ := s.k.Leader(); name != "a" || s.k.Report().Via == "" {
				t.Fatalf("attached to %q via %q", name, s.k.Report().Via)
			}
			liar.serve(5)
			time.Sleep(time.Minute)
			if name, _, _ := s.k.Leader(); name != "a" {
				t.Errorf("attached to %q, beside a leader that answers", name)
			}
		})
	}
}

// False leaders of the last term there is win no member for long when the true leader ends: a voter
// has its own raft's word beside that of the one other voter, a thin member that of both. So it
// is however long they have been there, whether they answer or not, and whatever voters
// they tell: each other, and places that keep every question.
func TestFalseLeadersOutliveNoLeader(t *testing.T) {
	answers := []func(*stream.Request){silence, confirms, with(wire.CodeNotLeader)}
	befores := []time.Duration{20 * time.Millisecond, -time.Second, 5 * time.Second, 2 * time.Second, 11 * time.Second, 30 * time.Second}
	for _, voter := range []bool{false, true} {
		for _, answer := range answers[:testrounds.Rounds(2, 3)] {
			for _, before := range befores[:testrounds.Rounds(3, 6)] {
				for coy := range 2 {
					onStage(t, func(t *testing.T, s *stage) { s.falseLeaders(voter, before, coy, answer, time.Second, nil) })
				}
			}
		}
	}
}

// keepers are places that keep questions, or send the member to such places.
type keepers struct {
	ttl    time.Duration // told by the false leaders
	claims bool
}

// falseLeaders has two false leaders come so long before the true one ends, and checks that the member
// is served a second after the next election. That comes after so long. The voters that they tell
// may keep questions.
func (s *stage) falseLeaders(voter bool, before time.Duration, coy int, answer func(*stream.Request), after time.Duration, keep *keepers) {
	t := s.t
	a, b, c := s.cluster5()
	if voter {
		s.set(func() { s.voters = []string{"a", "me", "c"} })
	}
	s.gossip("a", leads(5), votes)
	s.attachedTo("a")
	time.Sleep(time.Minute)
	come := func() {
		list := []string{"f1", "f2"}
		for i := range 6 {
			filler := s.host(fmt.Sprint("filler", i), 0)
			filler.votes, filler.frozen = true, keep != nil
			if keep != nil && keep.claims {
				filler.frozen = false
				filler.tell(fmt.Sprint("ghost", i), math.MaxUint64-1+uint64(i%2))
				ghost := s.host(fmt.Sprint("ghost", i), 0)
				ghost.votes, ghost.frozen = true, true
			}
			list = append(list, filler.name)
		}
		for _, name := range list[:2] {
			f := s.host(name, math.MaxUint64)
			f.votes, f.list, f.coy = true, list, 3*coy
			if keep != nil {
				f.ttl = uint64(keep.ttl / time.Millisecond)
			}
			f.setAnswer(answer)
			s.gossip(name, leads(math.MaxUint64), votes)
		}
	}
	if before >= 0 {
		come()
		time.Sleep(before)
		s.attachedTo("a")
	}
	a.crash()
	s.set(func() { delete(s.hosts, "a") })
	b.tell("", 0)
	c.tell("", 0)
	if before < 0 {
		come()
	}
	quiet, beating := make(chan struct{}), make(chan struct{})
	go func() { // the session beats, as far as anybody answers
		defer close(beating)
		for {
			if up, _ := s.k.current(); up != nil {
				up.Beat(nil, sid(1), func(wire.Code) {})
			}
			select {
			case <-quiet:
				return
			case <-time.After(ttl / 6):
			}
		}
	}()
	defer func() { close(quiet); <-beating }()
	time.Sleep(after)
	b.tell("c", 9)
	c.serve(9)
	b.release()
	if voter {
		s.set(func() { s.guess = "c" })
		s.k.Wake()
	}
	for range 100 {
		time.Sleep(10 * time.Millisecond)
		s.settle()
		if name, _, _ := s.k.Leader(); name == "c" {
			time.Sleep(time.Minute)
			s.attachedTo("c")
			return
		}
	}
	name, _, _ := s.k.Leader()
	t.Errorf("voter %v, false leaders for %v, coy %d, an election after %v: a second after the election attached to %q, term %d", voter, before, coy, after, name, s.k.Term())
}

// moved has a member whose leader was a, and whose voters moved to other addresses, but for those who
// stay. The leader of the new ones, d, has served for so long.
func (s *stage) moved(long time.Duration, stay ...string) {
	a, _, _ := s.served5()
	s.set(func() {
		s.voters, s.members = nil, nil
		maps.DeleteFunc(s.hosts, func(name string, _ *host) bool { return !slices.Contains(stay, name) })
	})
	a.crash()
	names := []string{"d", "e", "f"}
	for _, name := range names {
		h := s.host(name, 0)
		h.votes, h.list = true, names
		h.setAnswer(confirms)
		h.tell("d", 9)
	}
	s.hosts["d"].serve(9)
	s.gossip("d", leads(9), votes)
	time.Sleep(long)
	s.attachedTo("d")
}

// elect has a voter lead after d.
func (s *stage) elect(name string, term uint64) {
	for at, h := range s.hosts {
		var honest bool
		h.set(func() { honest = h.votes && !h.rising && h.term != math.MaxUint64 })
		if honest && at != name {
			h.serve(0)
			h.tell(name, term)
		}
	}
	s.hosts[name].serve(term)
}

// wantKnown fails the test unless the member knows these voters, and this is its highest term.
func (s *stage) wantKnown(term uint64, voters ...string) {
	s.t.Helper()
	s.settle()
	if got := s.k.Term(); got != term {
		s.t.Errorf("the highest term is %d, want %d", got, term)
	}
	if got := s.k.told(); !slices.Equal(got, voters) {
		s.t.Errorf("the voters are %v, want %v", got, voters)
	}
}

// All voters have moved to other addresses while this member lived. What the leader of the new
// ones tells counts once it has served for long.
func TestAMemberKnowsVotersThatHaveMoved(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.moved(2 * timing.DirectMost)
		d := s.hosts["d"]
		s.set(func() { delete(s.hosts, "d") })
		d.crash()
		s.wantKnown(9, "d", "e", "f")
		s.elect("e", 10)
		time.Sleep(2 * timing.HoldFind(ttl))
		s.attachedTo("e")
	})
}

// The leader of voters that have moved gives way to another, with no loss between, and that one ends
// soon.
func TestAMemberKnowsVotersThatHaveMovedAfterAHandover(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.moved(5 * timing.DirectMost)
		s.hosts["d"].setAnswer(with(wire.CodeNotLeader))
		s.elect("e", 10)
		s.gossip("e", leads(10), votes)
		time.Sleep(10 * time.Second)
		s.attachedTo("e")
		e := s.hosts["e"]
		s.set(func() { delete(s.hosts, "e") })
		e.crash()
		s.wantKnown(9, "d", "e", "f")
		s.elect("f", 11)
		time.Sleep(timing.Dial) // the second leader in doubt
		s.attachedTo("f")
	})
}

// One of the voters has stayed, and told of the leader. That counts, though it tells of the next one
// before the leader is lost.
func TestAVoterHasToldOfTheLeaderOnce(t *testing.T) {
	for range 5 { // it is asked by chance, too
		onStage(t, func(t *testing.T, s *stage) {
			s.moved(timing.DirectMost+time.Second, "c")
			s.hosts["c"].tell("d", 9)
			s.settle()
			s.hosts["c"].tell("e", 10)
			s.settle()
			s.settle()
			d := s.hosts["d"]
			s.set(func() { delete(s.hosts, "d") })
			d.crash()
			s.wantKnown(9, "d", "e", "f")
		})
	}
}

// The voter that has stayed answers a moment before it hears of the next election. Its word is
// corrected, and those that have gone are dialled no more.
func TestAVoterThatKnewTooLittleIsAskedAgain(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.moved(time.Second, "c")
		s.hosts["c"].tell("d", 9)
		time.Sleep(timing.DirectMost)
		s.dialled()
		time.Sleep(5 * timing.DirectMost)
		if n := len(s.sortedDials("a")) + len(s.sortedDials("b")); n > 0 {
			t.Errorf("voters that have gone were dialled %d times", n)
		}
		s.attachedTo("d")
	})
}

// After an hour the voters told by the leader judge the next one: false leaders with places of their
// own in gossip keep the member no longer than the next election takes. It may be an hour of several
// leaders. A voter that has answered once, before it went, does not begin it anew for ever.
func TestAJuryThatHasGoneIsReplaced(t *testing.T) {
	for name, serve := range map[string]func(s *stage){
		"one leader": func(s *stage) { s.moved(2 * timing.JuryGone) },
		"two leaders": func(s *stage) {
			s.moved(40 * time.Minute)
			s.hosts["d"].setAnswer(with(wire.CodeNotLeader))
			s.elect("e", 10)
			s.gossip("e", leads(10), votes)
			time.Sleep(10 * time.Second)
			s.attachedTo("e")
			time.Sleep(40 * time.Minute)
		},
		"a voter that goes later": func(s *stage) {
			s.moved(time.Second, "c")
			s.hosts["c"].tell("", 0)
			time.Sleep(5 * time.Second)
			c := s.hosts["c"]
			s.set(func() { delete(s.hosts, "c") })
			c.crash()
			time.Sleep(2 * timing.JuryGone)
		},
	} {
		onStage(t, func(t *testing.T, s *stage) {
			serve(s)
			var list []string
			for i := range 6 {
				filler := s.host(fmt.Sprint("filler", i), 0)
				filler.votes, filler.frozen = true, true
				list = append(list, filler.name)
				s.know(filler.name, votes)
			}
			liar := s.host("liar", math.MaxUint64)
			liar.votes, liar.list = true, list
			liar.setAnswer(confirms)
			leader, _, _ := s.k.Leader()
			l := s.hosts[leader]
			s.set(func() { delete(s.hosts, leader) })
			for _, other := range []string{"d", "e", "f"} {
				if other != leader {
					s.hosts[other].tell("", 0)
				}
			}
			l.crash()
			s.gossip("liar", leads(math.MaxUint64), votes)
			time.Sleep(500 * time.Millisecond)
			s.attachedTo("liar")
			time.Sleep(time.Second)
			for _, other := range []string{"d", "e", "f"} {
				if other != leader {
					s.hosts[other].tell("f", 11)
				}
			}
			s.hosts["f"].serve(11)
			time.Sleep(time.Second)
			if got, _, _ := s.k.Leader(); got != "f" {
				t.Errorf("%s: attached to %q, want f", name, got)
			}
		})
	}
}

// A member gets its vote after the voters that it knew have gone. Its own raft tells of the leader.
func TestTheOwnRaftTellsOfTheLeader(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.moved(time.Second)
		s.set(func() { s.voters, s.guess = []string{"d", "e", "me"}, "d" })
		s.k.Wake()
		time.Sleep(timing.DirectMost)
		s.dialled()
		time.Sleep(5 * timing.DirectMost)
		if n := len(s.sortedDials("a")) + len(s.sortedDials("b")); n > 0 {
			t.Errorf("voters that have gone were dialled %d times", n)
		}
	})
}

// A juror that was asked while the leader was in doubt is the next leader, and too busy for the first
// Attach. It is asked again as soon as any leader is.
func TestAJurorThatIsElectedDoesNotRest(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.moved(5*time.Second, "c")
		b := s.host("b", 0)
		b.votes = true
		b.tell("d", 9)
		for b.asked() == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		s.settle()
		c, d := s.hosts["c"], s.hosts["d"]
		s.set(func() { delete(s.hosts, "d") })
		d.crash()
		s.settle()
		c.mu.Lock()
		c.coy = 2 // for the juror's question, and the one of a member with a leader
		c.mu.Unlock()
		c.serve(10)
		time.Sleep(2 * timing.MostBackoff(ttl))
		s.attachedTo("c")
	})
}

// Of five voters one tells at once that another leads than the present one, and the others, which were
// out of reach for long, are asked at once.
func TestAVoiceAgainstALeaderHasTheJuryAsked(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.five()
		time.Sleep(time.Minute)
		s.set(func() {
			for _, name := range s.voters {
				s.unreachable[name] = true
			}
		})
		s.hosts["a"].resign()
		liar := s.host("liar", math.MaxUint64)
		liar.votes, liar.list = true, []string{"liar"}
		liar.setAnswer(confirms)
		s.gossip("liar", leads(math.MaxUint64), votes)
		time.Sleep(20 * timing.DirectMost)
		s.attachedTo("liar")
		s.elect("c", 9)
		s.settle()
		asked := func() int { return s.hosts["b"].asked() + s.hosts["d"].asked() + s.hosts["e"].asked() }
		before := asked()
		s.set(func() { clear(s.unreachable) })
		for i := 0; asked() == before; i++ {
			if i > 1000 {
				t.Fatal("nobody is asked")
			}
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(time.Second)
		s.attachedTo("c")
	})
}

// A false leader of the present term is in doubt, and two of five voters, the true leader one of them, have spoken
// against it: no majority. They are asked for their next words without haste, and these questions are not in
// the way when the false leader ends or is silent.
func TestAFurtherQuestionKeepsNobodyFromItsLeader(t *testing.T) {
	for _, silent := range []bool{false, true} {
		onStage(t, func(t *testing.T, s *stage) {
			s.five()
			a := s.hosts["a"]
			for _, name := range []string{"c", "d", "e"} {
				s.hosts[name].freeze()
			}
			x := s.host("x", 5)
			x.votes, x.list = true, []string{"x"}
			x.setAnswer(confirms)
			s.set(func() { s.unreachable["a"] = true })
			a.crash()
			s.gossip("x", leads(5), votes)
			time.Sleep(2 * time.Second)
			s.attachedTo("x")
			s.set(func() { clear(s.unreachable) })
			s.dialled()
			before := a.attached()
			time.Sleep(time.Minute)
			s.attachedTo("x")
			if n := strings.Count(s.dialled(), "b"); n > 40 {
				t.Errorf("a voter was dialled %d times in a minute", n)
			}
			if n := a.attached() - before; n > 6 {
				t.Errorf("the true leader was attached to %d times beside the false one", n)
			}
			if up, _ := s.k.current(); silent {
				x.freeze()
				up.Beat(nil, sid(1), func(wire.Code) {})
				time.Sleep(timing.AnswerLimit(ttl) / 2) // until the false leader is left for its silence
			} else {
				s.set(func() { delete(s.hosts, "x") })
				x.crash()
				time.Sleep(timing.RelayAfter(ttl) / 2) // until by a relay
			}
			s.attachedTo("a")
		})
	}
}

// A voter has told of the leader before, beside a false leader of that one's term. It is heard again
// at the next election, although places that keep every question have the one question of the member.
func TestAWordOfBeforeTheElectionIsNotTheLast(t *testing.T) {
	for range 5 { // who has the one question is chance
		onStage(t, func(t *testing.T, s *stage) {
			a, b, c := s.served5()
			s.set(func() { delete(s.hosts, "a") })
			b.tell("", 0)
			x := s.host("x", 5)
			x.votes = true
			for i := range 8 {
				f := s.host(fmt.Sprint("filler", i), 0)
				f.votes, f.frozen = true, true
				x.list = append(x.list, f.name)
			}
			x.setAnswer(confirms)
			a.crash()
			s.gossip("x", leads(5), votes)
			time.Sleep(time.Minute)
			s.attachedTo("x")
			c.crash() // another place has the one question then
			time.Sleep(time.Second)
			c.tell("b", 7)
			b.serve(7)
			time.Sleep(time.Second)
			s.attachedTo("b")
		})
	}
}

// Two of five voters lie, and tell of each other as leaders in ever higher terms, and the others are out of reach,
// so that no majority judges the false leader. The liars are dialled with pauses, whether they tell of terms
// below the false leader's or above.
func TestVotersThatLieAreDialledWithPauses(t *testing.T) {
	for _, c := range []struct {
		term uint64
		most int
	}{{1 << 62, 200}, {5, 500}} {
		onStage(t, func(t *testing.T, s *stage) {
			s.five()
			a := s.hosts["a"]
			s.hosts["b"].freeze()
			s.hosts["c"].freeze()
			s.set(func() { s.unreachable["a"] = true })
			x := s.host("x", c.term)
			x.votes, x.list = true, []string{"x"}
			x.setAnswer(confirms)
			for name, other := range map[string]string{"d": "e", "e": "d"} {
				h := s.hosts[name]
				h.set(func() { h.restless, h.hint, h.told = true, other, 6 })
			}
			a.crash()
			s.gossip("x", leads(c.term), votes)
			time.Sleep(2 * time.Second)
			s.attachedTo("x")
			s.dialled()
			time.Sleep(10 * time.Second)
			s.attachedTo("x")
			dials := s.dialled()
			for _, liar := range []string{"d", "e"} {
				if n := strings.Count(dials, liar); n > c.most {
					t.Errorf("false leader of term %d: %s was dialled %d times in 10 s", c.term, liar, n)
				}
			}
		})
	}
}

// All voters were out of reach, and places that keep every question are known as voters by gossip. The voters
// are asked all the same once they are in reach again.
func TestPlacesThatKeepQuestionsTakeNoTurnOfTheJury(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		a, b, c := s.served5()
		hosts := map[string]*host{"b": b, "c": c}
		s.set(func() {
			for _, name := range []string{"a", "b", "c"} {
				delete(s.hosts, name)
			}
		})
		for i := range 60 {
			f := s.host(fmt.Sprint("filler", i), 0)
			f.votes, f.frozen = true, true
			s.know(f.name, votes)
		}
		for _, h := range []*host{a, b, c} {
			h.crash()
		}
		s.gossiped.Wake()
		time.Sleep(5 * time.Second)
		s.attachedTo("")
		s.set(func() { maps.Copy(s.hosts, hosts) })
		s.elect("c", 9)
		time.Sleep(2 * timing.MostBackoff(ttl))
		s.attachedTo("c")
	})
}

// asked returns how many questions for the leader the member has answered or keeps.
func (h *host) asked() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.finds)
}

// attached returns how many members and streams have asked the member to attach them.
func (h *host) attached() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.attaches)
}

// The next election comes after the questions of the jury were kept for as long as a voter keeps them,
// and places that keep every question are told as voters: the jury is asked again.
func TestFalseLeadersOutliveNoLateElection(t *testing.T) {
	brief, long := &keepers{ttl: time.Millisecond}, &keepers{ttl: 30 * time.Second}
	for _, c := range []struct {
		answer func(*stream.Request)
		after  time.Duration
		keep   *keepers
	}{
		{confirms, 1200 * time.Millisecond, brief},
		{confirms, 2 * time.Second, brief},
		{confirms, 3 * timing.HoldFind(ttl), brief},
		{silence, 45 * time.Second, long},
		{confirms, 45 * time.Second, &keepers{30 * time.Second, true}},
		{confirms, 3 * timing.DirectMost, brief},
	}[:testrounds.Rounds(5, 6)] {
		for _, voter := range []bool{false, true} {
			for range 2 {
				onStage(t, func(t *testing.T, s *stage) { s.falseLeaders(voter, 20*time.Millisecond, 0, c.answer, c.after, c.keep) })
			}
		}
	}
}

// A member is cut off from all its voters, and a false leader serves it for long. However often
// that one comes and goes, the voters that the member knew judge it, once they are in reach.
func TestACutMakesNoFalseLeaderTheJury(t *testing.T) {
	for _, leaves := range []bool{false, true} {
		onStage(t, func(t *testing.T, s *stage) {
			a, b, c := s.served5()
			s.set(func() {
				s.voters, s.members = nil, nil
				s.unreachable["a"], s.unreachable["b"], s.unreachable["c"] = true, true, true
			})
			a.resign()
			liar := s.host("liar", math.MaxUint64)
			liar.votes, liar.list = true, []string{"liar"}
			liar.setAnswer(confirms)
			s.gossip("liar", leads(math.MaxUint64), votes)
			for range 3 {
				time.Sleep(timing.DirectMost + time.Second)
				liar.crash()
			}
			if leaves {
				liar.resign()
				s.set(func() { delete(s.hosts, "liar") })
			}
			time.Sleep(timing.Dial) // the fourth leader in doubt
			s.attachedTo(map[bool]string{false: "liar"}[leaves])
			b.tell("c", 9)
			c.serve(9)
			s.set(func() { clear(s.unreachable) })
			s.gossip("c", leads(9), votes)
			time.Sleep(timing.DirectMost + 5*time.Second)
			s.attachedTo("c")
			if got := s.k.Term(); got != 9 {
				t.Errorf("the highest term is %d", got)
			}
		})
	}
}

// The host of the true leader hangs, and a process that takes its name and term serves the member a
// moment: its list of the voters judges nobody. So it is where the member is relayed.
func TestAPoserForTheLeaderChoosesNoJury(t *testing.T) {
	for _, relayed := range []bool{false, true} {
		onStage(t, func(t *testing.T, s *stage) {
			a, b, c := s.served5()
			x, y := s.host("x", 5), s.host("y", math.MaxUint64)
			x.name = "a"
			for _, h := range []*host{x, y} {
				h.votes, h.list = true, []string{"x", "y"}
				h.setAnswer(confirms)
			}
			if relayed {
				s.set(func() { s.unreachable["a"] = true })
				a.crash()
				time.Sleep(2 * timing.Suspect(ttl))
			} else {
				a.freeze()
			}
			s.know("x", votes)
			s.gossiped.Wake()
			up, _ := s.k.current()
			if up != nil {
				up.Beat(nil, sid(1), func(wire.Code) {})
			}
			for range 50 {
				time.Sleep(100 * time.Millisecond)
				if _, at, _ := s.k.Leader(); at == "x" {
					break
				}
			}
			if name, at, _ := s.k.Leader(); name != "a" || at != "x" {
				t.Fatalf("attached to %q at %q: the test shows nothing", name, at)
			}
			x.resign()
			s.set(func() { delete(s.hosts, "a"); delete(s.hosts, "x") })
			s.gossip("y", leads(math.MaxUint64), votes)
			time.Sleep(time.Second)
			b.tell("c", 9)
			c.serve(9)
			time.Sleep(time.Second)
			s.attachedTo("c")
			time.Sleep(time.Minute)
			s.attachedTo("c")
		})
	}
}

// The voters are in reach, and elect nobody for hours, while a false leader serves the member. They are
// not forgotten, and keep a question at all times: the member is at the next leader within a second.
func TestVotersWithoutALeaderStayTheJury(t *testing.T) {
	for range 4 { // the voters are asked by chance, too
		onStage(t, func(t *testing.T, s *stage) {
			a, b, c := s.served5()
			s.set(func() { delete(s.hosts, "a") })
			b.tell("", 0)
			c.tell("", 0)
			a.crash()
			liar := s.host("liar", math.MaxUint64)
			liar.votes, liar.list = true, []string{"liar"}
			for i := range 8 { // that keep the one question of a member with a leader
				filler := s.host(fmt.Sprint("filler", i), 0)
				filler.votes, filler.frozen = true, true
				liar.list = append(liar.list, filler.name)
			}
			liar.setAnswer(confirms)
			s.gossip("liar", leads(math.MaxUint64), votes)
			time.Sleep(2*timing.JuryGone + 100*time.Millisecond)
			s.attachedTo("liar")
			b.tell("c", 9)
			c.serve(9)
			time.Sleep(time.Second)
			s.attachedTo("c")
		})
	}
}

// A false leader nearer than the voters attaches the member in a higher term each time, before a voter
// can tell: it confirms nothing, or ends its streams. It gets no further before the voters have spoken.
func TestRisingTermsOutrunNoVoter(t *testing.T) {
	for i := range 3 {
		ends, juror := i%2 == 1, i > 1
		onStage(t, func(t *testing.T, s *stage) {
			a, b, c := s.served5()
			liar := s.host("liar", 1<<62)
			liar.votes, liar.rising = true, true
			liar.setAnswer(with(wire.CodeNotLeader))
			s.set(func() { delete(s.hosts, "a") })
			if juror { // the liar is one of five voters
				e := s.host("e", 0)
				e.votes, e.slow = true, 50*time.Millisecond
				s.k.learn([]string{"a", "b", "c", "e", "liar"})
			}
			b.tell("", 0)
			c.tell("", 0)
			b.slow, c.slow = 50*time.Millisecond, 50*time.Millisecond
			a.crash()
			s.gossip("liar", leads(math.MaxUint64), votes)
			done := time.Now().Add(time.Second)
			for time.Now().Before(done) {
				time.Sleep(5 * time.Millisecond)
				if ends {
					liar.crash()
				}
			}
			s.elect("c", 9)
			done = time.Now().Add(3 * time.Second)
			for time.Now().Before(done) {
				time.Sleep(5 * time.Millisecond)
				if ends {
					liar.crash()
				}
			}
			s.attachedTo("c")
			liar.mu.Lock()
			defer liar.mu.Unlock()
			if n := len(liar.attaches); n > 60 {
				t.Errorf("the false leader was attached to %d times", n)
			}
		})
	}
}

// A relay that lies speaks at a juror's address. That is its own word, which makes no leader known.
func TestALyingRelayVouchesForNobody(t *testing.T) {
	for range 10 { // whom a relay is asked for is chance
		onStage(t, func(t *testing.T, s *stage) {
			a, b, c := s.served5()
			s.set(func() {
				delete(s.hosts, "a")
				s.unreachable["b"], s.unreachable["c"] = true, true
			})
			a.crash()
			x, behind := s.host("x", 0), s.host("behind", 0)
			x.votes, behind.votes, behind.name = true, true, "x"
			x.setAnswer(confirms)
			x.list = []string{"x"}
			s.set(func() { s.liars = map[string]*host{"x": behind} })
			behind.tell("x", 77)
			x.mu.Lock()
			x.hint, x.told = "b", 77 // the juror
			x.mu.Unlock()
			s.gossip("x", leads(77), votes)
			time.Sleep(5 * time.Second)
			behind.mu.Lock()
			if len(behind.attaches) == 0 {
				t.Error("the relay was not asked: the test shows nothing")
			}
			behind.mu.Unlock()
			x.serve(77)
			for range 3 {
				time.Sleep(timing.DirectMost + 5*time.Second)
				x.crash()
			}
			s.set(func() { clear(s.unreachable) })
			b.tell("c", 9)
			c.serve(9)
			s.gossip("c", leads(9), votes)
			time.Sleep(timing.DirectMost + 5*time.Second)
			s.attachedTo("c")
		})
	}
}

// A cluster was restored, and its terms begin anew. A voter that keeps the question for a leader
// above the old term is asked once more: it would keep the question beyond the next election.
func TestAQuestionAboveATermThatCountsNoMoreIsAskedAnew(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		a, b, c := s.cluster5()
		a.serve(9)
		b.tell("a", 9)
		c.tell("a", 9)
		s.gossip("a", leads(9), votes)
		s.attachedTo("a")
		time.Sleep(time.Minute)
		s.set(func() {
			s.voters = append(s.voters, "d")
			delete(s.hosts, "a")
		})
		a.crash()
		b.tell("z", 3)
		c.tell("z", 3)
		time.Sleep(time.Second)
		d := s.host("d", 0) // asked later than b and c
		d.votes = true
		for s.k.Term() == 9 {
			time.Sleep(10 * time.Millisecond)
		}
		s.settle()
		d.mu.Lock()
		if n := len(d.finds); n < 2 || d.finds[0].Above != 9 || d.finds[n-1].Above != 3 {
			t.Errorf("the questions of d: %+v", d.finds)
		}
		d.mu.Unlock()
		b.tell("d", 6)
		c.tell("d", 6)
		d.serve(6)
		s.attachedTo("d")
	})
}

// A false leader is nearer than the voters, and has another name on each stream: no ban keeps it away,
// and the words against it name the true leader, which is taken next.
func TestAFickleFalseLeaderOutrunsNoVoter(t *testing.T) {
	for _, elected := range []bool{true, false} { // or the true leader lives, and hangs for a while
		onStage(t, func(t *testing.T, s *stage) {
			a, b, c := s.served5()
			for _, h := range []*host{b, c} {
				h.set(func() { h.far, h.slow = 50*time.Millisecond, 50*time.Millisecond })
			}
			liar := s.host("liar", math.MaxUint64)
			liar.votes, liar.fickle = true, true
			liar.setAnswer(confirms)
			if elected {
				s.set(func() { delete(s.hosts, "a") })
				b.tell("", 0)
				c.tell("", 0)
				a.crash()
			} else {
				a.set(func() { a.far = 50 * time.Millisecond })
				a.setAnswer(silence)
			}
			s.gossip("liar", leads(math.MaxUint64), votes)
			time.Sleep(2 * timing.Suspect(ttl))
			if liar.attached() == 0 {
				t.Error("the false leader was not asked: the test shows nothing")
			}
			next, term := "a", uint64(5)
			if elected {
				next, term = "c", 9
				s.elect(next, term)
			} else {
				a.setAnswer(confirms)
			}
			time.Sleep(time.Second)
			s.attachedTo(next)
			for range 100 {
				time.Sleep(100 * time.Millisecond)
				if name, _, _ := s.k.Leader(); name != next {
					t.Fatalf("at %q again", name)
				}
			}
			if n := liar.attached(); n > 20 {
				t.Errorf("the false leader was attached to %d times", n)
			}
		})
	}
}

// far5 is five voters that are so far away, and a has served the member for long. A false leader is near, at so
// many places, in rising terms and with another name on each stream.
func (s *stage) far5(far time.Duration, places int) {
	for _, name := range s.five()[1:] {
		h := s.hosts[name]
		h.set(func() { h.far, h.slow = 2*far, far })
	}
	liar := s.host("x0", 1<<62)
	liar.votes, liar.rising, liar.fickle = true, true, true
	liar.setAnswer(confirms)
	for i := range places {
		name := fmt.Sprint("x", i)
		s.set(func() { s.hosts[name] = liar })
		s.know(name, leads(math.MaxUint64), votes)
	}
}

// without returns for how long of the next 15 s another than name serves, or nobody.
func (s *stage) without(name string) (d time.Duration) {
	const step = 5 * time.Millisecond
	for range 15 * time.Second / step {
		time.Sleep(step)
		if got, _, _ := s.k.Leader(); got != name {
			d += step
		}
	}
	return d
}

// A false leader that serves the member offers it another all the time, from many places. That erases no word of the
// jury against the one that serves.
func TestManyRivalsEraseNoVoice(t *testing.T) {
	for _, places := range []int{100, 200, 32}[:testrounds.Rounds(1, 3)] {
		for range 8 { // by chance the true leader is attached to first
			onStage(t, func(t *testing.T, s *stage) {
				s.far5(150*time.Millisecond, places)
				a := s.hosts["a"]
				s.set(func() { delete(s.hosts, "a") })
				s.know("a", votes)
				s.elect("c", 9)
				a.crash()
				s.gossiped.Wake()
				if d := s.without("c"); d > 4*time.Second {
					t.Errorf("%d places: without the leader for %v", places, d)
				}
			})
		}
	}
}

// The jury has told of the next leader, which is farther away than a false one. That one is not taken once more.
func TestTheLeaderThatTheJuryNamesIsTakenNext(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.far5(150*time.Millisecond, 1)
		a := s.hosts["a"]
		s.set(func() { delete(s.hosts, "a") })
		s.know("a", votes)
		for _, v := range []string{"b", "c", "d", "e"} {
			s.hosts[v].tell("", 0)
		}
		a.crash()
		s.gossiped.Wake()
		time.Sleep(10 * time.Second)
		s.elect("c", 9)
		if d := s.without("c"); d > 1500*time.Millisecond {
			t.Errorf("without the leader for %v", d)
		}
	})
}

// A member that has just started knows three true voters, which have no leader for a minute, and is told of a false one.
// That one serves, and tells of voters that keep every question. The true voters are its judges all the same.
func TestOneFalseVoterOfFourChoosesNoJury(t *testing.T) {
	for _, leaves := range []bool{true, false} {
		for range testrounds.Rounds(2, 6) { // who keeps the one question is chance
			onStage(t, func(t *testing.T, s *stage) {
				a, b, c := s.cluster5()
				a.serve(0)
				for _, h := range []*host{a, b, c} {
					h.tell("", 0)
					s.know(h.name, votes)
				}
				liar := s.host("liar", math.MaxUint64)
				liar.votes, liar.list, liar.ttl = true, []string{"liar"}, 30_000
				liar.setAnswer(confirms)
				for i := range 8 {
					f := s.host(fmt.Sprint("filler", i), 0)
					f.votes, f.frozen = true, true
					liar.list = append(liar.list, f.name)
				}
				s.gossip("liar", leads(math.MaxUint64), votes)
				time.Sleep(2 * timing.DirectMost)
				s.attachedTo("liar")
				if leaves {
					liar.crash()
					time.Sleep(time.Second)
					s.attachedTo("liar")
				}
				s.elect("c", 9)
				s.gossip("c", leads(9), votes)
				time.Sleep(5 * time.Second)
				s.attachedTo("c")
				time.Sleep(time.Minute)
				s.attachedTo("c")
			})
		}
	}
}

// A cluster begins with one voter, and grows. Its first leader was the whole jury: it is in no doubt,
// and those whom it tells after a while are the next.
func TestAClusterThatHasGrownJudgesItsLeaders(t *testing.T) {
	for _, lie := range []bool{false, true} {
		onStage(t, func(t *testing.T, s *stage) {
			a := s.host("a", 5)
			a.votes, a.list = true, []string{"a"}
			a.setAnswer(confirms)
			s.set(func() { s.voters = []string{"a"} })
			s.gossip("a", leads(5), votes)
			s.attachedTo("a")
			time.Sleep(time.Minute)
			s.cluster5()
			s.set(func() { s.hosts["a"] = a })
			b, c := s.hosts["b"], s.hosts["c"]
			set := wire.VoterSet{Term: 5}
			for _, v := range []string{"a", "b", "c"} {
				set.Voters = append(set.Voters, wire.VoterState{Raft: v + "#1", Addr: v})
			}
			a.stream().Notify(wire.Voters, wire.Marshal(&set))
			s.gossip("b", votes)
			s.gossip("c", votes)
			time.Sleep(2 * timing.DirectMost)
			s.set(func() { delete(s.hosts, "a") })
			b.tell("", 0)
			c.tell("", 0)
			a.crash()
			if lie {
				liar := s.host("liar", math.MaxUint64)
				liar.votes, liar.list = true, []string{"liar"}
				liar.setAnswer(confirms)
				s.gossip("liar", leads(math.MaxUint64), votes)
				time.Sleep(time.Second)
				s.attachedTo("liar")
			}
			s.elect("c", 9)
			time.Sleep(time.Second)
			s.attachedTo("c")
			for i, next := range []string{"b", "c", "b", "c"} {
				time.Sleep(30 * time.Second)
				old, _, _ := s.k.Leader()
				s.hosts[old].setAnswer(silence) // it confirms nothing more
				s.elect(next, uint64(10+i))
				s.hosts[old].crash()
				time.Sleep(50 * time.Millisecond)
				s.attachedTo(next)
				s.hosts[old].setAnswer(confirms)
			}
		})
	}
}

// A relay that lies is found at a juror's address, under its own name or the juror's. The juror itself is asked all the same.
func TestALyingRelayTakesNoJurorsSeat(t *testing.T) {
	for _, name := range []string{"b", "x"} {
		onStage(t, func(t *testing.T, s *stage) {
			const long = 30_000
			a, b, c := s.cluster5()
			a.ttl, b.ttl, c.ttl = long, long, long
			s.gossip("a", leads(5), votes)
			s.attachedTo("a")
			time.Sleep(2 * timing.DirectMost)
			s.set(func() { delete(s.hosts, "a") })
			b.tell("", 0)
			c.tell("", 0)
			x, behind := s.host("x", 0), s.host("behind", math.MaxUint64)
			x.votes, behind.votes, behind.name, behind.ttl = true, true, name, long
			behind.setAnswer(confirms)
			s.set(func() { s.liars = map[string]*host{"x": behind} })
			lie := func() {
				x.mu.Lock()
				x.hint, x.told = "b", math.MaxUint64
				x.mu.Unlock()
			}
			lie()
			a.crash()
			s.gossip("x", votes)
			time.Sleep(2 * timing.RelayAfter(long*time.Millisecond))
			if at, _, _ := s.k.Leader(); at != name || s.k.Report().Via == "" {
				t.Fatalf("attached to %q, or not by a relay: the test shows nothing", at)
			}
			s.elect("c", 9)
			lie()
			time.Sleep(time.Second)
			s.attachedTo("c")
		})
	}
}

// A false leader of the old term says that it is confirmed, before the jury tells of the next one: that
// one is not banned for it, and serves as soon as the jury has told.
func TestAFalseLeaderHasNoTrueOneBanned(t *testing.T) {
	for _, named := range []bool{false, true} {
		onStage(t, func(t *testing.T, s *stage) {
			all := s.five()
			x := s.host("x", 5)
			x.votes, x.list = true, []string{"x"}
			x.setAnswer(confirms)
			for _, h := range s.hosts {
				h.set(func() { h.named = named })
			}
			for _, name := range all {
				s.hosts[name].serve(0)
				s.hosts[name].tell("", 0)
			}
			s.gossip("a", votes)
			s.gossip("x", leads(5), votes)
			s.hosts["a"].crash()
			time.Sleep(800 * time.Millisecond)
			s.attachedTo("x")
			s.hosts["c"].serve(6)
			time.Sleep(100 * time.Millisecond)
			s.elect("c", 6)
			s.gossip("c", leads(6), votes)
			time.Sleep(500 * time.Millisecond)
			s.attachedTo("c")
		})
	}
}

// A member reaches its leader alone, and no other voter. Whenever the stream ends, the leader serves again at once.
func TestAMemberThatReachesItsLeaderAloneIsNotPutOff(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		a, b, c := s.cluster5()
		a.ttl, b.ttl, c.ttl = 10_000, 10_000, 10_000
		s.set(func() { s.unreachable["b"], s.unreachable["c"] = true, true })
		s.gossip("a", leads(5), votes)
		s.attachedTo("a")
		for range 6 {
			time.Sleep(50 * time.Second)
			a.crash()
			time.Sleep(50 * time.Millisecond)
			s.attachedTo("a")
		}
	})
}

// A false leader ends its streams, and comes back in its term, before the jury has told of the true one.
func TestAFalseLeaderThatComesBackOutrunsNoVoter(t *testing.T) {
	for i, slow := range []struct{ stays, b, c time.Duration }{
		{50 * time.Millisecond, 300 * time.Millisecond, 300 * time.Millisecond},
		{600 * time.Millisecond, 300 * time.Millisecond, 900 * time.Millisecond},
		{2100 * time.Millisecond, 300 * time.Millisecond, 3 * time.Second},
	} {
		served := 0
		for n := 0; n < 6 || served == 0 && n < 100; n++ { // which voter keeps the question for the next leader is chance
			onStage(t, func(t *testing.T, s *stage) {
				a, b, c := s.served5()
				b.set(func() { b.slow = slow.b })
				c.set(func() { c.slow = slow.c })
				liar := s.host("liar", math.MaxUint64)
				liar.votes = true
				liar.setAnswer(confirms)
				s.set(func() { delete(s.hosts, "a") })
				s.elect("c", 9)
				s.gossip("liar", leads(math.MaxUint64), votes)
				a.crash()
				for range 20 * time.Second / slow.stays {
					time.Sleep(slow.stays)
					if name, _, ok := s.k.Leader(); ok && name == "liar" {
						liar.crash()
						served++
					}
				}
				s.attachedTo("c")
			})
		}
		if served == 0 {
			t.Errorf("the false leader of case %d never served: the test shows nothing", i)
		}
	}
}
