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
	n.mu.Unlock()
	return near, nil
}

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
