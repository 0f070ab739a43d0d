package link

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

func TestANewerLeaderIsPreferred(t *testing.T) {
	for _, tt := range []struct {
		claim string
		news  func(s *stage)
		want  string
	}{
		{"gossip tells of a newer one", func(s *stage) { s.gossip("b", leads(6)) }, "b"},
		{"gossip tells of an older one", func(s *stage) { s.gossip("b", leads(4)) }, "a"},
		{"this node leads in a newer term", func(s *stage) { s.lead(newOwnTerm(6)) }, "me"},
		{"this node leads in the same term", func(s *stage) { s.lead(newOwnTerm(5)) }, "me"},
		{"this node leads in an older term", func(s *stage) { s.lead(newOwnTerm(4)) }, "a"},
	} {
		onStage(t, func(t *testing.T, s *stage) {
			s.host("a", 5)
			s.host("b", 6)
			s.gossip("a", leads(5))
			s.attachedTo("a")
			tt.news(s)
			s.settle()
			if got, _, _ := s.k.Leader(); got != tt.want {
				t.Errorf("%s: attached to %q, want %q", tt.claim, got, tt.want)
			}
		})
	}
}

func TestTheOwnTermIsLeftWhenItEnds(t *testing.T) {
	for _, end := range []func(s *stage, own *ownTerm){
		func(s *stage, own *ownTerm) { s.lead(nil) },
		func(s *stage, own *ownTerm) { s.set(func() { s.leading = nil }); close(own.ended) },
	} {
		onStage(t, func(t *testing.T, s *stage) {
			own := newOwnTerm(5)
			s.lead(own)
			s.attachedTo("me")
			s.host("a", 6)
			s.gossip("a")
			s.attachedTo("me")
			end(s, own)
			s.attachedTo("a")
			own.mu.Lock()
			defer own.mu.Unlock()
			if own.quits != 1 {
				t.Errorf("the own term was quit %d times", own.quits)
			}
		})
	}
}

// LeaderChanged is called once for each leader and term, and not again for the same
// leader after a lost stream.
func TestLeadersAreTold(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		a := s.host("a", 5)
		s.gossip("a", leads(5))
		s.attachedTo("a")
		a.crash()
		time.Sleep(time.Second)
		s.attachedTo("a")
		own := newOwnTerm(6)
		s.lead(own)
		s.attachedTo("me")
		if got, want := s.told(), "a at a leads term 5, me at me leads term 6"; got != want {
			t.Errorf("told %q, want %q", got, want)
		}
	})
}

// QuorumLost is called once, after timing.QuorumPatience, and QuorumRegained once
// after that. A short absence of the leader is not told.
func TestALostQuorumIsToldOnce(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		quorum := func() (out []string) {
			for _, e := range strings.Split(s.told(), ", ") {
				if strings.HasPrefix(e, "quorum") {
					out = append(out, e)
				}
			}
			return out
		}
		a := s.host("a", 5)
		s.gossip("a", leads(5))
		s.attachedTo("a")
		for i := range 2 {
			a.crash()
			time.Sleep(time.Second)
			s.attachedTo("a")
			a.resign()
			time.Sleep(timing.QuorumPatience(ttl) - 20*time.Millisecond)
			if got := quorum(); len(got) != 2*i {
				t.Errorf("told %q before the patience was over", got)
			}
			time.Sleep(time.Minute)
			if got := quorum(); len(got) != 2*i+1 || got[2*i] != "quorum lost: the reason" {
				t.Errorf("told %q", got)
			}
			a.serve(5)
			time.Sleep(time.Second)
			s.attachedTo("a")
			if got := quorum(); len(got) != 2*i+2 || got[2*i+1] != "quorum regained" {
				t.Errorf("told %q", got)
			}
		}
	})
}

// After timing.AnswerLimit without an answer to any prompt question the leader is
// left. A read waiting for a change is no prompt question.
func TestALeaderThatDoesNotAnswerIsLeft(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		a := s.host("a", 5)
		s.gossip("a", leads(5))
		s.attachedTo("a")
		a.setAnswer(silence)
		up, _ := s.k.current()
		up.Granting(func(wire.Code) {})
		time.Sleep(time.Minute)
		if now, _ := s.k.current(); now != up {
			t.Fatal("left for a question that may wait")
		}
		a.freeze()
		up.Beat(nil, sid(1), func(wire.Code) {})
		time.Sleep(timing.AnswerLimit(ttl) - time.Millisecond)
		if now, _ := s.k.current(); now != up {
			t.Error("left before the limit")
		}
		time.Sleep(10 * time.Millisecond)
		if now, _ := s.k.current(); now == up {
			t.Error("not left after the limit")
		}
	})
}

// Any answer is enough to stay, though an earlier question still waits.
func TestALeaderThatAnswersAtAllIsNotLeft(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		a := s.host("a", 5)
		s.gossip("a", leads(5))
		s.attachedTo("a")
		up, _ := s.k.current()
		a.setAnswer(silence)
		up.Beat(nil, sid(1), func(wire.Code) {})
		synctest.Wait()
		a.setAnswer(with(wire.CodeOK))
		for range 60 {
			up.Beat(nil, sid(2), func(wire.Code) {})
			time.Sleep(time.Second)
		}
		if now, _ := s.k.current(); now != up {
			t.Error("the leader was left")
		}
	})
}

// Every attached session is told to each new leader: at once, or in small requests to a leader
// that has no room for a large one.
func TestSessionsAreAttachedToEachLeader(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		const sessions = 16*maxShown + 10
		for i := range sessions {
			s.attach(machine.SessionKey{byte(i), byte(i >> 8), 1}, func(machine.Event) {})
		}
		for i, name := range []string{"a", "b"} {
			h := s.host(name, uint64(5+i))
			want := 1
			if name == "b" {
				h.small, want = maxShown, 1+sessions/maxShown
			}
			s.gossip(name, leads(uint64(5+i)))
			s.attachedTo(name)
			seen := make(map[machine.SessionID]bool)
			h.mu.Lock()
			for _, req := range h.attaches {
				for _, id := range ids(req.Keys) {
					seen[id] = true
				}
			}
			if len(h.attaches) != want || len(seen) != sessions {
				t.Errorf("%s was told %d sessions in %d requests", name, len(seen), len(h.attaches))
			}
			h.mu.Unlock()
		}
		own := newOwnTerm(7)
		s.lead(own)
		s.attachedTo("me")
		own.mu.Lock()
		defer own.mu.Unlock()
		if len(own.sessions) != sessions {
			t.Errorf("the own term was told %d sessions", len(own.sessions))
		}
	})
}

// A large request that waits at the leader, behind those of others, is not sent for ever.
func TestALeaderThatCannotReadMuchIsShownLittle(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		for i := range maxShown + 10 {
			s.attach(machine.SessionKey{byte(i), byte(i >> 8), 1}, func(machine.Event) {})
		}
		a := s.host("a", 5)
		a.small, a.mute = maxShown, true
		s.gossip("a", leads(5))
		time.Sleep(3 * timing.Dial)
		s.attachedTo("a")
		if n := attaches(a); n != 2 {
			t.Errorf("asked %d times", n)
		}
	})
}

// A leader has attached the first sessions and is busy with their events: it is shown the others
// until there is room, and not left.
func TestABusyLeaderIsShownTheOtherSessionsAgain(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		for i := range maxShown + 10 {
			s.attach(machine.SessionKey{byte(i), byte(i >> 8), 1}, func(machine.Event) {})
		}
		a := s.host("a", 5)
		a.crowded, a.small = 3, maxShown
		s.gossip("a", leads(5))
		time.Sleep(time.Second)
		s.attachedTo("a")
		if n, dials := attaches(a), s.dialled(); n != 5 || dials != "a" {
			t.Errorf("dialled %s, and asked %d times", dials, n)
		}
	})
}

// A leader that has no room for the question for a sign of life has given one.
func TestAFullLeaderIsNotSilent(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		a := s.host("a", 5)
		s.gossip("a", leads(5))
		s.attachedTo("a")
		a.setAnswer(silence)
		a.mu.Lock()
		a.full = true
		a.mu.Unlock()
		up, _ := s.k.current()
		up.Beat(nil, sid(1), func(wire.Code) {})
		time.Sleep(timing.AnswerLimit(ttl) - time.Millisecond)
		if now, _ := s.k.current(); now != up || up.(*remote).silent() {
			t.Error("taken for silent after a refusal")
		}
	})
}

// Events come from every leader until Detach.
func TestEventsComeFromEveryLeader(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		events := make(chan machine.Event, 10)
		s.attach(key(1), func(e machine.Event) { events <- e })
		event := func(seq uint64) machine.Event {
			return machine.Event{Kind: machine.EventGranted, Session: sid(1), Seq: seq, Token: machine.Token(seq)}
		}
		push := func(h *host, e machine.Event) {
			h.stream().Notify(wire.Event, machine.AppendEvent(nil, e))
			synctest.Wait()
		}
		expect := func(seq uint64) {
			t.Helper()
			select {
			case e := <-events:
				if e.Seq != seq {
					t.Errorf("told of seq %d, want %d", e.Seq, seq)
				}
			default:
				t.Errorf("not told of seq %d", seq)
			}
		}
		a := s.host("a", 5)
		s.gossip("a", leads(5))
		s.attachedTo("a")
		push(a, event(1))
		expect(1)
		b := s.host("b", 6)
		s.gossip("b", leads(6))
		s.attachedTo("b")
		push(b, event(2))
		expect(2)
		b.stream().Notify(wire.Event, []byte("garbage"))
		own := newOwnTerm(7)
		s.lead(own)
		s.attachedTo("me")
		own.subscriber.Event(event(3))
		expect(3)
		s.lead(nil)
		b.serve(8)
		time.Sleep(time.Second)
		s.attachedTo("b")
		s.k.Detach(sid(1))
		push(b, event(4))
		if len(events) > 0 {
			t.Error("told after Detach")
		}
		if got := b.received(); !slices.Contains(got, wire.Detach) {
			t.Errorf("the leader received types %v", got)
		}
	})
}

// The bound of TTLs is this member's own TTL until a leader tells another bound, at
// Attach or later.
func TestTheBoundOfTTLsIsToldByTheLeader(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		expect := func(want time.Duration) {
			t.Helper()
			synctest.Wait()
			if got := s.k.TTL(); got != want {
				t.Errorf("TTL %v, want %v", got, want)
			}
		}
		expect(3 * time.Second)
		a := s.host("a", 5)
		s.gossip("a", leads(5))
		expect(2 * time.Second)
		a.stream().Notify(wire.Bound, wire.Marshal(&wire.AttachAnswer{Term: 5, TTL: 9000}))
		expect(9 * time.Second)
		own := newOwnTerm(6)
		s.lead(own)
		expect(4 * time.Second)
		own.subscriber.Bound(wire.AttachAnswer{Term: 6, TTL: 8000})
		expect(8 * time.Second)
		s.lead(nil)
		expect(8 * time.Second) // the last bound told
	})
}

func TestRequestsOfALeaderAreBad(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		a := s.host("a", 5)
		s.gossip("a", leads(5))
		s.attachedTo("a")
		if f, err := a.stream().Call(s.within(time.Second), wire.Read, nil); err != nil || f.Code != wire.CodeBad {
			t.Errorf("answered %+v, %v", f, err)
		}
	})
}
