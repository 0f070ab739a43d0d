package term_test

import (
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/term"
	"github.com/wardmote/wardmote/internal/testrounds"
	"github.com/wardmote/wardmote/internal/wire"
)

// A recorder is a subscriber writing down all events.
type recorder struct {
	term.Subscriber
	mu     sync.Mutex
	events []string
}

func newRecorder() *recorder {
	r := &recorder{}
	r.Node = "n"
	r.Event = func(e machine.Event) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.events = append(r.events, fmt.Sprintf("%d %v %s", e.Kind, number(e.Session), e.Key))
	}
	return r
}

// told returns the events since the last call.
func (r *recorder) told() string {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	events := r.events
	r.events = nil
	return strings.Join(events, ", ")
}

func TestEventsOfNobodysSessionAreToldToNobody(t *testing.T) {
	onStage(t, func(s *stage) {
		s.open(1)
		s.Must(machine.Open{Session: sid(2), Client: "other", Node: "n", TTL: 3000})
		r := newRecorder()
		s.Term().Join(&r.Subscriber)
		// A key of no session: only its sender is told of an end.
		s.Term().Attach(&r.Subscriber, keys(9, 1, 2), nil)
		if got := r.told(); got != "3 9 " {
			t.Errorf("told %s", got)
		}
		s.Must(machine.Acquire{Session: sid(1), Seq: 1, Key: "k", Spec: machine.Spec{Delay: 1000}},
			machine.Acquire{Session: sid(2), Seq: 1, Key: "k"},
			machine.Acquire{Session: sid(1), Seq: 2, Key: "j"},
			machine.Ask{Session: sid(1), Key: "j"})
		s.Must(machine.Expire{Session: sid(1), Term: 1})
		// Contended, asked, twice lost, and ended. The leader alone is told of
		// the delay of k.
		if got := r.told(); got != "7 1 k, 6 1 j, 2 1 k, 2 1 j, 3 1 " {
			t.Errorf("told %s", got)
		}
	})
}

func TestASubscriberThatAttachesIsToldWhatItMissed(t *testing.T) {
	onStage(t, func(s *stage) {
		s.open(1)
		s.open(2)
		s.open(3)
		token := s.acquire(1, 1, "k")
		s.acquire(2, 1, "k")
		first, second := newRecorder(), newRecorder()
		s.Term().Join(&first.Subscriber)
		s.Term().Join(&second.Subscriber)
		s.Term().Attach(&first.Subscriber, keys(2, 3), nil)
		s.Must(machine.Release{Session: sid(1), Token: token})
		if got := first.told(); got != "1 2 k" {
			t.Errorf("told %s", got)
		}
		// The session's stream is another now; the grant was not marked as seen.
		s.Term().Attach(&second.Subscriber, keys(2), nil)
		s.Must(machine.Close{Session: sid(2)})
		if got := second.told(); got != "1 2 k, 2 2 k, 3 2 " {
			t.Errorf("the second is told %s", got)
		}
		s.Must(machine.Close{Session: sid(3)})
		if got := first.told(); got != "3 3 " {
			t.Errorf("the first is told %s", got)
		}
		// The end of a session is told by a confirmed leader only.
		s.HoldRounds()
		s.Term().Attach(&first.Subscriber, keys(2, 3), nil)
		if got := first.told(); got != "" {
			t.Errorf("told %s before a round", got)
		}
		s.AnswerRound(false)
		if got := first.told(); got != "" {
			t.Errorf("told %s by a leader that is not confirmed", got)
		}
		s.ReleaseRounds()
		s.Term().Attach(&first.Subscriber, keys(2), nil)
		if got := first.told(); got != "3 2 " {
			t.Errorf("told %s", got)
		}
	})
}

// The events of a session follow the stream of the session's commands and beats.
func TestEventsFollowTheSession(t *testing.T) {
	onStage(t, func(s *stage) {
		s.open(1)
		s.open(2)
		token := s.acquire(2, 1, "k")
		tm := s.Term()
		a, b := newRecorder(), newRecorder()
		tm.Join(&a.Subscriber)
		tm.Join(&b.Subscriber)
		tm.Show(&a.Subscriber, key(1))
		tm.Show(&b.Subscriber, key(1))
		a.told()
		tm.Propose(&a.Subscriber, machine.Acquire{Session: sid(1), Seq: 1, Key: "k"}, func(machine.Outcome, wire.Code) {})
		synctest.Wait()
		tm.Beat(&b.Subscriber, sid(1), func(wire.Code) {})
		s.Must(machine.Release{Session: sid(2), Token: token})
		if got := a.told() + "; " + b.told(); got != "; 1 1 k" {
			t.Errorf("told %s", got)
		}
		tm.Quit(&b.Subscriber)
		s.Must(machine.Close{Session: sid(1)})
		if got := a.told() + "; " + b.told(); got != "1 1 k, 2 1 k, 3 1 ; " {
			t.Errorf("told %s after the second quit", got)
		}
		s.open(3)
		tm.Attach(&a.Subscriber, keys(3), nil)
		tm.Detach(&a.Subscriber, sid(3))
		s.Must(machine.Close{Session: sid(3)})
		if got := a.told(); got != "" {
			t.Errorf("told %s after the session was detached", got)
		}
	})
}

// A member asks for the leader in several places, so that two of its streams attach
// at once. The stream that attached last is given up: the other is told everything.
func TestTheRoutesOfAStreamGivenUpGoToTheProcessesOtherStream(t *testing.T) {
	onStage(t, func(s *stage) {
		mine := opening(1)
		mine.Boot = 7
		s.Must(mine)
		s.open(2)
		held, gone := s.acquire(2, 1, "k"), s.acquire(2, 2, "l")
		s.acquire(1, 1, "k")
		s.acquire(1, 2, "l")
		tm := s.Term()
		kept, givenUp, later := newRecorder(), newRecorder(), newRecorder()
		kept.Boot, givenUp.Boot, later.Boot = 7, 7, 8
		for _, r := range []*recorder{kept, givenUp, later} {
			tm.Join(&r.Subscriber)
		}
		tm.Attach(&kept.Subscriber, keys(1), nil)
		tm.Attach(&givenUp.Subscriber, keys(1), nil)
		s.Must(machine.Release{Session: sid(2), Token: held}) // told to a stream that nobody reads
		tm.Quit(&givenUp.Subscriber)
		if got := kept.told(); got != "1 1 k" {
			t.Errorf("told %q when the other stream was given up", got)
		}
		s.Must(machine.Release{Session: sid(2), Token: gone})
		if got := kept.told(); got != "1 1 l" {
			t.Errorf("told %q afterwards", got)
		}
		tm.Quit(&kept.Subscriber)
		s.Must(machine.Close{Session: sid(1)})
		if got := later.told(); got != "" {
			t.Errorf("a later process of the member is told %q", got)
		}
	})
}

// Of several streams the newest inherits the routes: an older one may be dead, unknown to the
// leader, and a grant told there is seen with the session's next beat.
func TestTheNewestStreamInheritsTheRoutes(t *testing.T) {
	onStage(t, func(s *stage) {
		s.open(1)
		s.open(2)
		tm := s.Term()
		streams := make([]*recorder, 8)
		for i := range streams {
			streams[i] = newRecorder()
			tm.Join(&streams[i].Subscriber)
		}
		for _, r := range streams {
			tm.Attach(&r.Subscriber, keys(1), nil)
			r.told()
		}
		for i := len(streams) - 1; i > 0; i-- {
			key := fmt.Sprint("k", i)
			tm.Quit(&streams[i].Subscriber)
			s.acquire(1, uint64(i), key)
			want := fmt.Sprintf("7 1 %s", key)
			s.acquire(2, uint64(i), key)
			if got := streams[i-1].told(); !strings.HasSuffix(got, want) {
				t.Errorf("stream %d is told %q without its successor, want %q", i-1, got, want)
			}
		}
	})
}

func TestASubscriberIsStoppedWithTheTerm(t *testing.T) {
	onStage(t, func(s *stage) {
		old := s.Term()
		r := newRecorder()
		stopped := 0
		r.Stop = func() { stopped++ }
		var bounds []wire.AttachAnswer
		r.Bound = func(a wire.AttachAnswer) { bounds = append(bounds, a) }
		old.Join(&r.Subscriber)
		old.AnnounceBound(5000)
		if len(bounds) != 1 || !reflect.DeepEqual(bounds[0], wire.AttachAnswer{Term: 1, TTL: 5000}) {
			t.Errorf("told %v", bounds)
		}
		s.Lead()
		if stopped != 1 {
			t.Errorf("stopped %d times", stopped)
		}
		if old.Join(&newRecorder().Subscriber) {
			t.Error("joined a term that has ended")
		}
		if old.AnnounceBound(5000); len(bounds) != 1 {
			t.Errorf("told %v", bounds)
		}
	})
}

// The events of a newly opened session are routed by the session's next command or
// beat.
func TestAnOpenedSessionIsRouted(t *testing.T) {
	onStage(t, func(s *stage) {
		r := newRecorder()
		tm := s.Term()
		tm.Join(&r.Subscriber)
		tm.Show(&r.Subscriber, key(1))
		for _, cmd := range []machine.Command{opening(1), machine.Acquire{Session: sid(1), Seq: 1, Key: "k"}} {
			done := make(chan wire.Code, 1)
			tm.Propose(&r.Subscriber, cmd, func(_ machine.Outcome, c wire.Code) { done <- c })
			if c := verdict(done); c != wire.CodeOK {
				t.Fatal(c)
			}
		}
		time.Sleep(2 * ttl)
		if got := r.told(); got != "2 1 k, 3 1 " {
			t.Errorf("told %s", got)
		}
	})
}

// A session ends while a subscriber attaches to the session: the subscriber is told
// of the end, and the route of the session's events is removed.
func TestASessionEndsWhileASubscriberAttaches(t *testing.T) {
	for range testrounds.Rounds(60, 300) {
		onStage(t, func(s *stage) {
			s.open(1)
			r := newRecorder()
			s.Term().Join(&r.Subscriber)
			var attach sync.WaitGroup
			attach.Go(func() { s.Term().Attach(&r.Subscriber, keys(1), nil) })
			s.Must(machine.Close{Session: sid(1)})
			attach.Wait()
			if got := r.told(); !strings.Contains(got, "3 1 ") || s.Term().Routed() > 0 {
				t.Errorf("told %q, %d sessions are routed", got, s.Term().Routed())
			}
		})
		if t.Failed() {
			return
		}
	}
}
