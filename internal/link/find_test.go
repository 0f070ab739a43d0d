package link

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/stream"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// sorted returns the addresses dialled since the last call, in order of the
// alphabet: all are dialled at once.
func (s *stage) sorted() string {
	addrs := strings.Fields(s.dialled())
	slices.Sort(addrs)
	return strings.Join(slices.Compact(addrs), " ")
}

// Leaders told by gossip or raft, and all voters, are asked at once; members without
// a vote a little later. This member itself is not asked.
func TestLeadersAndVotersAreAskedAtOnce(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.know("thin")
		s.know("voter", votes)
		s.know("older", leads(3), votes)
		s.know("newer", leads(4))
		s.know("me", leads(9))
		for _, name := range []string{"thin", "voter", "older", "newer", "raft", "founder"} {
			s.host(name, 0)
		}
		s.set(func() { s.guess, s.voters = "raft", []string{"founder", "me"} })
		s.sorted()
		s.know("thin")
		a := s.host("a", 5)
		s.gossip("a", leads(5))
		s.attachedTo("a")
		s.sorted()
		a.resign()
		s.settle()
		if got, want := s.sorted(), "a founder newer older raft voter"; strings.ReplaceAll(got, "newer ", "") != strings.ReplaceAll(want, "newer ", "") {
			t.Errorf("dialled %q, want %q", got, want)
		}
		time.Sleep(timing.RelayAfter(ttl))
		s.settle()
		if got := s.sorted(); !strings.Contains(got, "thin") {
			t.Errorf("then dialled %q", got)
		}
	})
}

// However many members and hints there are, few questions are under way.
func TestASearchIsBounded(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		for i := range 300 {
			name := fmt.Sprint("n", i)
			s.know(name)
			s.set(func() { s.unreachable[name] = true })
		}
		s.k.Wake()
		time.Sleep(time.Second)
		if addrs := strings.Fields(s.dialled()); len(addrs) != maxOthers {
			t.Errorf("dialled %v", addrs)
		}
		for i := range 300 {
			s.gossip(fmt.Sprint("n", i), leads(uint64(i+1)), votes)
		}
		time.Sleep(time.Second)
		// Some of the voters chosen at random may be among the leaders told.
		if n := len(strings.Fields(s.dialled())); n < maxVoters || n > maxAsks-maxOthers {
			t.Errorf("dialled %d addresses", n)
		}
	})
	// A member that hints at a new leader again and again is not asked in a loop.
	onStage(t, func(t *testing.T, s *stage) {
		for i := range 100 {
			s.host(fmt.Sprint("n", i), 0).tell(fmt.Sprint("n", (i+1)%100), uint64(i+1))
		}
		s.gossip("n0")
		time.Sleep(10 * time.Second)
		if addrs := strings.Fields(s.dialled()); len(addrs) > 6000 { // some 2,000, and up to 4,100 by chance
			t.Errorf("%d dials in 10 s", len(addrs))
		}
	})
}

func TestHintsAreFollowed(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		for i := range 4 {
			s.host(fmt.Sprint("h", i), 0).tell(fmt.Sprint("h", i+1), 5)
		}
		s.host("h4", 5)
		s.gossip("h0")
		time.Sleep(100 * time.Millisecond)
		s.attachedTo("h4")
		if got, want := s.told(), "h4 at h4 leads term 5"; got != want {
			t.Errorf("told %q, want %q", got, want)
		}
	})
}

// Without a leader the Link looks again after a pause, and at once when gossip
// changes or Wake is called.
func TestANewLeaderIsFoundAtOnce(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.host("a", 5)
		time.Sleep(10 * time.Second)
		s.gossip("a", leads(5))
		s.attachedTo("a")
	})
	onStage(t, func(t *testing.T, s *stage) {
		time.Sleep(10 * time.Second)
		s.lead(newOwnTerm(5))
		s.attachedTo("me")
	})
	onStage(t, func(t *testing.T, s *stage) {
		a := s.host("a", 0)
		s.gossip("a", votes)
		time.Sleep(10 * time.Second)
		a.serve(5)
		time.Sleep(timing.MostBackoff(3 * time.Second))
		s.attachedTo("a")
	})
}

// A voter keeps the question, and answers at the instant of the election: the
// member attaches over the stream that stands, or follows the voter's hint.
func TestAVoterTellsOfTheElection(t *testing.T) {
	for _, winner := range []string{"b", "c"} {
		onStage(t, func(t *testing.T, s *stage) {
			a, b, c := s.host("a", 5), s.host("b", 0), s.host("c", 0)
			b.votes, c.votes = true, true
			b.tell("a", 5)
			c.tell("a", 5)
			s.set(func() { s.voters = []string{"a", "b", "c"} })
			s.gossip("a", leads(5))
			s.attachedTo("a")
			a.resign()
			s.set(func() { delete(s.hosts, "a") })
			time.Sleep(500 * time.Millisecond)
			s.attachedTo("")
			s.dialled()
			// The winner serves as soon as it leads; the others tell.
			if winner == "b" {
				b.serve(6)
			} else {
				b.tell("c", 6)
				c.serve(6)
			}
			time.Sleep(2 * time.Millisecond)
			synctest.Wait()
			if got, _, _ := s.k.Leader(); got != winner {
				t.Errorf("attached to %q 2 ms after the election of %s", got, winner)
			}
			if got := strings.Fields(s.dialled()); len(got) > 4 { // the lost leader, a voice, and the next question
				t.Errorf("dialled %v", got)
			}
		})
	}
}

// A member with a leader keeps one question at one voter. So an idle member learns
// of the next leader although the leader before dies in silence and gossip tells
// nothing; and as long as nothing happens, the member asks once in a TTL.
func TestAnIdleMemberHearsOfTheNextLeader(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		a, b := s.host("a", 5), s.host("b", 0)
		b.votes = true
		b.tell("a", 5)
		s.set(func() { s.voters = []string{"a", "b"} })
		s.gossip("a", leads(5))
		s.attachedTo("a")
		time.Sleep(2 * timing.HoldFind(ttl)) // the first answer is a voice for the jury, and ends the question
		s.dialled()
		b.mu.Lock()
		b.finds = nil
		b.mu.Unlock()
		time.Sleep(time.Minute)
		b.mu.Lock()
		if n := len(b.finds); n < 25 || n > 35 { // for a minute, with a TTL of 2 s
			t.Errorf("the voter was asked %d times in a minute", n)
		}
		b.mu.Unlock()
		if got := s.dialled(); got != "" {
			t.Errorf("dialled %q", got)
		}
		a.freeze()
		time.Sleep(time.Minute)
		s.attachedTo("a")
		b.serve(6)
		time.Sleep(timing.Suspect(ttl) + 2*time.Millisecond) // the leader before is asked once
		synctest.Wait()
		if got, _, _ := s.k.Leader(); got != "b" {
			t.Errorf("attached to %q after the election", got)
		}
	})
}

// A member in no cluster asks nobody.
func TestNobodyIsAskedBeforeTheFounding(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.set(func() { s.cluster = machine.ClusterID{} })
		s.host("a", 5)
		s.gossip("a", leads(5))
		time.Sleep(time.Minute)
		s.attachedTo("")
		if got := s.dialled() + s.told(); got != "" {
			t.Errorf("dialled or told %q", got)
		}
		s.set(func() { s.cluster = machine.ClusterID{1} })
		s.k.Wake()
		s.attachedTo("a")
	})
}

// In another cluster the terms of the cluster before mean nothing.
func TestAnotherClusterBeginsAnew(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		a := s.host("a", 50)
		s.gossip("a", leads(50))
		s.attachedTo("a")
		a.mu.Lock()
		a.term = 0
		a.mu.Unlock()
		s.host("b", 2)
		s.gossip("b", leads(2))
		s.attachedTo("a")
		s.set(func() { s.cluster = machine.ClusterID{2} })
		s.k.Wake()
		s.attachedTo("b")
	})
}

// After term 5 has served this member, a leader of term 4 is deposed. The Attach
// tells the term, so that the deposed leader refuses. This node's own term 4 is
// refused too.
func TestALeaderOfAnOlderTermIsRefused(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		a := s.host("a", 5)
		s.gossip("a", leads(5))
		s.attachedTo("a")
		a.resign()
		old := s.host("old", 4)
		s.gossip("old", leads(4))
		s.lead(newOwnTerm(4))
		time.Sleep(10 * time.Second)
		s.attachedTo("")
		old.mu.Lock()
		for _, req := range old.attaches {
			if req.Term != 5 {
				t.Errorf("the old leader was told of term %d", req.Term)
			}
		}
		if len(old.attaches) == 0 {
			t.Error("the old leader was not asked")
		}
		old.term = 6
		old.mu.Unlock()
		s.k.Wake()
		s.attachedTo("old")
	})
}

// Only a readable CodeOK to Attach makes a leader.
func TestAStrangeAnswerToAttachMakesNoLeader(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		for _, answer := range []func(*stream.Request){
			with(wire.CodeBad),
			with(wire.CodeNotLeader),
			func(q *stream.Request) { q.Answer(wire.CodeOK, []byte("garbage")) },
			silence,
		} {
			near := &host{name: "near", answer: answer}
			k := New(s.k.cfg)
			k.cfg.Dial = pipeTo(near)
			r := reply{ask: &ask{at: place{addr: "near"}, leads: true, hold: time.Second}}
			k.put(t.Context(), &r)
			if r.up != nil {
				t.Error("taken for a leader")
				r.up.Quit(nil)
			}
			if r.hint.Leader != "" {
				t.Errorf("hint %+v", r.hint)
			}
			near.crash()
		}
	})
}

// A member that alone is cut off from the leader, of which a voter has signs of
// life, reaches the leader through the voter, and directly again once that works.
func TestALeaderOutOfReachIsReachedThroughAVoter(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		a, b := s.host("a", 5), s.host("b", 0)
		b.votes, b.heard = true, true
		b.tell("a", 5)
		s.set(func() { s.voters = []string{"a", "b"} })
		s.gossip("a", leads(5))
		s.attachedTo("a")
		s.set(func() { s.unreachable["a"] = true })
		a.crash()
		lost := time.Now()
		synctest.Wait()
		for {
			if _, _, ok := s.k.Leader(); ok {
				break
			}
			time.Sleep(time.Millisecond)
		}
		if took := time.Since(lost); took > timing.RelayAfter(ttl)+20*time.Millisecond {
			t.Errorf("relayed after %v", took)
		}
		s.attachedTo("a")
		if up, _ := s.k.current(); up.(*remote).via != "b" {
			t.Fatal("not relayed")
		}
		s.dialled()
		time.Sleep(time.Minute)
		s.attachedTo("a")
		if n := len(strings.Fields(s.dialled())); n < 3 || n > 10 {
			t.Errorf("the leader was dialled %d times in a minute", n)
		}
		s.set(func() { delete(s.unreachable, "a") })
		time.Sleep(timing.DirectMost)
		s.attachedTo("a")
		if up, _ := s.k.current(); up.(*remote).via != "" {
			t.Error("still relayed")
		}
		if got, want := s.told(), "a at a leads term 5"; got != want {
			t.Errorf("told %q, want %q", got, want)
		}
	})
}

// A silent leader is kept while the voters are asked, until one of them leads.
func TestASilentLeaderIsKeptUntilAnotherLeads(t *testing.T) {
	for _, after := range []time.Duration{300 * time.Millisecond, 550 * time.Millisecond} {
		onStage(t, func(t *testing.T, s *stage) {
			a, b, c := s.host("a", 5), s.host("b", 0), s.host("c", 0)
			for _, h := range []*host{b, c} {
				h.votes = true
				h.tell("a", 5)
			}
			s.set(func() { s.voters = []string{"a", "b", "c"} })
			s.gossip("a", leads(5))
			s.attachedTo("a")
			before, _ := s.k.current()
			s.dialled()
			a.freeze()
			done := make(chan wire.Code, 1)
			before.Beat(nil, sid(1), func(c wire.Code) { done <- c })
			time.Sleep(2 * timing.Suspect(ttl))
			s.settle()
			if got := s.sorted(); !strings.Contains(got, "b") || !strings.Contains(got, "c") {
				t.Errorf("dialled %q after twice timing.Suspect", got)
			}
			time.Sleep(after - 2*timing.Suspect(ttl) - 10*time.Millisecond)
			if now, _ := s.k.current(); now != before {
				t.Error("the silent leader was left before another was known")
			}
			b.serve(6)
			synctest.Wait()
			if got, _, _ := s.k.Leader(); got != "b" {
				t.Errorf("attached to %q", got)
			}
			if c := <-done; c != wire.CodeUnknown {
				t.Errorf("the silent leader's beat came to %v", c)
			}
		})
	}
}

// counted is a context that counts the contexts that hang on it.
type counted struct {
	context.Context
	done  chan struct{}
	below atomic.Int64
}

func (c *counted) Done() <-chan struct{} { return c.done }

// AfterFunc is what package context asks of a foreign context.
func (c *counted) AfterFunc(func()) (stop func() bool) {
	c.below.Add(1)
	return func() bool { c.below.Add(-1); return true }
}

// A member without a leader asks dozens of places a second, for hours. Nothing is left of a
// question that has ended by itself.
func TestNothingIsLeftOfAQuestion(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		ctx := &counted{Context: t.Context(), done: make(chan struct{})}
		f := newFinder(s.k)
		defer f.stop()
		s.host("a", 5)
		s.host("b", 0)
		for _, addr := range []string{"a", "b", "nobody"} {
			f.launch(ctx, &ask{at: place{addr: addr}})
			if ctx.below.Load() == 0 {
				t.Fatal("the question does not hang on the context")
			}
			if r := <-f.replies; r.up != nil {
				r.up.Quit(nil)
			}
			synctest.Wait()
			if n := ctx.below.Load(); n != 0 {
				t.Errorf("after a question to %s %d contexts are left", addr, n)
			}
		}
	})
}

// A leader that gives signs of life is never left, even if the leader answers no
// request; the voters are asked for a better one.
func TestALeaderThatLivesIsNeverLeft(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		a, b := s.host("a", 5), s.host("b", 0)
		b.votes = true
		b.tell("a", 5)
		s.set(func() { s.voters = []string{"a", "b"} })
		s.gossip("a", leads(5))
		s.attachedTo("a")
		a.setAnswer(silence)
		before, _ := s.k.current()
		before.Beat(nil, sid(1), func(wire.Code) {})
		time.Sleep(time.Minute)
		if now, _ := s.k.current(); now != before {
			t.Error("left")
		}
		a.mu.Lock()
		if n := len(a.attaches); n != 1 {
			t.Errorf("the busy leader was asked to attach the sessions %d times", n)
		}
		a.mu.Unlock()
		if n := len(strings.Fields(s.dialled())); n == 0 || n > 60 {
			t.Errorf("%d dials in a minute", n)
		}
		// A claim to lead, true or not, moves nobody: only an answer does.
		s.gossip("liar", leads(1000))
		s.gossip("b", leads(6), votes)
		time.Sleep(time.Minute)
		if now, _ := s.k.current(); now != before {
			t.Error("left for a claim")
		}
		b.serve(7)
		s.attachedTo("b")
	})
}

// A voter that was cut off tells the voters of the past, and is not believed.
func TestVotersAreLearnedFromThePresent(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		a := s.host("a", 5)
		s.gossip("a", leads(5))
		s.attachedTo("a")
		a.stream().Notify(wire.Voters, wire.Marshal(&wire.VoterSet{Term: 5, Voters: []wire.VoterState{{Raft: "b#1", Addr: "b"}, {Raft: "c#1", Addr: "c"}}}))
		s.settle()
		if s.k.learnFrom(wire.Hint{Term: 6, Leader: "x", Votes: true, Voters: []string{"x"}}, true); !slices.Equal(s.k.told(), []string{"b", "c"}) {
			t.Errorf("learned beside a leader: %v", s.k.told())
		}
		a.resign()
		s.set(func() { delete(s.hosts, "a") })
		s.settle()
		if s.k.learnFrom(wire.Hint{Term: 6, Leader: "x", Votes: true, Voters: []string{"x"}}, false); !slices.Equal(s.k.told(), []string{"b", "c"}) {
			t.Errorf("learned from a stranger: %v", s.k.told())
		}
		for _, tt := range []struct {
			hint wire.Hint
			want string
		}{
			{wire.Hint{Votes: true, Term: 7, Voters: []string{"x"}}, "b c"},
			{wire.Hint{Votes: true, Term: 4, Leader: "x", Voters: []string{"x"}}, "b c"},
			{wire.Hint{Term: 6, Leader: "x", Voters: []string{"x"}}, "b c"},
			{wire.Hint{Votes: true, Term: 5, Leader: "a"}, "b c"},
			{wire.Hint{Votes: true, Term: 5, Leader: "a", Voters: []string{"d"}}, "d"},
		} {
			s.k.learnFrom(tt.hint, true)
			if got := strings.Join(s.k.Voters(), " "); got != tt.want {
				t.Errorf("%+v: voters %q, want %q", tt.hint, got, tt.want)
			}
		}
	})
}

// A cluster that is being founded has lost no quorum, however long the founding
// takes. A member of an earlier cluster misses its leader from the start.
func TestOnlyAMissedLeaderIsALostQuorum(t *testing.T) {
	onStageIn(t, machine.ClusterID{}, func(t *testing.T, s *stage) {
		time.Sleep(time.Minute)
		s.set(func() { s.cluster = machine.ClusterID{2} })
		s.k.Wake()
		time.Sleep(time.Minute)
		a := s.host("a", 5)
		s.gossip("a", leads(5))
		s.attachedTo("a")
		if got, want := s.told(), "a at a leads term 5"; got != want {
			t.Errorf("told %q, want %q", got, want)
		}
		a.resign()
		time.Sleep(time.Minute)
		if got, want := s.told(), "a at a leads term 5, quorum lost: the reason"; got != want {
			t.Errorf("told %q, want %q", got, want)
		}
	})
	onStage(t, func(t *testing.T, s *stage) {
		time.Sleep(timing.QuorumPatience(3*time.Second) - time.Millisecond)
		if got := s.told(); got != "" {
			t.Errorf("told %q", got)
		}
		time.Sleep(2 * time.Millisecond)
		if got, want := s.told(), "quorum lost: the reason"; got != want {
			t.Errorf("told %q, want %q", got, want)
		}
	})
}
