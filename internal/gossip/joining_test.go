package gossip

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wardmote/wardmote/internal/machine"
	"github.com/wardmote/wardmote/internal/member"
	"github.com/wardmote/wardmote/internal/timing"
)

// bound is a Port that only has an address.
type bound string

func (b bound) Addr() string                                         { return string(b) }
func (bound) Dial(context.Context, member.Process) (net.Conn, error) { panic("a dial") }
func (bound) DialPackets(context.Context, member.Process) (net.Conn, error) {
	panic("a dial")
}
func (bound) Send([]byte, string) error { panic("a packet") }
func (bound) Drop(string, uint64)       { panic("a drop") }

// search runs a joiner without a network, and records each try.
type search struct {
	*joiner
	own   machine.ClusterID
	delay time.Duration // of each try

	mu     sync.Mutex
	tries  map[string][]time.Time
	stored [][]string
}

// inSearch runs a joiner for a time, in a bubble. The member sees n members
// alive, itself included, at the addresses m1:7000 to m<n-1>:7000.
func inSearch(t *testing.T, n int, join []string, change func(*search), during time.Duration, check func(*search)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &search{own: machine.ClusterID{1}, tries: make(map[string][]time.Time)}
		list := listOf(&s.own)
		for i := 1; i < n; i++ {
			list.record(seen(fmt.Sprint("m", i), 1))
		}
		cfg := Config{
			Self: self, Join: join, Port: bound("10.0.0.9:7001"), Cluster: list.cluster,
			Peers: func() []string { return nil },
			Remember: func(addrs []string) error {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.stored = append(s.stored, addrs)
				return nil
			},
		}
		s.joiner = &joiner{
			cfg: cfg, members: list, tried: make(chan struct{}), proven: isHonest,
			addresses: &addresses{cfg: cfg, known: make(map[string]resolution), answers: make(map[string]string), tries: make(map[string]tries),
				lookup: func(_ context.Context, entry string) ([]string, error) { return []string{entry}, nil }},
			join: func(addr string) error {
				s.mu.Lock()
				s.tries[addr] = append(s.tries[addr], time.Now())
				s.mu.Unlock()
				time.Sleep(s.delay)
				return errors.New("nobody is there")
			},
		}
		if change != nil {
			change(s)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.run(ctx)
		}()
		time.Sleep(during)
		cancel()
		<-done
		check(s)
	})
}

// longestGap returns the longest time between two tries of an address.
func (s *search) longestGap(addr string) (longest time.Duration) {
	for i := 1; i < len(s.tries[addr]); i++ {
		longest = max(longest, s.tries[addr][i].Sub(s.tries[addr][i-1]))
	}
	return longest
}

// isHonest is a proof of every process but ghosts.
func isHonest(p member.Process) bool { return !strings.HasPrefix(p.Name, "ghost") }

// Processes in words alone hide no address, and make no cluster large.
func TestGhostsSlowNoSearch(t *testing.T) {
	haunt := func(s *search) {
		at := seen("ghost", 1)
		at.Addr = "unseen:7000"
		s.members.record(at)
		for i := range 100 {
			s.members.record(seen(fmt.Sprint("ghost", i), 1))
		}
	}
	for _, n := range []int{1, 3, seekers} {
		inSearch(t, n, []string{"m1:7000", "unseen:7000"}, haunt, 10*time.Second, func(s *search) {
			if longest := s.longestGap("unseen:7000"); longest >= timing.Seek || len(s.tries["unseen:7000"]) < 15 {
				t.Errorf("%d members: %d tries, up to %v apart", n, len(s.tries["unseen:7000"]), longest)
			}
		})
	}
}

// Package founding relies on the upper bound: a cluster founded at an unseen
// address grants nothing for 2*Seek.
func TestPausesWhileSeekingAreShorterThanSeek(t *testing.T) {
	if timing.LeastFounding != 2*timing.Seek || 2*timing.JoinAlone > timing.Seek {
		t.Error("the durations are no longer those of the argument")
	}
	for n := 1; n <= seekers; n++ {
		inSearch(t, n, []string{"m1:7000", "unseen:7000"}, nil, time.Minute, func(s *search) {
			if longest := s.longestGap("unseen:7000"); longest >= timing.Seek || len(s.tries["unseen:7000"]) < 100 {
				t.Errorf("%d members: %d tries, up to %v apart", n, len(s.tries["unseen:7000"]), longest)
			}
		})
	}
	// With rounds of d, tries are less than Seek + d apart.
	const d = timing.Seek / 2
	inSearch(t, 3, []string{"unseen:7000"}, func(s *search) { s.delay = d }, time.Minute, func(s *search) {
		if longest := s.longestGap("unseen:7000"); longest >= timing.Seek+d {
			t.Errorf("tries are up to %v apart", longest)
		}
	})
}

func TestASettledMemberTriesRarelyAndNeverStops(t *testing.T) {
	inSearch(t, 3, []string{"m1:7000", "m2:7000", self.Addr, "10.0.0.9:7001"}, nil, 10*time.Minute, func(s *search) {
		var all []time.Time
		for _, addr := range []string{"m1:7000", "m2:7000"} {
			if len(s.tries[addr]) < 5 {
				t.Errorf("%s: %d tries in ten minutes", addr, len(s.tries[addr]))
			}
			all = append(all, s.tries[addr][1:]...) // the first round tries both
		}
		slices.SortFunc(all, time.Time.Compare)
		for i := 1; i < len(all); i++ {
			if gap := all[i].Sub(all[i-1]); gap < timing.JoinSettled || gap >= 2*timing.JoinSettled {
				t.Errorf("tries are %v apart", gap)
			}
		}
		if len(s.tries) != 2 {
			t.Errorf("tried %v, with this node's own addresses", s.tries)
		}
	})
}

func TestAMemberWithoutAClusterTriesEveryAddressAgain(t *testing.T) {
	inSearch(t, 3, []string{"m1:7000", "m2:7000"}, func(s *search) { s.own = machine.ClusterID{} }, time.Minute, func(s *search) {
		for _, addr := range []string{"m1:7000", "m2:7000"} {
			if longest := s.longestGap(addr); longest >= 2*timing.JoinUnfounded || len(s.tries[addr]) < 30 {
				t.Errorf("%s: %d tries, up to %v apart", addr, len(s.tries[addr]), longest)
			}
		}
	})
}

func TestJoinedMeansThatEachAddressWasTriedToTheEnd(t *testing.T) {
	join := []string{"a:7000", "b:7000", "c:7000"}
	begin := func(s *search) { s.delay = timing.GossipTCP }
	tried := func(s *search) bool {
		select {
		case <-s.tried:
			return true
		default:
			return false
		}
	}
	inSearch(t, 1, join, begin, timing.GossipTCP-time.Millisecond, func(s *search) {
		if len(s.tries) != len(join) {
			t.Errorf("tried %v at once, want all of %v", s.tries, join)
		}
	})
	inSearch(t, 1, join, func(s *search) {
		begin(s)
		time.AfterFunc(timing.GossipTCP-time.Millisecond, func() {
			if tried(s) {
				t.Error("told before the tries had ended")
			}
		})
	}, timing.GossipTCP+time.Millisecond, func(s *search) {
		if !tried(s) {
			t.Error("not told after the tries had ended")
		}
	})
}

func TestSomeOfManyMembersSeek(t *testing.T) {
	var own machine.ClusterID
	for _, tt := range []struct{ members, least, most int }{
		{seekers, 1000, 1000}, // of 1,000 rounds
		{100, 40, 150},        // 9 of 101
	} {
		m := listOf(&own)
		for i := 1; i < tt.members; i++ {
			m.record(seen(fmt.Sprint("m", i), 1))
		}
		j := &joiner{members: m, proven: isHonest}
		sought := 0
		for range 1000 {
			tries, unseen := j.sample([]string{"m1:7000", "x:7000"}, []string{"x:7000"})
			sought += len(unseen)
			// The others exchange no lists: all members have the same addresses, and a
			// list is as long as there are members.
			if want := 2 * len(unseen); len(tries) != want {
				t.Fatalf("tries %v, unseen %v", tries, unseen)
			}
		}
		if sought < tt.least || sought > tt.most {
			t.Errorf("%d members: sought in %d rounds of 1,000", tt.members, sought)
		}
	}
}

// Of many addresses some are tried at a time. All of Join are tried before the member may
// found a cluster, and each again and again.
func TestManyAddressesTakeTurns(t *testing.T) {
	var join, peers []string
	for i := range 3 * maxTries {
		join = append(join, fmt.Sprintf("x%d:7000", i))
	}
	for i := range 2 * maxTries {
		peers = append(peers, fmt.Sprintf("ghost%d:7000", i))
	}
	for _, n := range []int{1, 3} {
		for _, own := range []machine.ClusterID{{}, {1}} {
			tries, most, tried := 0, 0, false
			inSearch(t, n, join, func(s *search) {
				s.own, s.delay = own, time.Millisecond
				s.addresses.cfg.Peers = func() []string { return peers }
				try := s.join
				s.join = func(addr string) error {
					s.mu.Lock()
					tries++
					most = max(most, tries)
					s.mu.Unlock()
					defer func() {
						s.mu.Lock()
						tries--
						s.mu.Unlock()
					}()
					return try(addr)
				}
				time.AfterFunc(50*time.Millisecond, func() {
					s.mu.Lock()
					defer s.mu.Unlock()
					tried = true
					for _, addr := range join {
						tried = tried && len(s.tries[addr]) == 1
					}
				})
			}, 30*time.Second, func(s *search) {
				if !tried {
					t.Errorf("%d members: not each address was tried once at first", n)
				}
				if most > maxTries {
					t.Errorf("%d tries at a time", most)
				}
				for _, addr := range join {
					if len(s.tries[addr]) < 2 {
						t.Errorf("%d members: %s was tried %d times", n, addr, len(s.tries[addr]))
					}
				}
			})
		}
	}
}

func TestLivingMembersAreRememberedForTheNextStart(t *testing.T) {
	inSearch(t, 1, nil, func(s *search) {
		time.AfterFunc(time.Second, func() {
			s.members.changed.Wake() // alone: nothing to remember
		})
		time.AfterFunc(2*time.Second, func() {
			s.members.record(seen("a", 1))
			s.members.record(dead(seen("b", 1)))
			for i := range maxStored {
				s.members.record(seen(fmt.Sprint("ghost", i), 1))
			}
			s.members.changed.Wake()
		})
	}, 3*time.Second, func(s *search) {
		if len(s.stored) != 1 || !slices.Equal(s.stored[0], []string{"a:7000"}) {
			t.Errorf("remembered %v", s.stored)
		}
	})
}

// A member that comes and goes for ten minutes costs few writes, and the last change is
// stored soon.
func TestAMemberThatFlapsCostsFewWrites(t *testing.T) {
	var over, stored time.Time
	inSearch(t, 2, nil, func(s *search) {
		remember := s.cfg.Remember
		s.cfg.Remember = func(addrs []string) error {
			stored = time.Now()
			return remember(addrs)
		}
		over = time.Now().Add(10 * time.Minute)
		for at := time.Second; at < 10*time.Minute; at += time.Second {
			flap := seen("flaps", 1)
			flap.Alive = at/time.Second%2 == 0
			time.AfterFunc(at, func() {
				s.members.record(flap)
				s.members.changed.Wake()
			})
		}
		time.AfterFunc(10*time.Minute, func() {
			s.members.record(seen("last", 1))
			s.members.changed.Wake()
		})
	}, 11*time.Minute, func(s *search) {
		most := maxStores + int(11*time.Minute/timing.GossipStore)
		if n := len(s.stored); n < most/2 || n > most {
			t.Errorf("%d writes, want %d at most", n, most)
		}
		for i, at := range [][]string{{"flaps:7000", "m1:7000"}, {"last:7000", "m1:7000"}} {
			if !slices.ContainsFunc(s.stored, func(addrs []string) bool { return slices.Equal(slices.Sorted(slices.Values(addrs)), at) }) {
				t.Errorf("list %d was not stored: %v", i, s.stored[max(0, len(s.stored)-3):])
			}
		}
		if stored.Sub(over) > timing.GossipStore {
			t.Errorf("the last change was stored after %v", stored.Sub(over))
		}
	})
}

// A change during the tries of a round is stored too.
func TestAChangeDuringATryIsStored(t *testing.T) {
	inSearch(t, 1, []string{"x:7000"}, func(s *search) {
		s.delay = time.Second
		time.AfterFunc(time.Second/2, func() {
			s.members.record(seen("a", 1))
			s.members.changed.Wake()
		})
	}, 10*time.Second, func(s *search) {
		if len(s.stored) != 1 {
			t.Errorf("stored %v", s.stored)
		}
	})
}

func TestNamesAreResolvedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ips, fails := []string{"10.0.0.1", "10.0.0.2"}, error(nil)
		looked := 0
		a := &addresses{
			cfg: Config{
				Self: self, Join: []string{"host:7000", "10.0.0.2:7000", "[::1]:7000"}, Port: bound("10.0.0.3:7000"),
				Peers: func() []string { return []string{"10.0.0.1:7000", "10.0.0.8:7000"} },
			},
			known: make(map[string]resolution), answers: make(map[string]string),
			lookup: func(ctx context.Context, entry string) ([]string, error) {
				if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > timing.Resolve {
					t.Error("a look-up without a limit")
				}
				looked++
				return withPort(ips, "7000"), fails
			},
		}
		check := func(claim string, lookups int, want ...string) {
			t.Helper()
			if got := a.list(t.Context()); !slices.Equal(got, want) || looked != lookups {
				t.Errorf("%s: %v after %d look-ups, want %v after %d", claim, got, looked, want, lookups)
			}
		}
		check("first", 1, "10.0.0.1:7000", "10.0.0.2:7000", "[::1]:7000", "10.0.0.8:7000")
		ips = []string{"10.0.0.3", "10.0.0.4"} // the first is this node's own
		time.Sleep(timing.Resolved)
		check("believed", 1, "10.0.0.1:7000", "10.0.0.2:7000", "[::1]:7000", "10.0.0.8:7000")
		time.Sleep(time.Millisecond)
		check("anew", 2, "10.0.0.4:7000", "10.0.0.2:7000", "[::1]:7000", "10.0.0.1:7000", "10.0.0.8:7000")
		ips, fails = nil, errors.New("no such host")
		time.Sleep(timing.Resolved + time.Millisecond)
		check("failed", 3, "10.0.0.2:7000", "[::1]:7000", "10.0.0.1:7000", "10.0.0.8:7000")
		check("a failure is believed too", 3, "10.0.0.2:7000", "[::1]:7000", "10.0.0.1:7000", "10.0.0.8:7000")
	})
}
