package locks_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/locks"
	"github.com/wardmote/wardmote/locks/lockstest"
	"github.com/wardmote/wardmote/transport"
)

// The demonstrations replay the timelines that people tell of distributed locks,
// each on a whole cluster and in fake time, with the seconds that they tell of.
// Each test is named after its timeline, M88 to M110, and quotes it. Where the
// story is of a lock that fails, one that fails plays as well, and has to fail: see
// demonstrations_naive_test.go.

// soon is what a step that is told to happen at a moment may take: a few trips
// over the network, an entry of the log, or the leader's look at its deadlines.
const soon = 250 * time.Millisecond

// A stage is a cluster with a clock that starts when the timeline does.
type stage struct {
	*lockstest.Cluster
	t    *testing.T
	ctx  context.Context // ends long after the timeline, should that stick
	zero time.Time

	// The voter that leads at first, and the two others.
	leader int
	others []int
}

// play runs a timeline in a bubble, on a cluster of so many members. The lease of
// the timelines is its TTL.
func play(t *testing.T, members int, lease time.Duration, timeline func(t *testing.T, s *stage), opts ...lockstest.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
		defer cancel()
		s := &stage{t: t, ctx: ctx, Cluster: lockstest.New(t, members, append(opts, lockstest.TTL(lease))...)}
		s.leader = s.Leader()
		for i := range 3 {
			if i != s.leader {
				s.others = append(s.others, i)
			}
		}
		s.zero = time.Now()
		timeline(t, s)
	})
}

// now is how far the timeline is.
func (s *stage) now() time.Duration { return time.Since(s.zero) }

// at waits until the timeline is so far.
func (s *stage) at(d time.Duration) { time.Sleep(d - s.now()) }

// client returns a client on member i that is called name.
func (s *stage) client(i int, name string) *locks.Client {
	return s.NewClient(i, locks.Options{Name: name})
}

// acquire acquires key. It is for the test's own goroutine.
func (s *stage) acquire(c *locks.Client, key string, opts ...locks.Option) *locks.Lock {
	s.t.Helper()
	l, err := c.Acquire(s.ctx, key, opts...)
	if err != nil {
		s.t.Fatalf("at %v: %v", s.now(), err)
	}
	return l
}

// near checks that something happened when it is told to.
func (s *stage) near(what string, got, want time.Duration) {
	s.t.Helper()
	s.between(what, got, want, want+soon)
}

func (s *stage) between(what string, got, from, to time.Duration) {
	s.t.Helper()
	// Two readings of one event may be a trip apart.
	if got < from-10*time.Millisecond || got > to {
		s.t.Errorf("%s at %v, want between %v and %v", what, got, from, to)
	}
}

// live checks that a lock is held.
func (s *stage) live(what string, l *locks.Lock) {
	s.t.Helper()
	if err := l.Err(); err != nil || l.Context().Err() != nil {
		s.t.Errorf("at %v %s: %v, context: %v", s.now(), what, err, context.Cause(l.Context()))
	}
}

// lost checks that a lock was lost, and why, by Err and as the context's cause.
func (s *stage) lost(what string, l *locks.Lock, why locks.Reason) {
	s.t.Helper()
	for _, err := range []error{l.Err(), context.Cause(l.Context())} {
		var lost *locks.LostError
		if !errors.As(err, &lost) || !errors.Is(err, locks.ErrLost) || lost.Reason != why || lost.Token != l.Token() {
			s.t.Errorf("at %v %s: %v, want lost by %v", s.now(), what, err, why)
		}
	}
}

// heldBy checks that somebody else finds the key held, by whom and under which
// token.
func (s *stage) heldBy(asker *locks.Client, key, holder string, token fence.Token) {
	s.t.Helper()
	_, err := asker.TryAcquire(s.ctx, key)
	var held *locks.HeldError
	if !errors.As(err, &held) || held.Client != holder || held.Token != token {
		s.t.Errorf("at %v: %v, want held by %s under token %d", s.now(), err, holder, token)
	}
}

// slow makes one direction between two members take d from now on.
func (s *stage) slow(from, to int, d time.Duration) {
	s.SetLink(from, to, transport.Link{Delay: d})
}

// stale checks that a guard refused token, having seen a later one.
func (s *stage) stale(what string, err error, token, seen fence.Token) {
	s.t.Helper()
	var refused *fence.StaleError
	if !errors.As(err, &refused) || !errors.Is(err, fence.ErrStale) || *refused != (fence.StaleError{Token: token, Seen: seen}) {
		s.t.Errorf("at %v %s: %v, want token %d refused after %d", s.now(), what, err, token, seen)
	}
}

// M88: "three clients in turn": lease 5, work 3, 2, 4: 0-3, 3-5, 5-9. Clients
// that never retry give up, two of them.
func TestM88ThreeClientsInTurn(t *testing.T) {
	turns := []struct {
		name     string
		work     time.Duration
		from, to time.Duration
	}{
		{"A", 3 * time.Second, 0, 3 * time.Second},
		{"B", 2 * time.Second, 3 * time.Second, 5 * time.Second},
		{"C", 4 * time.Second, 5 * time.Second, 9 * time.Second},
	}
	play(t, 3, 5*time.Second, func(t *testing.T, s *stage) {
		var wg sync.WaitGroup
		granted := make([]*locks.Lock, len(turns))
		for i, turn := range turns {
			wg.Go(func() {
				l, err := s.client(i, turn.name).Acquire(s.ctx, "k")
				if err != nil {
					t.Errorf("%s: %v", turn.name, err)
					return
				}
				granted[i] = l
				s.near(turn.name+" begins", s.now(), turn.from)
				if i > 0 {
					before := granted[i-1]
					if before.Context().Err() == nil || !errors.Is(before.Err(), locks.ErrReleased) || l.Token() <= before.Token() {
						t.Errorf("%s has token %d while %s, who had %d, is told %v", turn.name, l.Token(), turns[i-1].name, before.Token(), before.Err())
					}
				}
				time.Sleep(turn.work)
				s.live(turn.name+" at the end of the work", l)
				s.near(turn.name+" ends", s.now(), turn.to)
				if err := l.Release(s.ctx); err != nil {
					t.Errorf("%s: %v", turn.name, err)
				}
			})
			time.Sleep(10 * time.Millisecond) // A is heard first, then B, then C
		}
		wg.Wait()
	})

	t.Run("without a queue two give up", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			naive := &naiveLock{ttl: 5 * time.Second}
			served := 0
			for _, turn := range turns {
				if naive.try(turn.name) {
					served++
				}
			}
			if served != 1 {
				t.Errorf("%d of 3 were served: the contrast is none", served)
			}
		})
	})
}

// M89: "holder crash, lease 3": it dies at 1, and the key is free by 4 at the
// latest.
func TestM89HolderDiesAtOneAndTheKeyIsFreeByFour(t *testing.T) {
	play(t, 3, 3*time.Second, func(t *testing.T, s *stage) {
		l := s.acquire(s.client(s.others[0], "A"), "k")
		s.at(500 * time.Millisecond)
		b := s.client(s.others[1], "B")
		s.heldBy(b, "k", "A", l.Token())

		s.at(time.Second)
		s.Kill(s.others[0])
		next := s.acquire(b, "k")
		// Not before the lease of the last beat, which was sent at 1 or before.
		s.between("B is granted the key", s.now(), 3*time.Second, 4*time.Second+soon)
		if _, clean := next.Value(); next.Token() <= l.Token() || clean {
			t.Errorf("token %d after %d, clean: %v", next.Token(), l.Token(), clean)
		}
	})
}

// M90: "zombie asleep 2-12": lease to 10, A asleep 2-12, B granted 10.5.
func TestM90ZombieAsleepFromTwoToTwelve(t *testing.T) {
	play(t, 3, 10*time.Second, func(t *testing.T, s *stage) {
		a := s.acquire(s.client(s.others[0], "A"), "k")
		var guard fence.Guard
		if err := guard.Claim(a.Token()); err != nil {
			t.Fatal(err)
		}

		s.at(2 * time.Second)
		s.live("A, who falls asleep,", a)
		s.Pause(s.others[0])

		s.at(3 * time.Second)
		b := s.acquire(s.client(s.others[1], "B"), "k")
		s.between("B is granted the key", s.now(), 10*time.Second, 10*time.Second+500*time.Millisecond)
		// Members share this process, so that A's timers have run on.
		s.lost("A, when B is granted the key,", a, locks.QuorumUnreachable)
		if err := guard.Claim(b.Token()); err != nil {
			t.Fatal(err)
		}

		s.at(12 * time.Second)
		s.Resume(s.others[0])
		s.lost("A, who wakes up,", a, locks.QuorumUnreachable)
		if err := a.Require(0); !errors.Is(err, locks.ErrLost) {
			t.Errorf("A asks before it writes, and hears %v", err)
		}
		s.stale("A does not ask, and writes:", guard.Do(a.Token(), func() error { t.Error("A wrote"); return nil }), a.Token(), b.Token())
		if err := a.Release(s.ctx); !errors.Is(err, locks.ErrLost) {
			t.Errorf("A releases: %v", err)
		}
		s.at(30 * time.Second)
		s.live("B, long after,", b)
		s.heldBy(s.client(s.others[0], "A again"), "k", "B", b.Token())
	})

	t.Run("a lock without tokens has both inside at 12", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &stage{t: t, zero: time.Now()}
			naive := &naiveLock{ttl: 10 * time.Second}
			naive.acquire("A", time.Millisecond, time.Minute)
			s.at(2 * time.Second) // A sleeps, and does not know that it does
			if !naive.acquire("B", 500*time.Millisecond, time.Minute) {
				t.Fatal("B was not served")
			}
			s.near("B is granted the key", s.now(), 10*time.Second)
			s.at(12 * time.Second)
			naive.release() // A ends its work, believing in its lock: B's is gone
			if !naive.try("C") {
				t.Error("B's lock survived A's release: the contrast is none")
			}
		})
	})
}

// M91: "fence rejects token 1 after 2": lease 3, A sleeps 5, B at 4 with token 2,
// A refused at 5.
func TestM91FenceRejectsTokenOneAfterTwo(t *testing.T) {
	play(t, 3, 3*time.Second, func(t *testing.T, s *stage) {
		var fenced, once fence.Guard
		var unfenced, guarded, strict string
		write := func(to *string, what string) func() error {
			return func() error { *to = what; return nil }
		}

		one := s.acquire(s.client(s.others[0], "A"), "k")
		s.Pause(s.others[0])

		s.at(4 * time.Second)
		two := s.acquire(s.client(s.others[1], "B"), "k")
		s.near("B is granted the key, which is free,", s.now(), 4*time.Second)
		if two.Token() != one.Token()+1 {
			t.Errorf("tokens %d and %d", one.Token(), two.Token())
		}
		for range 2 { // one grant, many writes
			if err := fenced.Do(two.Token(), write(&guarded, "B")); err != nil {
				t.Error(err)
			}
		}
		if err := once.DoOnce(two.Token(), write(&strict, "B")); err != nil {
			t.Error(err)
		}
		s.stale("B's second access where each grant has one:", once.DoOnce(two.Token(), write(&strict, "B, twice")), two.Token(), two.Token())
		unfenced = "B"

		s.at(5 * time.Second)
		s.Resume(s.others[0])
		// A does not know that it slept.
		s.stale("A writes:", fenced.Do(one.Token(), write(&guarded, "A")), one.Token(), two.Token())
		s.stale("A writes, once:", once.DoOnce(one.Token(), write(&strict, "A")), one.Token(), two.Token())
		unfenced = "A"
		if guarded != "B" || strict != "B" || unfenced != "A" {
			t.Errorf("fenced resources have the writes of %q and %q, the unfenced one of %q", guarded, strict, unfenced)
		}
	})
}

// M92: "GC pause 12 s, TTL 10, with and without fence": a silent overwrite
// without fence, refusal with it.
func TestM92CollectorPausesForTwelveSeconds(t *testing.T) {
	const lease, pause = 10 * time.Second, 12 * time.Second
	// Both add to what they have read: A is paused in between.
	const a, b = 10, 1

	for _, fenced := range []bool{false, true} {
		t.Run(fmt.Sprintf("wardmote, fenced %v", fenced), func(t *testing.T) {
			play(t, 3, lease, func(t *testing.T, s *stage) {
				var balance atomic.Int64
				var guard fence.Guard
				var refused error
				update := func(c *locks.Client, add int64, between func()) {
					l := s.acquire(c, "account")
					if !fenced {
						read := balance.Load()
						between()
						balance.Store(read + add)
						return
					}
					if err := guard.Claim(l.Token()); err != nil { // before the first read
						t.Error(err)
					}
					read := balance.Load()
					between()
					refused = guard.Do(l.Token(), func() error { balance.Store(read + add); return nil })
				}
				var wg sync.WaitGroup
				wg.Go(func() {
					s.at(time.Second)
					l, err := s.client(s.others[1], "B").Acquire(s.ctx, "account")
					if err != nil {
						t.Error(err)
						return
					}
					s.near("B is granted the key", s.now(), lease)
					err = guard.Do(l.Token(), func() error { balance.Add(b); return nil })
					if err != nil {
						t.Errorf("B's update: %v", err)
					}
				})
				update(s.client(s.others[0], "A"), a, func() {
					s.Pause(s.others[0])
					s.at(pause)
					s.Resume(s.others[0])
				})
				wg.Wait()
				switch got := balance.Load(); {
				case !fenced && got != a:
					t.Errorf("without a fence the balance is %d: B's update should be lost", got)
				case fenced && (got != b || !errors.Is(refused, fence.ErrStale)):
					t.Errorf("with a fence the balance is %d, and A is told %v", got, refused)
				}
			})
		})
	}

	t.Run("a lock without tokens", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &stage{t: t, zero: time.Now()}
			naive := &naiveLock{ttl: lease}
			balance := 0
			update := func(who string, add int, between func()) {
				if !naive.acquire(who, time.Millisecond, time.Minute) {
					t.Errorf("%s was not served", who)
				}
				read := balance
				between()
				balance = read + add
			}
			update("A", a, func() {
				update("B", b, func() { s.near("B is granted the key", s.now(), lease) })
				s.at(pause)
			})
			if balance != a {
				t.Errorf("the balance is %d: the contrast is none", balance)
			}
		})
	})
}

// M94: "two-lock cycle": A has 1 and waits for 2, B has 2 and asks for 1.
func TestM94TwoLockCycle(t *testing.T) {
	play(t, 3, 5*time.Second, func(t *testing.T, s *stage) {
		a, b := s.client(0, "A"), s.client(1, "B")
		one, two := s.acquire(a, "1"), s.acquire(b, "2")

		s.at(time.Second)
		var wg sync.WaitGroup
		var freed time.Duration
		held := func(l *locks.Lock) context.Context {
			ctx, cancel := context.WithTimeout(l.Context(), time.Minute)
			t.Cleanup(cancel)
			return ctx
		}
		wg.Go(func() {
			both, err := a.Acquire(held(one), "2")
			if err != nil {
				t.Errorf("A, who waited first: %v", err)
				return
			}
			s.near("A has both", s.now(), freed)
			for _, l := range []*locks.Lock{both, one} {
				if err := l.Release(s.ctx); err != nil {
					t.Error(err)
				}
			}
		})

		s.at(2 * time.Second)
		_, err := b.Acquire(held(two), "1")
		s.near("B is told", s.now(), 2*time.Second)
		var cycle *locks.DeadlockError
		want := []locks.Wait{{Client: "B", Key: "1", Token: two.Token()}, {Client: "A", Key: "2", Token: one.Token()}}
		if !errors.As(err, &cycle) || !errors.Is(err, locks.ErrDeadlock) || cycle.Key != "1" || len(cycle.Cycle) != len(want) {
			t.Fatalf("B closes the cycle, and hears %v", err)
		}
		for i, w := range cycle.Cycle {
			if w.Client != want[i].Client || w.Key != want[i].Key {
				t.Errorf("link %d of the cycle is %+v, want %+v", i, w, want[i])
			}
		}
		s.live("B, who was refused,", two)

		s.at(3 * time.Second)
		freed = s.now()
		if err := two.Release(s.ctx); err != nil {
			t.Error(err)
		}
		wg.Wait()
		again := s.acquire(b, "1") // A is through, and so is B
		s.near("B has what it was refused", s.now(), 3*time.Second)
		s.live("B", again)
	})

	t.Run("a lock that does not know who waits", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			one, two := new(naiveLock), new(naiveLock)
			one.try("A")
			two.try("B")
			var wg sync.WaitGroup
			wg.Go(func() {
				if two.acquire("A", time.Second, time.Hour) {
					t.Error("A is through: the contrast is none")
				}
			})
			wg.Go(func() {
				if one.acquire("B", time.Second, time.Hour) {
					t.Error("B is through: the contrast is none")
				}
			})
			wg.Wait()
		})
	})
}

// M95: "no TTL, crash freezes all (contrast)".
func TestM95CrashWithoutTTLFreezesAll(t *testing.T) {
	rivals := []string{"B", "C", "D"}

	t.Run("a lock without a TTL", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			naive := new(naiveLock)
			if !naive.try("A") { // and A is seen no more
				t.Fatal("A was not served")
			}
			var wg sync.WaitGroup
			for _, who := range rivals {
				wg.Go(func() {
					if naive.acquire(who, time.Minute, 24*time.Hour) {
						t.Errorf("%s was served: the contrast is none", who)
					}
				})
			}
			wg.Wait()
		})
	})

	t.Run("wardmote", func(t *testing.T) {
		const lease = 10 * time.Second
		play(t, 3, lease, func(t *testing.T, s *stage) {
			a := s.acquire(s.client(s.others[0], "A"), "k")
			s.at(7 * time.Second)
			s.Kill(s.others[0])
			var wg sync.WaitGroup
			for i, who := range rivals {
				wg.Go(func() {
					l, err := s.client(s.others[1], who).Acquire(s.ctx, "k")
					if err != nil {
						t.Errorf("%s: %v", who, err)
						return
					}
					// The last beat went out between 1 and 7; a second for each before.
					turn := time.Duration(i) * time.Second
					s.between(who+" is granted the key", s.now(), lease+turn, 7*time.Second+lease+turn+soon)
					if l.Token() <= a.Token() {
						t.Errorf("token %d after %d", l.Token(), a.Token())
					}
					time.Sleep(time.Second)
					if err := l.Release(s.ctx); err != nil {
						t.Error(err)
					}
				})
				time.Sleep(10 * time.Millisecond)
			}
			wg.Wait()
		})
	})
}

// M96: "livelock of synchronised retries": all are busy, and nobody gets on.
func TestM96SynchronisedRetries(t *testing.T) {
	const clients = 3

	t.Run("voters that are raced for", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			// Each client's first vote is that of the voter next to it, none gets a
			// second, all give back what they have, and try again: in step.
			var voters [clients]naiveLock
			var tries, served int
			var mu sync.Mutex
			var wg sync.WaitGroup
			for i := range clients {
				wg.Go(func() {
					for range 1_000 {
						var votes []int
						for j := range voters {
							v := (i + j) % len(voters)
							if voters[v].try(strconv.Itoa(i)) {
								votes = append(votes, v)
							}
							time.Sleep(time.Millisecond)
						}
						mu.Lock()
						tries++
						if len(votes) > len(voters)/2 {
							served++
						}
						mu.Unlock()
						for _, v := range votes {
							voters[v].release()
						}
						time.Sleep(10 * time.Millisecond)
					}
				})
			}
			wg.Wait()
			if served > 0 || tries != 1_000*clients {
				t.Errorf("%d of %d tries had a majority: the contrast is none", served, tries)
			}
		})
	})

	t.Run("two locks, politely given back", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var forks [2]naiveLock
			var wg sync.WaitGroup
			for i := range 2 {
				wg.Go(func() {
					who := strconv.Itoa(i)
					for range 1_000 {
						if forks[i].try(who) {
							time.Sleep(time.Millisecond)
							if forks[1-i].try(who) {
								t.Error("one has both: the contrast is none")
								return
							}
							time.Sleep(time.Millisecond)
							forks[i].release()
						}
						time.Sleep(time.Millisecond)
					}
				})
			}
			wg.Wait()
		})
	})

	t.Run("wardmote", func(t *testing.T) {
		play(t, 3, 5*time.Second, func(t *testing.T, s *stage) {
			// The same instant, one key; then both of two keys, named in opposite
			// orders. Nobody tries twice.
			const rounds, turn = 20, 10 * time.Millisecond
			var wg sync.WaitGroup
			for i := range clients {
				c := s.client(i, strconv.Itoa(i))
				wg.Go(func() {
					for range rounds {
						if err := c.Do(s.ctx, "k", func(context.Context, *locks.Lock) error { time.Sleep(turn); return nil }); err != nil {
							t.Error(err)
						}
					}
					forks := []string{"left", "right"}
					if i == 1 {
						slices.Reverse(forks)
					}
					for range rounds {
						set, err := c.AcquireAll(s.ctx, forks)
						if err != nil {
							t.Error(err)
							return
						}
						time.Sleep(turn)
						if err := set.Release(s.ctx); err != nil {
							t.Error(err)
						}
					}
				})
			}
			wg.Wait()
			s.between("all have had all their turns", s.now(), 2*clients*rounds*turn, 3*2*clients*rounds*turn)
		})
	})
}

// M97: "A starved by B, C, D (contrast)": they come again and again, and are nearer.
func TestM97OneStarvedByThree(t *testing.T) {
	const near, far = time.Millisecond, 5 * time.Millisecond
	const hold = 10 * time.Millisecond

	t.Run("a lock that is raced for", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			race := newRacedLock()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			turns := make(map[string]int)
			var wg sync.WaitGroup
			contend := func(who string, distance time.Duration) {
				wg.Go(func() {
					for race.acquire(ctx, distance) {
						turns[who]++ // under the lock
						time.Sleep(hold)
						race.release()
					}
				})
			}
			for _, who := range []string{"B", "C", "D"} {
				contend(who, near)
			}
			synctest.Wait()
			time.Sleep(far) // they are at it when A comes
			contend("A", far)
			wg.Wait()
			if turns["A"] > 0 || turns["B"]+turns["C"]+turns["D"] < 2_000 {
				t.Errorf("A had %d turns, B, C and D %d, %d and %d: the contrast is none", turns["A"], turns["B"], turns["C"], turns["D"])
			}
		})
	})

	t.Run("wardmote", func(t *testing.T) {
		play(t, 4, 5*time.Second, func(t *testing.T, s *stage) {
			for i := range 3 { // A's member is far from all others
				s.slow(i, 3, far)
				s.slow(3, i, far)
			}
			var mu sync.Mutex
			var order []string
			told := func(who string) {
				mu.Lock()
				order = append(order, who)
				mu.Unlock()
			}
			ctx, stop := context.WithCancel(s.ctx)
			var wg sync.WaitGroup
			for i, who := range []string{"B", "C", "D"} {
				c := s.client(i, who)
				wg.Go(func() {
					for ctx.Err() == nil {
						err := c.Do(ctx, "k", func(context.Context, *locks.Lock) error { told(who); time.Sleep(hold); return nil })
						if err != nil && ctx.Err() == nil {
							t.Error(err)
						}
					}
				})
			}

			// A comes a hundred times. It is told how many are before it, and no
			// more than these are served before A: no more than there are rivals.
			queued := -1 // how long order was when A first heard of its place
			behind := -1
			a := s.NewClient(3, locks.Options{Name: "A", Trace: &locks.Trace{Queued: func(e locks.LockEvent) {
				mu.Lock()
				defer mu.Unlock()
				if queued < 0 {
					queued, behind = len(order), e.Behind
				}
			}}})
			for range 100 {
				mu.Lock()
				queued, behind = -1, -1
				asked := len(order)
				mu.Unlock()
				l := s.acquire(a, "k")
				mu.Lock()
				before, after := len(order)-asked, len(order)-queued
				// The answer that tells A its place is under way for 5 ms, in which
				// one turn may begin, or two.
				if queued >= 0 && (behind < 1 || behind > 3 || after > behind) || before > 3+2 {
					t.Errorf("A stood behind %d; %d were served before it since it was told, %d since it asked", behind, after, before)
				}
				mu.Unlock()
				told("A")
				time.Sleep(hold)
				if err := l.Release(s.ctx); err != nil {
					t.Error(err)
				}
			}
			stop()
			wg.Wait()
			count := make(map[string]int)
			for _, who := range order {
				count[who]++
			}
			if count["A"] != 100 || len(order) < 300 {
				t.Errorf("turns: %v: A had no rivals", count)
			}
		})
	})
}

// M98: "100+100 urgent arrivals, third in line served".
func TestM98TwoHundredUrgentAndTheThirdInLine(t *testing.T) {
	const urgent, bound = 100, 16
	const turn = 10 * time.Millisecond

	t.Run("a queue by priority alone", func(t *testing.T) {
		queue := []int{0, 0, 0} // priorities
		arrive := func() { queue = append(queue, slices.Repeat([]int{1}, urgent)...) }
		arrive()
		before, normal := 0, 0
		for served := 0; normal < 3; served++ {
			if served == urgent/2 {
				arrive()
			}
			first := slices.Index(queue, slices.Max(queue))
			if queue[first] == 0 {
				normal++
			} else {
				before++
			}
			queue = slices.Delete(queue, first, first+1)
		}
		if before != 2*urgent {
			t.Errorf("%d went before the third: the contrast is none", before)
		}
	})

	t.Run("wardmote", func(t *testing.T) {
		play(t, 3, 5*time.Second, func(t *testing.T, s *stage) {
			holder := s.acquire(s.client(0, "holder"), "k")
			c := s.client(1, "rivals")
			var wg sync.WaitGroup
			var order []string // of service; written under the lock
			join := func(who string, opts ...locks.Option) {
				wg.Go(func() {
					err := c.Do(s.ctx, "k", func(context.Context, *locks.Lock) error {
						order = append(order, who)
						time.Sleep(turn)
						return nil
					}, opts...)
					if err != nil {
						t.Error(err)
					}
				})
			}
			for i := range 3 {
				s.at(time.Duration(i+1) * 100 * time.Millisecond)
				join(strconv.Itoa(i + 1))
			}
			hundred := func() {
				for range urgent {
					join("urgent", locks.Priority(1))
				}
			}
			s.at(500 * time.Millisecond)
			hundred()
			s.at(time.Second)
			status, err := c.Inspect(s.ctx, "k")
			if err != nil || status.Queue != 3+urgent {
				t.Fatalf("%d wait: %v", status.Queue, err)
			}
			for _, w := range status.Waiters {
				if w.Passed > bound {
					t.Errorf("one was passed %d times", w.Passed)
				}
			}
			if err := holder.Release(s.ctx); err != nil {
				t.Fatal(err)
			}
			s.at(1100 * time.Millisecond)
			hundred()
			wg.Wait()

			third := slices.Index(order, "3")
			if len(order) != 3+2*urgent || slices.Index(order, "1") > slices.Index(order, "2") || slices.Index(order, "2") > third {
				t.Errorf("%d served, in this order: %v", len(order), order)
			}
			// Those before the third, less the first and the second.
			if before := third - 2; before < 1 || before > bound {
				t.Errorf("%d urgent ones were served before the third in line, want 1 to %d", before, bound)
			}
		})
	})
}

// M101: "nightly invoices sent once by two servers".
func TestM101NightlyInvoicesAreSentOnce(t *testing.T) {
	play(t, 3, 5*time.Second, func(t *testing.T, s *stage) {
		const nights = 5
		const night = 20 * time.Second // short ones
		servers := []*locks.Client{s.client(s.others[0], "first"), s.client(s.others[1], "second")}
		var mu sync.Mutex
		sent := make(map[string]int)
		send := func(night string) func(context.Context) ([]byte, error) {
			return func(context.Context) ([]byte, error) {
				mu.Lock()
				sent[night]++
				mu.Unlock()
				time.Sleep(time.Second)
				return []byte("sent " + night), nil
			}
		}
		name := func(night int) string { return fmt.Sprint("invoices-2026-03-0", night+1) }
		for i := range nights {
			s.at(time.Duration(i) * night)
			var wg sync.WaitGroup
			for j, server := range servers {
				wg.Go(func() {
					// One clock is late, more so each night: in the end it comes when
					// all is done.
					time.Sleep(time.Duration(i*j) * 500 * time.Millisecond)
					got, err := server.Once(s.ctx, name(i), send(name(i)))
					if err != nil || string(got) != "sent "+name(i) {
						t.Errorf("%q, %v", got, err)
					}
				})
			}
			wg.Wait()
		}

		// In the last night one dies while it sends. Nobody knows how many went out,
		// and nobody sends them again.
		last := name(nights)
		s.at(nights * night)
		var wg sync.WaitGroup
		wg.Go(func() {
			// Who is dead is told nothing: what this returns does not matter.
			_, _ = servers[0].Once(s.ctx, last, send(last))
		})
		time.Sleep(500 * time.Millisecond)
		s.Kill(s.others[0])
		_, err := servers[1].Once(s.ctx, last, send(last))
		var once *locks.OnceError
		if !errors.Is(err, locks.ErrUnfinished) || !errors.As(err, &once) || !once.Unfinished {
			t.Errorf("the second server finds %v", err)
		}
		wg.Wait()
		if len(sent) != nights+1 {
			t.Errorf("%d of %d nights", len(sent), nights+1)
		}
		for night, n := range sent {
			if n != 1 {
				t.Errorf("%s were sent %d times", night, n)
			}
		}
	})

	t.Run("a lock alone sends them twice, one after the other", func(t *testing.T) {
		play(t, 3, 5*time.Second, func(t *testing.T, s *stage) {
			sent := 0
			var wg sync.WaitGroup
			for i := range 2 {
				wg.Go(func() {
					err := s.Client(i).Do(s.ctx, "invoices", func(context.Context, *locks.Lock) error { sent++; return nil })
					if err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if sent != 2 {
				t.Errorf("sent %d times: the contrast is none", sent)
			}
		})
	})
}

// M102: "last item, two buyers, no oversell".
func TestM102LastItemTwoBuyers(t *testing.T) {
	stock := func(b []byte) int {
		n, err := strconv.Atoi(string(b))
		if err != nil {
			t.Errorf("the stock is %q", b)
		}
		return n
	}
	play(t, 3, 5*time.Second, func(t *testing.T, s *stage) {
		ctx := s.ctx
		if err := s.Client(s.leader).Cell("stock").Update(ctx, func([]byte) []byte { return []byte("1") }); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		bought := make([]bool, 2)
		for i, on := range s.others {
			wg.Go(func() {
				err := s.Client(on).Cell("stock").Update(ctx, func(old []byte) []byte {
					n := stock(old)
					time.Sleep(100 * time.Millisecond) // the payment
					if bought[i] = n > 0; bought[i] {
						n--
					}
					return []byte(strconv.Itoa(n))
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		left, err := s.Client(s.leader).Cell("stock").Get(ctx)
		if err != nil || string(left) != "0" || bought[0] == bought[1] {
			t.Errorf("bought: %v; %q are left, %v", bought, left, err)
		}
	})

	t.Run("without a lock it is sold twice", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			left, sold := 1, 0
			var wg sync.WaitGroup
			for range 2 {
				wg.Go(func() {
					mu.Lock()
					n := left
					mu.Unlock()
					time.Sleep(100 * time.Millisecond)
					if n > 0 {
						mu.Lock()
						left, sold = n-1, sold+1
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			if sold != 2 {
				t.Errorf("sold %d times: the contrast is none", sold)
			}
		})
	})
}

// M104: "agents: file, API quota, stale, crash": two agents patch one file, all
// drain a rate-limited API, a paused one delivers stale results, an orchestrator
// crash stalls all; none of these happens.
func TestM104AgentsOnOneRepository(t *testing.T) {
	const lease = 3 * time.Second
	play(t, 5, lease, func(t *testing.T, s *stage) {
		const quota = 2
		type file struct {
			guard   fence.Guard
			patches []string // written through guard
		}
		repo := map[string]*file{"main.go": {}, "util.go": {}, "doc.go": {}}
		type task struct{ file, patch string }
		var plan []task
		for _, patch := range []string{"rename", "simplify", "comment"} {
			for _, name := range []string{"main.go", "util.go", "doc.go"} {
				plan = append(plan, task{name, patch})
			}
		}
		ctx, stop := context.WithCancel(s.ctx)
		defer stop()
		var wg sync.WaitGroup
		defer wg.Wait()
		defer stop()

		// What happens, for the verdict.
		var mu sync.Mutex
		editors := make(map[string]int)
		calls, most := 0, 0
		var terms []fence.Token
		leading := 0

		// askModel is the API: at most quota calls at a time, of a second each.
		askModel := func(ctx context.Context, c *locks.Client) error {
			return c.Do(ctx, "api", func(context.Context, *locks.Lock) error {
				mu.Lock()
				calls++
				most = max(most, calls)
				if calls > quota {
					t.Errorf("at %v %d agents call the API", s.now(), calls)
				}
				mu.Unlock()
				time.Sleep(time.Second)
				mu.Lock()
				calls--
				mu.Unlock()
				return nil
			}, locks.Permit(quota))
		}
		// apply is what an agent does with a model's answer: a write that may be
		// repeated, and that the file refuses if the agent's lock is history.
		apply := func(token fence.Token, of task) error {
			f := repo[of.file]
			return f.guard.Do(token, func() error {
				if !slices.Contains(f.patches, of.patch) {
					f.patches = append(f.patches, of.patch)
				}
				return nil
			})
		}
		edit := func(ctx context.Context, c *locks.Client, of task) error {
			return c.Do(ctx, "file:"+of.file, func(ctx context.Context, l *locks.Lock) error {
				mu.Lock()
				if editors[of.file]++; editors[of.file] > 1 {
					t.Errorf("at %v %d agents edit %s", s.now(), editors[of.file], of.file)
				}
				mu.Unlock()
				defer func() {
					mu.Lock()
					editors[of.file]--
					mu.Unlock()
				}()
				if err := repo[of.file].guard.Claim(l.Token()); err != nil {
					return err
				}
				if err := askModel(ctx, c); err != nil {
					return err
				}
				return apply(l.Token(), of)
			})
		}

		work := make(chan task)
		isDone := func(ctx context.Context, c *locks.Client, of task) (bool, error) {
			v, err := c.Cell("done:" + of.file + ":" + of.patch).Get(ctx)
			return string(v) == "done", err
		}
		for i := range 3 { // each voter runs an agent
			c := s.client(i, fmt.Sprint("agent ", i))
			wg.Go(func() {
				for {
					select {
					case of := <-work:
						err := edit(ctx, c, of)
						if err == nil {
							err = c.Cell("done:"+of.file+":"+of.patch).Update(ctx, func([]byte) []byte { return []byte("done") })
						}
						if err != nil && ctx.Err() == nil && !errors.Is(err, locks.ErrLost) && !errors.Is(err, locks.ErrSessionLost) {
							t.Errorf("agent %d: %v", i, err)
						}
					case <-ctx.Done():
						return
					}
				}
			})
		}

		// The orchestrator hands out what is not done, until all is. Its state is in
		// the cluster, its right to hand out is its term.
		var orders fence.Guard
		allDone := errors.New("all done")
		dead := make(chan struct{})
		orchestrate := func(c *locks.Client, killed <-chan struct{}) {
			wg.Go(func() {
				err := c.Elect(ctx, "orchestrator", func(ctx context.Context, l *locks.Lock) error {
					mu.Lock()
					terms = append(terms, l.Token())
					if leading++; leading > 1 {
						t.Error("two orchestrators")
					}
					mu.Unlock()
					defer func() {
						mu.Lock()
						leading--
						mu.Unlock()
					}()
					for {
						missing := 0
						for _, of := range plan {
							done, err := isDone(ctx, c, of)
							if err != nil {
								return nil // its end, or its session's
							}
							if done {
								continue
							}
							missing++
							if err := orders.Claim(l.Token()); err != nil {
								return err
							}
							select {
							case work <- of:
							case <-ctx.Done():
								return nil
							}
						}
						if missing == 0 {
							return allDone
						}
					}
				})
				select {
				case <-killed:
					return // a dead process says nothing
				default:
				}
				if !errors.Is(err, allDone) && ctx.Err() == nil {
					t.Errorf("orchestrator: %v", err)
				}
				stop()
			})
		}
		orchestrate(s.client(3, "orchestrator"), dead)
		time.Sleep(10 * time.Millisecond)
		orchestrate(s.client(4, "standby"), nil)

		// An agent reads doc.go, and its process is stopped for three leases.
		asleep := s.others[0]
		sleeper := s.client(asleep, "sleeper")
		old := s.acquire(sleeper, "file:doc.go")
		if err := repo["doc.go"].guard.Claim(old.Token()); err != nil {
			t.Error(err)
		}
		s.Pause(asleep)

		s.at(1500 * time.Millisecond)
		close(dead)
		s.Kill(3)

		s.at(3 * lease)
		s.Resume(asleep)
		s.lost("the sleeper", old, locks.QuorumUnreachable)
		if err := apply(old.Token(), task{"doc.go", "stale"}); !errors.Is(err, fence.ErrStale) {
			t.Errorf("the sleeper's result: %v", err)
		}

		select {
		case <-ctx.Done(): // by the orchestrator that was done
		case <-time.After(5 * time.Minute):
			t.Error("the agents stall")
		}
		stop()
		wg.Wait()
		for name, f := range repo {
			slices.Sort(f.patches)
			if !slices.Equal(f.patches, []string{"comment", "rename", "simplify"}) {
				t.Errorf("%s has %v", name, f.patches)
			}
		}
		if most != quota {
			t.Errorf("at most %d called the API at a time, want %d", most, quota)
		}
		if len(terms) != 2 || terms[1] <= terms[0] {
			t.Fatalf("terms %v, want two that rise", terms)
		}
		s.stale("the dead orchestrator's order:", orders.Claim(terms[0]), terms[0], terms[1])
	})
}

// M105: "10 s lease, 60 s job stopped by guard".
func TestM105SixtySecondJobOnTenSecondLease(t *testing.T) {
	const lease, job, step, margin = 10 * time.Second, time.Minute, time.Second, 2 * time.Second
	const lease99 = lease - 200*time.Millisecond // what a holder trusts of it

	// run does the job a step at a time, and asks before each. It returns when it
	// stopped, and why.
	run := func(s *stage, l *locks.Lock) (time.Duration, error) {
		for range job / step {
			if err := l.Require(margin); err != nil {
				return s.now(), err
			}
			time.Sleep(step)
			s.live("after a step", l)
		}
		return s.now(), nil
	}

	t.Run("beats carry it through", func(t *testing.T) {
		play(t, 3, lease, func(t *testing.T, s *stage) {
			l := s.acquire(s.client(s.others[0], "A"), "k")
			var budget *locks.BudgetError
			if err := l.Require(job); !errors.As(err, &budget) || budget.Need != job || budget.Left > lease99 || budget.Left < lease99-soon {
				t.Errorf("a minute at once: %v", err)
			}
			end, err := run(s, l)
			if err != nil {
				t.Error(err)
			}
			s.near("the job ends", end, job)
		})
	})

	t.Run("the quorum is gone", func(t *testing.T) {
		play(t, 3, lease, func(t *testing.T, s *stage) {
			l := s.acquire(s.client(s.others[0], "A"), "k")
			const cut = 20*time.Second + 500*time.Millisecond
			var wg sync.WaitGroup
			var granted time.Duration
			wg.Go(func() {
				s.at(cut)
				s.Isolate(s.others[0])
				next, err := s.client(s.others[1], "B").Acquire(s.ctx, "k")
				if err != nil {
					t.Error(err)
					return
				}
				granted = s.now()
				s.lost("A, when B is granted the key,", l, locks.QuorumUnreachable)
				if next.Token() <= l.Token() {
					t.Errorf("token %d after %d", next.Token(), l.Token())
				}
			})
			end, err := run(s, l)
			var budget *locks.BudgetError
			if !errors.As(err, &budget) || budget.Need != margin || budget.Left >= margin || budget.Left <= 0 || budget.Token != l.Token() {
				t.Errorf("the guard says %v", err)
			}
			s.live("A, when the guard stops it,", l) // in time
			// The last beat went out a third of a lease before the cut, or later.
			s.between("the job is stopped", end, cut-lease/3+lease99-margin, cut+lease99-margin+step)
			renew, cancel := context.WithTimeout(s.ctx, time.Minute)
			defer cancel()
			if err := l.Renew(renew); !errors.Is(err, locks.ErrLost) {
				t.Errorf("a renewal without a quorum: %v", err)
			}
			wg.Wait()
			if granted < end+margin-step {
				t.Errorf("B was granted the key at %v, A's job stopped at %v", granted, end)
			}
		})
	})

	t.Run("a lock without guard", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &stage{t: t, zero: time.Now()}
			naive := &naiveLock{ttl: lease}
			naive.try("A")
			var wg sync.WaitGroup
			var done atomic.Bool
			wg.Go(func() {
				time.Sleep(job)
				done.Store(true)
			})
			if !naive.acquire("B", time.Second, time.Hour) || done.Load() {
				t.Error("B waited for A's job: the contrast is none")
			}
			s.near("B is granted the key", s.now(), lease)
			wg.Wait()
		})
	})
}

// M107: "late release cannot free a successor".
func TestM107LateReleaseCannotFreeASuccessor(t *testing.T) {
	const lease = 5 * time.Second

	// The release is on its way while A's lease ends and B is granted the key: over
	// a link that is suddenly slow, or out of a process that is stopped.
	late := map[string]func(s *stage, a int){
		"slow link": func(s *stage, a int) {
			for i := range 3 {
				if i != a {
					s.slow(a, i, 8*time.Second)
				}
			}
		},
		"stopped process": func(s *stage, a int) {
			s.Pause(a)
			go func() { s.at(9 * time.Second); s.Resume(a) }()
		},
	}
	for name, delay := range late {
		t.Run(name, func(t *testing.T) {
			play(t, 3, lease, func(t *testing.T, s *stage) {
				a := s.acquire(s.client(s.others[0], "A"), "k")
				s.at(time.Second)
				delay(s, s.others[0])
				bound, cancel := context.WithTimeout(s.ctx, 2*time.Second)
				defer cancel()
				if err := a.Release(bound); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("A's release was heard at once: %v", err)
				}
				if !errors.Is(a.Err(), locks.ErrReleased) {
					t.Errorf("A, who released: %v", a.Err())
				}

				b := s.acquire(s.client(s.others[1], "B"), "k")
				s.near("B is granted the key", s.now(), lease)

				s.at(20 * time.Second) // the release has come at 9, if it comes at all
				s.live("B", b)
				s.heldBy(s.client(s.leader, "C"), "k", "B", b.Token())
				if err := a.Release(s.ctx); err == nil {
					t.Error("A has released once more")
				}
				s.heldBy(s.client(s.leader, "D"), "k", "B", b.Token())
				s.live("B", b)
			})
		})
	}

	t.Run("a lock that is released by name", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &stage{t: t, zero: time.Now()}
			naive := &naiveLock{ttl: lease}
			naive.try("A")
			s.at(lease)
			if !naive.try("B") {
				t.Fatal("B was not served")
			}
			s.at(9 * time.Second)
			naive.release() // A's, that is late
			if !naive.try("C") {
				t.Error("C was refused while B is inside: the contrast is none")
			}
		})
	})
}

// M108: "slow acquire eats its validity": it is counted from sending, and what
// comes when nothing is left of it was not acquired.
func TestM108SlowAcquireEatsItsValidity(t *testing.T) {
	const lease = 10 * time.Second
	const trusted = lease - 200*time.Millisecond

	// distance sets what a message takes between thin member 3 and the voters.
	distance := func(s *stage, there, back time.Duration) {
		for i := range 3 {
			s.slow(3, i, there)
			s.slow(i, 3, back)
		}
	}

	t.Run("what is left is what was not spent", func(t *testing.T) {
		play(t, 4, lease, func(t *testing.T, s *stage) {
			distance(s, 500*time.Millisecond, 500*time.Millisecond)
			l := s.acquire(s.client(3, "A"), "k")
			// Two trips of a second: the session, and then the lock.
			s.near("A is granted the key", s.now(), 2*time.Second)
			if left, want := l.Remaining(), trusted-s.now(); left > want || left < want-soon {
				t.Errorf("%v are left of %v, want %v", left, trusted, want)
			}
			var budget *locks.BudgetError
			if err := l.Require(9 * time.Second); !errors.As(err, &budget) {
				t.Errorf("nine seconds: %v", err)
			}
			// Beats are as slow, carry the lock all the same, and are counted from
			// sending as well.
			for s.now() < time.Minute {
				time.Sleep(100 * time.Millisecond)
				if left := l.Remaining(); left > trusted-time.Second || left < trusted-time.Second-lease/3-soon {
					t.Fatalf("at %v %v are left", s.now(), left)
				}
			}
			s.live("A", l)
		})
	})

	t.Run("nothing is left when the grant comes", func(t *testing.T) {
		play(t, 4, lease, func(t *testing.T, s *stage) {
			a, b := s.client(3, "A"), s.client(0, "B")
			// A has a session, and then its answers become slow.
			if err := s.acquire(a, "other").Release(s.ctx); err != nil {
				t.Fatal(err)
			}
			s.at(4 * time.Second)
			distance(s, time.Millisecond, 20*time.Second)
			s.at(5 * time.Second)
			var wg sync.WaitGroup
			wg.Go(func() {
				_, err := a.Acquire(s.ctx, "k")
				var lost *locks.SessionError
				if !errors.As(err, &lost) || lost.Key != "k" || lost.Reason != locks.QuorumUnreachable {
					t.Errorf("A's grant came too late: %v", err)
				}
				// The beat of 3.33 was the last that was confirmed.
				s.near("A gives up", s.now(), lease/3+trusted)
			})
			s.at(6 * time.Second)
			status, err := b.Inspect(s.ctx, "k")
			if err != nil || !status.Held() || status.Holders[0].Client != "A" {
				t.Fatalf("the cluster has not granted A the key: %+v, %v", status, err)
			}
			next := s.acquire(b, "k")
			// When A gave up, or if the cluster does not hear of that, a lease after
			// the last beat of A's that it heard.
			s.between("B is granted the key", s.now(), lease/3+trusted, 2*lease/3+lease+soon)
			wg.Wait()
			s.at(40 * time.Second) // A's grant has come at 25
			s.live("B", next)
			s.heldBy(s.client(1, "C"), "k", "B", next.Token())
		})
	})

	t.Run("nothing is ever left", func(t *testing.T) {
		play(t, 4, lease, func(t *testing.T, s *stage) {
			before, err := s.client(0, "B").Inspect(s.ctx, "k")
			if err != nil {
				t.Fatal(err)
			}
			distance(s, 5*time.Second, 5*time.Second)
			ctx, cancel := context.WithTimeout(s.ctx, time.Minute)
			defer cancel()
			if l, err := s.client(3, "A").Acquire(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("over a link so slow: %v, %v", l, err)
			}
			status, err := s.client(0, "B").Inspect(s.ctx, "k")
			if err != nil || status.Held() || status.Queue > 0 || status.Token != before.Token {
				t.Errorf("%+v, %v", status, err)
			}
		})
	})

	t.Run("a lock that counts from the answer", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &stage{t: t, zero: time.Now()}
			naive := &naiveLock{ttl: lease}
			naive.try("A") // granted at 0; the answer takes 8 s
			s.at(8 * time.Second)
			believes := s.now() + lease
			if !naive.acquire("B", time.Second, time.Hour) {
				t.Fatal("B was not served")
			}
			if s.now() >= believes {
				t.Errorf("B was served at %v: the contrast is none", s.now())
			}
		})
	})
}

// M110: "session expires during acquire": a definite error, the place in the queue
// is gone, and nothing is granted late.
func TestM110SessionExpiresDuringAcquire(t *testing.T) {
	const lease = 5 * time.Second
	play(t, 3, lease, func(t *testing.T, s *stage) {
		holder := s.acquire(s.client(s.leader, "holder"), "k")
		b, c := s.client(s.others[0], "B"), s.client(s.others[1], "C")
		var wg sync.WaitGroup
		gaveUp := make(chan time.Duration, 1)
		wg.Go(func() {
			_, err := b.Acquire(s.ctx, "k")
			gaveUp <- s.now()
			var lost *locks.SessionError
			if !errors.As(err, &lost) || !errors.Is(err, locks.ErrSessionLost) || errors.Is(err, locks.ErrLost) ||
				lost.Key != "k" || lost.Reason != locks.QuorumUnreachable {
				t.Errorf("B, whose session expired: %v", err)
			}
		})
		s.at(time.Second)
		var order []string // written under the lock
		wg.Go(func() {
			l, err := c.Acquire(s.ctx, "k")
			if err != nil {
				t.Error(err)
				return
			}
			order = append(order, "C")
			s.near("C, who came after B, is granted the key", s.now(), 15*time.Second)
			time.Sleep(10 * time.Second)
			if err := l.Release(s.ctx); err != nil {
				t.Error(err)
			}
		})

		s.at(2 * time.Second)
		s.Isolate(s.others[0])
		s.at(10 * time.Second)
		s.between("B gives up", <-gaveUp, lease, 2*time.Second+lease)
		status, err := c.Inspect(s.ctx, "k")
		if err != nil || status.Queue != 1 || status.Waiters[0].Client != "C" {
			t.Errorf("the queue is %+v, %v", status.Waiters, err)
		}
		s.Heal()

		s.at(15 * time.Second)
		if err := holder.Release(s.ctx); err != nil {
			t.Fatal(err)
		}
		s.at(16 * time.Second)
		again := s.acquire(b, "k") // in a new session
		order = append(order, "B")
		s.near("B is granted the key, having asked again,", s.now(), 25*time.Second)
		wg.Wait()
		if !slices.Equal(order, []string{"C", "B"}) || again.Token() <= holder.Token() {
			t.Errorf("order %v, token %d", order, again.Token())
		}
	})
}
