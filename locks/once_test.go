package locks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/replica"
	"github.com/wardmote/wardmote/internal/term/termtest"
	"github.com/wardmote/wardmote/internal/testrounds"
)

// never is a function that Once must not run.
func never(t *testing.T) func(context.Context) ([]byte, error) {
	return func(context.Context) ([]byte, error) {
		t.Error("run again")
		return nil, nil
	}
}

func TestOnceRunsOnceAndTellsAllCallers(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var runs atomic.Int64
		var wg sync.WaitGroup
		fn := func(ctx context.Context) ([]byte, error) {
			runs.Add(1)
			if token, ok := fence.FromContext(ctx); !ok || token == 0 {
				t.Error("no token")
			}
			time.Sleep(10 * time.Second)
			return []byte("result"), nil
		}
		began := time.Now()
		for i := range 10 {
			c, m := w.client(t, fmt.Sprint("c", i))
			m.SetFaults(termtest.Faults{Latency: 200 * time.Millisecond})
			for range 3 {
				wg.Go(func() {
					time.Sleep(time.Duration(i) * time.Second)
					v, err := c.Once(bg, "job", fn)
					if string(v) != "result" || err != nil {
						t.Errorf("%q, %v", v, err)
					}
					// All callers return at the same moment.
					if took := time.Since(began); took > 13*time.Second {
						t.Errorf("told after %v", took)
					}
				})
			}
		}
		wg.Wait()
		if n := runs.Load(); n != 1 {
			t.Errorf("run %d times", n)
		}
		// A later call sends no command.
		c, _ := w.client(t, "late")
		before := w.Sent(func(machine.Command) bool { return true })
		if v, err := c.Once(bg, "job", fn); string(v) != "result" || err != nil {
			t.Errorf("%q, %v", v, err)
		}
		if n := w.Sent(func(machine.Command) bool { return true }); n != before {
			t.Errorf("%d commands for a known result", n-before)
		}
		if w.busy() != 0 {
			t.Error("something is held")
		}
	})
}

func TestOnceTellsAFailure(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		never := func(context.Context) ([]byte, error) { t.Error("run again"); return nil, nil }
		told := func(id, text string) {
			t.Helper()
			_, err := b.Once(bg, id, never)
			var once *OnceError
			if !errors.As(err, &once) || !errors.Is(err, ErrOnce) || errors.Is(err, ErrUnfinished) || once.ID != id || !strings.Contains(once.Text, text) {
				t.Errorf("%s: %v", id, err)
			}
		}
		oops := errors.New("oops")
		if v, err := a.Once(bg, "fails", func(context.Context) ([]byte, error) { return []byte("part"), oops }); !errors.Is(err, oops) || string(v) != "part" {
			t.Errorf("%q, %v", v, err)
		}
		told("fails", "oops")

		long := errors.New(strings.Repeat("x", 100<<10))
		if _, err := a.Once(bg, "long", func(context.Context) ([]byte, error) { return nil, long }); err != long {
			t.Error(err)
		}
		told("long", "xxx")

		big := make([]byte, maxOnceResult+1)
		var bad *cluster.ConfigError
		if v, err := a.Once(bg, "big", func(context.Context) ([]byte, error) { return big, nil }); !errors.As(err, &bad) || len(v) != len(big) {
			t.Errorf("%d bytes, %v", len(v), err)
		}
		told("big", "too long")
		most := bytes.Repeat([]byte("m"), maxOnceResult)
		if _, err := a.Once(bg, "most", func(context.Context) ([]byte, error) { return most, nil }); err != nil {
			t.Error(err)
		}
		if v, err := b.Once(bg, "most", never); err != nil || !bytes.Equal(v, most) {
			t.Errorf("%d bytes, %v", len(v), err)
		}

		func() {
			defer func() {
				if recover() != "boom" {
					t.Error("the panic was swallowed")
				}
			}()
			a.Once(bg, "panics", func(context.Context) ([]byte, error) { panic("boom") })
		}()
		told("panics", "panicked")
		var wg sync.WaitGroup
		wg.Go(func() {
			a.Once(bg, "exits", func(context.Context) ([]byte, error) { runtime.Goexit(); return nil, nil })
		})
		wg.Wait()
		told("exits", "goroutine")

		for _, id := range []string{"", "\xff", strings.Repeat("x", maxOnceID+1)} {
			if _, err := a.Once(bg, id, never); !errors.As(err, &bad) {
				t.Errorf("%q: %v", id, err)
			}
		}
		if _, err := a.Once(bg, strings.Repeat("x", maxOnceID), func(context.Context) ([]byte, error) { return nil, nil }); err != nil {
			t.Error(err)
		}
		if w.busy() != 0 {
			t.Error("something is held")
		}
	})
}

// A runner that disappears may leave its work half done: nobody runs the work again,
// and all waiting callers are told.
func TestOnceIsNotRunAgainWhenItsRunnerIsGone(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, m := w.client(t, "a")
		b, _ := w.client(t, "b")
		never := func(context.Context) ([]byte, error) { t.Error("run again"); return nil, nil }
		var wg sync.WaitGroup
		wg.Go(func() {
			v, err := a.Once(bg, "job", func(ctx context.Context) ([]byte, error) {
				m.Isolate()
				<-ctx.Done()
				if !errors.Is(context.Cause(ctx), ErrLost) {
					t.Error(context.Cause(ctx))
				}
				return []byte("mine"), nil
			})
			// The runner alone knows the result of its work. All others know only that
			// the work is unfinished.
			if string(v) != "mine" || err == nil || errors.Is(err, ErrOnce) {
				t.Errorf("%q, %v", v, err)
			}
		})
		synctest.Wait()
		began := time.Now()
		for range 5 {
			wg.Go(func() {
				if _, err := b.Once(bg, "job", never); !errors.Is(err, ErrUnfinished) || !errors.Is(err, ErrOnce) {
					t.Error(err)
				}
				if took := time.Since(began); took > testTTL+time.Second {
					t.Errorf("told after %v", took)
				}
			})
		}
		wg.Wait()
		m.Heal()
		time.Sleep(time.Minute)
		for _, c := range []*Client{a, b} {
			if _, err := c.Once(bg, "job", never); !errors.Is(err, ErrUnfinished) {
				t.Error(err)
			}
		}
		if w.busy() != 0 {
			t.Error("something is held")
		}
	})
}

// Neither the session's end while the result is under way, nor a leader change, runs
// the work twice. A stored result is told to all callers.
func TestOnceStoresItsResultAfterASessionsEnd(t *testing.T) {
	for _, tt := range []struct {
		name  string
		meet  func(w *world, c *Client, m *member, cancel func())
		lost  bool // the cluster cannot know the result
		early bool // the call returns before the cluster has answered
		later time.Duration
	}{
		{name: "leader changes", meet: func(w *world, _ *Client, _ *member, _ func()) { w.Lead(); w.LeadFromSnapshot() }},
		{name: "caller gives up", meet: func(_ *world, _ *Client, _ *member, cancel func()) { cancel() }, early: true},
		{name: "client closes", meet: func(_ *world, c *Client, _ *member, _ func()) { go c.Close(bg) }},
		{name: "session expires", meet: func(w *world, _ *Client, _ *member, _ func()) { w.ExpireNow() }, lost: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				m := w.join("node-a")
				a := m.client(Options{Name: "a"})
				b, _ := w.client(t, "b")
				ctx, cancel := context.WithCancel(bg)
				defer cancel()
				v, err := a.Once(ctx, "job", func(context.Context) ([]byte, error) {
					tt.meet(w, a, m, cancel)
					synctest.Wait()
					return []byte("done"), nil
				})
				if string(v) != "done" || (err != nil) != (tt.lost || tt.early) || tt.early && !errors.Is(err, ErrUncertain) {
					t.Errorf("%q, %v", v, err)
				}
				v, err = b.Once(bg, "job", func(context.Context) ([]byte, error) { t.Error("run again"); return nil, nil })
				switch {
				case tt.lost && !errors.Is(err, ErrUnfinished):
					t.Errorf("%q, %v", v, err)
				case !tt.lost && (string(v) != "done" || err != nil):
					t.Errorf("%q, %v", v, err)
				}
				shutdown(t, a)
			})
		})
	}
}

// The end of ctx ends a run, and a wait for another client's run.
func TestOnceEndsWithItsContext(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		began := time.Now()
		_, err := a.Once(within(3*time.Second), "job", func(ctx context.Context) ([]byte, error) {
			if _, err := b.Once(within(time.Second), "job", never(t)); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			<-ctx.Done()
			return nil, context.Cause(ctx)
		})
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 3*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		if _, err := b.Once(bg, "job", never(t)); !errors.Is(err, ErrOnce) || errors.Is(err, ErrUnfinished) {
			t.Error(err)
		}
		// A call that would wait for itself is refused, directly or through other calls.
		_, err = a.Once(bg, "outer", func(ctx context.Context) ([]byte, error) {
			_, err := b.Once(ctx, "inner", func(ctx context.Context) ([]byte, error) { return a.Once(ctx, "outer", never(t)) })
			return nil, err
		})
		if !errors.Is(err, ErrDeadlock) {
			t.Error(err)
		}
		// Before fn: nothing has happened, and another call can run fn.
		ctx, cancel := context.WithCancel(bg)
		cancel()
		if _, err := a.Once(ctx, "not yet", never(t)); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if _, err := a.Once(bg, "not yet", func(context.Context) ([]byte, error) { return nil, nil }); err != nil {
			t.Error(err)
		}
	})
}

// While a voter does not know values yet, no work begins.
func TestOnceIsNotBegunWithoutItsMark(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, m := w.client(t, "a")
		m.SetHooks(termtest.Hooks{Refuse: func(c machine.Command) *replica.Error {
			if nextFormat(c) > machine.MaxFormat {
				return &replica.Error{Err: cluster.ErrVersion}
			}
			return nil
		}})
		if _, err := a.Once(bg, "job", func(context.Context) ([]byte, error) { t.Error("run"); return nil, nil }); !errors.Is(err, cluster.ErrVersion) {
			t.Error(err)
		}
		m.SetHooks(termtest.Hooks{})
		if v, err := a.Once(bg, "job", func(context.Context) ([]byte, error) { return []byte("v"), nil }); string(v) != "v" || err != nil {
			t.Errorf("%q, %v", v, err)
		}
		// The answer to the mark of the beginning is lost for good: the work is not run,
		// and the mark is taken back if the cluster hears of that.
		m.SetHooks(termtest.Hooks{Proposed: func(c machine.Command) {
			if v, ok := c.(machine.SetValue); ok {
				m.SetFaults(termtest.Faults{})
				if len(v.Value) > 0 {
					m.SetFaults(termtest.Faults{LoseAnswer: 1})
				}
			}
		}})
		if _, err := a.Once(within(2*time.Second), "unsure", func(context.Context) ([]byte, error) { t.Error("run"); return nil, nil }); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		settle() // the mark is taken back behind
		m.SetHooks(termtest.Hooks{})
		if v, err := a.Once(bg, "unsure", func(context.Context) ([]byte, error) { return []byte("v"), nil }); string(v) != "v" || err != nil {
			t.Errorf("%q, %v", v, err)
		}
	})
}

// Under any fault and any death the work runs at most once, and all callers with a
// result have the same result.
func TestOnceUnderFaults(t *testing.T) {
	for seed := range uint64(testrounds.Rounds(8, 40)) {
		bubble(t, func(t *testing.T, w *world) {
			w.SetCheck(false)
			w.Seed(seed)
			const ids, clients = 4, 6
			var runs [ids]atomic.Int64
			var mu sync.Mutex
			results := make(map[string]map[string]int) // of callers, by id
			var wg sync.WaitGroup
			for i := range clients {
				c, m := w.client(t, fmt.Sprint("c", i))
				m.SetFaults(termtest.Faults{Latency: 300 * time.Millisecond, LoseAsk: 0.15, LoseAnswer: 0.15, Twice: 0.15, LosePush: 0.3})
				if i%3 == int(seed%3) {
					time.AfterFunc(time.Duration(seed)*300*time.Millisecond, func() {
						m.Isolate()
						time.AfterFunc(2*testTTL, m.Heal)
					})
				}
				for id := range ids {
					wg.Go(func() {
						for try := range 3 {
							ctx, cancel := context.WithTimeout(bg, time.Duration(3+try*10)*time.Second)
							v, err := c.Once(ctx, fmt.Sprint(id), func(ctx context.Context) ([]byte, error) {
								runs[id].Add(1)
								select {
								case <-time.After(time.Duration(id) * 2 * time.Second):
								case <-ctx.Done():
								}
								return fmt.Appendf(nil, "%d by %d in %d", id, i, try), nil
							})
							cancel()
							mu.Lock()
							if results[fmt.Sprint(id)] == nil {
								results[fmt.Sprint(id)] = make(map[string]int)
							}
							if v != nil {
								results[fmt.Sprint(id)][string(v)]++
							}
							var once *OnceError
							if errors.As(err, &once) && !once.Unfinished {
								t.Errorf("seed %d: %v", seed, err)
							}
							mu.Unlock()
						}
					})
				}
			}
			for range 4 {
				time.Sleep(4 * time.Second)
				w.Lead()
			}
			wg.Wait()
			for id := range ids {
				if n := runs[id].Load(); n > 1 {
					t.Errorf("seed %d: %d was run %d times", seed, id, n)
				}
				if r := results[fmt.Sprint(id)]; len(r) > 1 {
					t.Errorf("seed %d: %d came to %v", seed, id, r)
				}
			}
		})
	}
}

// The memory of ids is bounded: the oldest ids go first, and the newest stay.
func TestOnceForgetsTheOldest(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.SetCheck(false)
		a, _ := w.client(t, "a")
		big := make([]byte, maxOnceResult)
		n := machine.MaxFadingSize/maxOnceResult + 10
		for i := range n {
			if _, err := a.Once(bg, fmt.Sprint(i), func(context.Context) ([]byte, error) { return big, nil }); err != nil {
				t.Fatal(err)
			}
		}
		again := func(id string) (ran bool) {
			if _, err := a.Once(bg, id, func(context.Context) ([]byte, error) { ran = true; return nil, nil }); err != nil {
				t.Error(err)
			}
			return ran
		}
		if again(fmt.Sprint(n - 1)) {
			t.Error("the newest was forgotten")
		}
		if !again("0") {
			t.Error("the oldest is still known")
		}
	})
}

// An error by the end of ctx means that fn was not run. A result that could not be
// stored in time is another error.
func TestOnceThatCannotStoreDoesNotSayThatItsContextEnded(t *testing.T) {
	for name, fail := range map[string]func(m *member){
		"unheard":    func(m *member) { m.Isolate() },
		"unanswered": func(m *member) { m.SetFaults(termtest.Faults{LoseAnswer: 1}) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				a, m := w.client(t, "a")
				v, err := a.Once(bg, "id", func(context.Context) ([]byte, error) {
					fail(m)
					return []byte("v"), nil
				})
				if string(v) != "v" || err == nil || errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%q, %v", v, err)
				}
				if !errors.Is(err, ErrUncertain) {
					t.Errorf("the client goes on in the background, so others may know the result: %v", err)
				}
			})
		})
	}
}
