package term_test

import (
	"encoding/binary"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/term"
	"github.com/wardmote/wardmote/internal/wire"
)

// slowReader is the subscriber of a stream that is not read.
type slowReader struct {
	*term.Subscriber
	mu    sync.Mutex
	later []func() machine.Event
}

func newSlowReader(s *stage, node string) *slowReader {
	r := &slowReader{}
	r.Subscriber = &term.Subscriber{Node: node, Boot: 7, Event: func(machine.Event) {}, Later: func(e func() machine.Event) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.later = append(r.later, e)
	}}
	s.Term().Join(r.Subscriber)
	return r
}

// read sends everything that waits.
func (r *slowReader) read() (events []machine.Event) {
	r.mu.Lock()
	later := r.later
	r.later = nil
	r.mu.Unlock()
	for _, e := range later {
		events = append(events, e())
	}
	return events
}

// A member that attaches to sessions of its invention and reads nothing takes a bounded
// memory, and keeps no other member from being told the end of its sessions. What it took
// is given back when it reads, and when its stream ends.
func TestInventedSessionsTakeBoundedMemory(t *testing.T) {
	onStage(t, func(s *stage) {
		invented := make([]machine.SessionKey, wire.MaxAttach)
		for i := range invented {
			binary.BigEndian.PutUint64(invented[i][:], 1<<40+uint64(i))
		}
		flood, honest := newSlowReader(s, "n2"), newSlowReader(s, "n3")
		for attached := 0; s.Term().Attach(flood.Subscriber, invented, nil); attached += len(invented) {
			if attached > term.MaxDenials {
				s.t.Fatal("no bound")
			}
		}
		synctest.Wait()
		if n := s.Term().Denied(); n == 0 || n > term.MaxDenials {
			t.Errorf("%d events wait", n)
		}
		if !s.Term().Attach(honest.Subscriber, keys(9), nil) {
			t.Error("an honest member is refused")
		}
		synctest.Wait()
		if told := honest.read(); len(told) != 1 || told[0].Kind != machine.EventEnded || told[0].Session != sid(9) {
			t.Errorf("told %+v", told)
		}
		flood.read()
		if n := s.Term().Denied(); n != 0 {
			t.Errorf("%d events wait of a stream that was read", n)
		}
		if !s.Term().Attach(flood.Subscriber, invented, nil) {
			t.Error("refused after everything was read")
		}
		s.Term().Quit(flood.Subscriber)
		synctest.Wait()
		if n := s.Term().Denied(); n != 0 {
			t.Errorf("%d events wait of an ended stream", n)
		}
		flood.read()
		if n := s.Term().Denied(); n != 0 {
			t.Errorf("the count is %d", n)
		}
	})
}
