package term_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/term"
	"github.com/wardmote/wardmote/internal/wire"
)

// A process with two streams that reads neither attaches to its session on each in turn,
// by Attach, by beats and by closing streams: the grants that it has not seen are kept for
// it a bounded number of times. A stream that is alone is told all of them, however many.
func TestGrantsToldAgainTakeBoundedMemory(t *testing.T) {
	onStage(t, func(s *stage) {
		const grants = 2 * term.MaxRetold / 3
		s.Must(machine.Open{Session: sid(1), Client: "c", Node: "n2", Boot: 7, TTL: 3000},
			machine.Open{Session: sid(2), Client: "d", Node: "n2", Boot: 7, TTL: 3000},
			machine.Open{Session: sid(3), Client: "e", Node: "n3", Boot: 7, TTL: 3000})
		var held, wanted []machine.Command
		for i := range uint64(grants) {
			key := fmt.Sprint("k", i)
			held = append(held, machine.Acquire{Session: sid(3), Seq: i + 1, Key: key})
			wanted = append(wanted, machine.Acquire{Session: sid(byte(1 + i%2)), Seq: i + 1, Key: key})
		}
		s.Must(append(held, wanted...)...)
		s.Must(machine.Close{Session: sid(3)})
		synctest.Wait() // it ends in slices
		readers := []*slowReader{newSlowReader(s, "n2"), newSlowReader(s, "n2")}
		waiting := func() (n int) {
			for _, r := range readers {
				r.mu.Lock()
				n += len(r.later)
				r.mu.Unlock()
			}
			return n
		}
		first := readers[0]
		if !s.Term().Attach(first.Subscriber, keys(1, 2), nil) || waiting() != grants {
			t.Fatalf("the first stream is told %d of %d", waiting(), grants)
		}
		for i := range 20 {
			r := readers[(i+1)%2]
			s.Term().Attach(r.Subscriber, keys(1, 2), nil)
			s.Term().Beat(r.Subscriber, sid(byte(1+i/2%2)), func(wire.Code) {})
			third := newSlowReader(s, "n2")
			s.Term().Attach(third.Subscriber, keys(1, 2), nil)
			s.Term().Quit(third.Subscriber)
		}
		if n := waiting(); n > term.MaxRetold+grants {
			t.Errorf("%d events wait", n)
		}
		for _, r := range readers {
			r.read()
		}
		for i := range 4 {
			r := readers[i%2]
			if !s.Term().Attach(r.Subscriber, keys(1, 2), nil) {
				t.Fatal("refused after everything was read")
			}
			told := r.read()
			if len(told) != grants && i > 0 {
				t.Errorf("told %d of %d", len(told), grants)
			}
		}
	})
}
