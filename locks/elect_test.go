package locks

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/term/termtest"
)

func TestResignedLeaderStandsAgainBehindItsSuccessor(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var mu sync.Mutex
		var terms []string
		var retries []LockEvent
		leading := false
		ctx, cancel := context.WithCancel(bg)
		var calls []*call[struct{}]
		elect := func(name string, successor func(n int) error) {
			m := w.join("node-" + name)
			c := m.client(Options{Name: name, Trace: &Trace{Retrying: func(_ context.Context, e LockEvent) {
				mu.Lock()
				defer mu.Unlock()
				retries = append(retries, e)
			}}})
			t.Cleanup(func() { shutdown(t, c) })
			n := 0
			call := does(func(ctx context.Context) error {
				return c.Elect(ctx, "k", func(ctx context.Context, l *Lock) error {
					mu.Lock()
					if leading {
						t.Error("two lead")
					}
					leading = true
					terms = append(terms, name)
					n++
					n := n
					mu.Unlock()
					defer func() { mu.Lock(); leading = false; mu.Unlock() }()
					select {
					case <-time.After(time.Second):
						return successor(n)
					case <-ctx.Done():
						return ctx.Err()
					}
				})
			}, ctx)
			calls = append(calls, call)
			call.pends(t)
		}
		elect("a", func(n int) error {
			switch n {
			case 1:
				return fmt.Errorf("enough: %w", Resign("c"))
			case 2:
				return Resign("nobody")
			}
			return Resign("")
		})
		elect("b", func(int) error { return nil })
		elect("c", func(int) error { return Resign("") })
		time.Sleep(6500 * time.Millisecond)
		cancel()
		for _, c := range calls {
			if _, err := c.ends(t); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		if want := "[a c b a c b a]"; fmt.Sprint(terms) != want {
			t.Errorf("led: %v, want %s", terms, want)
		}
		if len(retries) != 1 || !errors.Is(retries[0].Err, ErrNoSuccessor) || retries[0].Key != "k" || retries[0].Token == 0 {
			t.Errorf("retries: %+v", retries)
		}
		if !w.free("k") {
			t.Error("the key is taken")
		}
	})
}

func TestResignationFreesTheKeyOnlyAfterLeadHasReturned(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		ctx, cancel := context.WithCancel(bg)
		var returned time.Time
		elect := does(func(ctx context.Context) error {
			return a.Elect(ctx, "k", func(ctx context.Context, l *Lock) error {
				if !returned.IsZero() {
					<-ctx.Done()
					return nil
				}
				<-l.Asked()
				time.Sleep(3 * testTTL) // the session is beaten for meanwhile
				if l.Err() != nil {
					t.Error(l.Err())
				}
				returned = time.Now()
				return Resign("b")
			})
		}, ctx)
		elect.pends(t)
		next := waiting(t, bg, b, "k")
		if err := b.Ask(bg, "k"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * testTTL)
		next.pends(t)
		next.ok(t)
		if d := time.Since(returned); d < 0 || d > time.Second {
			t.Errorf("granted %v after lead returned", d)
		}
		cancel()
		elect.ends(t)
	})
}

func TestResignationForNobodyThatCanBeNamedIsARelease(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		ctx, cancel := context.WithCancel(bg)
		elect := does(func(ctx context.Context) error {
			return a.Elect(ctx, "k", func(ctx context.Context, l *Lock) error {
				select {
				case <-time.After(time.Second):
				case <-ctx.Done():
				}
				return Resign("\xff")
			})
		}, ctx)
		elect.pends(t)
		release(t, acquire(t, b, "k"))
		cancel()
		elect.ends(t)
	})
}

func TestElectPassesItsOptionsOn(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		l := acquire(t, b, "k")
		plain := waiting(t, bg, b, "k")
		led := make(chan struct{})
		elect := does(func(ctx context.Context) error {
			return a.Elect(ctx, "k", func(context.Context, *Lock) error { close(led); return Final(errWork) },
				Priority(9), Delay(time.Minute), Meta(map[string]string{"m": "x"}))
		}, bg)
		elect.pends(t)
		release(t, l)
		<-led
		if _, err := elect.ends(t); err != errWork {
			t.Error(err)
		}
		plain.ok(t)
	})
}

// leaders checks that terms never overlap and tokens rise.
type leaders struct {
	t     *testing.T
	mu    sync.Mutex
	in    string
	terms []string
	last  fence.Token
}

func (s *leaders) lead(name string, rest time.Duration) Work {
	return func(ctx context.Context, l *Lock) error {
		s.mu.Lock()
		if s.in != "" {
			s.t.Errorf("%s is elected while %s leads", name, s.in)
		}
		if l.Token() <= s.last {
			s.t.Errorf("token %d after %d", l.Token(), s.last)
		}
		s.in, s.last = name, l.Token()
		s.terms = append(s.terms, name)
		s.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(rest):
		}
		s.mu.Lock()
		s.in = ""
		s.mu.Unlock()
		return nil
	}
}

// Elected candidates take turns: each lead ends before the next lead begins.
func TestElectedTakeTurns(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		s := &leaders{t: t}
		ctx, cancel := context.WithCancel(bg)
		var wg sync.WaitGroup
		for _, name := range []string{"a", "b", "c"} {
			c, _ := w.client(t, name)
			wg.Go(func() {
				if err := c.Elect(ctx, "k", s.lead(name, time.Minute)); !errors.Is(err, context.Canceled) {
					t.Errorf("elect: %v", err)
				}
			})
			synctest.Wait()
		}
		time.Sleep(9*time.Minute + time.Second)
		cancel()
		wg.Wait()
		if len(s.terms) != 10 {
			t.Errorf("%d terms", len(s.terms))
		}
		for i, name := range s.terms {
			if want := string("abc"[i%3]); name != want {
				t.Errorf("term %d is %s's, want %s", i, name, want)
			}
		}
		if !w.free("k") {
			t.Error("the key is still taken")
		}
	})
}

// Neither a lost session nor an unreachable cluster ends Elect.
func TestElectStandsAgainAfterALoss(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		s := &leaders{t: t}
		ctx, cancel := context.WithCancel(bg)
		var wg sync.WaitGroup
		var members []*member
		for _, name := range []string{"a", "b"} {
			c, m := w.client(t, name)
			members = append(members, m)
			wg.Go(func() { _ = c.Elect(ctx, "k", s.lead(name, time.Hour)) })
			synctest.Wait()
		}
		for i := range 6 {
			m := members[i%2]
			m.Isolate()
			time.Sleep(time.Minute)
			s.mu.Lock()
			if want := string("ba"[i%2]); s.in != want {
				t.Errorf("round %d: %q leads, want %q", i, s.in, want)
			}
			s.mu.Unlock()
			m.Heal()
			time.Sleep(time.Minute)
		}
		if s.in == "" {
			t.Error("nobody leads")
		}
		cancel()
		wg.Wait()
	})
}

func TestElectReturnsTheErrorOfLead(t *testing.T) {
	for _, test := range []struct {
		claim string
		lead  Work
		want  error
	}{
		{"the error of Final ends it", func(context.Context, *Lock) error { return Final(errWork) }, errWork},
		{"an error that says the context ended does not", func(ctx context.Context, l *Lock) error {
			if l.Token() > 3 {
				return Final(errWork)
			}
			l.g.s.lose(QuorumUnreachable)
			<-ctx.Done()
			return ctx.Err()
		}, errWork},
		{"nor does its cause", func(ctx context.Context, l *Lock) error {
			if l.Token() > 3 {
				return Final(errWork)
			}
			l.g.s.lose(QuorumUnreachable)
			<-ctx.Done()
			return context.Cause(ctx)
		}, errWork},
		{"nor does nil", func(ctx context.Context, l *Lock) error {
			if l.Token() > 3 {
				return Final(errWork)
			}
			return nil
		}, errWork},
	} {
		bubble(t, func(t *testing.T, w *world) {
			c, _ := w.client(t, "a")
			if err := c.Elect(bg, "k", test.lead); err != test.want {
				t.Errorf("%s: %v, want %v", test.claim, err, test.want)
			}
			if !w.free("k") {
				t.Errorf("%s: the key is still taken", test.claim)
			}
		})
	}
}

func TestElectEndsWithItsContext(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, m := w.client(t, "a")
		b, _ := w.client(t, "b")
		reason := errors.New("enough")
		stop := func(c *Client) error {
			ctx, cancel := context.WithCancelCause(bg)
			time.AfterFunc(time.Second, func() { cancel(reason) })
			return c.Elect(ctx, "k", func(ctx context.Context, l *Lock) error { <-ctx.Done(); return ctx.Err() })
		}
		if err := stop(a); !errors.Is(err, reason) {
			t.Errorf("while leading: %v", err)
		}
		acquire(t, b, "k")
		if err := stop(a); !errors.Is(err, reason) {
			t.Errorf("while waiting: %v", err)
		}
		m.Isolate()
		time.Sleep(time.Minute)
		if err := stop(a); !errors.Is(err, reason) || !errors.Is(err, cluster.ErrNoQuorum) {
			t.Errorf("while unreachable: %v", err)
		}
		m.Heal()
		m.Stop()
		if err := stop(a); !errors.Is(err, cluster.ErrStopped) {
			t.Errorf("on a stopped node: %v", err)
		}
	})
}

// Nobody else is elected after ctx has ended and before lead has returned.
func TestVoluntaryEndKeepsTheKeyUntilLeadHasReturned(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		s := &leaders{t: t}
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		ctx, cancel := context.WithCancel(bg)
		done := make(chan error, 2)
		go func() {
			done <- a.Elect(ctx, "k", func(lctx context.Context, l *Lock) error {
				work := s.lead("a", 3*testTTL)
				<-lctx.Done()
				return work(bg, l) // goes on as if nothing were
			})
		}()
		synctest.Wait()
		ctx2, cancel2 := context.WithCancel(bg)
		go func() { done <- b.Elect(ctx2, "k", s.lead("b", time.Hour)) }()
		synctest.Wait()
		cancel()
		<-done
		time.Sleep(time.Second)
		cancel2()
		<-done
		if len(s.terms) != 2 {
			t.Errorf("terms %v", s.terms)
		}
	})
}

func TestCandidateStandsAgainOnlyAfterLeadHasReturned(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, m := w.client(t, "a")
		b, _ := w.client(t, "b")
		var asked, terms atomic.Int64
		m.SetHooks(termtest.Hooks{Proposed: func(c machine.Command) {
			if isAcquire(c) {
				asked.Add(1)
			}
		}})
		ctx, cancel := context.WithCancel(bg)
		elect := does(func(ctx context.Context) error {
			return a.Elect(ctx, "k", func(ctx context.Context, l *Lock) error {
				if terms.Add(1) > 1 {
					<-ctx.Done()
					return nil
				}
				<-ctx.Done()
				if !errors.Is(context.Cause(ctx), ErrLost) {
					t.Errorf("cause %v", context.Cause(ctx))
				}
				time.Sleep(10 * testTTL) // slow to end, and reachable
				if n := asked.Load(); n != 1 {
					t.Errorf("%d requests before lead has returned", n)
				}
				return nil
			})
		}, ctx)
		elect.pends(t)
		m.Isolate()
		next := acquire(t, b, "k")
		m.Heal()
		time.Sleep(5 * testTTL)
		if n := w.Status("k").Queue; n != 0 {
			t.Errorf("%d wait while the first lead goes on", n)
		}
		release(t, next)
		time.Sleep(5 * testTTL)
		if terms.Load() != 2 {
			t.Errorf("%d terms", terms.Load())
		}
		cancel()
		elect.ends(t)
	})
}

func TestCandidateThatLosesItsSessionQueuesAgain(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		l := acquire(t, a, "k")
		led := make(chan time.Time, 1)
		elect := does(func(ctx context.Context) error {
			return b.Elect(ctx, "k", func(context.Context, *Lock) error { led <- time.Now(); return Final(errWork) })
		}, bg)
		elect.pends(t)
		for range 3 {
			w.Apply(expire(w, b))
			time.Sleep(5 * time.Second)
			elect.pends(t)
			if n := w.Status("k").Queue; n != 1 {
				t.Errorf("%d wait", n)
			}
		}
		released := time.Now()
		release(t, l)
		if _, err := elect.ends(t); err != errWork {
			t.Error(err)
		}
		if d := (<-led).Sub(released); d > time.Second {
			t.Errorf("elected after %v", d)
		}
		if !w.free("k") || w.busy() != 0 {
			t.Error("something is left")
		}
	})
}

// Two simultaneous calls to depose a leader cost the leader a single term.
func TestTwoDeposalsAtOnceCostOneTerm(t *testing.T) {
	for name, depose := range map[string]func(*world, *Client, *Client, *Lock) error{
		"broken": func(_ *world, _, op *Client, l *Lock) error { return op.Break(bg, "k", l.Token()) },
		"expired": func(w *world, leader, _ *Client, l *Lock) error {
			w.Apply(machine.Expire{Session: l.g.s.id, Term: w.TermNumber()})
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				a, _ := w.client(t, "a")
				op, _ := w.client(t, "op")
				acquire(t, op, "other")
				var mu sync.Mutex
				var terms []*Lock
				ctx, cancel := context.WithCancel(bg)
				elect := does(func(ctx context.Context) error {
					return a.Elect(ctx, "k", func(ctx context.Context, l *Lock) error {
						mu.Lock()
						terms = append(terms, l)
						mu.Unlock()
						<-ctx.Done()
						return context.Cause(ctx)
					})
				}, ctx)
				elect.pends(t)
				mu.Lock()
				l := terms[0]
				mu.Unlock()
				var wg sync.WaitGroup
				for range 2 {
					wg.Go(func() {
						// The second call may find the leader deposed.
						if err := depose(w, a, op, l); err != nil && !errors.Is(err, ErrNotHeld) && !errors.Is(err, ErrHeld) {
							t.Error(err)
						}
					})
				}
				wg.Wait()
				time.Sleep(time.Minute)
				mu.Lock()
				if len(terms) != 2 || terms[0].Err() == nil || terms[1].Err() != nil || terms[1].Token() != l.Token()+1 {
					t.Errorf("%d terms", len(terms))
				}
				mu.Unlock()
				cancel()
				elect.ends(t)
			})
		})
	}
}

func TestElectThatNeverReachedTheClusterEndsWithItsClient(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, m := w.client(t, "a")
		m.Isolate()
		elect := does(func(ctx context.Context) error {
			return c.Elect(ctx, "k", func(context.Context, *Lock) error { t.Error("elected"); return nil })
		}, bg)
		elect.pends(t)
		began := time.Now()
		if err := c.Close(bg); err != nil || time.Since(began) > time.Second {
			t.Errorf("close: %v after %v", err, time.Since(began))
		}
		if _, err := elect.ends(t); err != ErrClosed {
			t.Errorf("elect: %v", err)
		}
		m.Heal()
		time.Sleep(time.Minute)
		if w.Sent(isAcquire) != 0 || w.Counts().Sessions != 0 {
			t.Errorf("something began later: %+v", w.Counts())
		}
	})
}
