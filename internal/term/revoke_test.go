package term_test

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/term/termtest"
	"github.com/wardmote/wardmote/internal/wire"
)

// order proposes to end the session of id, in the name of session 9.
func (s *stage) order(id byte) <-chan wire.Code {
	ch := make(chan wire.Code, 1)
	s.Term().Propose(s.owner(), machine.EndSession{Session: sid(9), Ref: sid(id).Ref()}, func(_ machine.Outcome, c wire.Code) { ch <- c })
	return ch
}

// gone asks to be told of the end of a session.
func (s *stage) gone(id byte) (<-chan wire.Code, func()) {
	ch := make(chan wire.Code, 1)
	return ch, s.Term().Sessions(replica.SessionsQuery{From: sid(id).Ref(), Limit: 1, Gone: true}, func(_ replica.SessionsPage, c wire.Code) { ch <- c })
}

// No beat that arrives behind an order is acknowledged, neither before nor after the
// verdict; if the order comes to nothing, the beats count again.
func TestBeatsBehindAnOrderAreNotAcknowledged(t *testing.T) {
	for _, tc := range []struct {
		name   string
		asker  byte
		after  wire.Code
		second wire.Code
	}{
		{"ended", 9, wire.CodeNotLeader, wire.CodeNotLeader},
		{"refused", 8, wire.CodeOK, wire.CodeOK}, // the asker's session ends in the same entry
	} {
		t.Run(tc.name, func(t *testing.T) {
			onStage(t, func(s *stage) {
				s.open(1)
				s.open(9)
				s.open(8)
				s.acquire(1, 1, "k")
				s.HoldEntries()
				first := s.propose(opening(7)) // so that the next two are one entry
				synctest.Wait()
				if tc.asker == 8 {
					s.propose(machine.Close{Session: sid(8)})
				}
				ordered := make(chan wire.Code, 1)
				s.Term().Propose(s.owner(), machine.EndSession{Session: sid(tc.asker), Ref: sid(1).Ref()}, func(_ machine.Outcome, c wire.Code) { ordered <- c })
				beat := s.beat(1)
				if c := verdict(beat); c != 0 {
					t.Errorf("a beat behind the order was answered %v", c)
				}
				s.Decide(termtest.Committed)
				if c := verdict(first); c != wire.CodeOK {
					t.Error(c)
				}
				if c := verdict(beat); c != 0 {
					t.Errorf("a beat behind the order was answered %v", c)
				}
				s.ReleaseEntries()
				if c := verdict(ordered); c != wire.CodeOK {
					t.Error(c)
				}
				if c := verdict(beat); c != tc.after {
					t.Errorf("after the verdict: %v", c)
				}
				if c := nextVerdict(s.beat(1)); c != tc.second {
					t.Errorf("a later beat: %v", c)
				}
			})
		})
	}
}

// A beat whose round began before the order, and ends behind it, is not acknowledged.
func TestABeatInARoundIsOvertakenByAnOrder(t *testing.T) {
	onStage(t, func(s *stage) {
		s.open(1)
		s.open(9)
		s.acquire(1, 1, "k")
		s.HoldRounds()
		beat := s.beat(1)
		synctest.Wait()
		s.HoldEntries()
		s.order(1)
		synctest.Wait()
		s.ReleaseRounds()
		if c := verdict(beat); c != 0 {
			t.Errorf("answered %v behind the order", c)
		}
		s.ReleaseEntries()
		if c := verdict(beat); c != wire.CodeNotLeader {
			t.Errorf("answered %v after the order", c)
		}
	})
}

// The order's fate is unknown: no beat is acknowledged by this leader any more.
func TestAfterAnOrderOfUnknownFateNoBeatCounts(t *testing.T) {
	onStage(t, func(s *stage) {
		s.open(1)
		s.open(9)
		s.acquire(1, 1, "k")
		s.HoldEntries()
		ordered := s.order(1)
		beat := s.beat(1)
		s.Decide(termtest.Dropped)
		if c := verdict(ordered); c != wire.CodeUnknown {
			t.Error(c)
		}
		if c := verdict(beat); c != wire.CodeNotLeader {
			t.Error(c)
		}
		if c := verdict(s.beat(1)); c == wire.CodeOK {
			t.Error("a beat counts")
		}
		s.ReleaseEntries()
		s.Lead()
		if c := verdict(s.beat(1)); c != wire.CodeOK {
			t.Errorf("the next leader, without the order: %v", c)
		}
	})
}

// A revoked session whose client never answers ends a TTL after the order, though it
// beats, under any leaders; and the end is told.
func TestARevokedSessionEndsWithItsTTL(t *testing.T) {
	onStage(t, func(s *stage) {
		s.open(1)
		s.open(9)
		s.acquire(1, 1, "k")
		s.acquire(9, 1, "nine")
		beats := func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
				s.beat(1)
				s.beat(9)
			}
		}
		beats(ttl)
		if c := verdict(s.order(1)); c != wire.CodeOK {
			t.Fatal(c)
		}
		ordered := time.Now()
		beats(ttl / 2)
		s.Lead()
		gone, cancel := s.gone(1)
		defer cancel()
		beats(ttl/2 - 200*time.Millisecond)
		if !s.alive(1) || verdict(gone) != 0 || !s.held("k") {
			t.Errorf("ended %v after the order, before its trust", time.Since(ordered))
		}
		beats(time.Second)
		if s.alive(1) || verdict(gone) != wire.CodeOK || s.held("k") {
			t.Errorf("open %v after the order", time.Since(ordered))
		}
		if !s.alive(9) {
			t.Error("the other session ended")
		}
	})
}

// The end of a session is told at once if the session is not open; a wait for it ends
// with the leader, and with cancel.
func TestWaitsForTheEndOfASession(t *testing.T) {
	onStage(t, func(s *stage) {
		s.open(1)
		never, _ := s.gone(2)
		if c := verdict(never); c != wire.CodeOK {
			t.Error(c)
		}
		deposed, _ := s.gone(1)
		given, cancel := s.gone(1)
		if verdict(deposed) != 0 || verdict(given) != 0 {
			t.Error("told of an end")
		}
		cancel()
		if c := verdict(given); c != wire.CodeNotLeader {
			t.Error(c)
		}
		s.Lead()
		if c := verdict(deposed); c != wire.CodeNotLeader {
			t.Error(c)
		}
	})
}

// A Ref in place of an ID, or of a key, is nobody's session on each frame: nothing is
// changed, and no frame with sessions has an ID.
func TestARefIsNoSession(t *testing.T) {
	onHeist(t, func(h *heist) {
		t := h.t
		p := h.enter("n2", 7)
		ref := h.id.Ref()
		as := *h
		as.id = machine.SessionID(ref)
		var made machine.SessionKey
		copy(made[:], ref[:])
		h.try("attach", p, false, func() {
			p.ask(wire.Attach, wire.Marshal(&wire.AttachRequest{Keys: []machine.SessionKey{made}, New: []machine.SessionKey{made}}))
		})
		for name, c := range as.stolen() {
			_, opens := c.(machine.Open)
			h.try(name, p, opens, func() {
				o, code := p.propose(c)
				if opens && code != wire.CodeStranger || !opens && (code != wire.CodeOK || o.Code != machine.NoSession) {
					t.Errorf("%s: %+v, %v", name, o, code)
				}
			})
		}
		h.try("beat", p, false, func() {
			if f := p.ask(wire.Beat, ref[:]); f.Code != wire.CodeNoSession {
				t.Errorf("beat: %v", f.Code)
			}
		})
		h.try("detach", p, false, func() { _ = p.Notify(wire.Detach, ref[:]) })
		h.try("list", p, false, func() {
			f := p.ask(wire.Sessions, wire.Marshal(&replica.SessionsQuery{Limit: 10}))
			if f.Code != wire.CodeOK || !bytes.Contains(f.Body, ref[:]) || bytes.Contains(f.Body, h.id[:]) {
				t.Errorf("%v: %q", f.Code, f.Body)
			}
		})
		h.try("lists over their limits", p, false, func() {
			for typ, q := range map[wire.Type]any{
				wire.Sessions: &replica.SessionsQuery{Limit: replica.MaxScanned + 1},
				wire.Values:   &replica.ValuesQuery{Limit: -1},
			} {
				if f := p.ask(typ, wire.Marshal(q)); f.Code != wire.CodeBad {
					t.Errorf("%v: %v", typ, f.Code)
				}
			}
		})
		// With a session of its own the member may end the victim's, unless Deny refuses.
		h.show(p, key(1))
		h.must(p, machine.Open{Session: sid(1), Client: "t", Node: "n2", Boot: 7, TTL: 3000})
		h.must(p, machine.EndSession{Session: sid(1), Ref: ref})
		if e := <-h.victim.events; e.Kind != machine.EventRevoked || e.Reason != machine.Revoked {
			t.Errorf("%+v", e)
		}
		if h.Status(held).Held != 1 {
			t.Error("the key is free before the victim has answered")
		}
	})
}

// A revoked session cannot end others any more, nor hold up their beats by its orders.
func TestOrdersOfARevokedSessionHoldNoBeats(t *testing.T) {
	onStage(t, func(s *stage) {
		s.open(1)
		s.open(8)
		s.open(9)
		s.Term().Propose(s.owner(), machine.EndSession{Session: sid(8), Ref: sid(9).Ref()}, func(machine.Outcome, wire.Code) {})
		synctest.Wait()
		s.HoldEntries()
		ordered := s.order(1)
		synctest.Wait()
		if c := verdict(s.beat(1)); c != wire.CodeOK {
			t.Errorf("a beat behind the order of a revoked session: %v", c)
		}
		s.ReleaseEntries()
		if c := verdict(ordered); c != wire.CodeOK {
			t.Error(c)
		}
		if c := nextVerdict(s.beat(1)); c != wire.CodeOK || !s.alive(1) {
			t.Errorf("after the order: %v", c)
		}
	})
}
