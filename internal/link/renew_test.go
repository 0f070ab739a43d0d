package link

import (
	"strings"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/stream"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// ages has the next streams to the host age when the returned function is called.
func (h *host) ages() (age func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.renew = make(chan struct{})
	renew := h.renew
	return func() {
		h.mu.Lock()
		if h.renew == renew {
			h.renew = nil // of the streams after this one
		}
		h.mu.Unlock()
		close(renew)
	}
}

// An ageing stream is replaced by a second one to the same leader: the sessions are
// attached to the second before the first ends, and nobody hears of a change.
func TestAnAgeingStreamIsReplaced(t *testing.T) {
	for _, relayed := range []bool{false, true} {
		onStage(t, func(t *testing.T, s *stage) {
			a := s.host("a", 5)
			if relayed {
				b := s.host("b", 0)
				b.votes, b.heard = true, true
				b.tell("a", 5)
				s.set(func() { s.voters, s.unreachable["a"] = []string{"b"}, true })
			}
			age := a.ages()
			s.attach(key(1), func(machine.Event) {})
			s.gossip("a", leads(5))
			time.Sleep(2 * timing.RelayAfter(3*time.Second))
			s.attachedTo("a")
			first, _ := s.k.current()
			if got := first.(*remote).via != ""; got != relayed {
				t.Fatalf("relayed: %t", got)
			}
			held := make(chan wire.Code, 1)
			a.setAnswer(silence)
			go func() {
				_, err := s.k.Propose(s.within(time.Minute), machine.Close{})
				if err != nil {
					t.Error(err)
				}
				held <- wire.CodeOK
			}()
			s.settle()
			a.setAnswer(func(q *stream.Request) { q.Answer(wire.CodeOK, machine.AppendOutcome(nil, machine.Outcome{})) })
			age()
			for range 20 {
				time.Sleep(time.Millisecond)
				if _, _, ok := s.k.Leader(); !ok {
					t.Error("without a leader")
				}
			}
			s.settle()
			second, _ := s.k.current()
			if second == first || !ended(first) || ended(second) || second.(*remote).via != first.(*remote).via {
				t.Error("not replaced")
			}
			a.mu.Lock()
			if last := a.attaches[len(a.attaches)-1]; len(last.Keys) != 1 {
				t.Errorf("the second stream attached %+v", last)
			}
			a.mu.Unlock()
			<-held
			if got, want := s.told(), "a at a leads term 5"; got != want {
				t.Errorf("told %q, want %q", got, want)
			}
			s.dialled()
			time.Sleep(time.Minute)
			if now, _ := s.k.current(); now != second {
				t.Error("replaced again")
			}
		})
	}
}

// A leader that cannot be dialled for a while is kept on the ageing stream, and
// tried again.
func TestAnAgeingStreamIsKeptUntilAnotherStands(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		a := s.host("a", 5)
		age := a.ages()
		s.gossip("a", leads(5))
		s.attachedTo("a")
		first, _ := s.k.current()
		s.set(func() { s.unreachable["a"] = true })
		s.dialled()
		age()
		time.Sleep(5 * time.Second)
		if now, _ := s.k.current(); now != first || ended(first) {
			t.Error("the ageing stream was left")
		}
		if n := len(strings.Fields(s.dialled())); n == 0 || n > 50 {
			t.Errorf("%d dials", n)
		}
		s.set(func() { delete(s.unreachable, "a") })
		time.Sleep(timing.Dial + time.Second)
		if now, _ := s.k.current(); now == first {
			t.Error("not replaced")
		}
		s.attachedTo("a")
	})
}
