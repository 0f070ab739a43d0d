package stories

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/wardmote/wardmote/fence"
	"github.com/wardmote/wardmote/locks"
)

// observers watch an election and collect the leaders.
type observers struct {
	stop func()
	seen [][]string // by observer: the leaders in order, without vacancies
}

// observe starts an observer on each client.
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

// want stops the observers, and fails the test unless each has seen these leaders.
func (o *observers) want(t *testing.T, leaders []string) {
	t.Helper()
	o.stop()
	for i, seen := range o.seen {
		if !slices.Equal(seen, leaders) {
			t.Errorf("observer %d saw %q, want %q", i, seen, leaders)
		}
	}
}

// Ten candidates close one by one while they lead. A new candidate
// leads at once each time, and three observers see all ten.
//
// No contrast: no lock fails in this story.
func TestTenCandidatesLeadInTurnAsEachCloses(t *testing.T) {
	const candidates = 10
	play(t, 5, 5*time.Second, func(s *stage) {
		t := s.t
		o := s.observe("k", s.member(s.leader, "o1"), s.member(s.others[0], "o2"), s.member(4, "o3"))
		clients := make(map[string]*locks.Client)
		led := make(chan *locks.Lock)
		var mu sync.Mutex
		var leaders []string
		leading := 0
		var wg sync.WaitGroup
		for i := range candidates {
			name := fmt.Sprint("candidate ", i)
			c := s.member(i%5, name)
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
			// Reads meanwhile disturb nobody.
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

// Three candidates lead for a second each and resign, and then the first leads
// again. Three observers see all four terms.
//
// No contrast: no lock fails in this story.
func TestObserversSeeEachResigningLeader(t *testing.T) {
	play(t, 3, 5*time.Second, func(s *stage) {
		t := s.t
		o := s.observe("k", s.member(0, "o1"), s.member(1, "o2"), s.member(2, "o3"))
		ctx, stop := context.WithCancel(s.ctx)
		var wg sync.WaitGroup
		var leaders []string // written under the lock
		for i, on := range []int{s.leader, s.others[0], s.others[1]} {
			name := fmt.Sprint("candidate ", i)
			c := s.member(on, name)
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
