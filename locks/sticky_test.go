package locks

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/term/termtest"
)

// keptKeys returns the number of keys that c keeps without a lock.
func keptKeys(c *Client) int {
	s := c.currentSession()
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.kept)
}

// Acquiring a kept key asks nobody, and the tokens rise; the first lock of each block asks.
func TestStickyReacquireIsLocal(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, m := w.client(t, "a")
		l := acquire(t, a, "k", Sticky())
		sent := w.Sent(isAcquire)
		m.SetFaults(termtest.Faults{Latency: time.Minute})
		for i := range firstBlock {
			before := l
			release(t, l)
			if n := keptKeys(a); n != 1 {
				t.Fatalf("%d keys are kept", n)
			}
			began := time.Now()
			var err error
			if l, err = a.TryAcquire(bg, "k", Sticky()); err != nil || time.Since(began) != 0 {
				t.Fatalf("%v after %v", err, time.Since(began))
			}
			if l.Token() != before.Token()+1 || before.Err() != ErrReleased || before.Context().Err() == nil || l.Err() != nil || l.Context().Err() != nil {
				t.Fatalf("lock %d: token %d after %d", i, l.Token(), before.Token())
			}
			if token, _ := fence.FromContext(l.Context()); token != l.Token() {
				t.Errorf("the context carries token %d", token)
			}
		}
		m.SetFaults(termtest.Faults{})
		used := l.Token()
		release(t, l)
		l = acquire(t, a, "k", Sticky()) // asks for further tokens, and gives the old ones back
		if l.Token() <= used {
			t.Errorf("token %d after %d", l.Token(), used)
		}
		if n := w.Sent(isAcquire) - sent; n != 1 || w.Sent(isRelease) != 0 {
			t.Errorf("%d acquires and %d releases", n, w.Sent(isRelease))
		}
		if err := w.Check(); err != nil {
			t.Error(err)
		}
	})
}

// The next block is there when the present one ends: nobody waits for it. The next grant by
// another client has a larger token than all of them.
func TestTheNextBlockIsThereInTime(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.SetCheck(false)
		a, m := w.client(t, "a")
		b, _ := w.client(t, "b")
		l := acquire(t, a, "k", Sticky())
		m.SetFaults(termtest.Faults{Latency: time.Millisecond})
		sent, extended := w.Sent(isAcquire), new(atomic.Int32)
		m.SetHooks(termtest.Hooks{Proposed: func(cmd machine.Command) {
			if _, is := cmd.(machine.Extend); is {
				extended.Add(1)
			}
		}})
		for range 1000 {
			before := l.Token()
			release(t, l)
			time.Sleep(time.Millisecond)
			began := time.Now()
			if l = acquire(t, a, "k", Sticky()); time.Since(began) != 0 || l.Token() <= before {
				t.Fatalf("token %d after %d, waited for %v", l.Token(), before, time.Since(began))
			}
		}
		settle()
		if n := w.Sent(isAcquire) - sent; n != 0 || extended.Load() < 4 || extended.Load() > 8 {
			t.Errorf("%d acquires, %d blocks", n, extended.Load())
		}
		m.SetFaults(termtest.Faults{})
		release(t, l)
		s := a.currentSession()
		s.mu.Lock()
		last := max(s.kept["k"].last, s.kept["k"].after.last)
		s.mu.Unlock()
		if next := acquire(t, b, "k"); next.Token() <= last {
			t.Errorf("token %d, although %d is reserved", next.Token(), last)
		}
		if err := w.Check(); err != nil {
			t.Error(err)
		}
	})
}

// The token of a lock names the grant, also for Break and Ask: a token of a block is shown by
// the resource that the lock protects. The client's own view has the cluster's token.
func TestATokenOfABlockNamesTheGrant(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		var l *Lock
		for range 3 {
			if l != nil {
				release(t, l)
			}
			l = acquire(t, a, "k", Sticky())
		}
		st, err := b.Inspect(bg, "k")
		if err != nil || len(st.Holders) != 1 {
			t.Fatalf("%+v, %v", st, err)
		}
		own, _ := a.ownKeys("", "", 10)
		if len(own) != 1 || own[0].Holders[0].Token != st.Holders[0].Token || !own[0].Holders[0].Sticky {
			t.Errorf("%+v; the cluster shows token %d", own, st.Holders[0].Token)
		}
		if err := b.Break(bg, "k", l.Token()+firstBlock); !hasType[*HeldError](err) {
			t.Errorf("a token above the block: %v", err)
		}
		if err := b.Break(bg, "k", l.Token()); err != nil {
			t.Error(err)
		}
		settle()
		wantLost(t, l, Broken)
	})
}

// A kept key can close a cycle of waits only as far as the cluster knows. The refusal recalls
// the key, and the next request is granted.
func TestAKeptKeyClosesACycleOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		other := acquire(t, b, "other")
		l := acquire(t, a, "k", Sticky())
		wait := waiting(t, context.WithoutCancel(l.Context()), a, "other") // goes on after the release
		release(t, l)
		if n := keptKeys(a); n != 1 {
			t.Fatalf("%d keys kept", n)
		}
		if _, err := b.Acquire(other.Context(), "k"); !hasType[*DeadlockError](err) {
			t.Errorf("with the key kept: %v", err)
		}
		settle()
		release(t, acquire(t, b, "k"))
		release(t, other)
		release(t, wait.ok(t))
	})
}

// The next grant by anybody has a larger token than every lock of the block, and finds no
// lock left.
func TestStickyKeyIsRecalled(t *testing.T) {
	for name, want := range map[string]func(t *testing.T, b *Client) *Lock{
		"a wait":   func(t *testing.T, b *Client) *Lock { return acquire(t, b, "k") },
		"a shared": func(t *testing.T, b *Client) *Lock { return acquire(t, b, "k", Shared()) },
		"a tree":   func(t *testing.T, b *Client) *Lock { return acquire(t, b, "k", Tree()) },
		"a second try": func(t *testing.T, b *Client) *Lock {
			if _, err := b.TryAcquire(bg, "k"); !errors.Is(err, ErrHeld) {
				t.Errorf("the first try: %v", err)
			}
			settle()
			l, err := b.TryAcquire(bg, "k")
			if err != nil {
				t.Fatal(err)
			}
			return l
		},
		"a try after an ask": func(t *testing.T, b *Client) *Lock {
			if err := b.Ask(bg, "k"); err != nil {
				t.Error(err)
			}
			settle()
			l, err := b.TryAcquire(bg, "k")
			if err != nil {
				t.Fatal(err)
			}
			return l
		},
		"a break": func(t *testing.T, b *Client) *Lock {
			st, err := b.Inspect(bg, "k")
			if err != nil || len(st.Holders) != 1 || !st.Holders[0].Sticky {
				t.Fatalf("%+v, %v", st, err)
			}
			if err := b.Break(bg, "k", st.Holders[0].Token); err != nil {
				t.Error(err)
			}
			return acquire(t, b, "k")
		},
		"a set": func(t *testing.T, b *Client) *Lock {
			s, err := b.AcquireAll(bg, []string{"j", "k"})
			if err != nil {
				t.Fatal(err)
			}
			return s.lock()
		},
		"another sticky": func(t *testing.T, b *Client) *Lock { return acquire(t, b, "k", Sticky()) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				a, _ := w.client(t, "a")
				b, _ := w.client(t, "b")
				var last *Lock
				for range 5 {
					last = acquire(t, a, "k", Sticky())
					release(t, last)
				}
				began := time.Now()
				next := want(t, b)
				if took := time.Since(began); took > 3*time.Millisecond {
					t.Errorf("recalled after %v", took)
				}
				if next.Token() <= last.Token()+3 || keptKeys(a) != 0 {
					t.Errorf("token %d after %d, %d keys kept", next.Token(), last.Token(), keptKeys(a))
				}
				release(t, next)
			})
		})
	}
}

// A holder keeps the lock until its Release and then gives the key back at once, also if
// the recall crosses the local acquire; then the other comes first.
func TestStickyHolderGivesBackAfterItsRelease(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, m := w.client(t, "a")
		b, _ := w.client(t, "b")
		release(t, acquire(t, a, "k", Sticky()))
		m.SetFaults(termtest.Faults{Latency: 100 * time.Millisecond})
		next := waiting(t, bg, b, "k")
		l := acquire(t, a, "k", Sticky()) // the recall is on its way
		time.Sleep(time.Second)
		if l.Err() != nil || l.Context().Err() != nil {
			t.Fatal(l.Err())
		}
		next.pends(t)
		m.SetFaults(termtest.Faults{})
		release(t, l)
		again := waiting(t, bg, a, "k", Sticky()) // behind the other
		n := next.ok(t)
		if n.Token() <= l.Token() {
			t.Errorf("token %d after %d", n.Token(), l.Token())
		}
		release(t, n)
		if l := again.ok(t); l.Token() <= n.Token() {
			t.Errorf("token %d after %d", l.Token(), n.Token())
		}
	})
}

// A recall whose message is lost arrives with the next connection.
func TestALostRecallIsRepeated(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, m := w.client(t, "a")
		b, _ := w.client(t, "b")
		release(t, acquire(t, a, "k", Sticky()))
		m.SetFaults(termtest.Faults{LosePush: 1})
		next := waiting(t, bg, b, "k")
		time.Sleep(time.Second)
		next.pends(t)
		m.SetFaults(termtest.Faults{})
		m.Reconnect()
		next.ok(t)
	})
}

// A request of the same client without Sticky, or with another Meta, takes the kept key
// along. Another goroutine's recalls a held one.
func TestStickyAndOtherRequestsOfTheClient(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		keep := func() *Lock {
			l := acquire(t, a, "k", Sticky())
			release(t, l)
			return l
		}
		kept := keep()
		l, err := a.TryAcquire(bg, "k")
		if err != nil || l.Token() <= kept.Token()+firstBlock-1 {
			t.Fatal(l, err)
		}
		release(t, l)
		keep()
		if l, err = a.TryAcquire(bg, "k", Sticky(), Meta(map[string]string{"a": "b"})); err != nil {
			t.Fatal(err)
		}
		release(t, l)
		set, err := a.AcquireAll(bg, []string{"j", "k"})
		if err != nil {
			t.Fatal(err)
		}
		release(t, set)
		l = acquire(t, a, "k", Sticky())
		other := waiting(t, bg, a, "k", Sticky())
		release(t, l)
		o := other.ok(t)
		if o.Token() <= l.Token() {
			t.Errorf("token %d after %d", o.Token(), l.Token())
		}
		release(t, o)
		if n := keptKeys(a); n != 1 {
			t.Errorf("%d keys kept", n)
		}
	})
}

// No lock is made without trust: after a loss, a pause and a sleep of the host the cluster
// is asked, under a new session.
func TestNoStickyLockWithoutTrust(t *testing.T) {
	for name, end := range map[string]func(w *world, a *Client, m *member){
		"expiry":                      func(w *world, a *Client, m *member) { w.Must(expire(w, a)); settle() },
		"a sleep that nobody noticed": func(w *world, a *Client, m *member) { m.doze(2 * testTTL) },
		"isolation":                   func(w *world, a *Client, m *member) { m.Isolate(); time.Sleep(testTTL); m.Heal() },
		"end of the session": func(w *world, a *Client, m *member) {
			if err := a.EndSession(bg, a.currentSession().id.Ref().String()); err != nil {
				panic(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				a, m := w.client(t, "a")
				l := acquire(t, a, "k", Sticky())
				release(t, l)
				session, sent := a.currentSession(), w.Sent(isAcquire)
				end(w, a, m)
				next := acquire(t, a, "k", Sticky())
				if a.currentSession() == session || w.Sent(isAcquire) == sent || next.Token() < l.Token()+firstBlock {
					t.Errorf("token %d after %d, %d requests", next.Token(), l.Token(), w.Sent(isAcquire)-sent)
				}
			})
		})
	}
}

// A sticky lock is lost like any other, and breaks like any other.
func TestStickyLockIsLost(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		release(t, acquire(t, a, "k", Sticky()))
		l := acquire(t, a, "k", Sticky())
		st, _ := b.Inspect(bg, "k")
		if err := b.Break(bg, "k", st.Holders[0].Token); err != nil {
			t.Fatal(err)
		}
		settle()
		wantLost(t, l, Broken)
		release(t, acquire(t, b, "k"))
		l = acquire(t, a, "k", Sticky())
		release(t, l)
		l = acquire(t, a, "k", Sticky())
		w.Must(expire(w, a))
		settle()
		wantLost(t, l, SessionExpired)
	})
}

// A leader change and a restored table leave a key where it is.
func TestStickyKeyOutlivesItsLeader(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		release(t, acquire(t, a, "k", Sticky()))
		w.LeadFromSnapshot()
		time.Sleep(testTTL / 2)
		sent := w.Sent(isAcquire)
		l := acquire(t, a, "k", Sticky())
		release(t, l)
		if w.Sent(isAcquire) != sent {
			t.Error("the cluster was asked")
		}
		if n := acquire(t, b, "k"); n.Token() < l.Token()+firstBlock-1 {
			t.Errorf("token %d after %d", n.Token(), l.Token())
		}
	})
}

func TestStickyIsRefusedWithOthers(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		for field, opt := range map[string]Option{
			"Shared": Shared(), "Tree": Tree(), "Permits": Permits(1, 2), "Delay": Delay(time.Second), "IfToken": IfToken(1), "Reentrant": Reentrant("o"),
		} {
			_, err := a.Acquire(bg, "k", Sticky(), opt)
			wantConfig(t, err, field)
		}
		_, err := a.AcquireAll(bg, []string{"a", "b"}, Sticky())
		wantConfig(t, err, "Sticky")
		wantConfig(t, a.Elect(bg, "k", func(context.Context, *Lock) error { return nil }, Sticky()), "Sticky")
		l := acquire(t, a, "k", Sticky(), Lazy(), Priority(1), MaxWaiters(3), Meta(map[string]string{"a": "b"}))
		for verb, err := range map[string]error{"Downgrade": l.Downgrade(bg), "Upgrade": l.Upgrade(bg), "SetValue": l.SetValue(bg, []byte("v"))} {
			if !errors.Is(err, ErrWrongMode) || l.Err() != nil {
				t.Errorf("%s: %v", verb, err)
			}
		}
	})
}

// Close frees the kept keys, and a handed-over one is not kept. A wait under a sticky lock's
// context takes part in the search for deadlocks.
func TestStickyWithCloseHandOverAndDeadlocks(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		release(t, acquire(t, a, "k", Sticky()))
		l := acquire(t, a, "k", Sticky())
		other := acquire(t, b, "other")
		wait := waiting(t, other.Context(), b, "k")
		var dead *DeadlockError
		if _, err := a.Acquire(l.Context(), "other"); !errors.As(err, &dead) {
			t.Errorf("a cycle: %v", err)
		}
		if err := l.HandOver(bg, "b"); err != nil {
			t.Error(err)
		}
		release(t, wait.ok(t))
		release(t, other)
		for i := range 20 {
			release(t, acquire(t, a, fmt.Sprint("k", i), Sticky()))
		}
		if r := a.Report(); r.Kept != 20 || w.busy() != 20 {
			t.Errorf("%d kept, %d grants", r.Kept, w.busy())
		}
		shutdown(t, a)
		if w.busy() != 0 {
			t.Errorf("%d grants", w.busy())
		}
	})
}

// Without a block in the cluster's answer a sticky lock is a lazy one.
func TestStickyWithoutTokens(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		release(t, acquire(t, a, "other"))
		s := a.currentSession()
		for i := 0; ; i++ { // the client's share of a second
			s.mu.Lock()
			s.lastSeq++
			seq := s.lastSeq
			s.mu.Unlock()
			out := w.Must(machine.Acquire{Session: s.id, Seq: seq, Key: fmt.Sprint("g", i), Spec: machine.Spec{Block: machine.MaxBlock}})
			if out.Block == 0 {
				break
			}
		}
		l := acquire(t, a, "k", Sticky())
		release(t, l)
		if keptKeys(a) != 0 {
			t.Error("kept without a block")
		}
		if next := acquire(t, a, "k", Sticky()); next.Token() != l.Token()+1 {
			t.Errorf("token %d after %d", next.Token(), l.Token())
		}
	})
}

// Goroutines of three clients use the same keys with and without Sticky, while everything
// fails: one holder, rising tokens, loss told first, and nothing left in the end.
func TestStickyUnderRandomFaults(t *testing.T) {
	local := 0
	eachSeed(t, 6, func(t *testing.T, w *world, seed uint64) {
		w.SetCheck(seed%2 == 0)
		a := newWeather(w, seed)
		b := &ledger{t: t, locks: make(map[string][]*Lock)}
		stop, cancel := context.WithCancel(bg)
		var wg sync.WaitGroup
		var mu sync.Mutex
		for i := range 3 {
			c := a.client(t, fmt.Sprint("c", i))
			for j := range 2 {
				rng := rand.New(rand.NewPCG(seed, uint64(10*i+j))) // strike has the weather's
				wg.Go(func() {
					for stop.Err() == nil {
						ctx, end := context.WithTimeout(stop, 10*time.Second)
						opts := []Option{Sticky()}
						key := fmt.Sprint("k", rng.IntN(3))
						nap := time.Duration(rng.Int64N(int64(300 * time.Millisecond)))
						if rng.IntN(5) == 0 {
							opts = nil
						}
						l, err := c.Acquire(ctx, key, opts...)
						end()
						if err != nil {
							time.Sleep(nap)
							continue
						}
						b.granted(l)
						mu.Lock()
						if l.g.kept != nil && l.Token() > l.g.kept.token {
							local++
						}
						mu.Unlock()
						time.Sleep(nap)
						_ = l.Release(bg)
					}
				})
			}
		}
		for range 25 {
			a.strike()
			time.Sleep(a.upTo(3 * time.Second))
		}
		a.calm()
		cancel()
		wg.Wait()
		for i := range 3 { // recalls whatever is kept
			c, _ := w.client(t, fmt.Sprint("last", i))
			release(t, acquire(t, c, fmt.Sprint("k", i)))
		}
		if w.busy() != 0 {
			t.Errorf("the table keeps %+v", w.Counts())
		}
	})
	if local < 50 {
		t.Errorf("only %d local locks", local)
	}
}

// A tree that waited before the key below was granted gets it all the same.
func TestStickyBelowATreeThatWaits(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		c, _ := w.client(t, "c")
		first := acquire(t, a, "t", Tree())
		below := waiting(t, bg, b, "t/x", Sticky())
		tree := waiting(t, bg, c, "t", Tree())
		release(t, first)
		release(t, below.ok(t))
		release(t, tree.ok(t))
		if n := keptKeys(b); n != 0 {
			t.Errorf("%d keys are kept", n)
		}
	})
}

// A reader of the token is not told that nothing changed, when the holder has had later
// locks out of its block.
func TestIfTokenSeesLocalLocks(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		b, _ := w.client(t, "b")
		first := acquire(t, a, "k", Sticky())
		release(t, first)
		s, err := b.Inspect(bg, "k")
		if err != nil || s.Token != first.Token() {
			t.Fatalf("token %d, want %d (%v)", s.Token, first.Token(), err)
		}
		sent := w.Sent(isAcquire)
		release(t, acquire(t, a, "k", Sticky()))
		if n := w.Sent(isAcquire) - sent; n != 0 {
			t.Fatal("the second lock was not local")
		}
		if l, err := b.TryAcquire(bg, "k", IfToken(s.Token)); !hasType[*ChangedError](err) {
			t.Errorf("%v, %v", l, err)
		}
	})
}

// A cycle on a kept key costs one allocation and two looks at the clocks: the window of
// trust is tested by Acquire and by Release, and the session's own goroutine sleeps on.
func TestACycleOfAKeptKeyIsCheap(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		slept, looks := a.slept, new(atomic.Int32)
		a.slept = func(now time.Time) time.Duration {
			looks.Add(1)
			return slept(now)
		}
		cycle := func() {
			l, err := a.Acquire(bg, "k", Sticky())
			if err == nil {
				err = l.Release(bg)
			}
			if err != nil {
				t.Error(err)
			}
		}
		for range firstBlock + 2 { // the next block has 32 tokens
			cycle()
		}
		settle()
		cycle()
		const cycles = 20
		looks.Store(0)
		if allocs := testing.AllocsPerRun(cycles-1, cycle); allocs > 1 {
			t.Errorf("%v allocations", allocs)
		}
		settle()
		settle()
		if n := looks.Load(); n > 2*cycles+5 {
			t.Errorf("%d looks at the clocks for %d cycles", n, cycles)
		}
	})
}

// A Trace with Acquiring sees each call, and a key stays local all the same, although the
// meta that Acquiring returns is another one each time: the cluster has that of the call
// which asked.
func TestStickyWithAcquiring(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		type name struct{}
		calls, acquired, released := 0, 0, 0
		a := w.join("a").client(Options{Trace: &Trace{
			Acquiring: func(ctx context.Context, e LockEvent) (context.Context, map[string]string) {
				calls++
				return context.WithValue(ctx, name{}, calls), map[string]string{"call": fmt.Sprint(calls)}
			},
			Acquired: func(ctx context.Context, e LockEvent) {
				if acquired++; ctx.Value(name{}) != acquired {
					t.Errorf("Acquired of call %v, want %d", ctx.Value(name{}), acquired)
				}
			},
			Released: func(ctx context.Context, e LockEvent) {
				if released++; ctx.Value(name{}) != released {
					t.Errorf("Released of call %v, want %d", ctx.Value(name{}), released)
				}
			},
		}})
		b, _ := w.client(t, "b")
		mine := Meta(map[string]string{"mine": "1"})
		release(t, acquire(t, a, "k", Sticky(), mine))
		sent := w.Sent(isAcquire)
		for range 5 {
			release(t, acquire(t, a, "k", Sticky(), mine))
		}
		if n := w.Sent(isAcquire) - sent; n != 0 {
			t.Errorf("%d requests were sent", n)
		}
		st, err := b.Inspect(bg, "k")
		if err != nil || len(st.Holders) != 1 || st.Holders[0].Meta["call"] != "1" || st.Holders[0].Meta["mine"] != "1" {
			t.Errorf("%+v, %v", st, err)
		}
		release(t, acquire(t, a, "k", Sticky())) // another Meta: the cluster is asked, once
		shutdown(t, a)
		if n := w.Sent(isAcquire) - sent; n != 1 || calls != 7 || acquired != 7 || released != 7 {
			t.Errorf("%d requests, %d Acquiring, %d Acquired, %d Released", n, calls, acquired, released)
		}
	})
}

// A tree of the client takes the client's own keys below along, and nobody else's.
func TestATreeTakesOwnKeptKeysAlong(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		a, _ := w.client(t, "a")
		for _, key := range []string{"a/b", "a/b/c", "ab", "a", "b/a"} {
			release(t, acquire(t, a, key, Sticky()))
		}
		l, err := a.TryAcquire(bg, "a", Tree())
		if err != nil {
			t.Fatal(err)
		}
		if n := keptKeys(a); n != 2 {
			t.Errorf("%d keys kept, want ab and b/a", n)
		}
		release(t, l)
	})
}
