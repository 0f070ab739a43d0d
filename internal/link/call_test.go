package link

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/stream"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

var acquire = machine.Acquire{Session: sid(1), Seq: 1, Key: "k"}

// failed fails the test unless err wraps want, in a *replica.Error with the given
// Unknown.
func failed(t *testing.T, err, want error, unknown bool) {
	t.Helper()
	var e *replica.Error
	if !errors.As(err, &e) || !errors.Is(err, want) || e.Unknown != unknown {
		t.Errorf("got %#v (%v), want %v, unknown %v", err, err, want, unknown)
	}
}

// grant answers every command with an outcome.
func grant(q *stream.Request) {
	q.Answer(wire.CodeOK, machine.AppendOutcome(nil, machine.Outcome{Code: machine.Granted, Token: 42}))
}

func TestACommandIsForwarded(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		a := s.host("a", 5)
		a.setAnswer(grant)
		s.gossip("a", leads(5))
		o, err := s.k.Propose(s.within(time.Second), acquire)
		if err != nil || o.Code != machine.Granted || o.Token != 42 {
			t.Errorf("%+v, %v", o, err)
		}
		cmd, err := machine.DecodeCommand(a.requests[0].Body)
		if err != nil || !reflect.DeepEqual(cmd, machine.Command(acquire)) {
			t.Errorf("the leader received %+v, %v", cmd, err)
		}
	})
}

// After a lost answer the command is sent to the next leader. Only an error would
// tell of the first attempt.
func TestACommandIsRepeatedAfterALostAnswer(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		a := s.host("a", 5)
		a.setAnswer(silence)
		s.gossip("a", leads(5))
		s.attachedTo("a")
		done := make(chan error, 1)
		go func() {
			_, err := s.k.Propose(s.within(time.Hour), acquire)
			done <- err
		}()
		synctest.Wait()
		a.resign()
		synctest.Wait()
		s.host("b", 6).setAnswer(grant)
		s.gossip("b", leads(6))
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// Unknown is remembered from every attempt, also when a later attempt surely failed.
func TestUnknownIsRemembered(t *testing.T) {
	for _, tt := range []struct {
		claim string
		fate  func(a *host, q *stream.Request)
		want  bool
	}{
		{"a lost answer", func(a *host, _ *stream.Request) { go a.resign() }, true},
		{"an unknown fate", func(a *host, q *stream.Request) {
			q.Answer(wire.CodeUnknown, nil)
			time.AfterFunc(time.Millisecond, a.resign)
		}, true},
		{"surely nothing", func(a *host, q *stream.Request) {
			q.Answer(wire.CodeNotLeader, nil)
			time.AfterFunc(time.Millisecond, a.resign)
		}, false},
	} {
		onStage(t, func(t *testing.T, s *stage) {
			a := s.host("a", 5)
			a.setAnswer(func(q *stream.Request) { tt.fate(a, q) })
			s.gossip("a", leads(5))
			b := s.host("b", 0)
			b.setAnswer(with(wire.CodeBusy))
			s.attachedTo("a")
			time.AfterFunc(time.Second, func() {
				b.serve(6)
				s.gossip("b", leads(6))
			})
			_, err := s.k.Propose(s.within(20*time.Second), acquire)
			t.Log(tt.claim)
			failed(t, err, context.DeadlineExceeded, tt.want)
			if !slices.Contains(b.received(), wire.Propose) {
				t.Errorf("%s: the next leader was not asked", tt.claim)
			}
		})
	}
}

func TestAVerdictThatIsNotKnownMeansUnknown(t *testing.T) {
	for code, want := range map[wire.Code]bool{wire.CodeNotLeader: false, wire.CodeBusy: false, wire.CodeUnknown: true, 200: true} {
		onStage(t, func(t *testing.T, s *stage) {
			own := newOwnTerm(5)
			own.code = code
			s.lead(own)
			_, err := s.k.Propose(s.within(time.Second), acquire)
			t.Logf("code %d", code)
			failed(t, err, context.DeadlineExceeded, want)
		})
	}
}

func TestACallEndsWithItsContext(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		// No leader: the error gives the reason.
		_, err := s.k.Propose(s.within(time.Second), acquire)
		failed(t, err, context.DeadlineExceeded, false)
		failed(t, err, replica.ErrNoQuorum, false)
		if err.Error() != "cluster: no quorum: the reason: context deadline exceeded" {
			t.Errorf("says %q", err)
		}
		if err := s.k.Reached(); !errors.Is(err, replica.ErrNoQuorum) {
			t.Errorf("Reached: %v", err)
		}
		// A silent leader.
		a := s.host("a", 5)
		a.setAnswer(silence)
		s.gossip("a", leads(5))
		s.attachedTo("a")
		if err := s.k.Reached(); err != nil {
			t.Errorf("Reached: %v", err)
		}
		_, err = s.k.Propose(s.within(time.Second), acquire)
		failed(t, err, context.DeadlineExceeded, true)
		// The cause is told, and a call on an ended context asks nobody. The last call's
		// Cancel is on its way until the bubble rests.
		synctest.Wait()
		before := len(a.received())
		why := errors.New("why")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(why)
		_, err = s.k.Propose(ctx, acquire)
		failed(t, err, why, false)
		synctest.Wait()
		if len(a.received()) != before {
			t.Error("the leader was asked")
		}
	})
}

func TestCallsEndWithTheNode(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		errs := make(chan error, 2)
		propose := func() {
			_, err := s.k.Propose(s.within(time.Hour), acquire)
			errs <- err
		}
		go propose() // waits for a leader
		synctest.Wait()
		close(s.done)
		failed(t, <-errs, replica.ErrStopped, false)
		go propose()
		failed(t, <-errs, replica.ErrStopped, false)
	})
	onStage(t, func(t *testing.T, s *stage) {
		errs := make(chan error, 2)
		a := s.host("a", 5)
		a.setAnswer(silence)
		s.gossip("a", leads(5))
		s.attachedTo("a")
		go func() {
			_, err := s.k.Propose(s.within(time.Hour), acquire)
			errs <- err
		}()
		synctest.Wait()
		close(s.done)
		failed(t, <-errs, replica.ErrStopped, true)
	})
}

// A hung leader keeps no call: neither this node itself with a hung disk, nor
// another member without answers.
func TestACallLeavesAHungLeader(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		own := newOwnTerm(5)
		own.hung = true
		s.lead(own)
		s.attachedTo("me")
		done := make(chan error, 1)
		go func() {
			_, err := s.k.Propose(s.within(time.Hour), acquire)
			done <- err
		}()
		synctest.Wait()
		s.lead(nil)
		close(own.ended)
		synctest.Wait()
		s.lead(newOwnTerm(6))
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	onStage(t, func(t *testing.T, s *stage) {
		a, b := s.host("a", 5), s.host("b", 6)
		a.setAnswer(silence)
		b.setAnswer(grant)
		s.gossip("a", leads(5))
		s.attachedTo("a")
		start := time.Now()
		done := make(chan error, 1)
		go func() {
			_, err := s.k.Propose(s.within(time.Hour), acquire)
			done <- err
		}()
		synctest.Wait()
		a.serve(0)
		s.set(func() { s.guess = "b" }) // known, but without a wake-up
		if err := <-done; err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took < timing.AnswerLimit(ttl) || took > timing.AnswerLimit(ttl)+10*time.Millisecond {
			t.Errorf("it took %v", took)
		}
	})
}

// Busy and NotLeader are tried again with growing pauses, not in a tight loop.
func TestRefusedCallsAreTriedAgainAfterAPause(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		a := s.host("a", 5)
		a.setAnswer(with(wire.CodeBusy))
		s.gossip("a", leads(5))
		s.attachedTo("a")
		_, err := s.k.Propose(s.within(10*time.Second), acquire)
		failed(t, err, context.DeadlineExceeded, false)
		n := len(a.received())
		if least, most := int(10*time.Second/timing.MostBackoff(3*time.Second)), int(20*time.Second/timing.MostBackoff(3*time.Second))+10; n < least || n > most {
			t.Errorf("asked %d times, want %d to %d", n, least, most)
		}
	})
}

// A leader of another version refuses for good: nothing was done.
func TestALeaderOfAnotherVersionIsSaid(t *testing.T) {
	for _, code := range []wire.Code{wire.CodeVersion, wire.CodeBad} {
		onStage(t, func(t *testing.T, s *stage) {
			s.host("a", 5).setAnswer(with(code))
			s.k.Claim(key(1))
			s.gossip("a", leads(5))
			_, err := s.k.Propose(s.within(time.Second), acquire)
			failed(t, err, replica.ErrVersion, false)
		})
	}
}

func TestABeatTellsOfASessionThatIsNotOpen(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		a := s.host("a", 5)
		s.gossip("a", leads(5))
		if err := s.k.Beat(s.within(time.Second), sid(1)); err != nil {
			t.Error(err)
		}
		a.setAnswer(with(wire.CodeNoSession))
		if err := s.k.Beat(s.within(time.Second), sid(1)); err != replica.ErrNoSession {
			t.Errorf("got %v", err)
		}
		if body := a.requests[0].Body; machine.SessionID(body) != sid(1) {
			t.Errorf("the leader received %x", body)
		}
	})
}

// Answers arrive as the leader gave them. An unreadable answer is no answer.
func TestReadsAndScansAreForwarded(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		a := s.host("a", 5)
		s.gossip("a", leads(5))
		status := machine.Status{Key: "k", Held: 1, Holders: []machine.Grant{{Session: sid(1), Token: 3}}, Version: 9}
		a.setAnswer(func(q *stream.Request) {
			switch q.Type {
			case wire.Read:
				q.Answer(wire.CodeOK, wire.Marshal(&replica.Answer{
					Status: status, Behind: 2, Waits: true, Version: 11,
				}))
			case wire.Scan:
				q.Answer(wire.CodeOK, wire.Marshal(&replica.Scanned{Keys: []machine.Status{status}, More: true, Version: 9, Lost: true}))
			}
		})
		query := replica.Query{Key: "k", Waiters: 10, Session: sid(2), Seq: 1}
		got, err := s.k.Read(s.within(time.Second), query)
		want := replica.Answer{Status: status, Behind: 2, Waits: true, Version: 11}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("read %+v, %v", got, err)
		}
		scan := replica.Scan{Prefix: "k", Limit: 10}
		keys, err := s.k.Scan(s.within(time.Second), scan)
		if err != nil || !reflect.DeepEqual(keys, replica.Scanned{Keys: []machine.Status{status}, More: true, Version: 9, Lost: true}) {
			t.Errorf("scanned %+v, %v", keys, err)
		}
		var q replica.Query
		var sq replica.Scan
		if wire.Unmarshal(a.requests[0].Body, &q) != nil || !reflect.DeepEqual(q, query) {
			t.Errorf("the leader received %+v", q)
		}
		if wire.Unmarshal(a.requests[1].Body, &sq) != nil || sq != scan {
			t.Errorf("the leader received %+v", sq)
		}
		a.setAnswer(func(q *stream.Request) { q.Answer(wire.CodeOK, []byte{0xff}) })
		_, err = s.k.Read(s.within(time.Second), query)
		failed(t, err, context.DeadlineExceeded, true)
		_, err = s.k.Scan(s.within(time.Second), scan)
		failed(t, err, context.DeadlineExceeded, true)
		_, err = s.k.Propose(s.within(time.Second), acquire)
		failed(t, err, context.DeadlineExceeded, true)
	})
}

func TestQuestionsOverTheLimitsAskNobody(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		a := s.host("a", 5)
		s.gossip("a", leads(5))
		if _, err := s.k.Read(t.Context(), replica.Query{Key: "k", Waiters: replica.MaxListed + 1}); err == nil {
			t.Error("a read over the limits was sent")
		}
		if _, err := s.k.Scan(t.Context(), replica.Scan{Limit: replica.MaxScanned + 1}); err == nil {
			t.Error("a scan over the limits was sent")
		}
		if _, err := s.k.Values(t.Context(), replica.ValuesQuery{Limit: replica.MaxScanned + 1}); err == nil {
			t.Error("a question for values over the limits was sent")
		}
		if _, err := s.k.Sessions(t.Context(), replica.SessionsQuery{}); err == nil {
			t.Error("a question for sessions over the limits was sent")
		}
		if got := a.received(); len(got) > 0 {
			t.Errorf("the leader received types %v", got)
		}
	})
}

// When the caller gives up, a read or scan that waits for a change is cancelled at
// the leader. Other reads are answered soon anyway.
func TestWaitingReadsAreCancelled(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		a := s.host("a", 5)
		a.setAnswer(silence)
		s.gossip("a", leads(5))
		s.attachedTo("a")
		s.k.Read(s.within(time.Second), replica.Query{Key: "k", Version: 9})
		s.k.Scan(s.within(time.Second), replica.Scan{Limit: 1, Since: 9})
		s.k.Sessions(s.within(time.Second), replica.SessionsQuery{Limit: 1, Gone: true})
		s.k.Read(s.within(time.Second), replica.Query{Key: "k"})
		s.k.Sessions(s.within(time.Second), replica.SessionsQuery{Limit: 1})
		synctest.Wait()
		want := []wire.Type{wire.Read, wire.Cancel, wire.Scan, wire.Cancel, wire.Sessions, wire.Cancel, wire.Read, wire.Sessions}
		if got := a.received(); !slices.Equal(got, want) {
			t.Fatalf("the leader received types %v, want %v", got, want)
		}
		for _, i := range []int{0, 2, 4} {
			var id uint64
			if wire.Unmarshal(a.requests[i+1].Body, &id) != nil || id != a.requests[i].ID {
				t.Errorf("request %d was cancelled as %d", a.requests[i].ID, id)
			}
		}
	})
}

// Granting and Depart may wait long for their answers, and are asked again of the
// next leader.
func TestGrantingAndDepartWait(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		a := s.host("a", 5)
		a.setAnswer(silence)
		s.gossip("a", leads(5))
		s.attachedTo("a")
		errs := make(chan error, 2)
		go func() { errs <- s.k.Granting(s.within(time.Hour)) }()
		synctest.Wait()
		go func() { errs <- s.k.Depart(s.within(time.Hour)) }()
		time.Sleep(time.Minute)
		if got := a.received(); !slices.Equal(got, []wire.Type{wire.Ready, wire.Depart}) {
			t.Errorf("the leader received types %v", got)
		}
		var req wire.DepartRequest
		if wire.Unmarshal(a.requests[1].Body, &req) != nil || req != (wire.DepartRequest{Name: "me", Boot: 7}) {
			t.Errorf("asked to replace %+v", req)
		}
		s.host("b", 6)
		s.gossip("b", leads(6))
		for range 2 {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
	})
}

// A probe that is given up before the founding wait is over leaves nothing behind, neither
// here nor at the leader.
func TestAGivenUpProbeIsCancelled(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		a := s.host("a", 5)
		a.setAnswer(silence)
		s.gossip("a", leads(5))
		s.attachedTo("a")
		if err := s.k.Granting(s.within(time.Second)); err == nil {
			t.Error("granting")
		}
		synctest.Wait()
		var id uint64
		if got := a.received(); !slices.Equal(got, []wire.Type{wire.Ready, wire.Cancel}) {
			t.Errorf("the leader received types %v", got)
		} else if wire.Unmarshal(a.requests[1].Body, &id) != nil || id != a.requests[0].ID {
			t.Errorf("cancelled %d, asked %d", id, a.requests[0].ID)
		}
	})
}

func TestTheLinkNamesItsMember(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		if s.k.Member() != "me" || s.k.Cluster() != (machine.ClusterID{1}) || s.k.Enter() == nil {
			t.Errorf("member %q of %x", s.k.Member(), s.k.Cluster())
		}
	})
}

// TestALateVerdictReachesNoLaterRequest: an upstream may tell the verdict on a request that
// was given up, or tell it twice, while the memory serves the next request.
func TestALateVerdictReachesNoLaterRequest(t *testing.T) {
	var memory sync.Pool
	same := 0
	for range 100 { // the pool may drop what it was given
		v, first := begin[int](&memory)
		v.tell(first, 1, wire.CodeOK)
		v.tell(first, 2, wire.CodeOK) // a second one must not block, and changes nothing
		if value, code, told := v.end(&memory); value != 1 || code != wire.CodeOK || !told {
			t.Fatalf("%d, code %d, %v", value, code, told)
		}
		w, second := begin[int](&memory)
		if w == v {
			same++
		}
		v.tell(first, 3, wire.CodeOK)
		if v.tell(0, 4, wire.CodeOK); len(w.come) != 0 {
			t.Fatal("a late verdict wakes the next request")
		}
		w.tell(second, 5, wire.CodeNo)
		<-w.come
		if value, code, told := w.end(&memory); value != 5 || code != wire.CodeNo || !told {
			t.Fatalf("%d, code %d, %v", value, code, told)
		}
		u, third := begin[int](&memory)
		if value, _, told := u.end(&memory); value != 0 || told {
			t.Fatalf("use %d begins with %d, told %v", third, value, told)
		}
	}
	if same == 0 {
		t.Error("no memory was used again")
	}
}
