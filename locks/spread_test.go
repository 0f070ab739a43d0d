package locks

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/fence"

	"github.com/wardmote/wardmote/internal/term/termtest"
	"github.com/wardmote/wardmote/internal/testrounds"
)

// shardMap is the work of all callers. shardMap checks that no shard has two works
// at a time and that tokens rise.
type shardMap struct {
	t      *testing.T
	mu     sync.Mutex
	owner  map[int]string
	tokens map[int]fence.Token
	starts int
}

func newShardMap(t *testing.T) *shardMap {
	return &shardMap{t: t, owner: make(map[int]string), tokens: make(map[int]fence.Token)}
}

func (s *shardMap) begin(name string, shard int, l *Lock) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if by := s.owner[shard]; by != "" {
		s.t.Errorf("shard %d is %s's and %s's", shard, by, name)
	}
	if l.Token() <= s.tokens[shard] {
		s.t.Errorf("shard %d: token %d after %d", shard, l.Token(), s.tokens[shard])
	}
	s.owner[shard], s.tokens[shard] = name, l.Token()
	s.starts++
}

func (s *shardMap) end(shard int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.owner, shard)
}

// work runs until its context ends.
func (s *shardMap) work(name string) ShardWork {
	return func(ctx context.Context, shard int, l *Lock) error {
		s.begin(name, shard, l)
		defer s.end(shard)
		<-ctx.Done()
		return context.Cause(ctx)
	}
}

// sizes counts shards by owner.
func (s *shardMap) sizes() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	sizes := make(map[string]int)
	for _, name := range s.owner {
		sizes[name]++
	}
	return sizes
}

func (s *shardMap) balanced(t *testing.T, shards int, names ...string) {
	t.Helper()
	sizes := s.sizes()
	sum := 0
	for _, name := range names {
		n := sizes[name]
		sum += n
		if n < shards/len(names) || n > (shards+len(names)-1)/len(names) {
			t.Errorf("unbalanced: %v", sizes)
		}
	}
	if sum != shards || len(sizes) > len(names) {
		t.Errorf("%v do not make %d shards of %v", sizes, shards, names)
	}
}

func TestSpreadDividesEvenlyAndMovesLittle(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.SetCheck(false)
		const shards = 24
		s := newShardMap(t)
		var wg sync.WaitGroup
		join := func(name string) (leave func()) {
			c, _ := w.client(t, name)
			ctx, cancel := context.WithCancel(bg)
			wg.Go(func() {
				if err := c.Spread(ctx, "g", shards, s.work(name)); !errors.Is(err, context.Canceled) {
					t.Errorf("spread: %v", err)
				}
			})
			time.Sleep(time.Second)
			return cancel
		}
		starts := func(want int) {
			t.Helper()
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.starts != want {
				t.Errorf("%d shards moved, want %d", s.starts, want)
			}
			s.starts = 0
		}
		leaveA := join("a")
		s.balanced(t, shards, "a")
		starts(24)
		leaveB := join("b")
		s.balanced(t, shards, "a", "b")
		starts(12)
		leaveC := join("c")
		s.balanced(t, shards, "a", "b", "c")
		starts(8)
		leaveA()
		time.Sleep(time.Second)
		s.balanced(t, shards, "b", "c")
		starts(8)
		leaveC()
		time.Sleep(time.Second)
		s.balanced(t, shards, "b")
		starts(12)
		leaveB()
		wg.Wait()
		s.balanced(t, 0, "b")
		time.Sleep(time.Second)
		if n := w.busy(); n != 0 {
			t.Errorf("%d keys are taken", n)
		}
	})
}

// A shard that is handed over stays held until its work has returned, and the next
// owner is granted the shard in the same step.
func TestHandOverWaitsForTheWork(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		s := newShardMap(t)
		ctx, cancel := context.WithCancel(bg)
		var wg sync.WaitGroup
		wg.Go(func() {
			_ = a.Spread(ctx, "g", 2, func(ctx context.Context, shard int, l *Lock) error {
				s.begin("a", shard, l)
				defer s.end(shard)
				<-ctx.Done()
				if cause := context.Cause(ctx); shard == 1 && cause != ErrHandedOver {
					t.Errorf("cause %v", cause)
				}
				time.Sleep(time.Minute)
				if l.Err() != nil {
					t.Error(l.Err())
				}
				return nil
			})
		})
		time.Sleep(time.Second)
		wg.Go(func() { _ = b.Spread(ctx, "g", 2, s.work("b")) })
		time.Sleep(30 * time.Second)
		if sizes := s.sizes(); sizes["a"] != 2 {
			t.Errorf("%v while the work ends", sizes)
		}
		if n := w.Status("g/1").Queue; n != 1 {
			t.Errorf("%d wait for the shard", n)
		}
		time.Sleep(31 * time.Second)
		s.balanced(t, 2, "a", "b")
		cancel()
		wg.Wait()
	})
}

// A caller's works return before the caller does.
func TestSpreadJoinsItsWorksBeforeItReturns(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, _ := w.client(t, "a")
		s := newShardMap(t)
		reason := errors.New("enough")
		ctx, cancel := context.WithCancelCause(bg)
		time.AfterFunc(time.Second, func() { cancel(reason) })
		err := c.Spread(ctx, "g", 5, func(ctx context.Context, shard int, l *Lock) error {
			s.begin("a", shard, l)
			defer s.end(shard)
			<-ctx.Done()
			if context.Cause(ctx) != reason {
				t.Errorf("cause %v", context.Cause(ctx))
			}
			time.Sleep(time.Duration(shard) * time.Minute)
			return l.Err()
		})
		if !errors.Is(err, reason) || !errors.Is(err, context.Canceled) {
			t.Errorf("spread: %v", err)
		}
		s.balanced(t, 0, "a")
	})
}

func TestErrorOfOneWorkEndsSpread(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, _ := w.client(t, "a")
		s := newShardMap(t)
		err := c.Spread(bg, "g", 5, func(ctx context.Context, shard int, l *Lock) error {
			if shard == 3 {
				time.Sleep(time.Second)
				return errWork
			}
			return s.work("a")(ctx, shard, l)
		})
		if err != errWork {
			t.Errorf("spread: %v", err)
		}
		s.balanced(t, 0, "a")
		time.Sleep(time.Second)
		if n := w.busy(); n != 0 {
			t.Errorf("%d keys are taken", n)
		}
	})
}

// A work that returns nil is run again after a pause.
func TestShardGivenUpIsTakenAgainAfterAPause(t *testing.T) {
	for _, end := range []func(){func() {}, runtime.Goexit} {
		bubble(t, func(t *testing.T, w *world) {
			c, _ := w.client(t, "a")
			s := newShardMap(t)
			ctx, cancel := context.WithTimeout(bg, 10*testTTL)
			defer cancel()
			var mu sync.Mutex
			runs := 0
			err := c.Spread(ctx, "g", 3, func(ctx context.Context, shard int, l *Lock) error {
				if shard != 1 {
					return s.work("a")(ctx, shard, l)
				}
				mu.Lock()
				runs++
				mu.Unlock()
				end()
				return nil
			})
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("spread: %v", err)
			}
			if runs < 10 || runs > 20 {
				t.Errorf("%d runs in ten TTLs", runs)
			}
			if s.starts != 2 {
				t.Errorf("the others moved: %d starts", s.starts)
			}
		})
	}
}

func TestSpreadEnlistsAnewAfterALoss(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.SetCheck(false)
		const shards = 12
		s := newShardMap(t)
		ctx, cancel := context.WithCancel(bg)
		var wg sync.WaitGroup
		names := []string{"a", "b", "c"}
		var members []*member
		for _, name := range names {
			c, m := w.client(t, name)
			members = append(members, m)
			wg.Go(func() { _ = c.Spread(ctx, "g", shards, s.work(name)) })
		}
		time.Sleep(time.Second)
		s.balanced(t, shards, names...)
		for i, m := range members {
			m.Isolate()
			time.Sleep(time.Minute)
			rest := append(append([]string{}, names[:i]...), names[i+1:]...)
			s.balanced(t, shards, rest...)
			m.Heal()
			time.Sleep(time.Minute)
			s.balanced(t, shards, names...)
		}
		cancel()
		wg.Wait()
	})
}

func TestMoreCallersThanShards(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		s := newShardMap(t)
		var wg sync.WaitGroup
		var leave []func()
		for _, name := range []string{"a", "b", "c"} {
			c, _ := w.client(t, name)
			ctx, cancel := context.WithCancel(bg)
			leave = append(leave, cancel)
			wg.Go(func() { _ = c.Spread(ctx, "g", 2, s.work(name)) })
			time.Sleep(time.Second)
		}
		s.balanced(t, 2, "a", "b")
		leave[0]()
		time.Sleep(time.Second)
		s.balanced(t, 2, "b", "c")
		leave[1]()
		leave[2]()
		wg.Wait()
	})
}

func TestSpreadRefusesBadArguments(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c, _ := w.client(t, "a")
		work := func(ctx context.Context, _ int, _ *Lock) error { <-ctx.Done(); return nil }
		for _, test := range []struct {
			field, name string
			shards      int
		}{
			{"shards", "g", 0},
			{"shards", "g", -1},
			{"shards", "g", MaxShards + 1},
			{"shards", strings.Repeat("g", 400), MaxShards},
			{"key", "", 1},
			{"key", strings.Repeat("g", 511), 1},
		} {
			var config *cluster.ConfigError
			if err := c.Spread(bg, test.name, test.shards, work); !errors.As(err, &config) || config.Field != test.field {
				t.Errorf("%q, %d shards: %v", test.name, test.shards, err)
			}
		}
		ctx, cancel := context.WithCancel(bg)
		done := make(chan error, 1)
		go func() { done <- c.Spread(ctx, "g", 1, work) }()
		synctest.Wait()
		var config *cluster.ConfigError
		if err := c.Spread(bg, "g", 1, work); !errors.As(err, &config) || config.Field != "name" {
			t.Errorf("twice at once: %v", err)
		}
		cancel()
		<-done
		if err := c.Spread(within(time.Second), "g", 1, work); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("again: %v", err)
		}
	})
}

func TestCloseEndsSpread(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		s := newShardMap(t)
		done := make(chan error, 1)
		go func() { done <- a.Spread(bg, "g", 6, s.work("a")) }()
		time.Sleep(time.Second)
		ctx, cancel := context.WithCancel(bg)
		var wg sync.WaitGroup
		wg.Go(func() { _ = b.Spread(ctx, "g", 6, s.work("b")) })
		time.Sleep(time.Second)
		if err := a.Close(bg); err != nil {
			t.Error(err)
		}
		if err := <-done; err != ErrClosed {
			t.Errorf("spread: %v", err)
		}
		time.Sleep(time.Second)
		s.balanced(t, 6, "b")
		cancel()
		wg.Wait()
	})
}

func TestLargestSpread(t *testing.T) {
	// The full number does not run under the race detector: its clocks overflow in a
	// bubble of 4,096 works.
	shards := testrounds.Rounds(512, MaxShards)
	bubble(t, func(t *testing.T, w *world) {
		w.SetCheck(false)
		s := newShardMap(t)
		ctx, cancel := context.WithCancel(bg)
		var wg sync.WaitGroup
		for _, name := range []string{"a", "b"} {
			c, _ := w.client(t, name)
			wg.Go(func() { _ = c.Spread(ctx, "g", shards, s.work(name)) })
		}
		time.Sleep(time.Second)
		s.balanced(t, shards, "a", "b")
		cancel()
		wg.Wait()
	})
}

// Callers come, go, are cut off and return at random. No shard ever has two owners,
// and when all is quiet every shard has an owner.
func TestSpreadUnderFaults(t *testing.T) {
	for round := range testrounds.Rounds(5, 20) {
		bubble(t, func(t *testing.T, w *world) {
			w.SetCheck(false)
			w.Seed(uint64(round))
			rng := rand.New(rand.NewPCG(uint64(round), 7))
			const shards = 10
			s := newShardMap(t)
			var wg sync.WaitGroup
			t.Cleanup(wg.Wait) // after the clients are closed
			type caller struct {
				m      *member
				name   string
				cut    bool
				cancel context.CancelFunc
			}
			var callers []*caller
			for i := range 4 {
				name := fmt.Sprint("c", i)
				c, m := w.client(t, name)
				m.SetFaults(termtest.Faults{Latency: 50 * time.Millisecond, LoseAsk: 0.05, LoseAnswer: 0.05, Twice: 0.05, LosePush: 0.1})
				x := &caller{m: m, name: name}
				callers = append(callers, x)
				wg.Go(func() {
					for !t.Failed() {
						ctx, cancel := context.WithCancel(bg)
						s.mu.Lock()
						x.cancel = cancel
						s.mu.Unlock()
						err := c.Spread(ctx, "g", shards, s.work(name))
						if errors.Is(err, ErrClosed) {
							return
						}
					}
				})
			}
			for range 30 {
				x := callers[rng.IntN(len(callers))]
				switch rng.IntN(4) {
				case 0:
					s.mu.Lock()
					leave := x.cancel
					s.mu.Unlock()
					if leave != nil {
						leave()
					}
				case 1:
					if !x.cut {
						x.m.Isolate()
						x.cut = true
					}
				case 2:
					if x.cut {
						x.m.Heal()
						x.cut = false
					}
				case 3:
					w.Lead()
				}
				time.Sleep(time.Duration(rng.Int64N(int64(8 * time.Second))))
			}
			for _, x := range callers {
				if x.cut {
					x.m.Heal()
				}
				x.m.SetFaults(termtest.Faults{})
			}
			time.Sleep(2 * time.Minute)
			s.balanced(t, shards, "c0", "c1", "c2", "c3")
			if err := w.Check(); err != nil {
				t.Error(err)
			}
		})
		if t.Failed() {
			t.Fatalf("round %d", round)
		}
	}
}

// Spread's doc says so.
func TestSpreadUnderALockThatIsWaitedForIsADeadlock(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		outer := acquire(t, a, "outer")
		group := acquire(t, b, "s")
		call := waiting(t, group.Context(), b, "outer")
		if err := a.Spread(outer.Context(), "s", 2, func(context.Context, int, *Lock) error { return nil }); !errors.Is(err, ErrDeadlock) {
			t.Errorf("spread: %v", err)
		}
		release(t, outer)
		call.ok(t)
	})
}
