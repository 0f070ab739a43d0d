package term_test

import (
	"testing"
	"time"

	"github.com/wardmote/wardmote/internal/term"
	"github.com/wardmote/wardmote/internal/term/termtest"
	"github.com/wardmote/wardmote/internal/wire"
)

// A stream that has ended waits for nothing: neither many questions for the end of the
// founding wait, nor one stream after the other, fill the leader's memory.
func TestAnEndedStreamIsNotReady(t *testing.T) {
	onStageWith(t, termtest.Config{Founding: true, MayLift: func() bool { return false }}, func(s *stage) {
		current := func() *term.Term { return s.Term() }
		stays := s.dial(current)
		stays.ask(wire.Attach, wire.Marshal(&wire.AttachRequest{}))
		verdicts := make(chan wire.Code, 1)
		if _, err := stays.Begin(wire.Ready, nil, func(f wire.Frame, _ error) { verdicts <- f.Code }); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			p := s.dial(current)
			p.ask(wire.Attach, wire.Marshal(&wire.AttachRequest{}))
			for range 100 {
				if _, err := p.Begin(wire.Ready, nil, func(wire.Frame, error) {}); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Second)
			if n := s.Term().Readying(); n != 101 {
				t.Errorf("%d wait, want 101", n)
			}
			p.Close()
			<-p.served
		}
		if n := s.Term().Readying(); n != 1 || len(verdicts) != 0 {
			t.Errorf("%d wait of ended streams, %d answered", n-1, len(verdicts))
		}
	})
}

// A question that its member gives up is forgotten.
func TestAGivenUpReadyIsForgotten(t *testing.T) {
	onStageWith(t, termtest.Config{Founding: true, MayLift: func() bool { return false }}, func(s *stage) {
		p := s.dial(func() *term.Term { return s.Term() })
		p.ask(wire.Attach, wire.Marshal(&wire.AttachRequest{}))
		verdicts := make(chan wire.Code, 1)
		id, err := p.Begin(wire.Ready, nil, func(f wire.Frame, _ error) { verdicts <- f.Code })
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Notify(wire.Cancel, wire.Marshal(id)); err != nil {
			t.Fatal(err)
		}
		if c := <-verdicts; c != wire.CodeNotLeader || s.Term().Readying() != 0 {
			t.Errorf("%v, %d wait", c, s.Term().Readying())
		}
	})
}
