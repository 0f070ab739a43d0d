package cluster

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/wire"
)

// A stage is a leader without a raft: the test decides when an entry is
// committed, and what a round answers.
type stage struct {
	t     *testing.T
	table *table
	l     *leader

	mu      sync.Mutex
	commits chan struct{} // an entry waits for each value; nil: none waits
	asks    chan bool     // a round takes its verdict here; nil: always yes
	log     []machine.Command
}

const stageTTL = 3 * time.Second

// onStage runs f with a founded table, and a leader in term 1.
func onStage(t *testing.T, f func(s *stage)) {
	synctest.Test(t, func(t *testing.T) {
		s := &stage{t: t, table: newTable()}
		s.apply(machine.LeaderStart{Term: 1},
			machine.Found{Cluster: machine.ClusterID{1}, Floor: 1, TTL: uint64(stageTTL / time.Millisecond)},
			machine.Raise{Term: 1, Format: machine.MaxFormat},
			machine.Lift{Term: 1})
		s.lead(1)
		f(s)
		s.unlead()
	})
}

func (s *stage) apply(commands ...machine.Command) {
	s.t.Helper()
	for i, o := range s.table.apply(machine.EncodeCommands(commands), time.Now()) {
		if o.Code != machine.OK {
			s.t.Fatalf("%#v: %+v", commands[i], o)
		}
	}
}

// lead makes the leader of a term; LeaderStart has been applied.
func (s *stage) lead(term uint64) {
	l := newLeader(nil, &raftNode{table: s.table, store: newMemoryStore()}, term)
	l.proposer = newProposer(func(entry []byte) ([]machine.Outcome, wire.Code) {
		s.mu.Lock()
		commits := s.commits
		s.mu.Unlock()
		if commits != nil {
			if _, ok := <-commits; !ok {
				return nil, wire.CodeUnknown
			}
		}
		commands, err := machine.DecodeEntry(entry)
		if err != nil {
			s.t.Error(err)
		}
		s.mu.Lock()
		s.log = append(s.log, commands...)
		s.mu.Unlock()
		return s.table.apply(entry, time.Now()), wire.CodeOK
	})
	l.rounds = newRounds(func(context.Context) bool {
		s.mu.Lock()
		asks := s.asks
		s.mu.Unlock()
		return asks == nil || <-asks
	})
	s.l = l
	s.table.setWatch(l.applied)
	l.keeper.begin()
	l.wg.Go(l.proposer.run)
	l.wg.Go(func() { l.rounds.run(l.ctx) })
	l.wg.Go(l.tick)
}

// set changes what entries and rounds wait for.
func (s *stage) set(commits chan struct{}, asks chan bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.commits != nil && s.commits != commits {
		close(s.commits) // what waits fails
	}
	if s.asks != nil && s.asks != asks {
		close(s.asks)
	}
	s.commits, s.asks = commits, asks
}

func (s *stage) unlead() { s.l.stop() }

func (s *stage) open(id byte) {
	s.apply(machine.Open{Session: sid(id), Client: "c", Node: "n", TTL: uint64(stageTTL / time.Millisecond)})
}

func (s *stage) beat(id byte) <-chan wire.Code {
	ch := make(chan wire.Code, 1)
	s.l.keeper.beat(sid(id), func(c wire.Code) { ch <- c })
	return ch
}

func (s *stage) alive(id byte) (ok bool) {
	s.table.view(func(m *machine.State) { _, ok = m.Session(sid(id)) })
	return ok
}

func (s *stage) proposed(want machine.Command) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.log, want)
}

// verdict is what the beat was answered by now, 0 if nothing.
func verdict(ch <-chan wire.Code) wire.Code {
	synctest.Wait()
	select {
	case c := <-ch:
		return c
	default:
		return 0
	}
}

func TestABeatIsAcknowledgedByARoundThatBeganAfterIt(t *testing.T) {
	onStage(t, func(s *stage) {
		s.open(1)
		s.set(nil, make(chan bool))
		first := s.beat(1)
		synctest.Wait() // the first round is under way
		second := s.beat(1)
		s.asks <- true
		if c := verdict(first); c != wire.CodeOK {
			t.Errorf("first beat: %v", c)
		}
		if c := verdict(second); c != 0 {
			t.Errorf("the second beat was answered by a round that began before it: %v", c)
		}
		s.asks <- false
		if c := verdict(second); c != wire.CodeNotLeader {
			t.Errorf("second beat after a failed round: %v", c)
		}
	})
}

func TestBeatsWaitWhileAnExpiryIsInFlight(t *testing.T) {
	onStage(t, func(s *stage) {
		s.open(1)
		time.Sleep(stageTTL*2/3 + tickInterval*2) // the mark has been committed
		s.set(make(chan struct{}), nil)
		time.Sleep(stageTTL / 2) // the expiry has been proposed
		b := s.beat(1)
		if c := verdict(b); c != 0 {
			t.Fatalf("a beat was answered with %v while the session's expiry was in flight", c)
		}
		s.commits <- struct{}{}
		if c := verdict(b); c != wire.CodeNoSession {
			t.Errorf("after the expiry the beat was answered with %v", c)
		}
		if s.alive(1) {
			t.Error("the session lives")
		}
		s.set(nil, nil)
	})
}

func TestARoundThatEndsDuringAnExpiryAcknowledgesNothing(t *testing.T) {
	onStage(t, func(s *stage) {
		s.open(1)
		s.set(nil, make(chan bool))
		b := s.beat(1) // its round takes longer than the TTL
		time.Sleep(stageTTL*2/3 + tickInterval*2)
		s.set(make(chan struct{}), s.asks)
		time.Sleep(stageTTL / 2)
		s.asks <- true
		if c := verdict(b); c != 0 {
			t.Fatalf("answered with %v while the expiry was in flight", c)
		}
		s.commits <- struct{}{}
		if c := verdict(b); c != wire.CodeNoSession {
			t.Errorf("answered with %v", c)
		}
		s.set(nil, nil)
	})
}

func TestASilentSessionIsMarkedAndHeardAgain(t *testing.T) {
	onStage(t, func(s *stage) {
		s.open(1)
		time.Sleep(stageTTL*2/3 + tickInterval*2)
		if !s.proposed(machine.Silence{Session: sid(1), Term: 1}) {
			t.Fatal("no mark after two thirds of the TTL")
		}
		s.set(make(chan struct{}), nil)
		b := s.beat(1)
		if c := verdict(b); c != 0 {
			t.Fatalf("a marked session's beat was answered with %v before it was unmarked", c)
		}
		s.commits <- struct{}{}
		if c := verdict(b); c != wire.CodeOK || !s.proposed(machine.Hear{Session: sid(1), Term: 1}) {
			t.Errorf("after unmarking: %v", c)
		}
		s.set(nil, nil)
		// Beats go on: it is neither marked nor ended again.
		for range 10 {
			time.Sleep(stageTTL / 3)
			if c := verdict(s.beat(1)); c != wire.CodeOK {
				t.Errorf("beat: %v", c)
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if n := len(s.log); n != 2 {
			t.Errorf("a beating session cost entries: %v", s.log)
		}
	})
}

func TestASessionEndsATTLAfterItsLastBeat(t *testing.T) {
	onStage(t, func(s *stage) {
		s.open(1)
		time.Sleep(time.Second)
		if c := verdict(s.beat(1)); c != wire.CodeOK {
			t.Fatal(c)
		}
		heard := time.Now()
		time.Sleep(stageTTL - time.Millisecond)
		if !s.alive(1) {
			t.Errorf("ended %v after its last beat", time.Since(heard))
		}
		time.Sleep(2 * tickInterval)
		if s.alive(1) {
			t.Error("not ended")
		}
	})
}

func TestANewLeaderGivesEverySessionAWholeTTL(t *testing.T) {
	onStage(t, func(s *stage) {
		s.open(1)
		time.Sleep(stageTTL / 2)
		s.unlead()
		s.apply(machine.LeaderStart{Term: 2})
		s.lead(2)
		time.Sleep(stageTTL - time.Millisecond)
		if !s.alive(1) {
			t.Fatal("the new leader ended a session before a TTL of its own")
		}
		time.Sleep(2 * tickInterval)
		if s.alive(1) {
			t.Error("not ended")
		}
	})
}

// A dead session ends in bounded time however often leaders change: a mark's
// TTL runs on.
func TestFlappingLeadersDoNotKeepADeadSession(t *testing.T) {
	onStage(t, func(s *stage) {
		s.open(1)
		start := time.Now()
		time.Sleep(stageTTL*2/3 + 2*tickInterval)
		for term := uint64(2); s.alive(1); term++ {
			s.unlead()
			s.apply(machine.LeaderStart{Term: term})
			s.lead(term)
			time.Sleep(stageTTL / 2)
			if time.Since(start) > 4*stageTTL {
				t.Fatal("still there")
			}
		}
		if took := time.Since(start); took < stageTTL || took > stageTTL*5/3+stageTTL/2+time.Second {
			t.Errorf("ended after %v", took)
		}
	})
}

func TestADeposedLeadersExpiryFreesNothing(t *testing.T) {
	onStage(t, func(s *stage) {
		s.open(1)
		time.Sleep(stageTTL*2/3 + tickInterval*2)
		s.set(make(chan struct{}), nil)
		time.Sleep(stageTTL / 2) // term 1 has proposed the expiry
		s.apply(machine.LeaderStart{Term: 2})
		s.commits <- struct{}{} // and it is committed behind term 2's start
		synctest.Wait()
		if !s.alive(1) {
			t.Error("a deposed leader's verdict ended a session")
		}
		s.set(nil, nil)
	})
}

func TestALeaderThatStoodStillWaitsLonger(t *testing.T) {
	onStage(t, func(s *stage) {
		s.open(1)
		time.Sleep(time.Second)
		k := s.l.keeper
		// The process stops for ten seconds: no tick, and beats lie unread.
		k.mu.Lock()
		k.lastTick = k.lastTick.Add(-10 * time.Second)
		for _, kept := range k.sessions {
			kept.heard, kept.deadline = kept.heard.Add(-10*time.Second), kept.deadline.Add(-10*time.Second)
			kept.schedule()
		}
		k.mu.Unlock()
		time.Sleep(2 * tickInterval)
		if !s.alive(1) {
			t.Fatal("ended by a leader that was not there to hear it")
		}
		time.Sleep(stageTTL)
		if s.alive(1) {
			t.Error("never ended")
		}
	})
}

func TestAnIdleClusterWritesNothing(t *testing.T) {
	onStage(t, func(s *stage) {
		s.open(1)
		before := uint64(0)
		s.table.view(func(m *machine.State) { before = m.Commands() })
		for range 300 {
			time.Sleep(stageTTL / 3)
			if c := verdict(s.beat(1)); c != wire.CodeOK {
				t.Fatal(c)
			}
		}
		s.table.view(func(m *machine.State) {
			if m.Commands() != before {
				t.Errorf("300 beats cost %d commands", m.Commands()-before)
			}
		})
	})
}

func TestVotersConfirmOnlyTheirOwnAndNoLowerTerm(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.form()
		leader := b.leader()
		term := leader.leader.Load().term
		for _, n := range b.nodes {
			id := n.roles.current().id
			for _, tt := range []struct {
				req  wire.ConfirmRequest
				want wire.Code
			}{
				{wire.ConfirmRequest{Term: term, Voter: id}, wire.CodeOK},
				{wire.ConfirmRequest{Term: term - 1, Voter: id}, wire.CodeNo},
				{wire.ConfirmRequest{Term: term, Voter: id + "1"}, wire.CodeNo},
			} {
				if c := n.confirm(tt.req); c != tt.want {
					t.Errorf("%s: %+v: %v", n.Name(), tt.req, c)
				}
			}
		}
		// Cut off, a leader confirms nothing, from the first moment on.
		b.net.Isolate(b.host(leader.Name()))
		if l := leader.leader.Load(); l == nil || l.confirmTerm(context.Background()) {
			t.Error("confirmed without a majority")
		}
	})
}

// A late copy of a session's Open may stand in one entry with its end. Whichever
// of them comes first, the keeper counts for what the table has.
func TestASessionThatEndsAndOpensInOneEntry(t *testing.T) {
	open := machine.Open{Session: sid(1), Client: "c", Node: "n", TTL: uint64(stageTTL / time.Millisecond)}
	onStage(t, func(s *stage) {
		s.open(1)
		s.apply(machine.Close{Session: sid(1)}, open, machine.Silence{Session: sid(1), Term: 1})
		s.table.mu.RLock()
		_, marked := s.table.marks[sid(1)]
		s.table.mu.RUnlock()
		if !s.alive(1) || !marked {
			t.Fatalf("open %t, marked %t", s.alive(1), marked)
		}
		time.Sleep(5 * stageTTL)
		if s.alive(1) {
			t.Error("a session that nobody beats for never ends")
		}
	})
	onStage(t, func(s *stage) {
		s.apply(open, machine.Close{Session: sid(1)})
		time.Sleep(5 * stageTTL)
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.log) > 0 {
			t.Errorf("proposed for a session that is gone: %v", s.log)
		}
	})
}
