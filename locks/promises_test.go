package locks_test

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

	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/internal/testrounds"
	"github.com/wardmote/wardmote/locks"
	"github.com/wardmote/wardmote/locks/lockstest"
)

// Loss is told first: under any cut, pause or kill, a holder's context has ended
// before anybody's next grant of the key returns, by the bubble's clock; and tokens
// rise. The contenders run on three voters and two thin members.
func TestHolderIsToldBeforeTheNextGrantReturns(t *testing.T) {
	underFaults(t, testrounds.Rounds(12, 200), func(c *contender) {
		c.hold(c.acquire(at("k")))
	})
}

// The same in every mode: at keys above and below each other, single and in sets,
// upgraded and downgraded, nested, with priorities and delays, and while an operator
// breaks locks.
func TestConflictingLocksAreNeverHeldTogether(t *testing.T) {
	underFaults(t, testrounds.Rounds(10, 120), func(c *contender) {
		key := []string{"k", "k/a", "k/b", "k/a/x"}[c.r.IntN(4)]
		switch c.r.IntN(12) {
		case 0, 1:
			c.hold(c.acquire(at(key), locks.Priority(c.r.IntN(3))))
		case 2, 3:
			h := c.acquire(&held{keys: []string{key}, shared: true}, locks.Shared())
			if h != nil && c.r.IntN(2) == 0 {
				c.upgrade(h)
			}
			c.hold(h)
		case 4:
			c.hold(c.acquire(&held{keys: []string{key}, tree: true}, locks.Tree()))
		case 5:
			c.hold(c.acquire(&held{keys: []string{key}, tree: true, shared: true}, locks.Tree(), locks.Shared()))
		case 6, 7:
			c.hold(c.acquire(&held{keys: []string{"permits"}, permit: true}, locks.Permits(1, 2)))
		case 8, 9:
			c.hold(c.acquireAll("k/b", "permits of none", "k/a"))
		case 10:
			// Nested in any order: an endless wait is refused.
			if outer := c.acquire(at(key), locks.Delay(c.ttl/2)); outer != nil {
				c.under = outer.l.Context()
				c.hold(c.acquire(at([]string{"k/a", "k/b"}[c.r.IntN(2)])))
				c.under = nil
				c.hold(outer)
			}
		case 11:
			ctx, cancel := context.WithTimeout(c.ctx, c.ttl)
			defer cancel()
			if st, err := c.client.Inspect(ctx, key); err == nil && st.Held() {
				_ = c.client.Break(ctx, key, st.Holders[0].Token)
			}
		}
	})
}

// held is a grant as its holder sees it.
type held struct {
	l            lock
	ctx          context.Context // of l
	by           string
	keys         []string
	shared, tree bool
	permit       bool
	dead         bool // the process was killed or frozen: contexts do not count
}

type lock interface {
	Context() context.Context
	Err() error
	Token() fence.Token
	Release(context.Context) error
}

// conflicts reports whether the two grants must not be held together.
func (h *held) conflicts(o *held) bool {
	if h.shared && o.shared || h.permit && o.permit {
		return false
	}
	for _, a := range h.keys {
		for _, b := range o.keys {
			over := strings.HasPrefix(a, b+"/") || strings.HasPrefix(b, a+"/")
			if a == b || over && (h.tree || o.tree) {
				return true
			}
		}
	}
	return false
}

// ledger has the holders of all keys in the whole cluster.
type ledger struct {
	t *testing.T

	mu     sync.Mutex
	held   map[*held]bool
	frozen map[string]bool // members, by the names of contenders
	grants int
	tokens map[string]fence.Token // the last exclusive grant's of each key
}

// freeze notes that a member is frozen: it does not know what has become of its locks.
// After the end of the freeze, thaw is called.
func (w *ledger) freeze(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.frozen[name] = true
	for h := range w.held {
		h.dead = h.dead || h.by == name
	}
}

func (w *ledger) thaw() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.frozen)
}

// enter checks a grant that has just returned, or a shared grant that is now
// exclusive.
func (w *ledger) enter(h *held) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.frozen[h.by] {
		return
	}
	w.grants++
	permits := 0
	for o := range w.held {
		switch {
		case o == h:
		case o.dead || o.ctx.Err() != nil:
			delete(w.held, o)
		case h.conflicts(o):
			w.t.Errorf("%v: %s was granted %v under token %d while %s's context for %v with token %d lives on",
				time.Now(), h.by, h.keys, h.l.Token(), o.by, o.keys, o.l.Token())
		case h.permit && o.permit:
			permits++
		}
	}
	if h.permit && permits > 1 {
		w.t.Errorf("%d permits of 2", permits+1)
	}
	w.held[h] = true
	if h.permit {
		return
	}
	for _, key := range h.keys {
		if h.l.Token() <= w.tokens[key] {
			w.t.Errorf("%q: token %d after %d", key, h.l.Token(), w.tokens[key])
		}
		if !h.shared {
			w.tokens[key] = h.l.Token()
		}
	}
}

// contender acquires keys in a goroutine on a member.
type contender struct {
	t      *testing.T
	ledger *ledger
	name   string
	client *locks.Client
	ctx    context.Context // ends when the member is killed
	under  context.Context // of a lock held meanwhile
	r      *rand.Rand
	ttl    time.Duration
}

func (c *contender) wait() (context.Context, context.CancelFunc) {
	parent := c.ctx
	if c.under != nil {
		parent = c.under
	}
	return context.WithTimeout(parent, time.Duration(c.r.Int64N(int64(6*c.ttl))))
}

func at(key string) *held { return &held{keys: []string{key}} }

func (c *contender) acquire(h *held, opts ...locks.Option) *held {
	ctx, cancel := c.wait()
	defer cancel()
	switch c.r.IntN(4) {
	case 0:
		opts = append(opts, locks.Lazy())
	case 1:
		if len(opts) == 0 {
			opts = append(opts, locks.Sticky())
		}
	}
	l, err := c.client.Acquire(ctx, h.keys[0], opts...)
	if err != nil {
		return nil
	}
	h.l = l
	return c.entered(h)
}

func (c *contender) acquireAll(keys ...string) *held {
	ctx, cancel := c.wait()
	defer cancel()
	s, err := c.client.AcquireAll(ctx, keys)
	if err != nil {
		return nil
	}
	return c.entered(&held{l: s, keys: keys})
}

func (c *contender) entered(h *held) *held {
	h.by, h.ctx = c.name, h.l.Context()
	if c.ctx.Err() != nil || h.l.Err() != nil {
		// The member may be killed, and nobody sees this grant; or a freeze between the
		// grant and its return was long.
		return nil
	}
	c.ledger.enter(h)
	return h
}

// upgrade makes h exclusive, and perhaps shared again.
func (c *contender) upgrade(h *held) {
	ctx, cancel := c.wait()
	defer cancel()
	l := h.l.(*locks.Lock)
	if l.Upgrade(ctx) != nil || c.ctx.Err() != nil || l.Err() != nil {
		return
	}
	c.ledger.mu.Lock()
	h.shared = false
	c.ledger.mu.Unlock()
	c.ledger.enter(h)
	if c.r.IntN(2) == 0 {
		// Others may be granted before Downgrade returns.
		c.ledger.mu.Lock()
		h.shared = true
		c.ledger.mu.Unlock()
		_ = l.Downgrade(ctx)
	}
}

// hold keeps a grant for a while and releases it. h may be nil.
func (c *contender) hold(h *held) {
	if h == nil {
		return
	}
	select {
	case <-time.After(time.Duration(c.r.Int64N(int64(2 * c.ttl)))):
	case <-h.ctx.Done():
	case <-c.ctx.Done():
	}
	release, cancel := context.WithTimeout(context.Background(), time.Duration(c.r.IntN(500))*time.Millisecond)
	defer cancel()
	_ = h.l.Release(release)
}

// underFaults runs contend again and again in ten goroutines on five members,
// while faults come and go.
func underFaults(t *testing.T, rounds int, contend func(*contender)) {
	// A short TTL makes expiries frequent. A long TTL outlives elections, so that new
	// leaders meet holders that still trust their locks.
	for _, ttl := range []time.Duration{time.Second, 5 * time.Second} {
		t.Run(ttl.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { storm(t, ttl, rounds/2, contend) })
		})
	}
}

func storm(t *testing.T, ttl time.Duration, rounds int, contend func(*contender)) {
	const members = 5
	c := lockstest.New(t, members, lockstest.TTL(ttl))
	seed := rand.Uint64()
	t.Logf("seed %d (the order of goroutines is not repeated)", seed)
	r := rand.New(rand.NewPCG(seed, 3))

	w := &ledger{t: t, held: make(map[*held]bool), frozen: make(map[string]bool), tokens: make(map[string]fence.Token)}
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	t.Cleanup(func() { stop(); wg.Wait() })
	run := func(i int) (kill func()) {
		ctx, cancel := context.WithCancel(ctx)
		name := fmt.Sprint("member ", i)
		for range 2 {
			co := &contender{t: t, ledger: w, name: name, client: c.Client(i), ctx: ctx, r: rand.New(rand.NewPCG(r.Uint64(), 4)), ttl: ttl}
			wg.Go(func() {
				for ctx.Err() == nil {
					contend(co)
				}
			})
		}
		return func() {
			w.mu.Lock()
			cancel()
			for h := range w.held {
				h.dead = h.dead || h.by == name
			}
			w.mu.Unlock()
		}
	}
	kill := make([]func(), members)
	for i := range members {
		c.SetClock(i, lockstest.Clock{Rate: 0.996 + 0.008*r.Float64()}) // up to 0.8 % apart
		kill[i] = run(i)
	}
	heal := func() {
		c.Heal()
		w.thaw()
	}

	killed := -1
	for round := range rounds {
		switch r.IntN(8) {
		case 0:
			cut := r.Perm(members)
			at := 1 + r.IntN(members-1)
			c.Partition(cut[:at], cut[at:])
		case 1:
			c.Isolate(r.IntN(members))
		case 2, 3:
			c.Cut(r.IntN(members), r.IntN(members))
		case 4:
			i := r.IntN(members)
			if r.IntN(2) == 0 || i == killed {
				c.Pause(i)
				break
			}
			c.Freeze(i)
			w.freeze(fmt.Sprint("member ", i))
		case 5, 6:
			if killed < 0 {
				heal()
				c.Settle()
				killed = c.Leader()
				kill[killed]()
				c.Kill(killed)
			}
		case 7:
			heal()
		}
		time.Sleep(time.Duration(r.Int64N(int64(3 * ttl))))
		if r.IntN(3) == 0 {
			heal()
			time.Sleep(time.Duration(r.IntN(6000)) * time.Millisecond)
			if killed >= 0 {
				c.Restart(killed)
				kill[killed] = run(killed)
				killed = -1
			}
		}
		if t.Failed() {
			t.Fatalf("round %d", round)
		}
	}
	heal()
	w.mu.Lock()
	before := w.grants
	w.mu.Unlock()
	time.Sleep(30 * ttl)
	w.mu.Lock()
	if w.grants < before+5 {
		t.Errorf("%d grants in 30 TTLs after the last fault: the cluster is stuck", w.grants-before)
	}
	t.Logf("%d rounds, %d grants", rounds, w.grants)
	w.mu.Unlock()
	stop()
	wg.Wait()
}

func TestDoAgainstARealCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := lockstest.New(t, 4)
		var mu sync.Mutex
		inside, ran := 0, 0
		var wg sync.WaitGroup
		for i := range 40 {
			wg.Go(func() {
				err := c.Client(i%4).Do(context.Background(), "job", func(ctx context.Context, l *locks.Lock) error {
					mu.Lock()
					inside++
					ran++
					if inside > 1 {
						t.Error("two at once")
					}
					mu.Unlock()
					if tok, ok := fence.FromContext(ctx); !ok || tok != l.Token() {
						t.Errorf("context carries token %d, lock %d", tok, l.Token())
					}
					time.Sleep(50 * time.Millisecond)
					mu.Lock()
					inside--
					mu.Unlock()
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if ran != 40 {
			t.Errorf("ran %d times", ran)
		}
	})
}

func TestAKilledHolderAndItsSuccessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := lockstest.New(t, 3)
		holder := (c.Leader() + 1) % 3
		l, err := c.Client(holder).Acquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		killed := time.Now()
		c.Kill(holder)
		next, err := c.Client((holder+1)%3).Acquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(killed); took > 3500*time.Millisecond {
			t.Errorf("takeover took %v, want at most TTL + 1.5 s", took)
		}
		if next.Token() <= l.Token() || l.Err() == nil {
			t.Errorf("tokens %d, %d; killed lock: %v", l.Token(), next.Token(), l.Err())
		}
	})
}

func TestPausedHolderFindsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := lockstest.New(t, 3)
		l, err := c.Client(0).Acquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		c.Pause(0)
		time.Sleep(10 * time.Second)
		var lost *locks.LostError
		if err := l.Err(); !errors.As(err, &lost) || lost.Reason != locks.QuorumUnreachable {
			t.Errorf("after 5 TTLs: %v", err)
		}
		next, err := c.Client(1).Acquire(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		c.Resume(0)
		if err := l.Release(t.Context()); !errors.Is(err, locks.ErrLost) {
			t.Errorf("releasing a lost lock: %v", err)
		}
		time.Sleep(5 * time.Second)
		if err := next.Err(); err != nil {
			t.Errorf("the late release freed the successor: %v", err)
		}
	})
}

func TestAFencedOffLeaderStandsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := lockstest.New(t, 3)
		ctx, cancel := context.WithCancel(t.Context())
		var tokens []fence.Token
		ended := make(chan error, 1)
		go func() {
			ended <- c.Client(0).Elect(ctx, "k", func(ctx context.Context, l *locks.Lock) error {
				tokens = append(tokens, l.Token())
				<-ctx.Done()
				// The error of a guard to a writer that woke up too late.
				return fmt.Errorf("ledger: %w", &fence.StaleError{Token: l.Token(), Seen: l.Token() + 1})
			})
		}()
		time.Sleep(time.Second)
		c.Pause(0)
		time.Sleep(10 * time.Second)
		c.Resume(0)
		time.Sleep(10 * time.Second)
		select {
		case err := <-ended:
			t.Fatalf("Elect gave up: %v", err)
		default:
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) && !errors.Is(err, fence.ErrStale) {
			t.Error(err)
		}
		if len(tokens) != 2 || tokens[1] <= tokens[0] {
			t.Errorf("led under %v", tokens)
		}
	})
}
