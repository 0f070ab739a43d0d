package term_test

import (
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/stream"
	"github.com/wardmote/wardmote/internal/term"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wakeup"
	"github.com/wardmote/wardmote/internal/wire"
)

// A voter is a node that members ask for the leader.
type voter struct {
	mu      sync.Mutex
	hint    wire.Hint
	heard   time.Time
	changed wakeup.All
}

// set changes what the voter knows.
func (v *voter) set(f func()) {
	v.mu.Lock()
	f()
	v.mu.Unlock()
	v.changed.Wake()
}

// asked has a member ask the voter, and returns the stream and the answers.
func (v *voter) asked(t *testing.T, reqs ...wire.FindRequest) (*stream.Stream, <-chan wire.Frame) {
	near, far := net.Pipe()
	served := make(chan struct{})
	go func() {
		defer close(served)
		term.ServeMember(far, "n2", 7, term.Guide{
			Current: func() *term.Term { return nil },
			Hint: func() wire.Hint {
				v.mu.Lock()
				defer v.mu.Unlock()
				return v.hint
			},
			Changed: v.changed.Wait,
			Heard: func() time.Time {
				v.mu.Lock()
				defer v.mu.Unlock()
				return v.heard
			},
		})
	}()
	s := stream.New(near, func(*stream.Request) {})
	s.Start()
	t.Cleanup(func() {
		s.Close()
		<-served
	})
	answers := make(chan wire.Frame, 9)
	for _, req := range reqs {
		if _, err := s.Begin(wire.Find, wire.Marshal(&req), func(f wire.Frame, err error) {
			if err == nil {
				answers <- f
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	return s, answers
}

// A voter keeps a question until there is news, and until the asker's patience ends.
func TestAVoterKeepsAQuestionUntilThereIsNews(t *testing.T) {
	known := wire.Hint{Term: 5, Leader: "a", Addr: "a:1", Votes: true}
	for _, tt := range []struct {
		claim string
		req   wire.FindRequest
		news  func(v *voter) // after a second
		want  time.Duration  // until the answer
		term  uint64
	}{
		{"a newer leader is known", wire.FindRequest{Above: 4, Wait: 5000}, nil, 0, 5},
		{"nothing happens", wire.FindRequest{Above: 5, Wait: 5000}, nil, 5 * time.Second, 5},
		{"the asker does not wait", wire.FindRequest{Above: 5}, nil, 0, 5},
		{"a voter waits no longer than its limit", wire.FindRequest{Above: 5, Wait: 1 << 60}, nil, timing.MostHold, 5},
		{"an election", wire.FindRequest{Above: 5, Wait: 5000}, func(v *voter) { v.set(func() { v.hint.Term = 6 }) }, time.Second, 6},
		{"a vote is under way", wire.FindRequest{Above: 5, Wait: 5000}, func(v *voter) {
			v.set(func() { v.hint.Leader, v.hint.Term = "", 6 })
		}, 5 * time.Second, 6},
		{"the voter is removed", wire.FindRequest{Above: 5, Wait: 5000}, func(v *voter) { v.set(func() { v.hint.Votes = false }) }, time.Second, 5},
		{"the lost leader lives", wire.FindRequest{Above: 5, Wait: 5000, Lost: true}, func(v *voter) {
			v.mu.Lock()
			v.heard = time.Now()
			v.mu.Unlock()
		}, time.Second, 5},
		{"the lost leader was heard just before", wire.FindRequest{Above: 5, Wait: 5000, Lost: true}, func(v *voter) {
			v.mu.Lock()
			v.heard = time.Now().Add(-time.Second + timing.SignOfLife)
			v.mu.Unlock()
		}, 5 * time.Second, 5},
		{"a living leader is no news to its member", wire.FindRequest{Above: 5, Wait: 5000}, func(v *voter) {
			v.set(func() { v.heard = time.Now() })
		}, 5 * time.Second, 5},
	} {
		synctest.Test(t, func(t *testing.T) {
			v := &voter{hint: known}
			began := time.Now()
			_, answers := v.asked(t, tt.req)
			if tt.news != nil {
				time.AfterFunc(time.Second, func() { tt.news(v) })
			}
			f := <-answers
			var h wire.Hint
			if err := wire.Unmarshal(f.Body, &h); f.Code != wire.CodeOK || err != nil || h.Term != tt.term {
				t.Errorf("%s: %v, %+v, %v", tt.claim, f.Code, h, err)
			}
			if took := time.Since(began); took < tt.want || took > tt.want+timing.SignOfLife {
				t.Errorf("%s: answered after %v, want %v", tt.claim, took, tt.want)
			}
		})
	}
}

// A stream has one question under way, and a question that waits ends with the
// stream.
func TestOneQuestionWaitsOnAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &voter{hint: wire.Hint{Term: 5, Leader: "a", Votes: true}}
		wait := wire.FindRequest{Above: 5, Wait: 5000}
		_, answers := v.asked(t, wait, wait)
		if f := <-answers; f.Code != wire.CodeBusy {
			t.Errorf("the second question: %v", f.Code)
		}
		if f := <-answers; f.Code != wire.CodeOK {
			t.Errorf("the first question: %v", f.Code)
		}
		s, _ := v.asked(t, wire.FindRequest{Above: 5, Wait: 30_000})
		synctest.Wait()
		s.Close() // the bubble fails if a goroutine stays
		if f, err := func() (wire.Frame, error) {
			s, _ := v.asked(t)
			return s.Call(t.Context(), wire.Find, []byte("garbage"))
		}(); err != nil || f.Code != wire.CodeBad {
			t.Errorf("garbage: %v, %v", f.Code, err)
		}
	})
}
