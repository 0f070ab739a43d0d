package locks_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/cluster"
	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/locks"
	"github.com/wardmote/wardmote/locks/lockstest"
)

// The timelines in which members of the cluster itself fail, or links between
// them: the rest of demonstrations_test.go.

// denied checks that a member that is cut off from the majority grants nothing,
// whether the caller would wait or not, and answers within the caller's bound.
func (s *stage) denied(c *locks.Client, key string, bound time.Duration) (errs []error) {
	s.t.Helper()
	for _, acquire := range []func(context.Context, string, ...locks.Option) (*locks.Lock, error){c.TryAcquire, c.Acquire} {
		ctx, cancel := context.WithTimeout(s.ctx, bound)
		began := s.now()
		_, err := acquire(ctx, key)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			s.t.Errorf("at %v, without a quorum: %v", s.now(), err)
		}
		s.near("the caller has its answer", s.now(), began+bound)
		errs = append(errs, err)
	}
	return errs
}

// refused is denied by a member that was cut off long ago, so that it knows why.
// One that has just been cut off waits for an answer of the leader it knew.
func (s *stage) refused(c *locks.Client, key string) {
	s.t.Helper()
	for _, err := range s.denied(c, key, time.Second) {
		if !errors.Is(err, cluster.ErrNoQuorum) {
			s.t.Errorf("at %v, without a quorum: %v", s.now(), err)
		}
	}
}

// M93: "isolated L3 cannot grant to B": L1 and L2 grant A at t2, cut-off L3 hears
// B at t3 and grants it alone at t4, both inside at t5: must not happen.
func TestM93CutOffServerGrantsNothing(t *testing.T) {
	for _, led := range []bool{false, true} {
		t.Run(fmt.Sprintf("L3 led before: %v", led), func(t *testing.T) {
			play(t, 3, 10*time.Second, func(t *testing.T, s *stage) {
				l1, l2, l3 := s.leader, s.others[0], s.others[1]
				if led {
					l1, l3 = l3, l1
				}
				a, b := s.client(l2, "A"), s.client(l3, "B")
				s.at(2 * time.Second)
				l := s.acquire(a, "k")
				s.Isolate(l3)

				s.at(3 * time.Second)
				s.denied(b, "k", time.Second)
				s.near("B has been denied the key twice", s.now(), 5*time.Second)
				s.live("A", l)

				// As long as that may last. Whoever asks the majority hears of A.
				s.at(40 * time.Second)
				s.refused(b, "k")
				s.live("A", l)
				s.heldBy(s.client(l1, "C"), "k", "A", l.Token())
				s.Heal()
				s.at(60 * time.Second)
				s.heldBy(b, "k", "A", l.Token())
				s.live("A", l)
				if err := l.Release(s.ctx); err != nil {
					t.Error(err)
				}
				if next := s.acquire(b, "k"); next.Token() != l.Token()+1 {
					t.Errorf("token %d after %d: somebody was granted a key in between", next.Token(), l.Token())
				}
			})
		})
	}

	t.Run("servers that count the votes they can reach", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &stage{t: t, zero: time.Now()}
			var servers [3]naiveLock
			ask := func(who string, reached ...int) bool {
				votes := 0
				for _, i := range reached {
					if servers[i].try(who) {
						votes++
					}
				}
				return votes > len(reached)/2
			}
			s.at(2 * time.Second)
			a := ask("A", 0, 1)
			s.at(4 * time.Second)
			b := ask("B", 2)
			if !a || !b {
				t.Error("not both are inside: the contrast is none")
			}
		})
	})
}

// M99: "1 of 3 voters dies: goes on; 2 at once: refuses": lease 5, A works 0-3, B
// asks at 2, granted at 3.
func TestM99OneVoterDiesAndThenTwo(t *testing.T) {
	const lease = 5 * time.Second
	for _, leads := range []bool{false, true} {
		t.Run(fmt.Sprintf("one dies, which leads: %v", leads), func(t *testing.T) {
			play(t, 3, lease, func(t *testing.T, s *stage) {
				dies, on, other := s.others[0], s.leader, s.others[1]
				if leads {
					dies, on = on, dies
				}
				a := s.acquire(s.client(on, "A"), "k")
				s.at(500 * time.Millisecond)
				s.Kill(dies)
				var wg sync.WaitGroup
				wg.Go(func() {
					s.at(3 * time.Second)
					s.live("A, at the end of its work,", a)
					if err := a.Release(s.ctx); err != nil {
						t.Error(err)
					}
				})
				s.at(2 * time.Second)
				b := s.acquire(s.client(other, "B"), "k")
				s.near("B is granted the key", s.now(), 3*time.Second)
				if b.Token() <= a.Token() {
					t.Errorf("token %d after %d", b.Token(), a.Token())
				}
				wg.Wait()
				s.at(time.Minute)
				s.live("B", b)
			})
		})
	}

	t.Run("two die", func(t *testing.T) {
		play(t, 3, lease, func(t *testing.T, s *stage) {
			last := s.others[0]
			c := s.client(last, "A")
			l := s.acquire(c, "k")
			s.at(2 * time.Second)
			s.Kill(s.leader)
			s.Kill(s.others[1])
			lostAt := make(chan time.Duration, 1)
			context.AfterFunc(l.Context(), func() { lostAt <- s.now() })
			s.denied(c, "other", time.Second)
			s.live("A, whose lease still runs,", l)
			// Trust ends a lease, less its margin, after the last beat confirmed.
			s.between("A loses its lock", <-lostAt, lease, 2*time.Second+lease)
			s.lost("A", l, locks.QuorumUnreachable)
			s.at(time.Minute)
			s.refused(c, "k")
			ask, cancel := context.WithTimeout(s.ctx, time.Second)
			defer cancel()
			if h := s.Node(last).Health(ask); h.Quorum || !errors.Is(h.Err, cluster.ErrNoQuorum) {
				t.Errorf("health: %+v", h)
			}
		})
	})

	t.Run("two are cut off, and come back", func(t *testing.T) {
		play(t, 3, lease, func(t *testing.T, s *stage) {
			c := s.client(s.leader, "A")
			l := s.acquire(c, "k")
			s.at(2 * time.Second)
			s.Isolate(s.others...)
			s.at(20 * time.Second)
			s.lost("A", l, locks.QuorumUnreachable)
			s.refused(c, "k")
			s.Heal()
			again := s.acquire(c, "k")
			s.between("A is granted the key again", s.now(), 20*time.Second, 22*time.Second+2*lease)
			if again.Token() <= l.Token() {
				t.Errorf("token %d after %d", again.Token(), l.Token())
			}
		})
	})
}

// M100: "leader dies right after grant, no double grant".
func TestM100LeaderDiesRightAfterTheGrant(t *testing.T) {
	// The leader dies in each millisecond of an Acquire: before it has heard,
	// before it has committed, before the answer has left, and after.
	for d := time.Duration(0); d <= 6*time.Millisecond; d += time.Millisecond {
		t.Run(d.String(), func(t *testing.T) {
			play(t, 3, 5*time.Second, func(t *testing.T, s *stage) {
				a, b := s.client(s.others[0], "A"), s.client(s.others[1], "B")
				for _, c := range []*locks.Client{a, b} { // both have sessions
					if err := s.acquire(c, "other").Release(s.ctx); err != nil {
						t.Fatal(err)
					}
				}
				s.at(time.Second)
				var wg sync.WaitGroup
				wg.Go(func() { s.at(time.Second + d); s.Kill(s.leader) })
				l := s.acquire(a, "k")
				wg.Wait()
				s.between("A is granted the key", s.now(), time.Second, 4*time.Second)

				// It is the same lock for the rest of its life, and nobody else's.
				var freed time.Duration
				wg.Go(func() {
					next, err := b.Acquire(s.ctx, "k")
					if err != nil {
						t.Error(err)
						return
					}
					s.near("B is granted the key", s.now(), freed)
					if next.Token() <= l.Token() || !errors.Is(l.Err(), locks.ErrReleased) {
						t.Errorf("B has token %d; A, who had %d, is told %v", next.Token(), l.Token(), l.Err())
					}
				})
				for range 30 {
					time.Sleep(time.Second)
					s.live("A", l)
				}
				status, err := a.Inspect(s.ctx, "k")
				if err != nil || status.Holding != 1 || status.Holders[0].Token != l.Token() || status.Queue != 1 {
					t.Errorf("%+v, %v", status, err)
				}
				freed = s.now()
				if err := l.Release(s.ctx); err != nil {
					t.Error(err)
				}
				wg.Wait()
			})
		})
	}
}

// M103: "leader crash, takeover within lease (15 s)": of an elected leader, whose
// standbys take over unaided.
func TestM103TakeoverWithinTheLease(t *testing.T) {
	const lease = 15 * time.Second
	const election = 2 * time.Second
	for _, both := range []bool{false, true} {
		t.Run(fmt.Sprintf("its member leads the cluster, too: %v", both), func(t *testing.T) {
			play(t, 3, lease, func(t *testing.T, s *stage) {
				stand := []int{s.others[0], s.leader, s.others[1]}
				if both {
					stand[0], stand[1] = stand[1], stand[0]
				}
				type term struct {
					by    int
					token fence.Token
					at    time.Duration
				}
				var mu sync.Mutex
				var terms []term
				leading := -1
				ctx, stop := context.WithCancel(s.ctx)
				var wg sync.WaitGroup
				for i, on := range stand {
					c := s.client(on, fmt.Sprint("candidate ", i))
					wg.Go(func() {
						err := c.Elect(ctx, "scheduler", func(ctx context.Context, l *locks.Lock) error {
							mu.Lock()
							if leading >= 0 {
								t.Errorf("at %v %d leads beside %d", s.now(), i, leading)
							}
							leading = i
							terms = append(terms, term{i, l.Token(), s.now()})
							mu.Unlock()
							<-ctx.Done()
							mu.Lock()
							leading = -1
							mu.Unlock()
							return nil
						})
						if i > 0 && !errors.Is(err, context.Canceled) {
							t.Errorf("candidate %d: %v", i, err)
						}
					})
					time.Sleep(10 * time.Millisecond)
				}
				var seen []string
				wg.Go(func() {
					for e, err := range s.client(stand[2], "observer").Observe(ctx, "scheduler") {
						if err == nil && e.Token != 0 {
							seen = append(seen, e.Client)
						}
					}
				})

				const crash = 32 * time.Second
				s.at(crash)
				s.Kill(stand[0])
				s.at(crash + lease + election + time.Minute)
				stop()
				wg.Wait()
				if len(terms) != 2 || terms[0].by != 0 || terms[1].by != 1 || terms[1].token <= terms[0].token {
					t.Fatalf("terms: %+v", terms)
				}
				s.near("the first is elected", terms[0].at, 0)
				if both {
					// The new leader of the cluster gives a whole lease from its start.
					s.between("the standby takes over", terms[1].at, crash+lease, crash+lease+election+soon)
				} else {
					// A lease after the last beat, which went out at 30.
					s.near("the standby takes over", terms[1].at, crash-2*time.Second+lease)
				}
				if fmt.Sprint(seen) != "[candidate 0 candidate 1]" {
					t.Errorf("observed: %q", seen)
				}
			})
		})
	}
}

// leaders notes who led the cluster, as its members told of it.
type leaders struct {
	mu    sync.Mutex
	terms map[uint64]string
	bad   []string
}

func (x *leaders) option() lockstest.Option {
	x.terms = make(map[uint64]string)
	return lockstest.Config(func(_ int, cfg *cluster.Config) {
		cfg.Events = func(e cluster.Event) {
			if e.Kind != cluster.LeaderChanged || e.Member.Name == "" {
				return
			}
			x.mu.Lock()
			defer x.mu.Unlock()
			if before, ok := x.terms[e.Term]; ok && before != e.Member.Name {
				x.bad = append(x.bad, fmt.Sprintf("term %d has leaders %s and %s", e.Term, before, e.Member.Name))
			}
			x.terms[e.Term] = e.Member.Name
		}
	})
}

// told returns how many terms had a leader, and the last of them.
func (x *leaders) told(t *testing.T) (n int, last uint64, by string) {
	t.Helper()
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, b := range x.bad {
		t.Error(b)
	}
	for term, leader := range x.terms {
		if term > last {
			last, by = term, leader
		}
	}
	return len(x.terms), last, by
}

// M106: "cut-off old leader deposed by higher term".
func TestM106CutOffLeaderIsDeposed(t *testing.T) {
	const lease = 5 * time.Second
	var led leaders
	play(t, 3, lease, func(t *testing.T, s *stage) {
		old := s.leader
		a, b := s.client(old, "A"), s.client(s.others[0], "B")
		_, term, by := led.told(t)
		if by != s.Node(old).Name() {
			t.Fatalf("%s leads in term %d, not %s", by, term, s.Node(old).Name())
		}
		l := s.acquire(a, "k")

		s.at(2 * time.Second)
		s.Isolate(old)
		var wg sync.WaitGroup
		wg.Go(func() {
			<-l.Context().Done()
			s.between("A loses its lock", s.now(), lease, 2*time.Second+lease)
			s.lost("A", l, locks.QuorumUnreachable)
		})
		wg.Go(func() {
			// The old leader may still believe that it leads: a key that is free is
			// not granted by it either, then or later.
			s.at(2*time.Second + 10*time.Millisecond)
			s.denied(a, "free", time.Second)
		})
		next := s.acquire(b, "k")
		// A's lease runs anew from the new leader's start.
		s.between("B is granted the key", s.now(), 2*time.Second+lease, 2*time.Second+lease+2*time.Second+soon)
		if l.Context().Err() == nil || next.Token() <= l.Token() {
			t.Errorf("B has token %d; A, who has %d, is told %v", next.Token(), l.Token(), l.Err())
		}
		wg.Wait()
		free := s.acquire(b, "free")
		deposed, higher, by := led.told(t)
		if higher <= term || by == s.Node(old).Name() || deposed < 2 {
			t.Errorf("%s leads in term %d, after %d", by, higher, term)
		}

		s.at(20 * time.Second)
		s.refused(a, "k")
		s.Heal()
		s.at(40 * time.Second)
		// It follows whoever leads now, and says what the others say.
		now := s.Leader()
		if lead, ok := s.Node(old).Leader(); !ok || lead.Name != s.Node(now).Name() {
			t.Errorf("the old leader follows %q, %v; %d leads", lead.Name, ok, now)
		}
		s.heldBy(a, "k", "B", next.Token())
		s.heldBy(a, "free", "B", free.Token())
		s.live("B", next)
		if _, last, _ := led.told(t); last < higher {
			t.Errorf("term %d after %d", last, higher)
		}
	}, led.option())
}

// M109: "election storm on flapping link bounded": a link is cut for a second, well
// for a second, and so on, for ten minutes.
func TestM109ElectionStormIsBounded(t *testing.T) {
	const lease, flap = 10 * time.Second, time.Second
	const long, short = 10 * time.Minute, time.Minute
	// A voter that hears of a living leader denies others its vote, so that a link
	// that leaves the leader a majority changes nothing. A leader that is cut off
	// from all is replaced, and the one after it is well: when it was healed before
	// the others were done it may lead once more, which does not go on for long.
	// Only a fault that follows the leadership goes on to depose leaders: one for
	// each flap, and two where an election was cut short.
	const few = 20
	for _, test := range []struct {
		name   string
		cut    func(s *stage)
		length time.Duration
		most   int // changes of leader
	}{
		{"the leader's link to one follower", func(s *stage) { s.Partition([]int{s.leader}, []int{s.others[0]}) }, long, 0},
		{"that link, one way", func(s *stage) { s.Cut(s.leader, s.others[0]) }, short, 0},
		{"that link, the other way", func(s *stage) { s.Cut(s.others[0], s.leader) }, short, 0},
		{"all links of a follower", func(s *stage) { s.Isolate(s.others[0]) }, short, 0},
		{"all links of the leader", func(s *stage) { s.Isolate(s.leader) }, short, few},
		{"all links of whoever leads", func(s *stage) { s.Isolate(s.Leader()) }, long, 2 * int(long/(2*flap))},
	} {
		t.Run(test.name, func(t *testing.T) {
			var led leaders
			play(t, 4, lease, func(t *testing.T, s *stage) {
				healthy := s.client(3, "healthy") // on a thin member, which is well
				l := s.acquire(healthy, "k")
				before, _, _ := led.told(t)
				lost, served, flaps := 0, 0, 0
				for ; s.now() < test.length; flaps++ {
					test.cut(s)
					time.Sleep(flap)
					s.Heal()
					pause := time.After(flap)
					ctx, cancel := context.WithTimeout(s.ctx, flap)
					if err := healthy.Do(ctx, "other", func(context.Context, *locks.Lock) error { return nil }); err == nil {
						served++
					}
					cancel()
					<-pause
					if l.Err() != nil {
						lost++
						l = s.acquire(healthy, "k")
					}
				}
				changes, _, _ := led.told(t)
				changes -= before
				t.Logf("%d flaps, %d changes of leader, %d requests served within a second", flaps, changes, served)
				if changes > test.most {
					t.Errorf("%d changes of leader, want %d at most", changes, test.most)
				}
				if lost > 0 || served < flaps/2 {
					t.Errorf("a healthy holder lost its lock %d times; %d of %d requests were served", lost, served, flaps)
				}
				s.heldBy(s.client(s.others[1], "B"), "k", "healthy", l.Token())
			}, led.option())
		})
	}
}
