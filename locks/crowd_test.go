package locks_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/locks"
)

// room is what a key guards: it notes who is inside, and who should not be.
type room struct {
	t *testing.T

	mu               sync.Mutex
	readers, writers int
	together         int // the most readers at a time
	reads, writes    int
}

func (r *room) enter(write bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if write {
		r.writers++
		r.writes++
	} else {
		r.readers++
		r.reads++
		r.together = max(r.together, r.readers)
	}
	if r.writers > 1 || r.writers == 1 && r.readers > 0 {
		r.t.Errorf("%d readers and %d writers are inside", r.readers, r.writers)
	}
}

func (r *room) leave(write bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if write {
		r.writers--
	} else {
		r.readers--
	}
}

// visit goes in and out, or fails the test.
func (r *room) visit(s *stage, c *locks.Client, write bool, stay time.Duration) {
	var opts []locks.Option
	if !write {
		opts = append(opts, locks.Shared())
	}
	err := c.Do(s.ctx, "room", func(context.Context, *locks.Lock) error {
		r.enter(write)
		defer r.leave(write)
		time.Sleep(stay)
		return nil
	}, opts...)
	if err != nil {
		r.t.Error(err)
	}
}

// unlessRaced is how often to do what takes fifty times as long under the race
// detector, which needs to see it a few times only.
func unlessRaced(n, raced int) int {
	if locks.RaceDetector {
		return raced
	}
	return n
}

func TestEightMembersReadTogetherAndWriteAlone(t *testing.T) {
	const members = 8
	rounds := unlessRaced(100, 20)
	play(t, members, 5*time.Second, func(t *testing.T, s *stage) {
		r := &room{t: t}
		var wg sync.WaitGroup
		for i := range members {
			c := s.Client(i)
			wg.Go(func() {
				for round := range rounds {
					r.visit(s, c, (round+i)%10 == 0, time.Millisecond)
				}
			})
		}
		wg.Wait()
		if r.writes != members*rounds/10 || r.reads != members*rounds*9/10 || r.together < 2 {
			t.Errorf("%d reads, %d at most together; %d writes", r.reads, r.together, r.writes)
		}
	})
}

func TestNoReaderIsInsideBesideAWriterAtRandom(t *testing.T) {
	play(t, 3, 5*time.Second, func(t *testing.T, s *stage) {
		const visitors, rounds = 5, 40
		r := &room{t: t}
		var wg sync.WaitGroup
		for i := range visitors {
			c := s.client(i%3, fmt.Sprint("visitor ", i))
			random := rand.New(rand.NewPCG(uint64(i), 5))
			wg.Go(func() {
				for range rounds {
					time.Sleep(time.Duration(random.IntN(40)) * time.Millisecond)
					r.visit(s, c, random.IntN(2) == 0, time.Duration(random.IntN(20))*time.Millisecond)
				}
			})
		}
		wg.Wait()
		if r.reads+r.writes != visitors*rounds || r.together < 2 || r.writes == 0 {
			t.Errorf("%d reads, %d at most together; %d writes", r.reads, r.together, r.writes)
		}
	})
}

func TestAKeyGoesThroughFiveMembers(t *testing.T) {
	play(t, 5, 10*time.Second, func(t *testing.T, s *stage) {
		r := &room{t: t}
		var wg sync.WaitGroup
		for i := range 5 {
			wg.Go(func() { r.visit(s, s.Client(i), true, 0) })
		}
		wg.Wait()
		s.between("all have had the key", s.now(), 0, 5*time.Second)
		if r.writes != 5 {
			t.Errorf("%d had the key", r.writes)
		}
	})
}

func TestOfFiveTriesAtOnceOneIsGranted(t *testing.T) {
	play(t, 3, 5*time.Second, func(t *testing.T, s *stage) {
		var won []*locks.Lock
		var refused []error
		var mu sync.Mutex
		var wg sync.WaitGroup
		for i := range 5 {
			c := s.client(i%3, fmt.Sprint("client ", i))
			wg.Go(func() {
				l, err := c.TryAcquire(s.ctx, "k")
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					won = append(won, l)
				} else {
					refused = append(refused, err)
				}
			})
		}
		wg.Wait()
		s.near("all are answered", s.now(), 0)
		if len(won) != 1 || len(refused) != 4 {
			t.Fatalf("%d were granted the key; refused: %v", len(won), refused)
		}
		for _, err := range refused {
			var held *locks.HeldError
			if !errors.As(err, &held) || held.Token != won[0].Token() {
				t.Errorf("refused: %v, want held under token %d", err, won[0].Token())
			}
		}
		s.live("the winner", won[0])
	})
}

// Nothing but beats holds up a wait that is longer than any call may take.
func TestLongWaitsEndInAGrantOnWhateverMember(t *testing.T) {
	const lease = 2 * time.Second
	const long = 25 * time.Second
	play(t, 4, lease, func(t *testing.T, s *stage) {
		holder := s.acquire(s.client(s.leader, "holder"), "k")
		var wg sync.WaitGroup
		var order []int // written under the lock
		for turn, on := range []int{s.others[0], s.leader, 3} {
			c := s.client(on, fmt.Sprint("waiter ", turn))
			s.at(time.Duration(turn+1) * 100 * time.Millisecond)
			wg.Go(func() {
				err := c.Do(s.ctx, "k", func(context.Context, *locks.Lock) error {
					s.near("the next is granted the key", s.now(), long)
					order = append(order, turn)
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		s.at(long - time.Second)
		// Who only waits is not forgotten.
		status, err := s.Client(0).Inspect(s.ctx, "k")
		if err != nil || status.Queue != 3 {
			t.Errorf("%d wait: %v", status.Queue, err)
		}
		s.at(long)
		s.live("the holder", holder)
		if err := holder.Release(s.ctx); err != nil {
			t.Error(err)
		}
		wg.Wait()
		if !slices.Equal(order, []int{0, 1, 2}) {
			t.Errorf("served in the order %v", order)
		}
	})
}

// A wait that is given up while its member cannot reach the cluster leaves
// nobody in the queue once it can.
func TestAWaitGivenUpBehindACutKeepsNobodyOut(t *testing.T) {
	play(t, 3, 10*time.Second, func(t *testing.T, s *stage) {
		holder := s.acquire(s.client(s.leader, "holder"), "k")
		gone, next := s.client(s.others[0], "gone"), s.client(s.others[1], "next")
		lead := func(when time.Duration) locks.Work {
			return func(context.Context, *locks.Lock) error {
				s.between("a candidate is elected", s.now(), when, when+time.Second)
				return errors.New("enough")
			}
		}
		if err := gone.Elect(s.ctx, "warm up", lead(0)); err == nil { // it has a session
			t.Error("elected for ever")
		}
		s.at(time.Second)
		ctx, giveUp := context.WithCancel(s.ctx)
		var wg sync.WaitGroup
		wg.Go(func() {
			err := gone.Elect(ctx, "k", func(context.Context, *locks.Lock) error {
				t.Error("elected after it gave up")
				return nil
			})
			if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
		time.Sleep(3 * time.Millisecond) // it is in the queue, or on its way
		s.Isolate(s.others[0])
		s.at(2 * time.Second)
		giveUp()
		wg.Wait()
		s.at(4 * time.Second)
		s.Heal()
		s.at(6 * time.Second)
		wg.Go(func() {
			if err := next.Elect(s.ctx, "k", lead(8*time.Second)); err == nil {
				t.Error("elected for ever")
			}
		})
		s.at(8 * time.Second)
		if err := holder.Release(s.ctx); err != nil {
			t.Error(err)
		}
		wg.Wait()
		status, err := next.Inspect(s.ctx, "k")
		if err != nil || status.Held() || status.Queue != 0 {
			t.Errorf("left: %+v, %v", status, err)
		}
	})
}

// observers watch an election, and are told who leads.
type observers struct {
	stop func()
	seen [][]string // by observer: the leaders, in order, without vacancies
}

func (s *stage) observe(key string, clients ...*locks.Client) *observers {
	ctx, cancel := context.WithCancel(s.ctx)
	o := &observers{seen: make([][]string, len(clients))}
	var wg sync.WaitGroup
	for i, c := range clients {
		wg.Go(func() {
			var last fence.Token
			for e, err := range c.Observe(ctx, key) {
				if err != nil || e.Token == 0 {
					continue
				}
				if e.Token <= last {
					s.t.Errorf("token %d is told after %d", e.Token, last)
				}
				last = e.Token
				o.seen[i] = append(o.seen[i], e.Client)
			}
		})
	}
	o.stop = func() { cancel(); wg.Wait() }
	return o
}

func (o *observers) want(t *testing.T, leaders []string) {
	t.Helper()
	o.stop()
	for i, seen := range o.seen {
		if !slices.Equal(seen, leaders) {
			t.Errorf("observer %d saw %q, want %q", i, seen, leaders)
		}
	}
}

// Ten candidates close one by one while they lead: each is followed at once, by
// one that has not led yet, and whoever watches sees each of them.
func TestEachOfTenCandidatesLeadsAsTheyClose(t *testing.T) {
	const candidates = 10
	play(t, 5, 5*time.Second, func(t *testing.T, s *stage) {
		o := s.observe("k", s.client(s.leader, "o1"), s.client(s.others[0], "o2"), s.client(4, "o3"))
		clients := make(map[string]*locks.Client)
		led := make(chan *locks.Lock)
		var mu sync.Mutex
		var leaders []string
		leading := 0
		var wg sync.WaitGroup
		for i := range candidates {
			name := fmt.Sprint("candidate ", i)
			c := s.client(i%5, name)
			clients[name] = c
			wg.Go(func() {
				err := c.Elect(s.ctx, "k", func(ctx context.Context, l *locks.Lock) error {
					mu.Lock()
					leaders = append(leaders, name)
					if leading++; leading > 1 {
						t.Errorf("%d lead", leading)
					}
					mu.Unlock()
					led <- l
					<-ctx.Done()
					mu.Lock()
					leading--
					mu.Unlock()
					return nil
				})
				if !errors.Is(err, locks.ErrClosed) {
					t.Errorf("%s: %v", name, err)
				}
			})
		}
		closed := s.now()
		for range candidates {
			l := <-led
			s.near("the next leads", s.now(), closed)
			// What is asked meanwhile disturbs nobody.
			for _, c := range clients {
				wg.Go(func() {
					if st, err := c.Inspect(s.ctx, "k"); err == nil && st.Holding != 1 {
						t.Errorf("%d lead", st.Holding)
					}
				})
			}
			time.Sleep(time.Second)
			s.live("the leader", l)
			mu.Lock()
			name := leaders[len(leaders)-1]
			mu.Unlock()
			closed = s.now()
			if err := clients[name].Close(s.ctx); err != nil {
				t.Error(err)
			}
			delete(clients, name)
		}
		wg.Wait()
		o.want(t, leaders)
		slices.Sort(leaders)
		if n := len(slices.Compact(leaders)); n != candidates {
			t.Errorf("%d of %d have led", n, candidates)
		}
	})
}

func TestObserversSeeEachOfThreeWhoResign(t *testing.T) {
	play(t, 3, 5*time.Second, func(t *testing.T, s *stage) {
		o := s.observe("k", s.client(0, "o1"), s.client(1, "o2"), s.client(2, "o3"))
		ctx, stop := context.WithCancel(s.ctx)
		var wg sync.WaitGroup
		var leaders []string // written under the lock
		for i, on := range []int{s.leader, s.others[0], s.others[1]} {
			name := fmt.Sprint("candidate ", i)
			c := s.client(on, name)
			wg.Go(func() {
				err := c.Elect(ctx, "k", func(ctx context.Context, _ *locks.Lock) error {
					leaders = append(leaders, name)
					if len(leaders) > 3 {
						<-ctx.Done()
						return nil
					}
					time.Sleep(time.Second)
					return locks.Resign("")
				})
				if !errors.Is(err, context.Canceled) {
					t.Errorf("%s: %v", name, err)
				}
			})
			time.Sleep(100 * time.Millisecond)
		}
		s.at(5 * time.Second)
		o.want(t, []string{"candidate 0", "candidate 1", "candidate 2", "candidate 0"})
		stop()
		wg.Wait()
		if !slices.Equal(leaders, []string{"candidate 0", "candidate 1", "candidate 2", "candidate 0"}) {
			t.Errorf("led: %q", leaders)
		}
	})
}

// A counter that nothing else guards.
func TestSixteenMembersCountRight(t *testing.T) {
	const members = 16
	rounds := unlessRaced(100, 20)
	play(t, members, 5*time.Second, func(t *testing.T, s *stage) {
		count := 0
		var wg sync.WaitGroup
		for i := range members {
			c := s.Client(i)
			wg.Go(func() {
				for range rounds {
					err := c.Do(s.ctx, "counter", func(context.Context, *locks.Lock) error {
						n := count
						time.Sleep(time.Microsecond)
						count = n + 1
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if count != members*rounds {
			t.Errorf("counted to %d, want %d", count, members*rounds)
		}
	})
}
