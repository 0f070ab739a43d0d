package locks_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/internal/testrounds"
	"github.com/wardmote/wardmote/locks"
	"github.com/wardmote/wardmote/locks/lockstest"
)

// ownedAgain bounds the time from the end of all faults until every shard of the
// group's number has an owner. The time is made of: an election, a TTL of 2 s in which
// the sessions of dead processes end, a resize that waits for these, works that
// overstay for 3 s, callers' pauses of up to a TTL, and the quiet before a plan.
const ownedAgain = 15 * time.Second

// Members of whole clusters are killed and restarted, frozen and cut off, leaders among
// them, while the callers change their options and the group its number of shards. Never
// do two works of a shard run, nor works of two numbers, and afterwards every shard has
// an owner again in time.
func TestResizesUnderFaultsOfTheCluster(t *testing.T) {
	var mended, resized, began int
	worst := time.Duration(0)
	rounds := 1
	if testrounds.Full() {
		rounds = testrounds.Whole(3, 40)
	}
	for seed := range rounds {
		synctest.Test(t, func(t *testing.T) {
			f := newFaulty(t, uint64(seed))
			f.play()
			if took, ok := f.mend(); ok {
				mended++
				worst = max(worst, took)
			}
			f.end()
			resized += f.resized
			began += f.works.began
		})
		if t.Failed() {
			t.Fatalf("round %d", seed)
		}
	}
	t.Logf("%d rounds: %d works, %d resizes done; all owned again after %v at most", mended, began, resized, worst)
	if testrounds.Full() && resized < rounds {
		t.Errorf("only %d resizes in %d rounds", resized, rounds)
	}
}

// faultyMembers is the number of members, of which up to one is killed at a time.
const faultyMembers = 5

// faulty is a round of the test.
type faulty struct {
	t     *testing.T
	c     *lockstest.Cluster
	works *numberedWorks
	tasks sync.WaitGroup

	mu      sync.Mutex
	rng     *rand.Rand
	quiet   bool // no options and no lingering from now on
	resized int
	again   [faultyMembers]context.CancelFunc // ends the member's present call of Spread
	leave   [faultyMembers]context.CancelFunc // ends the member's calls of Spread
	down    int                               // a killed member; -1: none
	frozen  map[int]bool
}

func newFaulty(t *testing.T, seed uint64) *faulty {
	f := &faulty{
		t: t, c: lockstest.New(t, faultyMembers), works: &numberedWorks{t: t, running: make(map[numbered]string), tokens: make(map[numbered]fence.Token)},
		rng: rand.New(rand.NewPCG(seed, 11)), down: -1, frozen: make(map[int]bool),
	}
	f.c.Settle()
	for i := range faultyMembers {
		f.begin(i)
	}
	return f
}

func (f *faulty) draw(n int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rng.IntN(n)
}

// options draws the options of a call.
func (f *faulty) options() (opts []locks.SpreadOption) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.quiet {
		return nil
	}
	choose := func(n int) bool { return f.rng.IntN(n) == 0 }
	if choose(2) {
		opts = append(opts, locks.Weight(100*f.rng.IntN(4)))
	}
	if choose(3) {
		opts = append(opts, locks.Grace(time.Duration(f.rng.IntN(5))*time.Second))
	}
	if choose(3) {
		opts = append(opts, locks.Drain(time.Duration(f.rng.IntN(1000))*time.Millisecond))
	}
	if choose(4) {
		opts = append(opts, locks.Succeeds(fmt.Sprint("caller-", f.rng.IntN(faultyMembers))))
	}
	if choose(3) {
		opts = append(opts, locks.MaxMoves(1+f.rng.IntN(8)))
	}
	return opts
}

// begin has a member call Spread again and again until leave, with the number of shards
// that the cluster names.
func (f *faulty) begin(i int) {
	client := f.c.NewClient(i, locks.Options{Name: fmt.Sprint("caller-", i)})
	ctx, cancel := context.WithCancel(f.t.Context())
	f.mu.Lock()
	f.leave[i], f.again[i] = cancel, func() {}
	f.mu.Unlock()
	f.tasks.Go(func() {
		number := 12
		for ctx.Err() == nil {
			own, again := context.WithCancel(ctx)
			f.mu.Lock()
			f.again[i] = again
			f.mu.Unlock()
			err := client.Spread(own, "g", number, f.work(i, number), f.options()...)
			again()
			var other *locks.ShardsError
			switch {
			case errors.As(err, &other):
				number = other.Have
			case errors.Is(err, locks.ErrClosed), errors.Is(err, cluster.ErrStopped):
				return
			case !errors.Is(err, context.Canceled):
				f.t.Errorf("spread: %v", err)
				return
			}
		}
	})
}

// work returns a work that overstays at times, for as long as its lock is held.
func (f *faulty) work(member, number int) locks.ShardWork {
	return func(ctx context.Context, shard int, l *locks.Lock) error {
		f.works.begin(number, shard, member, l)
		defer f.works.end(number, shard)
		<-ctx.Done()
		f.mu.Lock()
		linger := time.Duration(0)
		if !f.quiet && f.rng.IntN(5) == 0 {
			linger = time.Duration(f.rng.IntN(3000)) * time.Millisecond
		}
		f.mu.Unlock()
		for over := time.Now().Add(linger); time.Now().Before(over) && l.Err() == nil; {
			time.Sleep(5 * time.Millisecond)
		}
		return nil
	}
}

// play plays faults.
func (f *faulty) play() {
	for range testrounds.Bound(6, 25) {
		switch i := f.draw(faultyMembers); f.draw(8) {
		case 0:
			f.kill(func() int { return i })
		case 1:
			f.kill(f.c.Leader)
		case 2:
			f.restart()
		case 3:
			f.frozen[i] = true
			f.c.Pause(i)
		case 4:
			f.heal()
		case 5:
			f.c.Isolate(i)
		case 6:
			f.mu.Lock()
			again := f.again[i]
			f.mu.Unlock()
			again() // with other options
		case 7:
			f.resize(i)
		}
		time.Sleep(time.Duration(f.draw(5000)) * time.Millisecond)
	}
}

// kill kills a member, unless one is down. The voters live in memory: two of three that
// die at once take the cluster with them, so the others are in sight, and three vote.
func (f *faulty) kill(which func() int) {
	if f.down >= 0 {
		return
	}
	f.heal()
	f.c.Settle()
	f.down = which()
	f.c.Kill(f.down)
}

// heal ends all faults but the death of a member.
func (f *faulty) heal() {
	for i := range f.frozen {
		f.c.Resume(i)
	}
	clear(f.frozen)
	f.c.Heal()
}

func (f *faulty) restart() {
	if f.down < 0 {
		return
	}
	f.heal() // Restart waits until the member is ready
	i := f.down
	f.down = -1
	f.mu.Lock()
	leave := f.leave[i]
	f.mu.Unlock()
	leave()
	f.c.Restart(i)
	f.begin(i)
}

// resize changes the number of shards, by a call on a member that lives.
func (f *faulty) resize(i int) {
	if i == f.down {
		return
	}
	to := 1 + f.draw(24)
	client := f.c.Client(i)
	f.tasks.Go(func() {
		ctx, cancel := context.WithTimeout(f.t.Context(), 20*time.Second)
		defer cancel()
		for range 2 {
			from := f.works.number()
			if from == to || from == 0 {
				return
			}
			err := client.Resize(ctx, "g", from, to)
			var other *locks.ShardsError
			switch {
			case err == nil:
				f.mu.Lock()
				f.resized++
				f.mu.Unlock()
				return
			case errors.As(err, &other):
				continue // the works that ran last were of a former number
			case errors.Is(err, locks.ErrResizing), ctx.Err() != nil, errors.Is(err, locks.ErrClosed), errors.Is(err, cluster.ErrStopped):
				return
			}
			f.t.Errorf("resize: %v", err)
		}
	})
}

// mend ends all faults, and returns after which time all shards have owners.
func (f *faulty) mend() (took time.Duration, ok bool) {
	f.heal()
	f.mu.Lock()
	f.quiet = true
	for _, again := range f.again {
		again()
	}
	f.mu.Unlock()
	f.restart()
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if f.works.complete() && f.settled() {
			return time.Since(began), true
		}
		if time.Since(began) > ownedAgain {
			f.t.Errorf("after %v: %v", time.Since(began), f.works)
			return 0, false
		}
	}
}

// settled reports whether the group is not being resized.
func (f *faulty) settled() bool {
	ctx, cancel := context.WithTimeout(f.t.Context(), time.Second)
	defer cancel()
	m, err := f.c.Client(0).Shards(ctx, "g")
	if err != nil {
		return false
	}
	_, resizing := m.Resizing()
	return !resizing && m.Len() == f.works.number()
}

func (f *faulty) end() {
	f.mu.Lock()
	for _, leave := range f.leave {
		leave()
	}
	f.mu.Unlock()
	f.tasks.Wait()
}

// numbered is a shard of a number of shards.
type numbered struct{ number, shard int }

// numberedWorks are the works that run.
type numberedWorks struct {
	t       *testing.T
	mu      sync.Mutex
	running map[numbered]string
	tokens  map[numbered]fence.Token
	last    int // the number of shards of the work that began last
	began   int
}

func (w *numberedWorks) begin(number, shard, member int, l *locks.Lock) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for other, by := range w.running {
		if other.number != number || other.shard == shard {
			w.t.Errorf("shard %d of %d begins at member %d beside shard %d of %d at %s", shard, number, member, other.shard, other.number, by)
		}
	}
	key := numbered{number, shard}
	if l.Token() <= w.tokens[key] {
		w.t.Errorf("shard %d of %d: token %d after %d", shard, number, l.Token(), w.tokens[key])
	}
	w.running[key], w.tokens[key], w.last = fmt.Sprint("member ", member), l.Token(), number
	w.began++
}

func (w *numberedWorks) end(number, shard int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.running, numbered{number, shard})
}

// number returns the number of shards of the work that began last.
func (w *numberedWorks) number() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

// complete reports whether a work runs for each shard of the number.
func (w *numberedWorks) complete() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last > 0 && len(w.running) == w.last
}

func (w *numberedWorks) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return fmt.Sprintf("%d of %d shards have owners: %v", len(w.running), w.last, w.running)
}
