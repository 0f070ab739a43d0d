package locks

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/term/termtest"
	"github.com/wardmote/wardmote/internal/testrounds"
)

// Callers that start together, with any delays, are one change: each shard is granted
// once.
func TestCallersThatStartTogetherMoveNothing(t *testing.T) {
	type size struct{ shards, callers, rounds int }
	sizes := []size{{64, 10, testrounds.Rounds(3, 50)}, {256, 20, testrounds.Rounds(1, 50)}}
	if testrounds.Full() {
		sizes = append(sizes, size{1024, 30, testrounds.Whole(5, 50)}, size{16_384, 200, testrounds.Whole(1, 50)})
	}
	for _, size := range sizes {
		began := time.Now()
		for round := range size.rounds {
			bubble(t, func(t *testing.T, w *world) {
				w.SetCheck(false)
				w.Seed(uint64(round))
				s := newShardMap(t)
				rng := rand.New(rand.NewPCG(uint64(round), 1))
				var callers []*caller
				for i := range size.callers {
					name := fmt.Sprint("c", i)
					c, m := w.client(t, name)
					m.SetFaults(termtest.Faults{Latency: rand.N(50 * time.Millisecond)})
					callers = append(callers, spreadOn(t, c, m, "g", size.shards, s.work(name)))
					time.Sleep(time.Duration(rng.Int64N(int64(10 * time.Millisecond))))
				}
				time.Sleep(5 * time.Second)
				what := fmt.Sprintf("%d shards, %d callers, round %d", size.shards, size.callers, round)
				s.count(t, what, size.shards)
				if most := (size.shards + size.callers - 1) / size.callers; len(s.sizes()) != size.callers {
					t.Errorf("%s: %d callers own shards, at most %d each", what, len(s.sizes()), most)
				}
				for _, x := range callers {
					x.leave()
				}
				for _, x := range callers {
					_, _ = x.ended.ends(t)
				}
			})
		}
		t.Logf("%d shards, %d callers: %d schedules in %v", size.shards, size.callers, size.rounds, time.Since(began))
	}
}

// One caller more, ten more at once, and one less move as few shards as that takes.
func TestJoinsAndLeavesMoveAsFewShardsAsTheyCan(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.SetCheck(false)
		const shards = 64
		s := newShardMap(t)
		var names []string
		var callers []*caller
		join := func(n int) {
			for range n {
				name := fmt.Sprint("c", len(names))
				names = append(names, name)
				callers = append(callers, w.spread(t, name, "g", shards, s.work(name)))
			}
			time.Sleep(10 * time.Second)
			s.balanced(t, shards, names...)
		}
		join(9) // 8 with 7 shards, 1 with 8
		s.count(t, "nine callers at once", 64)
		join(1) // 6 each, 4 with 7
		s.count(t, "one more", 6)
		join(10) // 3 each, 4 with 4
		s.count(t, "ten more at once", 30)
		callers[0].leave()
		names = names[1:]
		time.Sleep(10 * time.Second)
		s.balanced(t, shards, names...)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.starts < 3 || s.starts > 4 || s.moved != s.starts {
			t.Errorf("one less: %d works began, %d moved", s.starts, s.moved)
		}
	})
}

// Every process restarts under its name, within Grace: no shard has another owner than
// before, and each work is gone for as long as its process.
func TestRollingRestartWithinGraceMovesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.SetCheck(false)
		const shards, n = 64, 10
		s := newShardMap(t)
		names := make([]string, n)
		callers := make([]*caller, n)
		for i := range names {
			names[i] = fmt.Sprint("c", i)
			callers[i] = w.spread(t, names[i], "g", shards, s.work(names[i]), Grace(10*time.Second))
		}
		time.Sleep(5 * time.Second)
		s.count(t, "start", shards)
		for i, x := range callers {
			x.leave()
			_, _ = x.ended.ends(t)
			shutdown(t, x.c)
			time.Sleep(3 * time.Second)
			if got := s.sizes(); got[names[i]] != 0 || len(got) != n-1 {
				t.Errorf("%v while %s is away", got, names[i])
			}
			c := w.join("node-again-" + names[i]).client(Options{Name: names[i]})
			t.Cleanup(func() { shutdown(t, c) })
			callers[i] = spreadOn(t, c, nil, "g", shards, s.work(names[i]), Grace(10*time.Second))
			time.Sleep(50 * time.Millisecond)
			s.balanced(t, shards, names...)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.moved != 0 || s.starts != shards {
			t.Errorf("%d shards have moved, %d works began", s.moved, s.starts)
		}
	})
}

// A caller that does not come back within Grace is replaced.
func TestGraceEnds(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		const grace = 10 * time.Second
		s := newShardMap(t)
		a := w.spread(t, "a", "g", 8, s.work("a"), Grace(grace))
		w.spread(t, "b", "g", 8, s.work("b"), Grace(grace))
		time.Sleep(3 * time.Second)
		a.leave()
		time.Sleep(grace - time.Second)
		s.ownsN(t, "b", 4)
		time.Sleep(2 * time.Second)
		s.balanced(t, 8, "b")
	})
}

// Every process is replaced by another one under a new name, which was started before:
// each shard moves once.
func TestSurgeWithSuccessorsMovesEachShardOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.SetCheck(false)
		const shards, n = 64, 10
		s := newShardMap(t)
		var old []*caller
		for i := range n {
			name := fmt.Sprint("old", i)
			old = append(old, w.spread(t, name, "g", shards, s.work(name)))
		}
		time.Sleep(5 * time.Second)
		s.count(t, "start", shards)
		var names []string
		for i, x := range old {
			name := fmt.Sprint("new", i)
			names = append(names, name)
			w.spread(t, name, "g", shards, s.work(name), Succeeds(fmt.Sprint("old", i)))
			time.Sleep(3 * time.Second)
			s.ownsN(t, name, 0)
			x.leave()
			time.Sleep(time.Second)
		}
		s.balanced(t, shards, names...)
		s.count(t, "a surge", shards)
	})
}

// Shares follow the weights. A caller of weight 0 stands by, also alone.
func TestWeights(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		const shards = 30
		s := newShardMap(t)
		standby := w.spread(t, "standby", "g", shards, s.work("standby"), Weight(0))
		time.Sleep(5 * time.Second)
		s.balanced(t, 0, "standby")
		w.spread(t, "a", "g", shards, s.work("a"))
		b := w.spread(t, "b", "g", shards, s.work("b"), Weight(200))
		time.Sleep(5 * time.Second)
		s.ownsN(t, "a", 10)
		s.ownsN(t, "b", 20)
		s.ownsN(t, "standby", 0)
		standby.leave()
		_, _ = standby.ended.ends(t)
		spreadOn(t, standby.c, nil, "g", shards, s.work("standby"), Weight(300)) // ready now
		time.Sleep(10 * time.Second)
		s.ownsN(t, "standby", 15)
		s.ownsN(t, "a", 5)
		s.ownsN(t, "b", 10)
		b.leave()
		time.Sleep(10 * time.Second)
		if n := s.sizes()["a"]; n != 7 && n != 8 { // 7.5
			t.Errorf("a owns %d shards", n)
		}
	})
}

// No more shards than MaxMoves are on their way for balance at a time.
func TestMaxMoves(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		s := newShardMap(t)
		var mu sync.Mutex
		ending, most := 0, 0
		w.spread(t, "a", "g", 20, func(ctx context.Context, shard int, l *Lock) error {
			err := s.work("a")(ctx, shard, l)
			mu.Lock()
			ending++
			most = max(most, ending)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			ending--
			mu.Unlock()
			return err
		}, MaxMoves(3))
		time.Sleep(5 * time.Second)
		w.spread(t, "b", "g", 20, s.work("b"), MaxMoves(3))
		time.Sleep(10 * time.Second)
		s.balanced(t, 20, "a", "b")
		mu.Lock()
		defer mu.Unlock()
		if most != 3 {
			t.Errorf("%d works ended at a time, want 3", most)
		}
	})
}

// A work that overstays is told, and keeps its shard while its session lives.
func TestAWorkThatOverstaysKeepsItsShard(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var mu sync.Mutex
		stuck := make(map[string]int)
		m := w.join("node-a")
		a := m.client(Options{Name: "a", Trace: &Trace{Stuck: func(_ context.Context, e LockEvent) {
			mu.Lock()
			defer mu.Unlock()
			stuck[e.Key]++
		}}})
		t.Cleanup(func() { shutdown(t, a) })
		s := newShardMap(t)
		hang := make(chan struct{})
		spreadOn(t, a, m, "g", 2, func(ctx context.Context, shard int, l *Lock) error {
			s.begin("a", shard, l)
			<-ctx.Done()
			<-hang
			s.end(shard)
			return nil
		})
		time.Sleep(5 * time.Second)
		w.spread(t, "b", "g", 2, s.work("b"))
		time.Sleep(4 * testTTL)
		s.ownsN(t, "a", 2)
		mu.Lock()
		if len(stuck) != 1 || stuck["g/0"]+stuck["g/1"] != 1 {
			t.Errorf("stuck: %v", stuck)
		}
		mu.Unlock()
		close(hang)
		time.Sleep(5 * time.Second)
		s.balanced(t, 2, "a", "b")
	})
}

// A Prepare that fails loses nothing: the present owner serves on, and another caller
// gets the shard when there is one.
func TestAFailedPrepareChoosesAnother(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		s := newShardMap(t)
		w.spread(t, "a", "g", 8, s.work("a"))
		time.Sleep(5 * time.Second)
		for i, prepare := range []func(context.Context, int) error{
			func(context.Context, int) error { return errWork },
			func(ctx context.Context, _ int) error { <-ctx.Done(); return nil },
		} {
			bad := w.spread(t, fmt.Sprint("bad", i), "g", 8, s.work("bad"), Prepare(prepare))
			time.Sleep(time.Minute)
			s.balanced(t, 8, "a")
			bad.leave()
			_, _ = bad.ended.ends(t)
			time.Sleep(time.Second)
			s.balanced(t, 8, "a")
			if i == 0 {
				s.count(t, "a Prepare that fails", 8)
			} else {
				s.count(t, "a Prepare that hangs", 0)
			}
		}
		w.spread(t, "bad", "g", 8, s.work("bad"), Prepare(func(context.Context, int) error { return errWork }))
		w.spread(t, "c", "g", 8, s.work("c"), Prepare(func(context.Context, int) error { return nil }))
		time.Sleep(time.Minute)
		if got := s.sizes(); got["a"]+got["c"] != 8 || got["c"] < 2 || got["bad"] != 0 {
			t.Errorf("%v", got)
		}
	})
}

// A crashed caller's shards have owners a TTL later, and no other shard moves.
func TestACrashMovesTheShardsOfTheCrashedCallerOnly(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		const shards = 30
		s := newShardMap(t)
		var callers []*caller
		names := []string{"a", "b", "c"}
		for _, name := range names {
			callers = append(callers, w.spread(t, name, "g", shards, s.work(name)))
		}
		time.Sleep(5 * time.Second)
		s.count(t, "start", shards)
		callers[0].m.Isolate()
		began := time.Now()
		for len(s.sizes()) != 2 || s.sizes()["b"] != 15 || s.sizes()["c"] != 15 {
			time.Sleep(10 * time.Millisecond)
			if time.Since(began) > time.Minute {
				t.Fatalf("%v after a minute", s.sizes())
			}
		}
		if gap := time.Since(began); gap > testTTL+time.Second {
			t.Errorf("the shards had owners after %v", gap)
		}
		s.count(t, "a crash", 10)
	})
}

// Callers with another number of shards are refused.
func TestAnotherNumberOfShards(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		s := newShardMap(t)
		a := w.spread(t, "a", "g", 8, s.work("a"))
		time.Sleep(time.Second)
		b := w.spread(t, "b", "g", 9, s.work("b"))
		var wrong *ShardsError
		if _, err := b.ended.ends(t); !errors.As(err, &wrong) || *wrong != (ShardsError{"g", 9, 8}) {
			t.Errorf("spread: %v", err)
		}
		a.leave()
		_, _ = a.ended.ends(t)
		time.Sleep(time.Second)
		spreadOn(t, b.c, nil, "g", 9, s.work("b")) // the name was forgotten
		time.Sleep(5 * time.Second)
		s.balanced(t, 9, "b")
	})
}

// No work of the new number begins before the last of the old has returned, or has
// been told that it lost its lock, with a caller behind a partition.
func TestResize(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var mu sync.Mutex
		running := make(map[int]int) // works by number of shards
		work := func(shards int) ShardWork {
			return func(ctx context.Context, shard int, l *Lock) error {
				mu.Lock()
				running[shards]++
				if running[8] > 0 && running[12] > 0 {
					t.Errorf("works of both numbers run: %v", running)
				}
				mu.Unlock()
				<-ctx.Done()
				if l.Err() == nil { // a lost work is not waited for
					time.Sleep(time.Duration(shard) * 100 * time.Millisecond)
				}
				mu.Lock()
				running[shards]--
				mu.Unlock()
				return nil
			}
		}
		runs := func(want map[int]int) {
			t.Helper()
			mu.Lock()
			defer mu.Unlock()
			if fmt.Sprint(running) != fmt.Sprint(want) {
				t.Errorf("running %v, want %v", running, want)
			}
		}
		a := w.spread(t, "a", "g", 8, work(8))
		b := w.spread(t, "b", "g", 8, work(8))
		time.Sleep(5 * time.Second)
		operator, _ := w.client(t, "operator")
		var wrong *ShardsError
		if err := operator.Resize(bg, "unknown", 7, 12); !errors.As(err, &wrong) || *wrong != (ShardsError{"unknown", 7, 0}) || !strings.Contains(err.Error(), "nobody calls Spread") {
			t.Errorf("of a name that nobody calls: %v", err)
		}
		if err := operator.Resize(bg, "g", 7, 12); !errors.Is(err, ErrShards) {
			t.Errorf("from another number: %v", err)
		}
		b.m.Isolate()
		began := time.Now()
		resize := start(func() (struct{}, error) { return struct{}{}, operator.Resize(bg, "g", 8, 12) })
		time.Sleep(2 * time.Second)
		resize.pends(t)
		if err := operator.Resize(bg, "g", 8, 13); !errors.Is(err, ErrResizing) {
			t.Errorf("to two numbers: %v", err)
		}
		if _, err := a.ended.ends(t); !errors.As(err, &wrong) || *wrong != (ShardsError{"g", 8, 12}) {
			t.Errorf("spread: %v", err)
		}
		next := spreadOn(t, a.c, nil, "g", 12, work(12))
		time.Sleep(time.Second)
		runs(map[int]int{8: 4})
		if _, err := resize.ends(t); err != nil {
			t.Errorf("resize: %v", err)
		}
		if took := time.Since(began); took < testTTL/2 || took > testTTL+2*time.Second {
			t.Errorf("the resize took %v", took)
		}
		time.Sleep(5 * time.Second)
		runs(map[int]int{8: 0, 12: 12})
		b.m.Heal()
		if _, err := b.ended.ends(t); !errors.As(err, &wrong) || *wrong != (ShardsError{"g", 8, 12}) {
			t.Errorf("spread: %v", err)
		}
		next.leave()
		_, _ = next.ended.ends(t)
		if err := operator.Resize(bg, "g", 8, 12); err != nil {
			t.Errorf("a second time: %v", err)
		}
		if _, err := spreadOn(t, a.c, nil, "g", 8, work(8)).ended.ends(t); !errors.Is(err, ErrShards) {
			t.Errorf("the old number: %v", err)
		}
	})
}

// A work may wait for what another caller of Spread holds, for an owner gives way.
func TestSpreadUnderALockIsNoDeadlock(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		s := newShardMap(t)
		a, ma := w.client(t, "a")
		outer := acquire(t, a, "outer")
		b, mb := w.client(t, "b")
		spreadOn(t, b, mb, "g", 2, func(ctx context.Context, shard int, l *Lock) error {
			s.begin("b", shard, l)
			defer s.end(shard)
			if o, err := b.Acquire(ctx, "outer"); err == nil {
				t.Error("b holds outer")
				_ = o.Release(bg)
			}
			return nil
		})
		time.Sleep(5 * time.Second)
		s.balanced(t, 2, "b")
		ctx, cancel := context.WithCancel(outer.Context())
		defer cancel()
		ended := does(func(ctx context.Context) error { return a.Spread(ctx, "g", 2, s.work("a")) }, ctx)
		time.Sleep(5 * time.Second)
		s.balanced(t, 2, "a", "b")
		ended.pends(t)
		_ = ma
		cancel()
		_, _ = ended.ends(t)
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
			{"name", "", 1},
			{"name", "\x00g", 1},
			{"name", strings.Repeat("g", machine.MaxGroupName+1), 1},
		} {
			wantConfig(t, c.Spread(bg, test.name, test.shards, work), test.field)
		}
		wantConfig(t, c.Resize(bg, "", 1, 2), "name")
		wantConfig(t, c.Resize(bg, "g", 0, 2), "from")
		wantConfig(t, c.Resize(bg, "g", 2, MaxShards+1), "to")
		wantConfig(t, c.Resize(bg, "g", 2, 2), "to")
		_, err := c.Shards(bg, "")
		wantConfig(t, err, "name")
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
			type visitor struct {
				m      *member
				cut    bool
				cancel context.CancelFunc
			}
			var callers []*visitor
			quiet := false
			choices := rand.New(rand.NewPCG(uint64(round), 8))
			// options of a call, chosen at random until all is quiet.
			options := func() (opts []SpreadOption) {
				s.mu.Lock()
				defer s.mu.Unlock()
				if quiet {
					return nil
				}
				if choices.IntN(2) == 0 {
					opts = append(opts, Weight(choices.IntN(3)*100))
				}
				if choices.IntN(2) == 0 {
					opts = append(opts, Grace(time.Duration(choices.IntN(10))*time.Second))
				}
				if choices.IntN(2) == 0 {
					opts = append(opts, Drain(time.Duration(choices.IntN(5))*time.Second))
				}
				if choices.IntN(4) == 0 {
					opts = append(opts, Succeeds(fmt.Sprint("c", choices.IntN(4))))
				}
				if choices.IntN(2) == 0 {
					opts = append(opts, Prepare(func(ctx context.Context, shard int) error {
						s.mu.Lock()
						chance := choices.IntN(4)
						s.mu.Unlock()
						switch chance {
						case 0:
							return errWork
						case 1:
							<-ctx.Done()
						}
						return nil
					}))
				}
				return opts
			}
			for i := range 4 {
				name := fmt.Sprint("c", i)
				c, m := w.client(t, name)
				m.SetFaults(termtest.Faults{Latency: 50 * time.Millisecond, LoseAsk: 0.05, LoseAnswer: 0.05, Twice: 0.05, LosePush: 0.1})
				x := &visitor{m: m}
				callers = append(callers, x)
				wg.Go(func() {
					for !t.Failed() {
						ctx, cancel := context.WithCancel(bg)
						s.mu.Lock()
						x.cancel = cancel
						s.mu.Unlock()
						err := c.Spread(ctx, "g", shards, s.work(name), options()...)
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
			s.mu.Lock()
			quiet = true
			for _, x := range callers {
				x.cancel() // and enlist again, without options
			}
			s.mu.Unlock()
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
