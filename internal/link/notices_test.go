package link

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/stream"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// listen collects the voters that the Link passes on.
func (s *stage) listen() (terms func() []uint64) {
	var heard []uint64
	s.k.cfg.Voters = func(_ machine.ClusterID, set wire.VoterSet) { s.set(func() { heard = append(heard, set.Term) }) }
	return func() (out []uint64) {
		s.set(func() { out = slices.Clone(heard) })
		return out
	}
}

// lie tells the member everything that a leader tells unasked, with numbers at their
// ends.
func (h *host) lie() {
	st := h.stream()
	_ = st.Notify(wire.Voters, wire.Marshal(&wire.VoterSet{Term: math.MaxUint64, Voters: []wire.VoterState{{Raft: "x#1", Addr: "x"}, {Raft: "y#1", Addr: "y"}}}))
	_ = st.Notify(wire.Bound, wire.Marshal(&wire.AttachAnswer{TTL: machine.MaxTTL}))
	_ = st.Notify(wire.Event, machine.AppendEvent(nil, machine.Event{Kind: machine.EventGranted, Session: key(9).ID(), Token: mostToken - 1}))
}

// A member that is only asked for the leader tells nothing unasked, whether it has the
// voter role or not. One such notice would keep every word of true leaders about the
// voters out, lengthen the wait of the next cluster, and stop an operator's Recover by a
// token at the end of the numbers.
func TestOnlyALeaderTellsUnasked(t *testing.T) {
	for _, mere := range []bool{true, false} {
		onStage(t, func(t *testing.T, s *stage) {
			heard := s.listen()
			events := 0
			s.attach(key(9), func(machine.Event) { s.set(func() { events++ }) })
			s.host("a", 5)
			asked := s.host("asked", 0)
			asked.mere, asked.votes = mere, true
			asked.tell("a", 5)
			s.set(func() { s.voters = []string{"asked"} })
			s.gossip("a", leads(5))
			s.attachedTo("a")
			for range 4 * timing.HoldFind(ttl) / (50 * time.Millisecond) { // streams for questions come and go
				time.Sleep(50 * time.Millisecond)
				asked.lie()
			}
			s.settle()
			if got := s.k.told(); len(got) != 0 {
				t.Errorf("told of the voters %q", got)
			}
			if got := heard(); len(got) != 0 || events != 0 {
				t.Errorf("told of voters in the terms %v, and %d events", got, events)
			}
			if token, _, bound := s.k.Seen(); token != 0 || bound != ttl || s.k.TTL() != ttl {
				t.Errorf("seen token %d, bound %v, TTL %v", token, bound, s.k.TTL())
			}
		})
	}
}

// A leader's word is heard from its answer to Attach on, and no token but of a session
// of this member counts: the last one of a block, which a lock may have without a word.
func TestALeaderTellsUnasked(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		heard := s.listen()
		a := s.host("a", 5)
		var events []machine.Event
		s.attach(key(1), func(e machine.Event) { s.set(func() { events = append(events, e) }) })
		s.gossip("a", leads(5))
		s.attachedTo("a")
		st := a.stream()
		_ = st.Notify(wire.Voters, wire.Marshal(&wire.VoterSet{Term: 5, Voters: []wire.VoterState{{Raft: "x#1", Addr: "x"}}}))
		_ = st.Notify(wire.Bound, wire.Marshal(&wire.AttachAnswer{TTL: 7000}))
		_ = st.Notify(wire.Event, machine.AppendEvent(nil, machine.Event{Kind: machine.EventGranted, Session: key(9).ID(), Token: 99}))
		_ = st.Notify(wire.Event, machine.AppendEvent(nil, machine.Event{Kind: machine.EventGranted, Session: key(1).ID(), Token: 42, Block: 16}))
		s.settle()
		if got := heard(); !slices.Equal(got, []uint64{5}) {
			t.Errorf("told of voters in the terms %v", got)
		}
		if token, _, bound := s.k.Seen(); token != 42+16 || bound != 7*time.Second || len(events) != 1 {
			t.Errorf("seen token %d, bound %v, %d events", token, bound, len(events))
		}
	})
}

// A leader of a higher term that is kept back as a rival has changed nothing, although
// Attach was answered.
func TestARivalTellsNothing(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		heard := s.listen()
		a, _, _ := s.cluster5()
		a.setAnswer(func(q *stream.Request) { time.AfterFunc(timing.Suspect(ttl)/2, func() { confirms(q) }) })
		s.gossip("a", leads(5), votes)
		s.attachedTo("a")
		liar := s.host("liar", math.MaxUint64)
		liar.setAnswer(confirms)
		s.gossip("liar", leads(math.MaxUint64), votes)
		attached := false
		for range 400 {
			time.Sleep(5 * time.Millisecond)
			liar.mu.Lock()
			n := len(liar.attaches)
			liar.mu.Unlock()
			if n > 0 {
				attached = true
				liar.lie()
			}
		}
		if got := heard(); len(got) != 0 || !attached {
			t.Errorf("attached %t, told of voters in the terms %v", attached, got)
		}
		if token, _, bound := s.k.Seen(); token != 0 || bound != ttl {
			t.Errorf("seen token %d, bound %v", token, bound)
		}
	})
}
