package locks

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/testrounds"
)

// anyLock is a Lock or a Set.
type anyLock interface {
	Token() fence.Token
	Context() context.Context
	Err() error
	Release(context.Context) error
}

// hold is an entry of a register: a lock with its keys and mode.
type hold struct {
	l     anyLock
	ctx   context.Context
	keys  []string
	mode  string // "x", "s" or "p"
	n     int    // of permits
	tree  bool
	owner string
}

// register checks for all modes that loss is told first: when a grant returns, the
// context of every earlier conflicting grant has ended.
type register struct {
	t  *testing.T
	mu sync.Mutex

	holds    []*hold
	n        int
	upgrades int
	dead     int
	broken   int
	resized  int // capacities set
	tooMany  int // requests refused for them
}

// permits is the largest capacity that the operator sets.
const permits = 4

func (b *register) granted(h *hold) {
	h.ctx = h.l.Context()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.n++
	b.check(h)
	b.holds = append(b.holds, h)
}

// changed records h's new mode.
func (b *register) changed(h *hold, mode string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h.mode = mode
	if mode == "x" {
		b.upgrades++
		b.check(h)
	}
}

func (b *register) check(h *hold) {
	if h.ctx.Err() != nil {
		return // lost already, as the context shows
	}
	live := b.holds[:0]
	beside := h.n
	for _, o := range b.holds {
		if o.ctx.Err() != nil {
			continue
		}
		live = append(live, o)
		if o == h || o.owner != "" && o.owner == h.owner && o.l.Token() == h.l.Token() {
			continue
		}
		if o.l.Token() == h.l.Token() {
			b.t.Errorf("token %d was granted twice", h.l.Token())
		}
		if h.mode == "p" && o.mode == "p" && h.keys[0] == o.keys[0] {
			beside += o.n
		}
		if o.conflicts(h) {
			b.t.Errorf("%v: %v (%s, token %d) is granted while the context of %v (%s, token %d) has not ended",
				time.Now().Format("15:04:05.000"), h.keys, h.mode, h.l.Token(), o.keys, o.mode, o.l.Token())
		}
	}
	b.holds = live
	if h.mode == "p" && beside > permits {
		b.t.Errorf("%d permits of %d", beside, permits)
	}
}

func (o *hold) conflicts(h *hold) bool {
	if o.mode == h.mode && h.mode != "x" {
		return false
	}
	for _, a := range o.keys {
		for _, b := range h.keys {
			switch {
			case a == b:
				return true
			case len(b) > len(a) && b[:len(a)+1] == a+"/" && (o.tree || h.tree),
				len(a) > len(b) && a[:len(b)+1] == b+"/" && (o.tree || h.tree):
				return true
			}
		}
	}
	return false
}

func TestRandomFaultsInAllModes(t *testing.T) {
	var sum register
	rounds := eachSeed(t, testrounds.Rounds(10, 150), func(t *testing.T, w *world, seed uint64) {
		b := randomModesRound(t, w, seed)
		sum.n += b.n
		sum.upgrades += b.upgrades
		sum.dead += b.dead
		sum.broken += b.broken
		sum.resized += b.resized
		sum.tooMany += b.tooMany
	})
	t.Logf("%d grants, %d upgrades, %d deadlocks, %d breaks, %d capacities, %d requests beyond them",
		sum.n, sum.upgrades, sum.dead, sum.broken, sum.resized, sum.tooMany)
	if sum.n < rounds*30 || sum.upgrades < rounds/4 || sum.dead < rounds/4 || sum.broken < rounds/4 || sum.resized < rounds/4 || sum.tooMany < rounds/4 {
		t.Error("too little happened")
	}
}

func randomModesRound(t *testing.T, w *world, seed uint64) *register {
	w.SetCheck(seed%3 == 0)
	a := newWeather(w, seed)
	b := &register{t: t}
	stop, cancel := context.WithCancel(bg)
	var wg sync.WaitGroup
	var clients []*Client
	for i := range 4 {
		c := a.client(t, fmt.Sprint("c", i))
		clients = append(clients, c)
		for j := range 3 {
			user := rand.New(rand.NewPCG(seed, uint64(10*i+j)))
			wg.Go(func() {
				u := &player{t: t, c: c, b: b, rng: user, stop: stop, name: fmt.Sprint("c", i, "o", j%2)}
				u.run(bg, 0)
			})
		}
	}
	for range 30 {
		switch n := a.rng.IntN(8); {
		case n < 5:
			a.strike()
		case n == 5:
			// An operator changes the number of permits, or leaves it to the requests.
			ctx, cancel := context.WithTimeout(bg, a.upTo(5*time.Second))
			if err := clients[a.rng.IntN(len(clients))].SetCapacity(ctx, "p", a.rng.IntN(permits+1)); err == nil {
				b.resized++
			}
			cancel()
		default:
			// An operator breaks a lock, or ends the session with the lock.
			key := keysOfAll[a.rng.IntN(len(keysOfAll))]
			if id, token := w.Owner(key); token != 0 {
				c := clients[a.rng.IntN(len(clients))]
				ctx, cancel := context.WithTimeout(bg, a.upTo(5*time.Second))
				if a.rng.IntN(3) == 0 {
					opened := openedAt(w, id)
					if err := c.EndSession(ctx, id.Ref().String()); err == nil && opened != 0 && openedAt(w, id) == opened {
						t.Error("an ended session is open")
					}
				} else if err := c.Break(ctx, key, fence.Token(token)); err == nil {
					b.broken++
				}
				cancel()
			}
		}
		time.Sleep(a.upTo(5 * time.Second))
	}
	a.calm() // everyone gets through, and then nothing is left
	cancel()
	wg.Wait()
	time.Sleep(4 * testTTL)
	if n := w.Counts(); w.busy() != 0 {
		t.Errorf("the table keeps %+v", n)
	}
	for _, c := range clients {
		if s := c.currentSession(); s != nil {
			if waiters, grants := s.sizes(); waiters+grants != 0 || len(s.entries) != 0 {
				t.Errorf("a session keeps %d waiters, %d grants, %d entries", waiters, grants, len(s.entries))
			}
		}
	}
	return b
}

// openedAt returns when a session was opened, or 0 if it is not open. A late copy of its
// Open may have opened an ended session again.
func openedAt(w *world, id machine.SessionID) (at uint64) {
	w.View(func(m *machine.State) {
		if st, ok := m.Session(id); ok {
			at = st.Opened
		}
	})
	return at
}

var keysOfAll = []string{"a", "b", "t", "t/x", "rw", "p"}

// player is a goroutine of a program that acquires, changes, holds and releases.
type player struct {
	t    *testing.T
	c    *Client
	b    *register
	rng  *rand.Rand
	stop context.Context
	name string
}

func (u *player) upTo(d time.Duration) time.Duration { return time.Duration(u.rng.Int64N(int64(d))) }

// within returns a context of the given lineage that ends with stop.
func (u *player) within(lineage context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(lineage, d)
	off := context.AfterFunc(u.stop, cancel)
	return ctx, func() { off(); cancel() }
}

// run works until stop or, within a lock's lineage, for a single turn.
func (u *player) run(lineage context.Context, depth int) {
	for u.stop.Err() == nil {
		h := &hold{mode: "x"}
		var l *Lock
		ctx, cancel := u.within(lineage, time.Second+u.upTo(20*time.Second))
		var err error
		one := func(key string, opts ...Option) {
			h.keys = []string{key}
			if u.rng.IntN(8) == 0 {
				opts = append(opts, Delay(time.Duration(1+u.rng.IntN(3000))*time.Millisecond))
			}
			if u.rng.IntN(3) == 0 {
				opts = append(opts, Lazy())
			}
			call := u.c.Acquire
			if u.rng.IntN(5) == 0 {
				call = u.c.TryAcquire
			}
			if l, err = call(ctx, key, opts...); err == nil {
				h.l = l
			}
		}
		switch u.rng.IntN(8) {
		case 0:
			one([]string{"a", "b"}[u.rng.IntN(2)], Priority(u.rng.IntN(3)-1))
		case 1, 2:
			h.mode = "s"
			one("rw", Shared())
		case 3:
			one("rw")
		case 4:
			h.mode = "p"
			h.n = 1 + u.rng.IntN(3)
			one("p", Permits(h.n, permits))
		case 5:
			var s *Set
			h.keys = [][]string{{"a", "b"}, {"b", "rw"}, {"a", "t/x"}}[u.rng.IntN(3)]
			var opts []Option
			if u.rng.IntN(3) == 0 {
				opts = append(opts, Lazy())
			}
			if s, err = u.c.AcquireAll(ctx, h.keys, opts...); err == nil {
				h.l = s
			}
		case 6:
			if h.tree = u.rng.IntN(2) == 0; h.tree {
				one("t", Tree())
			} else {
				one("t/x")
			}
		case 7:
			h.owner = u.name
			one("a", Reentrant(u.name))
		}
		cancel()
		if errors.Is(err, ErrDeadlock) {
			u.b.mu.Lock()
			u.b.dead++
			u.b.mu.Unlock()
		}
		if errors.Is(err, ErrCapacity) {
			u.b.mu.Lock()
			u.b.tooMany++
			u.b.mu.Unlock()
		}
		if err != nil {
			time.Sleep(u.upTo(time.Second))
			if depth > 0 {
				return
			}
			continue
		}
		u.b.granted(h)
		if l != nil && h.keys[0] == "rw" {
			u.change(l, h)
		}
		if depth < 2 && u.rng.IntN(3) == 0 {
			u.run(h.ctx, depth+1)
		}
		limit := 8 * time.Second
		if u.rng.IntN(3) == 0 {
			limit = time.Millisecond
		}
		hold := time.NewTimer(u.upTo(limit))
		select {
		case <-hold.C:
		case <-h.ctx.Done():
			if !errors.Is(h.l.Err(), ErrLost) {
				u.t.Errorf("the context of %q ended, but Err is %v", h.keys, h.l.Err())
			}
		}
		hold.Stop()
		rctx, cancel := context.WithTimeout(bg, u.upTo(3*time.Second))
		if l != nil && u.rng.IntN(6) == 0 {
			if errors.Is(l.HandOver(rctx, "c1"), ErrWrongMode) {
				_ = l.Release(rctx)
			}
		} else {
			_ = h.l.Release(rctx)
		}
		cancel()
		if h.l.Err() == nil || h.ctx.Err() == nil {
			u.t.Error("held after Release")
		}
		if depth > 0 {
			return
		}
	}
}

// change goes back and forth between the modes.
func (u *player) change(l *Lock, h *hold) {
	for range u.rng.IntN(4) {
		ctx, cancel := u.within(bg, u.upTo(6*time.Second)+1)
		if h.mode == "s" {
			if err := l.Upgrade(ctx); err == nil {
				u.b.changed(h, "x")
				if err := l.SetValue(ctx, []byte(fmt.Sprint(l.Token()))); errors.Is(err, ErrWrongMode) {
					u.t.Errorf("an upgraded lock: %v", err)
				}
			}
		} else {
			u.b.changed(h, "s")
			_ = l.Downgrade(ctx)
		}
		cancel()
	}
}
