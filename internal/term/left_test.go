package term_test

import (
	"testing"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/wire"
)

// A request of a session's owner beside the owner's Detach finds no session, and is no
// theft: it was under way when its client ended without a Close. The same request of
// another stream is a theft still, and the key makes an owner again.
func TestARequestBesideADetachIsNoTheft(t *testing.T) {
	onHeist(t, func(h *heist) {
		t := h.t
		ask := machine.Ask{Session: h.id, Key: "other"}
		for range 2 {
			_ = h.victim.Notify(wire.Detach, h.id[:])
			h.try("a late request", h.victim, false, func() {
				if o, code := h.victim.propose(ask); code != wire.CodeOK || o.Code != machine.NoSession {
					t.Errorf("%+v, %v", o, code)
				}
				if f := h.victim.ask(wire.Beat, h.id[:]); f.Code != wire.CodeNoSession {
					t.Errorf("a late beat: %v", f.Code)
				}
			})
			other := h.enter("n1", 5)
			h.try("another stream of the process", other, true, func() {
				if _, code := other.propose(ask); code != wire.CodeStranger {
					t.Errorf("on another stream: %v", code)
				}
			})
			h.show(h.victim, victimKey)
			h.must(h.victim, ask)
			<-h.victim.events // the Ask
		}
	})
}
