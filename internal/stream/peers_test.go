package stream

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/timing"
	"github.com/wardmote/wardmote/internal/wire"
)

var ann = member.Process{Name: "ann", Boot: 1, Addr: "10.0.0.1:7000"}

// town is a fake network: every dial begins a stream that answers by handle.
type town struct {
	handle func(*Request)
	block  chan struct{} // if not nil, a dial waits until the channel is closed
	refuse error         // if not nil, a dial fails
	renew  chan struct{} // if not nil, the connections of the dials end soon when it is closed
	mere   bool          // the dials find no voter

	mu      sync.Mutex
	dials   map[member.Process]int
	streams []*Stream // the far ends
}

func (n *town) dial(ctx context.Context, to member.Process) (net.Conn, error) {
	n.mu.Lock()
	n.dials[to]++
	block, refuse := n.block, n.refuse
	n.mu.Unlock()
	if block != nil {
		select {
		case <-block:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	if refuse != nil {
		return nil, refuse
	}
	near, far := net.Pipe()
	s := New(far, n.handle)
	s.Start()
	n.mu.Lock()
	n.streams = append(n.streams, s)
	renew := n.renew
	n.mu.Unlock()
	if n.mere {
		return mereConn{near}, nil
	}
	if renew != nil {
		return aged{near, renew}, nil
	}
	return near, nil
}

// aged is a connection with an end.
type aged struct {
	net.Conn
	renew chan struct{}
}

func (a aged) Renew() <-chan struct{} { return a.renew }

// mereConn leads to a process without the voter role.
type mereConn struct{ net.Conn }

func (mereConn) Voter() bool { return false }

// inTown runs f in a bubble. When f returns, the bubble waits for all goroutines,
// so a goroutine not joined by Stop fails the test.
func inTown(t *testing.T, handle func(*Request), f func(t *testing.T, n *town, p *Peers)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := &town{handle: handle, dials: make(map[member.Process]int)}
		p := NewPeers(n.dial)
		f(t, n, p)
		p.Stop()
		for _, s := range n.streams {
			s.Wait() // the near end is closed
		}
	})
}

func answerOK(q *Request) { q.Answer(wire.CodeOK, wire.Marshal(&wire.ProgressAnswer{Raft: "ann#1"})) }

func TestPeersDialOnceForManyQuestions(t *testing.T) {
	inTown(t, answerOK, func(t *testing.T, n *town, p *Peers) {
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				var a wire.ProgressAnswer
				if err := p.AskInto(t.Context(), ann, wire.Progress, nil, &a); err != nil || a.Raft != "ann#1" {
					t.Errorf("%+v, %v", a, err)
				}
			})
		}
		wg.Wait()
		if n.dials[ann] != 1 {
			t.Errorf("%d dials", n.dials[ann])
		}
		restarted := ann
		restarted.Boot++
		p.Ask(t.Context(), restarted, wire.Progress, nil)
		if n.dials[restarted] != 1 || n.dials[ann] != 1 {
			t.Errorf("another process at the address: %v dials", n.dials)
		}
	})
}

func TestPeersDialAgainAfterTheStreamHasStopped(t *testing.T) {
	inTown(t, answerOK, func(t *testing.T, n *town, p *Peers) {
		for i := range 3 {
			if _, err := p.Ask(t.Context(), ann, wire.Progress, nil); err != nil {
				t.Fatal(err)
			}
			if n.dials[ann] != i+1 {
				t.Errorf("%d dials after %d streams have stopped", n.dials[ann], i)
			}
			n.streams[i].Close()
			synctest.Wait()
		}
	})
}

func TestFailedDialFailsItsQuestionsAndIsRepeatedForTheNext(t *testing.T) {
	inTown(t, answerOK, func(t *testing.T, n *town, p *Peers) {
		n.block, n.refuse = make(chan struct{}), errors.New("refused")
		errs := make(chan error, 3)
		for range 2 {
			go func() {
				_, err := p.Ask(t.Context(), ann, wire.Progress, nil)
				errs <- err
			}()
		}
		p.Begin(t.Context(), ann, wire.Progress, nil, func(_ wire.Frame, err error) { errs <- err })
		synctest.Wait()
		close(n.block)
		for range 3 {
			if err := <-errs; !errors.Is(err, n.refuse) {
				t.Errorf("got %v", err)
			}
		}
		n.block, n.refuse = nil, nil
		if _, err := p.Ask(t.Context(), ann, wire.Progress, nil); err != nil {
			t.Errorf("the next question: %v", err)
		}
	})
}

func TestDialsAreLimitedInTime(t *testing.T) {
	inTown(t, answerOK, func(t *testing.T, n *town, p *Peers) {
		n.block = make(chan struct{})
		start := time.Now()
		if _, err := p.Ask(t.Context(), ann, wire.Progress, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if took := time.Since(start); took != timing.Dial {
			t.Errorf("gave up after %v", took)
		}
	})
}

func TestAnswersOtherThanOKAreRefusals(t *testing.T) {
	handle := func(q *Request) { q.Answer(wire.CodeNo, nil) }
	inTown(t, handle, func(t *testing.T, _ *town, p *Peers) {
		var refused *RefusedError
		err := p.AskInto(t.Context(), ann, wire.Progress, nil, new(wire.ProgressAnswer))
		if !errors.As(err, &refused) || refused.Code != wire.CodeNo {
			t.Errorf("got %v", err)
		}
		if f, err := p.Ask(t.Context(), ann, wire.Progress, nil); err != nil || f.Code != wire.CodeNo {
			t.Errorf("Ask: %+v, %v", f, err)
		}
	})
}

func TestQuestionsEndWithTheirContext(t *testing.T) {
	inTown(t, func(*Request) {}, func(t *testing.T, n *town, p *Peers) {
		n.block = make(chan struct{})
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := p.Ask(short, ann, wire.Progress, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("while dialling: %v", err)
		}
		done := make(chan error, 1)
		p.Begin(short, ann, wire.Progress, nil, func(_ wire.Frame, err error) { done <- err })
		if err := <-done; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("begun while dialling: %v", err)
		}
		close(n.block)
		short, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := p.Ask(short, ann, wire.Progress, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("while waiting for the answer: %v", err)
		}
	})
}

func TestBeginDoesNotWaitForTheDial(t *testing.T) {
	inTown(t, answerOK, func(t *testing.T, n *town, p *Peers) {
		n.block = make(chan struct{})
		answers := make(chan wire.Frame, 2)
		begin := func() {
			start := time.Now()
			p.Begin(t.Context(), ann, wire.Progress, nil, func(f wire.Frame, err error) {
				if err != nil {
					t.Error(err)
				}
				answers <- f
			})
			if time.Since(start) > 0 {
				t.Error("Begin waited")
			}
		}
		begin()
		synctest.Wait()
		close(n.block)
		if f := <-answers; f.Code != wire.CodeOK {
			t.Errorf("got %+v", f)
		}
		begin() // on the present stream
		<-answers
	})
}

func TestRequestsOfAPeerOnItsControlStreamAreBad(t *testing.T) {
	inTown(t, answerOK, func(t *testing.T, n *town, p *Peers) {
		if _, err := p.Ask(t.Context(), ann, wire.Progress, nil); err != nil {
			t.Fatal(err)
		}
		if f, err := n.streams[0].Call(t.Context(), wire.Confirm, nil); err != nil || f.Code != wire.CodeBad {
			t.Errorf("got %+v, %v", f, err)
		}
	})
}

func TestStopFailsEveryQuestionAndJoinsEverything(t *testing.T) {
	inTown(t, func(*Request) {}, func(t *testing.T, n *town, p *Peers) {
		bob := member.Process{Name: "bob", Boot: 1, Addr: "10.0.0.2:7000"}
		errs := make(chan error, 4)
		ask := func(to member.Process) {
			go func() {
				_, err := p.Ask(t.Context(), to, wire.Progress, nil)
				errs <- err
			}()
			p.Begin(t.Context(), to, wire.Progress, nil, func(_ wire.Frame, err error) { errs <- err })
		}
		ask(ann) // on a stream
		synctest.Wait()
		n.mu.Lock()
		n.block = make(chan struct{})
		n.mu.Unlock()
		ask(bob) // while dialling
		synctest.Wait()
		p.Stop()
		for range 4 {
			if err := <-errs; !errors.Is(err, replica.ErrStopped) {
				t.Errorf("got %v", err)
			}
		}
		if _, err := p.Ask(t.Context(), ann, wire.Progress, nil); !errors.Is(err, replica.ErrStopped) {
			t.Errorf("Ask after Stop: %v", err)
		}
		p.Begin(t.Context(), ann, wire.Progress, nil, func(_ wire.Frame, err error) { errs <- err })
		if err := <-errs; !errors.Is(err, replica.ErrStopped) {
			t.Errorf("Begin after Stop: %v", err)
		}
	})
}

// A connection at its end is replaced: the next question has a new stream, and the old
// one ends with its last answer.
func TestPeersRenewAStream(t *testing.T) {
	var mu sync.Mutex
	var held []*Request
	hold := func(q *Request) {
		if q.Type == wire.Who {
			answerOK(q)
			return
		}
		mu.Lock()
		held = append(held, q)
		mu.Unlock()
	}
	ask := func(t *testing.T, p *Peers) {
		if _, err := p.Ask(t.Context(), ann, wire.Who, nil); err != nil {
			t.Error(err)
		}
	}
	stopped := func(s *Stream) bool {
		synctest.Wait()
		select {
		case <-s.Stopped():
			return true
		default:
			return false
		}
	}
	inTown(t, hold, func(t *testing.T, n *town, p *Peers) {
		first := make(chan struct{})
		n.renew = first
		answers := make(chan error, 2)
		go func() { _, err := p.Ask(context.Background(), ann, wire.Progress, nil); answers <- err }()
		p.Begin(t.Context(), ann, wire.Progress, nil, func(_ wire.Frame, err error) { answers <- err })
		ask(t, p)
		synctest.Wait()
		n.renew = make(chan struct{})
		close(first)
		synctest.Wait()
		ask(t, p)
		if n.dials[ann] != 2 || stopped(n.streams[0]) {
			t.Fatalf("%d dials; the old stream has ended: %t", n.dials[ann], stopped(n.streams[0]))
		}
		answerOK(held[0])
		if <-answers != nil || stopped(n.streams[0]) {
			t.Error("the old stream ends before its last answer")
		}
		answerOK(held[1])
		if <-answers != nil || !stopped(n.streams[0]) {
			t.Error("the old stream outlives its last answer")
		}
		if close(n.renew); !stopped(n.streams[1]) {
			t.Error("an idle stream goes on")
		}
		ask(t, p)
		if n.dials[ann] != 3 {
			t.Errorf("%d dials", n.dials[ann])
		}
	})
	// Stop ends a replaced stream too.
	inTown(t, hold, func(t *testing.T, n *town, p *Peers) {
		n.renew = make(chan struct{})
		answer := make(chan error, 1)
		go func() { _, err := p.Ask(context.Background(), ann, wire.Progress, nil); answer <- err }()
		synctest.Wait()
		close(n.renew)
		synctest.Wait()
		p.Stop()
		if err := <-answer; !errors.Is(err, replica.ErrStopped) {
			t.Error(err)
		}
	})
}

// A process that has proved to be no voter gives no voter's word, asked by Ask, AskInto
// or Begin; its other answers are marked.
func TestAMemberWithoutTheRoleGivesNoVotersWord(t *testing.T) {
	yes := func(q *Request) {
		if q.Type == wire.Vouch && len(q.Body) > 0 {
			q.Answer(wire.CodeNotLeader, nil)
			return
		}
		q.Answer(wire.CodeOK, wire.Marshal(&wire.ProgressAnswer{Raft: "ann#1"}))
	}
	inTown(t, yes, func(t *testing.T, n *town, p *Peers) {
		n.mere = true
		told := 0
		p.Mere = func(member.Process) { told++ }
		types := []wire.Type{wire.Confirm, wire.Vouch, wire.Attest, wire.Follows, wire.Stand, wire.Invite, wire.Progress, wire.InConfig}
		for _, q := range types {
			var a wire.ProgressAnswer
			_, err := p.Ask(t.Context(), ann, q, nil)
			into := p.AskInto(t.Context(), ann, q, nil, &a)
			begun := make(chan error, 1)
			p.Begin(t.Context(), ann, q, nil, func(_ wire.Frame, err error) { begun <- err })
			if began := <-begun; !errors.Is(err, ErrMere) || !errors.Is(into, ErrMere) || !errors.Is(began, ErrMere) {
				t.Errorf("type %d: %v, %v, %v", q, err, into, began)
			}
		}
		if told != 3*len(types) {
			t.Errorf("told %d times", told)
		}
		if f, err := p.Ask(t.Context(), ann, wire.Vouch, []byte{1}); err != nil || f.Code != wire.CodeNotLeader {
			t.Errorf("a hint: %+v, %v", f, err)
		}
		for _, q := range []wire.Type{wire.Prepare, wire.Accept, wire.Retire, wire.Who} {
			if f, err := p.Ask(t.Context(), ann, q, nil); err != nil || !f.Mere {
				t.Errorf("type %d: %+v, %v", q, f, err)
			}
		}
	})
	inTown(t, yes, func(t *testing.T, n *town, p *Peers) {
		if f, err := p.Ask(t.Context(), ann, wire.Confirm, nil); err != nil || f.Mere {
			t.Errorf("a voter: %+v, %v", f, err)
		}
	})
}

// open counts the streams that have not ended.
func (n *town) open() (open int) {
	synctest.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range n.streams {
		select {
		case <-s.Stopped():
		default:
			open++
		}
	}
	return open
}

// A member of many names, boots or addresses has this node dial each, and reads every
// stream: the streams that nobody uses are closed, the longest idle first.
func TestIdleStreamsAreBounded(t *testing.T) {
	inTown(t, func(q *Request) {
		if q.Type != wire.Stand { // a question that stays open
			answerOK(q)
		}
	}, func(t *testing.T, n *town, p *Peers) {
		process := func(boot int) member.Process { return member.Process{Name: "ann", Boot: uint64(boot), Addr: ann.Addr} }
		ask := func(boot int) {
			if _, err := p.Ask(t.Context(), process(boot), wire.Progress, nil); err != nil {
				t.Fatalf("boot %d: %v", boot, err)
			}
		}
		failed := make(chan error, 1)
		p.Begin(t.Context(), process(1), wire.Stand, nil, func(_ wire.Frame, err error) { failed <- err })
		ask(2)
		for boot := range maxPeers + 10 {
			ask(3 + boot)
			ask(2) // in use again and again
		}
		if open := n.open(); open > maxPeers {
			t.Errorf("%d streams, want %d", open, maxPeers)
		}
		if n.dials[process(2)] != 1 {
			t.Errorf("the stream in use was dialled %d times", n.dials[process(2)])
		}
		select {
		case err := <-failed:
			t.Errorf("the open question failed: %v", err)
		default:
		}
		ask(3) // an evicted one
	})
}

// A member that reads all questions and answers none is asked so many questions at a
// time, and loses the stream then.
func TestUnansweredQuestionsAreBounded(t *testing.T) {
	inTown(t, func(q *Request) {}, func(t *testing.T, n *town, p *Peers) {
		p.most = 100
		var mu sync.Mutex
		failed, asked := 0, 2*p.most+2
		for range asked {
			p.Begin(t.Context(), ann, wire.Confirm, nil, func(_ wire.Frame, err error) {
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					failed++
				}
			})
			synctest.Wait()
		}
		mu.Lock()
		defer mu.Unlock()
		if left := asked - failed; left > p.most {
			t.Errorf("%d questions wait", left)
		}
		if dials := n.dials[ann]; dials > 3 {
			t.Errorf("%d dials", dials)
		}
	})
}
