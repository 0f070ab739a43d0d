package link

import (
	"slices"
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/stream"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

// forgetful has a host refuse every request until the session's key was shown n times.
func forgetful(h *host, key machine.SessionKey, n int, refusal wire.Code) func(*stream.Request) {
	return func(q *stream.Request) {
		h.mu.Lock()
		shown := 0
		for _, req := range h.attaches {
			if slices.Contains(slices.Concat(req.Keys, req.New), key) {
				shown++
			}
		}
		h.mu.Unlock()
		switch {
		case shown < n:
			q.Answer(refusal, nil)
		case q.Type == wire.Beat:
			q.Answer(wire.CodeOK, nil)
		default:
			grant(q)
		}
	}
}

// A leader that has not taken the key of a session, for whatever reason, is shown the
// key again: the session lives on.
func TestTheKeyIsShownAgainToALeaderThatRefuses(t *testing.T) {
	open := machine.Open{Session: sid(1), Client: "c", Node: "x", Boot: 1, TTL: 1000}
	for name, send := range map[string]func(*stage) error{
		"a beat":    func(s *stage) error { return s.k.Beat(s.within(time.Second), sid(1)) },
		"a command": func(s *stage) error { _, err := s.k.Propose(s.within(time.Second), acquire); return err },
		"an Open":   func(s *stage) error { _, err := s.k.Propose(s.within(time.Second), open); return err },
	} {
		t.Run(name, func(t *testing.T) {
			onStage(t, func(t *testing.T, s *stage) {
				a := s.host("a", 5)
				a.setAnswer(forgetful(a, key(1), 2, wire.CodeStranger))
				s.attach(key(1), func(machine.Event) {})
				s.gossip("a", leads(5))
				s.attachedTo("a")
				if err := send(s); err != nil {
					t.Error(err)
				}
				if got := a.received(); len(got) != 2 {
					t.Errorf("sent %v", got)
				}
			})
		})
	}
}

// A leader may have no room for the request that shows the key, for a while: the key is shown
// again, and anew to the next leader.
func TestTheKeyIsShownUntilThereIsRoom(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		a := s.host("a", 5)
		a.setAnswer(forgetful(a, key(1), 1+mostShows, wire.CodeStranger))
		s.attach(key(1), func(machine.Event) {})
		s.gossip("a", leads(5))
		s.attachedTo("a")
		if err := s.k.Beat(s.within(time.Minute), sid(1)); err != nil {
			t.Error(err)
		}
		if got := a.received(); len(got) != 1+mostShows {
			t.Errorf("sent %v", got)
		}
	})
}

// A leader without room for the keys of sessions to be opened alone attaches all others, and is not left.
func TestSessionsToBeOpenedKeepNoOthersOut(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		for i := range maxShown {
			s.attach(machine.SessionKey{byte(i), byte(i >> 8), 1}, func(machine.Event) {})
		}
		for i := range maxShown {
			s.k.Claim(machine.SessionKey{byte(i), byte(i >> 8), 2})
		}
		a := s.host("a", 5)
		a.small, a.crowded = maxShown, 1000
		began := time.Now()
		s.gossip("a", leads(5))
		s.attachedTo("a")
		if took, dials := time.Since(began), s.dialled(); took > timing.Dial/2 || dials != "a" {
			t.Errorf("attached after %v, and dialled %s", took, dials)
		}
	})
}

// A leader that refuses a session for good is asked a few times, ever more slowly, and the refusal
// is told: the client neither hangs nor floods the leader.
func TestARefusalForGoodIsTold(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		a := s.host("a", 5)
		a.setAnswer(with(wire.CodeStranger))
		s.attach(key(1), func(machine.Event) {})
		s.gossip("a", leads(5))
		s.attachedTo("a")
		err := s.k.Beat(s.within(time.Hour), sid(1))
		failed(t, err, errStranger, false)
		if got := a.received(); len(got) != 1+mostShows {
			t.Errorf("sent %v", got)
		}
	})
}

// The keys are shown with a proof for the very stream, once for each stream.
func TestTheKeysAreProvedForTheirStream(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		a, b := s.host("a", 5), s.host("b", 6)
		s.attach(s.k.NewKey(), func(machine.Event) {})
		s.gossip("a", leads(5))
		s.attachedTo("a")
		s.k.Claim(s.k.NewKey())
		s.gossip("b", leads(6))
		s.attachedTo("b")
		for name, h := range map[string]*host{"a": a, "b": b} {
			h.mu.Lock()
			for i, req := range h.attaches {
				if (i == 0) != req.Proof.Holds([]byte("stream to "+name)) {
					t.Errorf("%s: request %d has the proof %v", name, i, req.Proof)
				}
				for _, k := range slices.Concat(req.Keys, req.New) {
					if k != key(1) && !h.attaches[0].Proof.Sealed(k) {
						t.Errorf("%s: the signer has not sealed %v", name, k)
					}
				}
			}
			h.mu.Unlock()
		}
	})
}

// attaches returns how often a host was shown keys.
func attaches(h *host) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.attaches)
}

// A leader without room for the key of a session to be opened is shown the key again,
// until there is room. An open session needs no key again.
func TestACrowdedLeaderIsShownTheKeyAgain(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		a := s.host("a", 5)
		a.setAnswer(forgetful(a, key(1), 4, wire.CodeBusy))
		s.gossip("a", leads(5))
		s.attachedTo("a")
		open := machine.Open{Session: sid(1), Client: "c", Node: "x", Boot: 1, TTL: 1000}
		if _, err := s.k.Propose(s.within(time.Minute), open); err != nil {
			t.Error(err)
		}
		s.k.Attach(sid(1), func(machine.Event) {})
		a.setAnswer(with(wire.CodeBusy))
		shown := attaches(a)
		if _, err := s.k.Propose(s.within(time.Minute), acquire); err == nil {
			t.Error("answered")
		}
		if n := attaches(a); n != shown {
			t.Errorf("the key of an open session was shown %d times more", n-shown)
		}
	})
}

// A request of a client whose session was detached meanwhile finds no session, and the
// client goes on with a new one. The leader hears of no such request: after a
// reconnection it would count a theft, since the key was not shown.
func TestADetachedSessionIsOver(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		a := s.host("a", 5)
		a.setAnswer(with(wire.CodeStranger))
		s.attach(key(1), func(machine.Event) {})
		s.gossip("a", leads(5))
		s.attachedTo("a")
		s.k.Detach(sid(1))
		for range 2 {
			if o, err := s.k.Propose(s.within(time.Second), acquire); err != nil || o.Code != machine.NoSession {
				t.Errorf("%+v, %v", o, err)
			}
			if err := s.k.Beat(s.within(time.Second), sid(1)); err != replica.ErrNoSession {
				t.Error(err)
			}
			a.crash()
			s.attachedTo("a")
		}
		if got := a.received(); slices.ContainsFunc(got, func(t wire.Type) bool { return t != wire.Detach }) {
			t.Errorf("the leader received %v", got)
		}
	})
}

// A session is detached between two attempts of a request that may have had an effect.
func TestARequestIsCutShortByDetach(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		a := s.host("a", 5)
		for _, code := range []wire.Code{wire.CodeUnknown, wire.CodeStranger} {
			s.k.Claim(key(1))
			a.setAnswer(func(q *stream.Request) {
				if q.Type == wire.Propose {
					s.k.Detach(sid(1))
					q.Answer(code, nil)
				}
			})
			s.gossip("a", leads(5))
			s.attachedTo("a")
			o, err := s.k.Propose(s.within(time.Minute), acquire)
			if code == wire.CodeUnknown {
				failed(t, err, replica.ErrNoSession, true)
			} else if err != nil || o.Code != machine.NoSession {
				t.Errorf("%+v, %v", o, err)
			}
		}
	})
}
